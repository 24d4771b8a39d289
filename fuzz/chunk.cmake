ramet_fuzz(pack_fuzz SRCS pack_fuzz.cc LIBS ramet_chunk)
ramet_fuzz(index_fuzz SRCS index_fuzz.cc LIBS ramet_chunk)
ramet_fuzz(s3_answer_fuzz SRCS s3_answer_fuzz.cc LIBS ramet_chunk_s3)
