#include "abi/frame.h"

#include <gtest/gtest.h>

#include "abi/agent.pb.h"

namespace ramet::abi {
namespace {

std::string frame_of(const Request& request) {
  std::string out;
  EXPECT_TRUE(append_frame(request, out));
  return out;
}

TEST(Frame, RoundTripsByteByByte) {
  Request request;
  request.mutable_read()->set_path("/etc/passwd");
  std::string wire = frame_of(request);

  FrameBuffer buffer;
  for (size_t i = 0; i + 1 < wire.size(); i++) {
    buffer.feed(&wire[i], 1);
    ASSERT_FALSE(buffer.next());
  }
  buffer.feed(&wire.back(), 1);
  std::optional<std::string_view> message = buffer.next();
  ASSERT_TRUE(message);
  Request parsed;
  ASSERT_TRUE(parsed.ParseFromArray(message->data(), static_cast<int>(message->size())));
  EXPECT_EQ(parsed.read().path(), "/etc/passwd");
  EXPECT_EQ(buffer.pending(), 0u);
}

TEST(Frame, SeveralFramesInOneFeed) {
  Request request;
  request.mutable_ping();
  std::string wire = frame_of(request) + frame_of(request) + frame_of(request);

  FrameBuffer buffer;
  buffer.feed(wire.data(), wire.size());
  EXPECT_TRUE(buffer.next());
  EXPECT_TRUE(buffer.next());
  EXPECT_TRUE(buffer.next());
  EXPECT_FALSE(buffer.next());
}

TEST(Frame, LengthOverTheLimitStopsTheStream) {
  char header[kFrameHeaderBytes];
  put_frame_header(header, kMaxFrameBytes + 1);

  FrameBuffer buffer;
  buffer.feed(header, sizeof header);
  EXPECT_FALSE(buffer.next());
  EXPECT_TRUE(buffer.too_long());
}

TEST(Frame, MessageOverTheLimitIsNotWritten) {
  Request request;
  request.mutable_exec()->set_shell(std::string(kMaxFrameBytes + 1, 'x'));
  std::string out = "before";
  EXPECT_FALSE(append_frame(request, out));
  EXPECT_EQ(out, "before");
}

TEST(Frame, LongStreamDoesNotGrowTheBuffer) {
  Input input;
  input.mutable_data()->set_bytes(std::string(kChunkBytes, 'x'));
  std::string wire;
  ASSERT_TRUE(append_frame(input, wire));

  FrameBuffer buffer;
  for (int i = 0; i < 1000; i++) {
    buffer.feed(wire.data(), wire.size());
    ASSERT_TRUE(buffer.next());
    ASSERT_EQ(buffer.pending(), 0u);
  }
}

}  // namespace
}  // namespace ramet::abi
