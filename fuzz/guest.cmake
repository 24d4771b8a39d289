# What the agent of a guest decodes.
ramet_fuzz(guest_request_fuzz SRCS guest_request_fuzz.cc LIBS ramet_guest ramet_abi)
