// guest/output_ring.h - the recent output of one command: pieces of both streams in the order they were read, bounded in bytes.
// Readers hold cursors. The ring never drops by itself: make_room() is told up to where the oldest may go.
// Not here: who reads, who is held back (process.h). Thread: the reactor's. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace ramet::guest {

class OutputRing {
 public:
  // Position of a reader: piece number, counted from the start of the command, and bytes of it already taken.
  struct Cursor {
    uint64_t piece = 0;
    size_t taken = 0;
    auto operator<=>(const Cursor&) const = default;
  };
  struct Slice {
    uint32_t fd;
    uint64_t offset;
    std::string_view bytes;  // valid until the next append or make_room
  };

  explicit OutputRing(size_t limit_bytes) : limit_(limit_bytes) {}

  void append(uint32_t fd, std::string_view bytes);
  // What follows the cursor, which is moved past it; nothing at the end. A cursor whose piece is gone goes on with the oldest
  // kept.
  std::optional<Slice> read(Cursor& cursor) const;
  bool at_end(const Cursor& cursor) const;

  bool full() const { return cost_ >= limit_; }
  // Drops whole pieces before `keep_from` until there is room or nothing more may go. True when there is room.
  bool make_room(Cursor keep_from);
  Cursor end() const;

  uint64_t written(uint32_t fd) const { return fd == 2 ? written_[1] : written_[0]; }
  size_t cost_bytes() const { return cost_; }
  void clear_history();

 private:
  struct Piece {
    uint32_t fd;
    uint64_t offset;
    std::string bytes;
  };
  static constexpr size_t kPieceOverhead = 96;  // so that one-byte writes are bounded too
  static constexpr size_t kCoalesceBytes = 16u << 10;

  size_t limit_;
  size_t cost_ = 0;
  uint64_t first_piece_ = 0;
  uint64_t written_[2] = {0, 0};
  std::deque<Piece> pieces_;
};

}  // namespace ramet::guest
