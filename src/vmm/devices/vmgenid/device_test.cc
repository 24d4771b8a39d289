#include "vmm/devices/vmgenid/device.h"

#include <gtest/gtest.h>

#include <vector>

namespace ramet::vmm {
namespace {

TEST(VmGenerationId, ChangeWritesThenNotifies) {
  std::vector<std::byte> ram(2 << 20);
  const GuestMemory memory(ram.data(), ram.size());
  GenerationId id{};
  id[0] = std::byte{7};
  std::byte seen_at_notify{0};
  const VmGenerationId device(memory, [&] { seen_at_notify = ram[layout::kGenerationIdPage]; });
  ASSERT_TRUE(device.change(id));
  EXPECT_EQ(seen_at_notify, std::byte{7});
}

TEST(VmGenerationId, PlaceIsSilent) {
  std::vector<std::byte> ram(2 << 20);
  const GuestMemory memory(ram.data(), ram.size());
  const VmGenerationId device(memory, [] { FAIL(); });
  EXPECT_TRUE(device.place(GenerationId{}));
}

TEST(VmGenerationId, NeedsRam) {
  std::vector<std::byte> ram(4096);
  const GuestMemory memory(ram.data(), ram.size());
  const VmGenerationId device(memory, [] {});
  EXPECT_EQ(device.place(GenerationId{}).error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::vmm
