ramet_fuzz(pack_fuzz SRCS pack_fuzz.cc LIBS ramet_chunk)
