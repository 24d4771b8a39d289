#include "vmm/boot/acpi.h"

#include <array>
#include <cstring>
#include <span>
#include <string>

#include "dsdt_aml.h"
#include "vmm/layout.h"

namespace ramet::vmm {
namespace {

// ACPI 6.4, section 5.2. Offsets are relative to kAcpiTables; RSDP 36 bytes, then one table after the other, 16-aligned.
constexpr size_t kHeaderBytes = 36;
constexpr size_t kFadtBytes = 276;
constexpr uint64_t kTablesEnd = layout::kGenerationIdPage;

constexpr uint8_t kSystemIo = 1;
constexpr uint32_t kHwReduced = 1u << 20;
constexpr uint32_t kResetRegSupported = 1u << 10;
constexpr uint32_t kNoFixedPowerButton = 1u << 4;
constexpr uint32_t kNoFixedSleepButton = 1u << 5;
constexpr uint16_t kNoVga = 1u << 2;
constexpr uint16_t kNoCmosRtc = 1u << 5;

// A table under construction: little-endian fields at spec offsets, checksum last.
class Table {
 public:
  Table(const char* signature, size_t bytes, uint8_t revision) : bytes_(bytes, '\0') {
    std::memcpy(bytes_.data(), signature, 4);
    put<uint32_t>(4, static_cast<uint32_t>(bytes));
    put<uint8_t>(8, revision);
    std::memcpy(bytes_.data() + 10, "RAMET ", 6);
    std::memcpy(bytes_.data() + 16, "RAMETVM ", 8);
    put<uint32_t>(24, 1);
    std::memcpy(bytes_.data() + 28, "RMT ", 4);
    put<uint32_t>(32, 1);
  }
  template <class T>
  void put(size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  template <class T>
  void append(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  // Generic address structure of a byte-wide port.
  void put_port(size_t at, uint64_t port) {
    put<uint8_t>(at, kSystemIo);
    put<uint8_t>(at + 1, 8);
    put<uint8_t>(at + 3, 1);
    put<uint64_t>(at + 4, port);
  }
  const std::string& finish() {
    put<uint32_t>(4, static_cast<uint32_t>(bytes_.size()));
    put<uint8_t>(9, 0);
    uint8_t sum = 0;
    for (const char c : bytes_) sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(c));
    put<uint8_t>(9, static_cast<uint8_t>(-sum));
    return bytes_;
  }

 private:
  std::string bytes_;
};

// Places tables one after the other behind the RSDP.
class Placer {
 public:
  explicit Placer(const GuestMemory& memory) : memory_(memory) {}
  Result<uint64_t> place(std::string_view bytes) {
    const uint64_t at = next_;
    next_ = (at + bytes.size() + 15) & ~15ull;
    if (next_ > kTablesEnd)
      return fail(ErrorKind::kInvalid, "ACPI tables need " + std::to_string(next_ - layout::kAcpiTables) +
                                           " bytes, the limit is " + std::to_string(kTablesEnd - layout::kAcpiTables));
    if (!memory_.write(GuestAddr{at}, std::as_bytes(std::span(bytes))))
      return fail(ErrorKind::kInvalid,
                  "guest RAM of " + std::to_string(memory_.size_bytes()) + " bytes ends below the ACPI tables");
    return at;
  }

 private:
  const GuestMemory& memory_;
  uint64_t next_ = layout::kAcpiTables + 64;
};

std::string make_fadt(uint64_t dsdt) {
  Table t("FACP", kFadtBytes, 6);
  t.put<uint32_t>(40, static_cast<uint32_t>(dsdt));
  t.put<uint16_t>(109, kNoVga | kNoCmosRtc);
  t.put<uint32_t>(112, kHwReduced | kResetRegSupported | kNoFixedPowerButton | kNoFixedSleepButton);
  t.put_port(116, layout::kResetPort);
  t.put<uint8_t>(128, layout::kResetValue);
  t.put<uint8_t>(131, 4);  // FADT minor version
  t.put<uint64_t>(140, dsdt);
  t.put_port(244, layout::kSleepControlPort);
  t.put_port(256, layout::kSleepStatusPort);
  return t.finish();
}

std::string make_madt(unsigned vcpus) {
  Table t("APIC", kHeaderBytes, 5);
  t.append<uint32_t>(static_cast<uint32_t>(layout::kLapicBase));
  t.append<uint32_t>(0);  // no PCAT_COMPAT: there is no 8259
  for (unsigned i = 0; i < vcpus; i++) {
    t.append<uint8_t>(0);  // local APIC
    t.append<uint8_t>(8);
    t.append<uint8_t>(static_cast<uint8_t>(i));
    t.append<uint8_t>(static_cast<uint8_t>(i));
    t.append<uint32_t>(1);  // enabled
  }
  t.append<uint8_t>(1);  // I/O APIC
  t.append<uint8_t>(12);
  t.append<uint16_t>(0);
  t.append<uint32_t>(static_cast<uint32_t>(layout::kIoapicBase));
  t.append<uint32_t>(0);
  return t.finish();
}

std::string make_rsdp(uint64_t xsdt) {
  std::string p(36, '\0');
  const auto checksum = [&p](size_t bytes, size_t at) {
    uint8_t sum = 0;
    p[at] = 0;
    for (size_t i = 0; i < bytes; i++) sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(p[i]));
    p[at] = static_cast<char>(-sum);
  };
  std::memcpy(p.data(), "RSD PTR ", 8);
  std::memcpy(p.data() + 9, "RAMET ", 6);
  p[15] = 2;
  const uint32_t length = 36;
  std::memcpy(p.data() + 20, &length, sizeof length);
  std::memcpy(p.data() + 24, &xsdt, sizeof xsdt);
  checksum(20, 8);
  checksum(36, 32);
  return p;
}

}  // namespace

Result<GuestAddr> write_acpi_tables(const GuestMemory& memory, unsigned vcpus) {
  Placer placer(memory);
  TRY_ASSIGN(const uint64_t dsdt, placer.place({reinterpret_cast<const char*>(dsdt_aml), dsdt_aml_len}));
  TRY_ASSIGN(const uint64_t fadt, placer.place(make_fadt(dsdt)));
  TRY_ASSIGN(const uint64_t madt, placer.place(make_madt(vcpus)));
  Table xsdt("XSDT", kHeaderBytes, 1);
  xsdt.append<uint64_t>(fadt);
  xsdt.append<uint64_t>(madt);
  TRY_ASSIGN(const uint64_t root, placer.place(xsdt.finish()));
  const GuestAddr rsdp{layout::kAcpiTables};
  const std::string pointer = make_rsdp(root);
  if (!memory.write(rsdp, std::as_bytes(std::span(pointer))))
    return fail(ErrorKind::kInvalid, "guest RAM ends below the ACPI tables");
  return rsdp;
}

}  // namespace ramet::vmm
