"""Making kernels, initramfs archives and disk images from Debian packages, without mounting anything.

Used by templates/build and machine/. Python's standard library and Debian's own programs (apt-get, mmdebstrap, mke2fs) only.
"""
