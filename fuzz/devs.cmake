ramet_fuzz(vsock_fuzz SRCS vsock_fuzz.cc LIBS ramet_vsock)
ramet_fuzz(balloon_fuzz SRCS balloon_fuzz.cc LIBS ramet_balloon ramet_rng)
