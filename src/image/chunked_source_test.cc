// A chunked disk over a daemon that answers, dies, comes back, wants its descriptors again, and lies.
#include "image/chunked_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "image/testing/chunk_daemon.h"
#include "image/testing/patterns.h"

namespace ramet::image {
namespace {

using testing::ChunkDaemon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PatternBase;
using testing::read_version;

constexpr uint64_t kBlocks = 3 * kChunkBlocks + 100;  // the last chunk is a short one

// Sparse: chunk 0 and the last one in full as PatternBase has it, of chunk 1 the first two blocks, chunk 2 is zero.
UniqueFd make_raw_file() {
  UniqueFd file = make_memfd("raw", kBlocks * kBlockBytes).value();
  const PatternBase content(kBlocks);
  const auto fill = [&](BlockRange range) {
    std::string bytes(range.count * kBlockBytes, '\0');
    const iovec v{bytes.data(), bytes.size()};
    EXPECT_TRUE(content.read(range, {&v, 1}, Wait::kAllowed));
    EXPECT_TRUE(pwrite_all(file.get(), as_bytes(bytes), range.first * kBlockBytes));
  };
  fill({0, kChunkBlocks});
  fill({kChunkBlocks, 2});
  fill({3 * kChunkBlocks, 100});
  return file;
}
UniqueFd raw_file() {
  static const UniqueFd file = make_raw_file();
  return file.duplicate().value();
}
uint64_t version_of(uint64_t block) {
  if (block >= kChunkBlocks + 2 && block < 3 * kChunkBlocks) return 0;
  return PatternBase::version_of(block);
}

bool reads_right(const BlockSource& source, uint64_t block) { return read_version(source, block) == version_of(block); }
ErrorKind error_of(const BlockSource& source, uint64_t block) {
  std::string buffer(kBlockBytes, '\0');
  const iovec v{buffer.data(), buffer.size()};
  const Result<bool> read = source.read({block, 1}, {&v, 1}, Wait::kAllowed);
  return read ? ErrorKind::kInternal : read.error().kind();
}
bool readable_without_waiting(const BlockSource& source, uint64_t block) {
  std::string buffer(kBlockBytes, '\0');
  const iovec v{buffer.data(), buffer.size()};
  return source.read({block, 1}, {&v, 1}, Wait::kNever).value();
}
// A page may leave memory at any time on a busy host: then it is read once more.
bool in_memory_after_a_read(const BlockSource& source, uint64_t block) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && reads_right(source, block); i++)
    if (readable_without_waiting(source, block)) return true;
  return false;
}
size_t descriptors_of(const BlockSource& source) {
  std::vector<int> fds;
  source.append_descriptors(fds);
  return fds.size();
}

class ChunkedSourceTest : public ::testing::Test {
 protected:
  ChunkDaemon daemon{raw_file(), kBlocks};
  ChunkedSource source{kBlocks, daemon.connect()};
};

// ---- reading ----

TEST_F(ChunkedSourceTest, EveryBlockIsRightFromFramesAndFromDescriptors) {
  for (const bool descriptors : {false, true}) {
    daemon.give_descriptors(descriptors);
    for (uint64_t b = 0; b < kBlocks; b += 7) ASSERT_TRUE(reads_right(source, b)) << b;
    ASSERT_TRUE(reads_right(source, kBlocks - 1));
  }
}

TEST_F(ChunkedSourceTest, OneReadMaySpanFramesAndChunksIntoBuffersOfAnyShape) {
  for (const bool descriptors : {false, true}) {
    daemon.give_descriptors(descriptors);
    const BlockRange range{kChunkBlocks - 40, 80};
    std::string bytes(range.count * kBlockBytes, 'x'), expected(bytes);
    for (uint64_t b = 0; b < range.count; b++) {
      const std::vector<uint64_t> words = testing::pattern(version_of(range.first + b));
      std::memcpy(expected.data() + b * kBlockBytes, words.data(), kBlockBytes);
    }
    std::vector<iovec> pieces;  // of 100 bytes, many more than one readv takes
    for (size_t at = 0; at < bytes.size(); at += 100)
      pieces.push_back({bytes.data() + at, std::min<size_t>(100, bytes.size() - at)});
    ASSERT_TRUE(source.read(range, pieces, Wait::kAllowed).value());
    EXPECT_TRUE(bytes == expected);
  }
}

TEST_F(ChunkedSourceTest, OnlyWhatIsReadIsAskedFor) {
  EXPECT_TRUE(reads_right(source, 5));
  EXPECT_TRUE(reads_right(source, 200));
  EXPECT_THAT(daemon.asked(), ElementsAre(5, 200));
  EXPECT_EQ(daemon.blocks_sent().size(), 2 * kMaxAnswerBlocks);
}

TEST_F(ChunkedSourceTest, AChunkIsAskedForOnceAndThenReadFromItsDescriptor) {
  daemon.give_descriptors(true);
  for (uint64_t b = 0; b < 100; b++) EXPECT_TRUE(reads_right(source, b));
  EXPECT_THAT(daemon.asked(), ElementsAre(0));
  EXPECT_EQ(descriptors_of(source), 1u);
}

TEST_F(ChunkedSourceTest, AZeroChunkIsAskedForOnce) {
  daemon.give_descriptors(true);
  for (uint64_t b = 2 * kChunkBlocks; b < 2 * kChunkBlocks + 100; b++) EXPECT_TRUE(reads_right(source, b));
  EXPECT_THAT(daemon.asked(), ElementsAre(2 * kChunkBlocks));
  EXPECT_TRUE(readable_without_waiting(source, 3 * kChunkBlocks - 1));
  EXPECT_FALSE(readable_without_waiting(source, 3 * kChunkBlocks));
  EXPECT_FALSE(source.content_at({0, kBlocks}).zero);
  const BlockSource::Content zeros = source.content_at({2 * kChunkBlocks + 5, kChunkBlocks});
  EXPECT_TRUE(zeros.zero);
  EXPECT_EQ(zeros.range, (BlockRange{2 * kChunkBlocks + 5, kChunkBlocks - 5}));
}

TEST_F(ChunkedSourceTest, ZerosInPartOfAChunkSayNothingOfTheRest) {
  EXPECT_TRUE(reads_right(source, kChunkBlocks + 64));  // zeros for a frame's length
  EXPECT_FALSE(readable_without_waiting(source, kChunkBlocks + 64));
  EXPECT_TRUE(reads_right(source, kChunkBlocks + 1));
}

TEST_F(ChunkedSourceTest, WhoMayNotWaitNeverAsks) {
  EXPECT_FALSE(readable_without_waiting(source, 0));
  EXPECT_THAT(daemon.asked(), IsEmpty());
  daemon.give_descriptors(true);
  EXPECT_TRUE(reads_right(source, 0));
  EXPECT_TRUE(in_memory_after_a_read(source, 1));
  EXPECT_THAT(daemon.asked(), ElementsAre(0));
}

TEST_F(ChunkedSourceTest, RangesOffTheDiskAreInvalid) {
  EXPECT_EQ(error_of(source, kBlocks), ErrorKind::kInvalid);
  EXPECT_EQ(source.read({~0ull, 2}, {}, Wait::kAllowed).error().kind(), ErrorKind::kInvalid);
}

TEST_F(ChunkedSourceTest, ManyThreadsReadWhileDescriptorsComeAndGo) {
  std::atomic<bool> read = false, disturbed = false;
  daemon.wait_until([&] { return !daemon.hellos().empty(); });  // nothing comes before the welcome
  std::thread event_loop([&] {
    while (!disturbed) EXPECT_TRUE(source.tend());
  });
  std::thread disturber([&] {
    for (uint64_t i = 0; !read; i++) {
      daemon.give_descriptors(i % 3 != 0);
      daemon.give_back(i % 4);
    }
  });
  std::vector<std::thread> readers;
  for (uint64_t t = 0; t < 8; t++)
    readers.emplace_back([&, t] {
      for (uint64_t i = 0; i < 400; i++) EXPECT_TRUE(reads_right(source, (i * 4099 + t * 31) % kBlocks));
    });
  for (std::thread& reader : readers) reader.join();
  read = true;
  disturber.join();
  disturbed = true;
  event_loop.join();
  daemon.give_back(0);
  daemon.wait_until([&] { return source.tend() && daemon.given() == static_cast<int>(descriptors_of(source)); });
}

// ---- descriptors ----

TEST_F(ChunkedSourceTest, WhatIsWantedBackIsClosedAndAskedForAgain) {
  daemon.give_descriptors(true);
  EXPECT_TRUE(reads_right(source, 0));
  EXPECT_TRUE(reads_right(source, 3 * kChunkBlocks));
  daemon.give_back(0);
  daemon.give_back(1);  // not held: no answer
  EXPECT_TRUE(source.tend());
  daemon.wait_until([&] { return !daemon.returned().empty(); });
  EXPECT_EQ(descriptors_of(source), 1u);
  EXPECT_FALSE(readable_without_waiting(source, 0));
  EXPECT_TRUE(reads_right(source, 0));
  EXPECT_THAT(daemon.returned(), ElementsAre(0));
  EXPECT_EQ(daemon.given(), 2);
}

TEST_F(ChunkedSourceTest, ADescriptorThatComesTwiceIsReturned) {
  daemon.give_descriptors(true);
  daemon.be_silent(true);
  std::thread one([&] { EXPECT_TRUE(reads_right(source, 1)); });
  std::thread two([&] { EXPECT_TRUE(reads_right(source, 2)); });
  daemon.wait_until([&] { return daemon.asked().size() == 1; });  // it takes one at a time; the other waits in the socket
  daemon.be_silent(false);
  one.join();
  two.join();
  daemon.wait_until([&] { return daemon.given() == 1; });
  EXPECT_EQ(descriptors_of(source), 1u);
}

// ---- the daemon's life ----

TEST_F(ChunkedSourceTest, ReadsWaitForTheNextDaemonAndAreAskedAgain) {
  daemon.be_silent(true);
  std::atomic<int> right = 0;
  std::vector<std::thread> readers;
  for (uint64_t t = 0; t < 4; t++) readers.emplace_back([&, t] { right += reads_right(source, t * 64 + 1); });
  daemon.wait_until([&] { return daemon.asked().size() == 1; });
  daemon.lie([](int, const Ask&) { return true; });  // dies without a word
  daemon.die();
  while (source.tend()) std::this_thread::yield();
  readers.emplace_back([&] { right += reads_right(source, 999); });  // asked while there is none
  ChunkDaemon next(raw_file(), kBlocks);
  source.attach(next.connect());
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(right, 5);
  EXPECT_EQ(next.asked().size(), 5u);
}

TEST_F(ChunkedSourceTest, TheNextDaemonLearnsWhatIsHeldAndCanWantItBack) {
  daemon.give_descriptors(true);
  EXPECT_TRUE(reads_right(source, 3 * kChunkBlocks));
  EXPECT_TRUE(reads_right(source, 0));
  daemon.die();
  EXPECT_TRUE(reads_right(source, 7));  // held: no daemon needed
  ChunkDaemon next(raw_file(), kBlocks);
  source.attach(next.connect());
  next.wait_until([&] { return !next.hellos().empty(); });
  EXPECT_THAT(next.hellos()[0].held, ElementsAre(0, 3));
  next.give_back(0);
  next.wait_until([&] { return source.tend() && next.given() == 1; });
  EXPECT_THAT(next.returned(), ElementsAre(0));
}

TEST_F(ChunkedSourceTest, ANewConnectionMayTakeTheOldOnesPlaceWhileItStillAnswers) {
  std::atomic<bool> done = false;
  std::thread reader([&] {
    for (uint64_t i = 0; !done; i++) EXPECT_TRUE(reads_right(source, i * 37 % kBlocks));
  });
  for (int i = 0; i < 50; i++) source.attach(daemon.connect());
  done = true;
  reader.join();
}

TEST_F(ChunkedSourceTest, WhatWaitsCanBeCancelled) {
  daemon.be_silent(true);
  std::thread reader([&] { EXPECT_EQ(error_of(source, 0), ErrorKind::kCancelled); });
  daemon.wait_until([&] { return !daemon.asked().empty(); });
  source.cancel();
  reader.join();
  EXPECT_EQ(error_of(source, 0), ErrorKind::kCancelled);
}

TEST_F(ChunkedSourceTest, MoreReadersThanAsksMayBeOpenTakeTurns) {
  daemon.be_silent(true);
  std::vector<std::thread> readers;
  for (uint64_t t = 0; t < kMaxOpenAsks + 16; t++) readers.emplace_back([&, t] { EXPECT_TRUE(reads_right(source, t * 32)); });
  daemon.wait_until([&] { return !daemon.asked().empty(); });
  daemon.be_silent(false);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(daemon.asked().size(), kMaxOpenAsks + 16);
}

TEST_F(ChunkedSourceTest, AFailureIsOfTheBlockAndNotOfTheDisk) {
  daemon.lie([](int socket, const Ask& ask) {
    if (ask.block == 5) ChunkDaemon::say(socket, Failed{ask.id, ErrorKind::kCorrupt, "frame 17 is damaged"});
    return ask.block == 5;
  });
  EXPECT_EQ(error_of(source, 5), ErrorKind::kCorrupt);
  EXPECT_TRUE(reads_right(source, 6));
}

// ---- lies ----

struct LieCase {
  const char* name;
  ChunkDaemon::Lie lie;
  const char* told;
};
std::ostream& operator<<(std::ostream& out, const LieCase& c) { return out << c.name; }

void send_chunk(int socket, DaemonMessage message, int descriptors) {
  const UniqueFd file = make_memfd("chunk", kChunkBytes).value();
  const std::vector<int> fds(static_cast<size_t>(descriptors), file.get());
  ChunkDaemon::say(socket, message, {}, fds);
}
// Block 5 is asked for.
const LieCase kLies[] = {
    {"zeros_elsewhere",
     [](int s, const Ask& a) {
       return ChunkDaemon::say(s, Zeros{a.id, {6, 10}}), true;
     },
     "block 5 with 6+10"},
    {"zeros_before",
     [](int s, const Ask& a) {
       return ChunkDaemon::say(s, Zeros{a.id, {0, 5}}), true;
     },
     "block 5 with 0+5"},
    {"zeros_off_the_disk",
     [](int s, const Ask& a) {
       return ChunkDaemon::say(s, Zeros{a.id, {5, kBlocks}}), true;
     },
     "on a disk of 12388"},
    {"data_elsewhere",
     [](int s, const Ask& a) {
       return ChunkDaemon::say(s, Data{a.id, {64, 1}, {}}, std::string(kBlockBytes, 'x')), true;
     },
     "block 5 with 64+1"},
    {"too_many_bytes",
     [](int s, const Ask& a) {
       return ChunkDaemon::say(s, Data{a.id, {5, 1}, {}}, std::string(2 * kBlockBytes, 'x')), true;
     },
     "8192 bytes for 1 blocks"},
    {"a_packet_too_long",
     [](int s, const Ask& a) {
       return ChunkDaemon::say(s, Data{a.id, {0, 32}, {}}, std::string(kMaxChunkMessageBytes, 'x')), true;
     },
     "longer than the limit"},
    {"another_chunk",
     [](int s, const Ask& a) {
       return send_chunk(s, Chunk{a.id, 1}, 1), true;
     },
     "block 5 with chunk 1"},
    {"chunk_off_the_disk",
     [](int s, const Ask& a) {
       return send_chunk(s, Chunk{a.id, 4}, 1), true;
     },
     "with chunk 4"},
    {"no_descriptor",
     [](int s, const Ask& a) {
       return send_chunk(s, Chunk{a.id, 0}, 0), true;
     },
     "0 descriptors, not 1"},
    {"two_descriptors",
     [](int s, const Ask& a) {
       return send_chunk(s, Chunk{a.id, 0}, 2), true;
     },
     "2 descriptors, not 1"},
    {"descriptor_with_zeros",
     [](int s, const Ask& a) {
       return send_chunk(s, Zeros{a.id, {0, 32}}, 1), true;
     },
     "1 descriptors, not 0"},
    {"answer_to_nothing",
     [](int s, const Ask& a) {
       return send_chunk(s, Chunk{a.id + 1, 0}, 1), true;
     },
     "was not asked"},
    {"welcome_again", [](int s, const Ask&) { return ChunkDaemon::say(s, Welcome{kBlocks}), true; }, "welcomes twice"},
    {"noise", [](int s, const Ask&) { return send_message(s, as_bytes("what?"), {}, Deadline::max()).has_value(); },
     "no message of the daemon has kind"},
    {"refusal",
     [](int s, const Ask&) {
       return ChunkDaemon::say(s, Failed{0, ErrorKind::kNotFound, "no such disk"}), true;
     },
     "no such disk"},
};

class Lies : public ChunkedSourceTest, public ::testing::WithParamInterface<LieCase> {};

TEST_P(Lies, AreErrorsOfEveryReadUntilAnotherDaemonComes) {
  daemon.lie(GetParam().lie);
  std::string buffer(kBlockBytes, '\0');
  const iovec v{buffer.data(), buffer.size()};
  const Result<bool> read = source.read({5, 1}, {&v, 1}, Wait::kAllowed);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message(), HasSubstr(GetParam().told));
  EXPECT_EQ(source.read({6, 1}, {&v, 1}, Wait::kAllowed).error().message(), read.error().message());
  EXPECT_FALSE(source.tend());
  EXPECT_EQ(descriptors_of(source), 0u);
  ChunkDaemon next(raw_file(), kBlocks);
  source.attach(next.connect());
  EXPECT_TRUE(reads_right(source, 5));
}
INSTANTIATE_TEST_SUITE_P(All, Lies, ::testing::ValuesIn(kLies), [](const auto& test) { return test.param.name; });

TEST(ChunkedSource, ADiskOfAnotherSizeIsRefused) {
  ChunkDaemon daemon(raw_file(), kBlocks - 1);
  const ChunkedSource source(kBlocks, daemon.connect());
  EXPECT_EQ(error_of(source, 0), ErrorKind::kCorrupt);
}

TEST_F(ChunkedSourceTest, OtherContentUnderTheSameNameIsRefused) {
  EXPECT_TRUE(reads_right(source, 5));
  ChunkDaemon other(raw_file(), kBlocks);
  other.have_content(1);
  source.attach(other.connect());
  EXPECT_EQ(error_of(source, 200), ErrorKind::kCorrupt);
  source.attach(daemon.connect());
  EXPECT_TRUE(reads_right(source, 200));
}

TEST_F(ChunkedSourceTest, ContentThatWasPromisedIsHeldAgainstTheFirstWelcome) {
  daemon.have_content(8);
  EXPECT_TRUE(reads_right(ChunkedSource(kBlocks, daemon.connect(), "disk", 8), 5));
  EXPECT_EQ(error_of(ChunkedSource(kBlocks, daemon.connect(), "disk", 7), 5), ErrorKind::kCorrupt);
  // Among them that of the fixture's own reader, whenever it comes.
  daemon.wait_until([&] {
    const std::vector<Hello> hellos = daemon.hellos();
    return std::ranges::count(hellos, "disk", &Hello::disk) == 2;
  });
}

TEST_F(ChunkedSourceTest, GivenUpForNowItFailsUntilADaemonComes) {
  daemon.die();
  std::thread waiting([&] { EXPECT_EQ(error_of(source, 5), ErrorKind::kUnavailable); });
  while (source.tend()) std::this_thread::yield();
  source.give_up(Error(ErrorKind::kUnavailable, "nobody there"));
  waiting.join();
  EXPECT_EQ(error_of(source, 6), ErrorKind::kUnavailable);
  source.attach(daemon.connect());
  EXPECT_TRUE(reads_right(source, 6));
}

TEST(ChunkedSource, ADaemonThatDoesNotWelcomeIsRefused) {
  const SocketPair pair = make_socket_pair(SOCK_SEQPACKET).value();
  const ChunkedSource source(kBlocks, pair.a.duplicate().value());
  ChunkDaemon::say(pair.b.get(), GiveBack{0});
  EXPECT_EQ(error_of(source, 0), ErrorKind::kCorrupt);
}

// ---- many chunks ----

TEST(ChunkedSource, HoldsOnlySoManyDescriptorsAndLetsTheOldestGo) {
  constexpr uint64_t kManyChunks = kMaxHeldChunks + 8;
  UniqueFd raw = make_memfd("raw", kManyChunks * kChunkBytes).value();
  const std::vector<uint64_t> words = testing::pattern(77);
  for (uint64_t c = 0; c < kManyChunks; c++)
    ASSERT_TRUE(pwrite_all(raw.get(), std::as_bytes(std::span(words)), c * kChunkBytes));
  ChunkDaemon daemon(std::move(raw), kManyChunks * kChunkBlocks);
  daemon.give_descriptors(true);
  const ChunkedSource source(kManyChunks * kChunkBlocks, daemon.connect());
  for (uint64_t c = 0; c < kMaxHeldChunks; c++) EXPECT_EQ(read_version(source, c * kChunkBlocks), 77u);
  EXPECT_EQ(read_version(source, 0), 77u);  // used again: chunk 1 is the oldest now
  for (uint64_t c = kMaxHeldChunks; c < kManyChunks; c++) EXPECT_EQ(read_version(source, c * kChunkBlocks), 77u);
  EXPECT_EQ(descriptors_of(source), kMaxHeldChunks);
  EXPECT_THAT(daemon.returned(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_LE(daemon.most_given(), static_cast<int>(kMaxHeldChunks));
  const size_t asked = daemon.asked().size();
  EXPECT_EQ(read_version(source, 0), 77u);  // still held
  EXPECT_EQ(daemon.asked().size(), asked);
}

// ---- fork ----

TEST_F(ChunkedSourceTest, AForkedChildKeepsTheChunksAndGetsASocketOfItsOwn) {
  daemon.give_descriptors(true);
  EXPECT_TRUE(reads_right(source, 0));
  UniqueFd childs = daemon.connect();
  const pid_t pid = ::fork();
  if (pid == 0) {
    source.after_fork();
    bool good = reads_right(source, 17);  // held
    source.attach(std::move(childs));
    good = good && reads_right(source, 3 * kChunkBlocks + 5) && descriptors_of(source) == 2;
    ::_exit(good ? 0 : 1);
  }
  childs.reset();
  EXPECT_TRUE(reads_right(source, 3 * kChunkBlocks + 1));  // the parent's connection is as it was
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  daemon.wait_until([&] { return daemon.hellos().size() == 2; });
  EXPECT_THAT(daemon.hellos()[1].held, ElementsAre(0));
  EXPECT_THAT(daemon.returned(), IsEmpty());
}

}  // namespace
}  // namespace ramet::image
