"""The emulated host: a QEMU machine with AMD-V in which rametd and its microVMs run where the computer's own KVM cannot."""
