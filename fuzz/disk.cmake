ramet_fuzz(block_fuzz SRCS block_fuzz.cc LIBS ramet_block)
ramet_fuzz(map_log_fuzz SRCS map_log_fuzz.cc LIBS ramet_image)
ramet_fuzz(manifest_fuzz SRCS manifest_fuzz.cc LIBS ramet_image)
ramet_fuzz(chunk_socket_fuzz SRCS chunk_socket_fuzz.cc LIBS ramet_image)
