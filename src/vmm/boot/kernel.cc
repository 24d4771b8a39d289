#include "vmm/boot/kernel.h"

#include <asm/bootparam.h>
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/file.h"
#include "vmm/boot/acpi.h"
#include "vmm/layout.h"

namespace ramet::vmm {
namespace {

// Below 1 MiB: what the kernel needs at entry; it takes copies early.
constexpr uint64_t kGdt = 0x500;
constexpr uint64_t kZeroPage = 0x7000;
constexpr uint64_t kBootStack = 0x8ff0;
constexpr uint64_t kPml4 = 0x9000, kPdpt = 0xa000, kPageDirectories = 0xb000;  // four of them: 4 GiB
constexpr uint64_t kCmdline = 0x20000;
constexpr uint64_t kKernelStart = 1ull << 20;
constexpr uint64_t kInitrdLimit = 2ull << 30;  // initrd_addr_max of the boot protocol
constexpr uint64_t kPageBytes = 4096;
constexpr uint16_t kMaxSegments = 64;
constexpr uint16_t kCodeSelector = 0x10, kDataSelector = 0x18;

constexpr uint32_t kE820Ram = 1, kE820Reserved = 2;
constexpr uint16_t kBootFlag = 0xaa55;
constexpr uint32_t kHeaderMagic = 0x53726448;  // "HdrS"
constexpr uint16_t kProtocolVersion = 0x020f;
constexpr uint8_t kUnknownLoader = 0xff;

static_assert(sizeof(boot_params) == 4096);
static_assert(kZeroPage + sizeof(boot_params) <= kBootStack && kPageDirectories + 4 * kPageBytes <= kCmdline);

uint64_t low_ram_end(const GuestMemory& m) { return std::min(m.size_bytes(), kLowRamEnd); }

struct LoadedKernel {
  uint64_t entry = 0;
  uint64_t end = 0;
};

Status check_header(const Elf64_Ehdr& h) {
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
    return fail(ErrorKind::kInvalid, "kernel is not an ELF file (magic missing)");
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != EM_X86_64 || h.e_type != ET_EXEC)
    return fail(ErrorKind::kInvalid, "kernel is not an x86-64 ELF executable (class " + std::to_string(h.e_ident[EI_CLASS]) +
                                         ", machine " + std::to_string(h.e_machine) + ", type " + std::to_string(h.e_type) +
                                         ")");
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > kMaxSegments)
    return fail(ErrorKind::kInvalid, "kernel has " + std::to_string(h.e_phnum) + " program headers of " +
                                         std::to_string(h.e_phentsize) + " bytes, the limit is " +
                                         std::to_string(kMaxSegments));
  return {};
}

Status load_segment(const GuestMemory& memory, int fd, const Elf64_Phdr& p, uint64_t file_bytes) {
  if (p.p_filesz > p.p_memsz)
    return fail(ErrorKind::kInvalid, "kernel segment has " + std::to_string(p.p_filesz) + " bytes in the file but " +
                                         std::to_string(p.p_memsz) + " in memory");
  if (!range_within(p.p_offset, p.p_filesz, file_bytes))
    return fail(ErrorKind::kCorrupt, "kernel is truncated: a segment ends at byte " + std::to_string(p.p_offset + p.p_filesz) +
                                         ", the file has " + std::to_string(file_bytes));
  std::byte* target = p.p_paddr >= kKernelStart ? memory.resolve(GuestAddr{p.p_paddr}, p.p_memsz) : nullptr;
  if (!target)
    return fail(ErrorKind::kInvalid, "kernel segment at " + std::to_string(p.p_paddr) + " of " + std::to_string(p.p_memsz) +
                                         " bytes does not fit guest RAM of " + std::to_string(memory.size_bytes()) + " bytes");
  // Fresh RAM is zero already, so the rest of the segment needs no touch.
  return pread_exact(fd, {target, static_cast<size_t>(p.p_filesz)}, p.p_offset);
}

Result<LoadedKernel> load_elf(const GuestMemory& memory, int fd) {
  TRY_ASSIGN(const uint64_t file_bytes, file_size(fd));
  Elf64_Ehdr header;
  if (file_bytes < sizeof header)
    return fail(ErrorKind::kInvalid, "kernel has " + std::to_string(file_bytes) + " bytes, an ELF header alone needs " +
                                         std::to_string(sizeof header));
  TRY(pread_exact(fd, std::as_writable_bytes(std::span<Elf64_Ehdr, 1>(&header, 1)), 0));
  TRY(check_header(header));
  LoadedKernel out{.entry = header.e_entry};
  bool entry_loaded = false;
  for (uint16_t i = 0; i < header.e_phnum; i++) {
    const std::optional<uint64_t> at = checked_add<uint64_t>(header.e_phoff, uint64_t{i} * sizeof(Elf64_Phdr));
    if (!at || !range_within(*at, sizeof(Elf64_Phdr), file_bytes))
      return fail(ErrorKind::kCorrupt, "kernel is truncated: program header " + std::to_string(i) + " lies beyond its " +
                                           std::to_string(file_bytes) + " bytes");
    Elf64_Phdr p;
    TRY(pread_exact(fd, std::as_writable_bytes(std::span<Elf64_Phdr, 1>(&p, 1)), *at));
    if (p.p_type != PT_LOAD || p.p_memsz == 0) continue;
    TRY(load_segment(memory, fd, p, file_bytes));
    out.end = std::max<uint64_t>(out.end, p.p_paddr + p.p_memsz);
    entry_loaded |= header.e_entry >= p.p_paddr && header.e_entry - p.p_paddr < p.p_filesz;
  }
  if (!entry_loaded)
    return fail(ErrorKind::kInvalid, "kernel entry point " + std::to_string(header.e_entry) + " lies in no loaded segment");
  return out;
}

struct Initrd {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

Result<Initrd> load_initrd(const GuestMemory& memory, int fd, uint64_t kernel_end) {
  if (fd < 0) return Initrd{};
  TRY_ASSIGN(const uint64_t bytes, file_size(fd));
  if (bytes == 0) return fail(ErrorKind::kInvalid, "initial RAM disk is empty");
  const uint64_t top = std::min(low_ram_end(memory), kInitrdLimit);
  const uint64_t address = bytes <= top ? align_down(top - bytes, kPageBytes) : 0;
  std::byte* target = address >= kernel_end ? memory.resolve(GuestAddr{address}, bytes) : nullptr;
  if (!target)
    return fail(ErrorKind::kInvalid, "initial RAM disk of " + std::to_string(bytes) +
                                         " bytes does not fit between the kernel's end at " + std::to_string(kernel_end) +
                                         " and " + std::to_string(top));
  TRY(pread_exact(fd, {target, static_cast<size_t>(bytes)}, 0));
  return Initrd{address, bytes};
}

void add_e820(boot_params& bp, uint64_t address, uint64_t bytes, uint32_t type) {
  if (bytes > 0) bp.e820_table[bp.e820_entries++] = boot_e820_entry{address, bytes, type};
}

boot_params make_boot_params(const GuestMemory& memory, const Initrd& initrd, size_t cmdline_bytes, GuestAddr rsdp) {
  boot_params bp{};
  bp.hdr.boot_flag = kBootFlag;
  bp.hdr.header = kHeaderMagic;
  bp.hdr.version = kProtocolVersion;
  bp.hdr.type_of_loader = kUnknownLoader;
  bp.hdr.loadflags = LOADED_HIGH;
  bp.hdr.kernel_alignment = 2u << 20;
  bp.hdr.cmd_line_ptr = kCmdline;
  bp.hdr.cmdline_size = static_cast<uint32_t>(cmdline_bytes);
  bp.hdr.ramdisk_image = static_cast<uint32_t>(initrd.address);
  bp.hdr.ramdisk_size = static_cast<uint32_t>(initrd.bytes);
  bp.acpi_rsdp_addr = rsdp.value;
  add_e820(bp, 0, layout::kReservedStart, kE820Ram);
  add_e820(bp, layout::kReservedStart, layout::kReservedEnd - layout::kReservedStart, kE820Reserved);
  add_e820(bp, layout::kReservedEnd, low_ram_end(memory) - layout::kReservedEnd, kE820Ram);
  if (memory.size_bytes() > kLowRamEnd) add_e820(bp, kHighRamStart, memory.size_bytes() - kLowRamEnd, kE820Ram);
  return bp;
}

bool write_page_tables(const GuestMemory& memory) {
  constexpr uint64_t kPresentWritable = 3, kLargePage = 0x83;
  bool ok = memory.write_object(GuestAddr{kPml4}, kPdpt | kPresentWritable);
  for (uint64_t g = 0; g < 4; g++) {
    const uint64_t directory = kPageDirectories + g * kPageBytes;
    ok = ok && memory.write_object(GuestAddr{kPdpt + g * 8}, directory | kPresentWritable);
    for (uint64_t j = 0; j < 512; j++)
      ok = ok && memory.write_object(GuestAddr{directory + j * 8}, (g << 30 | j << 21) | kLargePage);
  }
  return ok;
}

bool write_gdt(const GuestMemory& memory) {
  constexpr uint64_t kCode = 0x00af9b000000ffff, kData = 0x00cf93000000ffff;
  return memory.write_object(GuestAddr{kGdt + kCodeSelector}, kCode) &&
         memory.write_object(GuestAddr{kGdt + kDataSelector}, kData);
}

}  // namespace

Result<kvm::BootRegisters> load_kernel(const GuestMemory& memory, const KernelSource& source) {
  if (memory.size_bytes() < 2 * kKernelStart)
    return fail(ErrorKind::kInvalid,
                "guest RAM of " + std::to_string(memory.size_bytes()) + " bytes is too small to boot a kernel");
  if (source.cmdline.size() > kMaxCmdlineBytes)
    return fail(ErrorKind::kInvalid, "kernel command line has " + std::to_string(source.cmdline.size()) +
                                         " bytes, the limit is " + std::to_string(kMaxCmdlineBytes));
  TRY_ASSIGN(const LoadedKernel kernel, load_elf(memory, source.kernel_fd));
  TRY_ASSIGN(const Initrd initrd, load_initrd(memory, source.initrd_fd, kernel.end));
  TRY_ASSIGN(const GuestAddr rsdp, write_acpi_tables(memory, source.vcpus));
  const boot_params bp = make_boot_params(memory, initrd, source.cmdline.size(), rsdp);
  const bool ok = write_page_tables(memory) && write_gdt(memory) && memory.write_object(GuestAddr{kZeroPage}, bp) &&
                  memory.write(GuestAddr{kCmdline},
                               {reinterpret_cast<const std::byte*>(source.cmdline.c_str()), source.cmdline.size() + 1});
  if (!ok) return fail(ErrorKind::kInternal, "boot structures do not fit below 1 MiB");
  return kvm::BootRegisters{.rip = kernel.entry,
                            .rsi = kZeroPage,
                            .rsp = kBootStack,
                            .cr3 = kPml4,
                            .gdt_base = kGdt,
                            .gdt_limit = kDataSelector + 7,
                            .code_selector = kCodeSelector,
                            .data_selector = kDataSelector};
}

}  // namespace ramet::vmm
