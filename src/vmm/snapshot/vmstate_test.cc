#include "vmm/snapshot/vmstate.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"

namespace ramet::vmm {
namespace {

VmState sample() {
  VmState s;
  s.cpu_model = "GenuineRamet model 7";
  s.memory_bytes = 64ull << 20;
  s.zeros = image::ZeroMap(s.memory_bytes);
  s.zeros.set_zero(3, true);
  s.generation = 9;
  s.clock = {.kvmclock_ns = 11, .host_tsc = 12, .monotonic_raw_ns = 13};
  for (int i = 0; i < 2; i++) {
    kvm::VcpuState v;
    v.mp_state = "mp";
    v.regs = std::string(144, static_cast<char>('a' + i));
    v.sregs = "sregs";
    v.xsave = std::string(4096, 'x');
    v.lapic = std::string(1024, 'l');
    v.msrs = {{0x10u, 1}, {0xc0000080u, 0xd01}};
    v.tsc = 77;
    v.tsc_deadline = 78;
    if (i == 1) v.tsc_offset = 5;
    s.vcpus.push_back(v);
  }
  s.ioapic.redirection[23] = 0x10000;
  s.serial.received = "abc";
  s.virtio = {"block", "vsock", "", "balloon"};
  return s;
}

TEST(VmState, RoundTrip) {
  const VmState before = sample();
  const Result<VmState> after = decode_vmstate(encode_vmstate(before));
  ASSERT_TRUE(after) << after.error().to_string();
  EXPECT_EQ(after->cpu_model, before.cpu_model);
  EXPECT_EQ(after->memory_bytes, before.memory_bytes);
  EXPECT_TRUE(after->zeros.zero(3));
  EXPECT_FALSE(after->zeros.zero(2));
  EXPECT_EQ(after->generation, 9u);
  EXPECT_EQ(after->clock.host_tsc, 12u);
  ASSERT_EQ(after->vcpus.size(), 2u);
  EXPECT_EQ(after->vcpus[1].regs, before.vcpus[1].regs);
  EXPECT_EQ(after->vcpus[0].msrs[1].value, 0xd01u);
  EXPECT_FALSE(after->vcpus[0].tsc_offset);
  EXPECT_EQ(after->vcpus[1].tsc_offset, 5u);
  EXPECT_EQ(after->ioapic.redirection[23], 0x10000u);
  EXPECT_EQ(after->serial.received, "abc");
  EXPECT_EQ(after->virtio, before.virtio);
}

TEST(VmState, HeaderIsReadableAlone) {
  const std::string bytes = encode_vmstate(sample());
  const Result<VmStateHeader> h = decode_vmstate_header(std::string_view(bytes).substr(0, kVmStateHeaderBytes));
  ASSERT_TRUE(h);
  EXPECT_EQ(h->vcpus, 2u);
  EXPECT_EQ(h->cpu_model, "GenuineRamet model 7");
}

TEST(VmState, EveryTruncationIsAnError) {
  const std::string bytes = encode_vmstate(sample());
  for (size_t n = 0; n < bytes.size(); n += n < 600 ? 1 : 97)
    EXPECT_FALSE(decode_vmstate(std::string_view(bytes).substr(0, n))) << n;
  EXPECT_FALSE(decode_vmstate(bytes + "x"));
}

TEST(VmState, EveryFlippedByteIsAnError) {
  const std::string bytes = encode_vmstate(sample());
  for (size_t i = 0; i < bytes.size(); i += i < 600 ? 1 : 89) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    EXPECT_FALSE(decode_vmstate(bad)) << "byte " << i;
  }
}

// The golden file fixes version 1: it must read for as long as this monitor claims to read version 1. To make one for a new
// version run with RAMET_WRITE_GOLDEN=1.
TEST(VmState, GoldenFileReads) {
  const std::string path = std::string(RAMET_SOURCE_DIR) + "/tests/golden/vmstate_v1.bin";
  if (std::getenv("RAMET_WRITE_GOLDEN")) {
    ASSERT_TRUE(replace_file(path, encode_vmstate(sample())));
  }
  const Result<std::string> bytes = read_file(path);
  ASSERT_TRUE(bytes) << bytes.error().to_string();
  const Result<VmState> state = decode_vmstate(*bytes);
  ASSERT_TRUE(state) << state.error().to_string();
  EXPECT_EQ(state->vcpus[1].tsc_offset, 5u);
  EXPECT_EQ(*bytes, encode_vmstate(*state));
}

TEST(VmState, NewerVersionNamesBothNumbers) {
  std::string bytes = encode_vmstate(sample());
  bytes[8] = 9;
  const Result<VmState> r = decode_vmstate(bytes);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kUnsupported);
  EXPECT_NE(r.error().message().find('9'), std::string::npos);
}

}  // namespace
}  // namespace ramet::vmm
