#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "base/file.h"
#include "base/mapped_region.h"
#include "vmm/boot/acpi.h"
#include "vmm/boot/kernel.h"
#include "vmm/layout.h"

namespace ramet::vmm {
namespace {

constexpr uint64_t kRam = 16ull << 20;

class BootTest : public testing::Test {
 protected:
  // An ELF with one segment: header, program header, four bytes of code loaded at 2 MiB.
  static std::string small_kernel() {
    Elf64_Ehdr h{};
    std::memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_type = ET_EXEC;
    h.e_machine = EM_X86_64;
    h.e_entry = 2u << 20;
    h.e_phoff = sizeof h;
    h.e_phentsize = sizeof(Elf64_Phdr);
    h.e_phnum = 1;
    Elf64_Phdr p{};
    p.p_type = PT_LOAD;
    p.p_offset = sizeof h + sizeof p;
    p.p_paddr = 2u << 20;
    p.p_filesz = 4;
    p.p_memsz = 4096;
    std::string file(reinterpret_cast<const char*>(&h), sizeof h);
    file.append(reinterpret_cast<const char*>(&p), sizeof p);
    return file + "CODE";
  }
  static UniqueFd file_of(const std::string& bytes) {
    UniqueFd fd = std::move(*make_memfd("test", 0));
    EXPECT_TRUE(write_all(fd.get(), as_bytes(bytes)));
    return fd;
  }
  Result<kvm::BootRegisters> load(const std::string& kernel, std::string cmdline = "quiet") {
    const UniqueFd fd = file_of(kernel);
    return load_kernel(memory_, {.kernel_fd = fd.get(), .cmdline = std::move(cmdline), .vcpus = 2});
  }
  static Elf64_Phdr& segment(std::string& file) { return *reinterpret_cast<Elf64_Phdr*>(file.data() + sizeof(Elf64_Ehdr)); }
  static Elf64_Ehdr& header(std::string& file) { return *reinterpret_cast<Elf64_Ehdr*>(file.data()); }

  MappedRegion ram_ = std::move(*MappedRegion::map(kRam, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  GuestMemory memory_{ram_.data(), kRam};
};

TEST_F(BootTest, LoadsSegmentAndCommandLine) {
  const Result<kvm::BootRegisters> r = load(small_kernel(), "console=ttyS0");
  ASSERT_TRUE(r) << r.error().to_string();
  EXPECT_EQ(r->rip, 2u << 20);
  EXPECT_EQ(std::memcmp(ram_.data() + (2u << 20), "CODE", 4), 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(ram_.data() + 0x20000), "console=ttyS0");
}

TEST_F(BootTest, EveryTruncationIsAnError) {
  const std::string whole = small_kernel();
  for (size_t n = 0; n < whole.size(); n++) EXPECT_FALSE(load(whole.substr(0, n))) << n << " bytes";
}

TEST_F(BootTest, HostileHeadersAreErrors) {
  std::string k = small_kernel();
  segment(k).p_paddr = UINT64_MAX - 10;
  EXPECT_FALSE(load(k));
  k = small_kernel();
  segment(k).p_memsz = UINT64_MAX;
  EXPECT_FALSE(load(k));
  k = small_kernel();
  segment(k).p_offset = UINT64_MAX - 1;
  EXPECT_FALSE(load(k));
  k = small_kernel();
  segment(k).p_paddr = 0x7000;  // over our boot structures
  EXPECT_FALSE(load(k));
  k = small_kernel();
  header(k).e_phoff = UINT64_MAX - 8;
  EXPECT_FALSE(load(k));
  k = small_kernel();
  header(k).e_phnum = 0xffff;
  EXPECT_FALSE(load(k));
  k = small_kernel();
  header(k).e_entry = 0x100000;
  EXPECT_FALSE(load(k));
}

TEST_F(BootTest, LongCommandLineNamesTheLimit) {
  const Result<kvm::BootRegisters> r = load(small_kernel(), std::string(3000, 'x'));
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message().find("2047"), std::string::npos);
}

TEST_F(BootTest, InitrdMustFit) {
  const UniqueFd kernel = file_of(small_kernel());
  const UniqueFd fits = file_of(std::string(1 << 20, 'i'));
  EXPECT_TRUE(load_kernel(memory_, {.kernel_fd = kernel.get(), .initrd_fd = fits.get()}));
  const UniqueFd large = file_of(std::string(kRam, 'i'));
  EXPECT_FALSE(load_kernel(memory_, {.kernel_fd = kernel.get(), .initrd_fd = large.get()}));
}

TEST_F(BootTest, AcpiTablesAreChainedAndSummed) {
  const Result<GuestAddr> rsdp = write_acpi_tables(memory_, 16);
  ASSERT_TRUE(rsdp);
  const std::byte* p = ram_.data() + rsdp->value;
  EXPECT_EQ(std::memcmp(p, "RSD PTR ", 8), 0);
  const auto sum = [](const std::byte* b, size_t n) {
    unsigned s = 0;
    for (size_t i = 0; i < n; i++) s += static_cast<unsigned>(b[i]);
    return s & 0xff;
  };
  EXPECT_EQ(sum(p, 20), 0u);
  EXPECT_EQ(sum(p, 36), 0u);
  uint64_t xsdt;
  std::memcpy(&xsdt, p + 24, sizeof xsdt);
  uint32_t length;
  std::memcpy(&length, ram_.data() + xsdt + 4, sizeof length);
  EXPECT_EQ(sum(ram_.data() + xsdt, length), 0u);
  EXPECT_EQ(length, 36u + 2 * 8);
  uint64_t fadt;
  std::memcpy(&fadt, ram_.data() + xsdt + 36, sizeof fadt);
  EXPECT_EQ(std::memcmp(ram_.data() + fadt, "FACP", 4), 0);
  EXPECT_EQ(sum(ram_.data() + fadt, 276), 0u);
}

}  // namespace
}  // namespace ramet::vmm
