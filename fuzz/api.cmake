# What a client of the HTTP API decodes to: request bodies, targets, compressed uploads.
ramet_fuzz(api_request_fuzz SRCS api_request_fuzz.cc LIBS ramet_api)
