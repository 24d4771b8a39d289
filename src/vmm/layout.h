// vmm/layout.h - every fixed address of the machine in one table: guest RAM below 1 MiB, ports, MMIO, interrupt pins (GSIs).
// The ACPI tables (boot/) tell the guest the same numbers; whoever changes one here changes dsdt.asl too.
// Not here: where RAM lies (memory/guest_memory.h), device behaviour. Thread: constants.
#pragma once

#include <cstdint>

namespace ramet::vmm::layout {

// Guest RAM below 1 MiB. [kReservedStart, kReservedEnd) is type 2 in e820: ACPI tables and the generation id live there.
inline constexpr uint64_t kReservedStart = 0x9fc00;
inline constexpr uint64_t kReservedEnd = 0x100000;
inline constexpr uint64_t kAcpiTables = 0xe0000;  // RSDP first; everything of ACPI fits below kGenerationIdPage
inline constexpr uint64_t kGenerationIdPage = 0xef000;
inline constexpr uint64_t kGenerationIdBytes = 16;

// Virtio over MMIO: window i is kVirtioBase + i * kVirtioWindow, pin kVirtioFirstGsi + i.
inline constexpr uint64_t kVirtioBase = 0xd0000000;
inline constexpr uint64_t kVirtioWindow = 0x1000;
inline constexpr uint32_t kVirtioFirstGsi = 16;
enum VirtioSlot : uint32_t { kBlockSlot = 0, kVsockSlot = 1, kRngSlot = 2, kBalloonSlot = 3, kVirtioSlots = 4 };
constexpr uint64_t virtio_base(uint32_t slot) { return kVirtioBase + slot * kVirtioWindow; }
constexpr uint32_t virtio_gsi(uint32_t slot) { return kVirtioFirstGsi + slot; }

// The generic event device has one pin per event, so its method needs no register and costs no exit.
inline constexpr uint32_t kGenerationIdGsi = 20;  // _EVT(20): Notify(VGEN, 0x80)
inline constexpr uint32_t kPowerButtonGsi = 21;   // _EVT(21): Notify(PWRB, 0x80), PWRB is PNP0C0C

inline constexpr uint64_t kIoapicBase = 0xfec00000;
inline constexpr uint64_t kIoapicWindow = 0x1000;
inline constexpr uint32_t kIoapicPins = 24;
inline constexpr uint64_t kLapicBase = 0xfee00000;

inline constexpr uint64_t kSerialPort = 0x3f8;  // COM1, 8 ports
inline constexpr uint32_t kSerialGsi = 4;

// Hardware-reduced ACPI: FADT SLEEP_CONTROL_REG, SLEEP_STATUS_REG and RESET_REG, all SystemIO, 8 bits wide.
inline constexpr uint64_t kPowerPorts = 0x600;
inline constexpr uint64_t kPowerPortCount = 3;
inline constexpr uint64_t kSleepControlPort = 0x600;  // SLP_EN is bit 5, SLP_TYPx bits 2-4
inline constexpr uint64_t kSleepStatusPort = 0x601;   // reads 0
inline constexpr uint64_t kResetPort = 0x602;
inline constexpr uint8_t kResetValue = 0x01;
inline constexpr uint8_t kSleepTypeS5 = 5;  // \_S5 = Package() {5, 0, 0, 0}

inline constexpr uint64_t kDebugPort = 0x5f0;  // 4 ports wide; only when asked for at bootstrap
inline constexpr uint64_t kDebugPortCount = 4;

inline constexpr uint64_t kTssAddress = 0xfffbd000;  // KVM_SET_TSS_ADDR: three pages, Intel hosts only
inline constexpr uint64_t kIdentityMapAddress = 0xfffbc000;

inline constexpr uint32_t kMaxVcpus = 16;

}  // namespace ramet::vmm::layout
