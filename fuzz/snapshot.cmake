ramet_fuzz(vmstate_fuzz SRCS vmstate_fuzz.cc LIBS ramet_vmm_snapshot)
