# What the daemon and a monitor say to each other, each side against a hostile other one.
ramet_fuzz(control_fuzz SRCS control_fuzz.cc LIBS ramet_vmm)
ramet_fuzz(monitor_link_fuzz SRCS monitor_link_fuzz.cc LIBS ramet_host)
