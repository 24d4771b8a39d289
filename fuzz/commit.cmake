ramet_fuzz(archive_fuzz SRCS archive_fuzz.cc LIBS ramet_commit)
ramet_fuzz(oci_json_fuzz SRCS oci_json_fuzz.cc LIBS ramet_commit)
ramet_fuzz(image_header_fuzz SRCS image_header_fuzz.cc LIBS ramet_commit)
ramet_fuzz(ext4_fuzz SRCS ext4_fuzz.cc LIBS ramet_commit)
