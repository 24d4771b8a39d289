// The chunk socket: what readers get, what they may hold, and that bad ones harm nobody else.
#include "host/images/chunk_server.h"

#include <future>
#include <latch>
#include <random>

#include "base/testing/no_descriptors.h"
#include "host/images/testing/chunk_reader.h"
#include "host/images/testing/image_fixture.h"

namespace ramet::host {
namespace {

using image::kChunkBlocks;
using testing::Bytes;
using testing::ChunkReader;

class ChunkServerTest : public testing::ImageFixture {
 protected:
  void start(FillPolicy fill = {.after_misses = 0}) {
    reader_ = std::make_unique<DiskReader>(*images_, DiskReader::Options{.fill = fill});
    server_ = ChunkServer::start(*reader_, {.find = [this](const std::string& name) {
                before_find_();
                return images_->use({ImageSpace::kUser, name});
              }}).value();
  }
  void TearDown() override {
    server_.reset();
    reader_.reset();
  }
  ChunkReader attached(const std::shared_ptr<OpenImage>& image) { return ChunkReader(server_->attach(image).value()); }
  ChunkReader connected() { return ChunkReader(connect_unix(socket_path(), SOCK_SEQPACKET).value()); }
  std::string socket_path() const { return directory_.path + "/chunk.sock"; }
  // A disk of so many chunks, each with something in its first block.
  std::shared_ptr<OpenImage> disk_of_chunks(uint64_t chunks) {
    std::vector<uint64_t> written;
    for (uint64_t n = 0; n < chunks; n++) written.push_back(n * kChunkBlocks);
    return imported("disk" + std::to_string(chunks), raw_file(chunks * kChunkBlocks, written));
  }
  // The same chunk again and again.
  std::shared_ptr<OpenImage> disk_of_equal_chunks(uint64_t chunks) {
    chunk::Batch batch = images_->chunks().begin();
    Bytes content(image::kChunkBytes);
    content[0] = std::byte{1};
    const Digest name = batch.put(content).value().value();
    image::Manifest manifest = image::Manifest::empty(image::ImageKind::kDisk, chunks * kChunkBlocks).value();
    for (uint64_t n = 0; n < chunks; n++) EXPECT_TRUE(manifest.set(n, name));
    EXPECT_TRUE(commit::seal_into(batch, manifest));
    EXPECT_TRUE(batch.commit());
    EXPECT_TRUE(images_->cache().fill(name, content));
    return images_->add({ImageSpace::kUser, "equal"}, batch, manifest.root()).value();
  }
  void put_into_cache(OpenImage& image) {
    for (uint64_t n = 0; n < image.chunks(); n++) {
      const Digest name = image.chunk(n).value();
      ASSERT_TRUE(images_->cache().fill(name, images_->chunks().get(name).value()));
    }
  }
  // Asks until the answer is a chunk.
  void borrow(ChunkReader& reader, uint64_t chunk) {
    reader.send(image::Ask{chunk + 1, chunk * kChunkBlocks});
    ASSERT_TRUE(reader.expect<image::Chunk>()) << chunk;
  }

  std::function<void()> before_find_ = [] {};
  std::unique_ptr<DiskReader> reader_;
  std::unique_ptr<ChunkServer> server_;
};

TEST_F(ChunkServerTest, ABoundReaderIsAnsweredWithZerosAndData) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {7}));
  start();
  ChunkReader reader = attached(image);
  EXPECT_EQ(reader.hello(), 100u);
  reader.send(image::Ask{5, 7});
  const std::optional<image::Data> data = reader.expect<image::Data>();
  ASSERT_TRUE(data);
  EXPECT_EQ(data->id, 5u);
  EXPECT_EQ(data->range, (image::BlockRange{7, 1}));
  EXPECT_EQ(Bytes(data->bytes.begin(), data->bytes.end()), block_bytes(7));
  reader.send(image::Ask{6, 8});
  EXPECT_EQ(reader.expect<image::Zeros>(), (image::Zeros{6, {8, 92}}));
}

TEST_F(ChunkServerTest, AChunkInTheCacheIsLentByDescriptor) {
  const std::shared_ptr<OpenImage> image = disk_of_chunks(2);
  put_into_cache(*image);
  start();
  ChunkReader reader = attached(image);
  reader.hello();
  reader.send(image::Ask{1, kChunkBlocks});
  EXPECT_EQ(reader.expect<image::Chunk>(), (image::Chunk{1, 1}));
  Bytes bytes(image::kBlockBytes);
  ASSERT_TRUE(pread_exact(reader.last().fd.get(), bytes, 0));
  EXPECT_EQ(bytes, block_bytes(kChunkBlocks));
  EXPECT_LT(::pwrite(reader.last().fd.get(), "x", 1, 0), 0);
}

TEST_F(ChunkServerTest, AReaderNamesAnImageOnTheSocketFile) {
  imported("named", raw_file(10, {1}));
  start();
  ASSERT_TRUE(server_->listen(socket_path()));
  EXPECT_EQ(connected().hello("named"), 10u);
  ChunkReader unknown = connected();
  unknown.send(image::Hello{"unknown", {}});
  const std::optional<image::Failed> failed = unknown.expect<image::Failed>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, ErrorKind::kNotFound);
  EXPECT_FALSE(unknown.receive());
}

TEST_F(ChunkServerTest, AWelcomeTellsOtherContentUnderTheSameName) {
  imported("named", raw_file(10, {1}, 1));
  imported("copy", raw_file(10, {1}, 1));
  start();
  ASSERT_TRUE(server_->listen(socket_path()));
  const auto content_of = [this](const std::string& name) {
    ChunkReader reader = connected();
    reader.send(image::Hello{name, {}});
    return reader.expect<image::Welcome>().value().content;
  };
  const uint64_t before = content_of("named");
  EXPECT_EQ(content_of("copy"), before);
  ASSERT_TRUE(images_->remove({ImageSpace::kUser, "named"}));
  imported("named", raw_file(10, {1}, 2));
  EXPECT_NE(content_of("named"), before);
}

TEST_F(ChunkServerTest, ABoundReaderReachesNoOtherDisk) {
  const std::shared_ptr<OpenImage> image = imported("mine", raw_file(10, {1}, 1));
  imported("theirs", raw_file(10, {1}, 2));
  start();
  ChunkReader reader = attached(image);
  reader.send(image::Hello{"theirs", {}});
  const std::optional<image::Failed> failed = reader.expect<image::Failed>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, ErrorKind::kPermission);
}

TEST_F(ChunkServerTest, AnAskForNoBlockOfTheDiskFailsAndTheNextIsAnswered) {
  start();
  ChunkReader reader = attached(imported("disk", raw_file(10, {1})));
  reader.hello();
  reader.send(image::Ask{1, 10});
  const std::optional<image::Failed> failed = reader.expect<image::Failed>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->id, 1u);
  EXPECT_EQ(failed->kind, ErrorKind::kInvalid);
  reader.send(image::Ask{2, 1});
  EXPECT_TRUE(reader.expect<image::Data>());
}

TEST_F(ChunkServerTest, AReaderHoldsAtMostSoManyChunks) {
  const std::shared_ptr<OpenImage> image = disk_of_equal_chunks(image::kMaxHeldChunks + 1);
  start();
  ChunkReader reader = attached(image);
  reader.hello();
  for (uint64_t chunk = 0; chunk < image::kMaxHeldChunks; chunk++) borrow(reader, chunk);
  reader.send(image::Ask{1000, image::kMaxHeldChunks * kChunkBlocks});
  EXPECT_TRUE(reader.expect<image::Data>());
  reader.send(image::Returned{0});
  borrow(reader, image::kMaxHeldChunks);
}

TEST_F(ChunkServerTest, WhatWasInheritedCountsAsHeldAndIsLeased) {
  const std::shared_ptr<OpenImage> image = disk_of_chunks(3);
  put_into_cache(*image);
  start();
  ChunkReader reader = attached(image);
  reader.hello({}, {0, 2});
  EXPECT_EQ(server_->usage().held_chunks, 2u);
  EXPECT_GE(images_->cache().usage().leased_bytes, 2 * image::kBlockBytes);
  reader.send(image::Ask{1, 0});
  EXPECT_TRUE(reader.expect<image::Data>());  // it has the descriptor
}

TEST_F(ChunkServerTest, AReaderThatHangsUpGivesAllBack) {
  const std::shared_ptr<OpenImage> image = disk_of_chunks(2);
  put_into_cache(*image);
  start();
  {
    ChunkReader reader = attached(image);
    reader.hello();
    borrow(reader, 0);
    borrow(reader, 1);
  }
  while (server_->usage().connections != 0) std::this_thread::yield();
  while (images_->cache().usage().leased_bytes != 0) std::this_thread::yield();
}

TEST_F(ChunkServerTest, AFullCacheIsAskedBack) {
  reopen(4 * image::kBlockBytes);
  const std::shared_ptr<OpenImage> image = disk_of_chunks(5);
  for (uint64_t n = 0; n < 4; n++)
    ASSERT_TRUE(images_->cache().fill(image->chunk(n).value(), images_->chunks().get(image->chunk(n).value()).value()));
  start({.after_misses = 1});
  ChunkReader reader = attached(image);
  reader.hello();
  for (uint64_t n = 0; n < 4; n++) borrow(reader, n);
  reader.send(image::Ask{9, 4 * kChunkBlocks});
  ASSERT_TRUE(reader.expect<image::Data>());
  EXPECT_EQ(reader.expect<image::GiveBack>(), image::GiveBack{0});
  for (uint64_t n = 1; n < 4; n++) EXPECT_EQ(reader.expect<image::GiveBack>(), image::GiveBack{n});
  reader_->drain();
  reader.send(image::Returned{0});
  reader.send(image::Ask{10, 4 * kChunkBlocks});
  ASSERT_TRUE(reader.expect<image::Data>());
  reader_->drain();
  borrow(reader, 4);
}

TEST_F(ChunkServerTest, ManyAsksOfOneReaderDoNotKeepAnotherWaiting) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {7}));
  start();
  ChunkReader greedy = attached(image), modest = attached(image);
  greedy.hello();
  modest.hello();
  // It takes no answer: its socket is full, and it is left alone from then on.
  for (uint64_t id = 1; id <= image::kMaxOpenAsks; id++) greedy.send(image::Ask{id, 7});
  for (uint64_t id = 1; id <= 10; id++) {
    modest.send(image::Ask{id, 7});
    EXPECT_TRUE(modest.expect<image::Data>());
  }
  for (uint64_t id = 1; id <= image::kMaxOpenAsks; id++) EXPECT_TRUE(greedy.expect<image::Data>());
}

TEST_F(ChunkServerTest, WhoBreaksTheProtocolIsHungUpOnAlsoWhileAllWorkersWait) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {7}));
  std::latch both_wait(2);
  std::promise<void> go_on;
  before_find_ = [&, released = go_on.get_future().share()] {
    both_wait.count_down();
    released.wait();
  };
  start();
  ASSERT_TRUE(server_->listen(socket_path()));
  ChunkReader one = connected(), other = connected();
  one.send(image::Hello{"disk", {}});
  other.send(image::Hello{"disk", {}});
  both_wait.wait();
  ChunkReader bad = attached(image);
  bad.send("x");
  const Result<Received> got = receive_message(bad.socket(), 100, deadline_after(Milliseconds(10'000)));
  EXPECT_TRUE(got && got->eof);
  ChunkReader waits = attached(image);
  waits.send(image::Hello{});
  go_on.set_value();
  for (ChunkReader* reader : {&one, &other, &waits}) EXPECT_TRUE(reader->expect<image::Welcome>());
}

TEST_F(ChunkServerTest, WithoutADescriptorNewReadersWaitAndNoThreadSpins) {
  imported("named", raw_file(10, {1}));
  start();
  ASSERT_TRUE(server_->listen(socket_path()));
  ChunkReader before = connected();
  ASSERT_EQ(before.hello("named"), 10u);
  before.send(image::Ask{1, 2});  // what it needs for that is read now
  ASSERT_TRUE(before.expect<image::Zeros>());
  ramet::testing::NoDescriptors none;
  none.spare(1);
  ChunkReader waits = connected();  // takes it
  EXPECT_LT(ramet::testing::cpu_time_during(Milliseconds(500)), Milliseconds(50));
  before.send(image::Ask{2, 2});
  EXPECT_TRUE(before.expect<image::Zeros>());
  none.release();
  EXPECT_EQ(waits.hello("named"), 10u);
  EXPECT_EQ(connected().hello("named"), 10u);
}

TEST_F(ChunkServerTest, WhoBreaksTheProtocolIsHungUpOn) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {7}));
  start();
  const std::string hello = image::encode(image::ReaderMessage(image::Hello{}));
  const std::string ask = image::encode(image::ReaderMessage(image::Ask{1, 7}));
  for (const std::vector<std::string>& packets : std::vector<std::vector<std::string>>{
           {"x"}, {ask}, {hello, hello, hello}, {std::string(5000, 'x')}, {hello.substr(0, hello.size() - 1)}}) {
    ChunkReader reader = attached(image);
    for (const std::string& packet : packets) reader.send(packet);
    while (reader.receive()) {
    }
  }
  EXPECT_EQ(attached(image).hello(), 100u);
}

TEST_F(ChunkServerTest, GarbageOfManyReadersHarmsNobody) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {7}));
  start();
  ChunkReader good = attached(image);
  ASSERT_TRUE(good.hello());
  std::mt19937_64 random(1);
  const std::string samples[] = {image::encode(image::ReaderMessage(image::Hello{"disk", {1, 2}})),
                                 image::encode(image::ReaderMessage(image::Ask{1, 7})),
                                 image::encode(image::ReaderMessage(image::Returned{7}))};
  for (int round = 0; round < 300; round++) {
    ChunkReader bad = attached(image);
    bad.send(image::encode(image::ReaderMessage(image::Hello{})));
    for (int i = 0; i < 10; i++) {
      std::string packet = samples[random() % std::size(samples)];
      packet[random() % packet.size()] ^= static_cast<char>(random());
      packet.resize(random() % 4 == 0 ? random() % (packet.size() + 1) : packet.size());
      bad.send(packet);
    }
    good.send(image::Ask{1, 7});
    ASSERT_TRUE(good.expect<image::Data>()) << round;
  }
}

}  // namespace
}  // namespace ramet::host
