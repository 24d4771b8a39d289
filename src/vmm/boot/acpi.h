// vmm/boot/acpi.h - hardware-reduced ACPI tables in guest memory: RSDP, XSDT, FADT, MADT, DSDT (dsdt.asl).
// Not here: device behaviour; the addresses are layout.h's. Thread: before the vCPUs start.
#pragma once

#include "base/result.h"
#include "vmm/memory/guest_memory.h"

namespace ramet::vmm {

// Address of the RSDP, for boot_params.   Errors: kInvalid (guest RAM too small, or the tables outgrow their place).
Result<GuestAddr> write_acpi_tables(const GuestMemory& memory, unsigned vcpus);

}  // namespace ramet::vmm
