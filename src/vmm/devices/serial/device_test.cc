#include "vmm/devices/serial/device.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "vmm/devices/serial/console_log.h"

namespace ramet::vmm {
namespace {

class SerialTest : public ::testing::Test {
 protected:
  void write(uint64_t reg, uint8_t v) { serial.bus_write(reg, std::as_bytes(std::span(&v, 1))); }
  uint8_t read(uint64_t reg) {
    uint8_t v = 0;
    serial.bus_read(reg, std::as_writable_bytes(std::span(&v, 1)));
    return v;
  }
  std::string text;
  int edges = 0;
  Serial serial{[this](char c) { text.push_back(c); }, [this] { edges++; }};
};

TEST_F(SerialTest, WritesGoOut) {
  write(0, 'h');
  write(0, 'i');
  EXPECT_EQ(text, "hi");
  EXPECT_EQ(edges, 0);
}

TEST_F(SerialTest, EnablingTransmitInterruptFiresAtOnce) {
  write(1, 2);
  EXPECT_EQ(edges, 1);
  EXPECT_EQ(read(2), 2);
  EXPECT_EQ(read(2), 1);
}

TEST_F(SerialTest, EveryByteIsANewEdge) {
  write(1, 2);
  read(2);
  write(0, 'a');
  write(0, 'b');
  EXPECT_EQ(edges, 3);
}

TEST_F(SerialTest, LoopbackOfModemLinesAsLinuxProbesIt) {
  write(4, 0x1a);
  EXPECT_EQ(read(6) & 0xf0, 0x90);
}

TEST_F(SerialTest, LoopbackReceivesAtMostTheFifo) {
  write(4, 0x10);
  for (int i = 0; i < 100; i++) write(0, static_cast<uint8_t>(i));
  EXPECT_EQ(serial.save().received.size(), Serial::kFifoBytes);
  EXPECT_EQ(read(0), 0);
  EXPECT_EQ(read(0), 1);
}

TEST_F(SerialTest, DivisorLatchHidesDataRegister) {
  write(3, 0x80);
  write(0, 12);
  EXPECT_EQ(read(0), 12);
  EXPECT_TRUE(text.empty());
}

TEST_F(SerialTest, StateMovesToAnotherDevice) {
  write(7, 0x5a);
  write(1, 2);
  Serial other([](char) {}, [] {});
  other.restore(serial.save());
  EXPECT_EQ(other.save().scratch, 0x5a);
  EXPECT_TRUE(other.save().line);
}

TEST(ConsoleLog, KeepsTheEndOfAFlood) {
  UniqueFd file = *make_memfd("console", 0);
  UniqueFd reader = *file.duplicate();
  ConsoleLog log(std::move(file), 4096);
  for (int i = 0; i < 100000; i++) log.append(i % 64 == 63 ? '\n' : static_cast<char>('a' + i / 64 % 26));
  log.flush();
  const uint64_t size = *file_size(reader.get());
  EXPECT_LT(size, 3u * 4096);
  EXPECT_GE(size, 4096u);
  EXPECT_EQ(log.total_bytes(), 100000u);
  char last = 0;
  ASSERT_TRUE(pread_exact(reader.get(), std::as_writable_bytes(std::span(&last, 1)), size - 1));
  EXPECT_EQ(last, 'a' + 99999 / 64 % 26);
}

TEST(ConsoleLog, WorksWithoutAFile) {
  ConsoleLog log;
  for (int i = 0; i < 5000; i++) log.append('x');
  log.flush();
  EXPECT_EQ(log.total_bytes(), 5000u);
}

TEST(ConsoleLog, ChildContinuesItsOwnFile) {
  UniqueFd file = *make_memfd("console", 0), child = *make_memfd("console", 0);
  UniqueFd reader = *child.duplicate();
  ConsoleLog log(std::move(file));
  log.append('a');
  log.replace(std::move(child));
  log.append('b');
  log.flush();
  EXPECT_EQ(*file_size(reader.get()), 1u);
}

}  // namespace
}  // namespace ramet::vmm
