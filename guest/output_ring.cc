#include "output_ring.h"

namespace ramet::guest {

void OutputRing::append(uint32_t fd, std::string_view bytes) {
  uint64_t& written = written_[fd == 2 ? 1 : 0];
  if (!pieces_.empty() && pieces_.back().fd == fd && pieces_.back().bytes.size() + bytes.size() <= kCoalesceBytes) {
    pieces_.back().bytes.append(bytes);
    cost_ += bytes.size();
  } else {
    pieces_.push_back({fd, written, std::string(bytes)});
    cost_ += bytes.size() + kPieceOverhead;
  }
  written += bytes.size();
}

std::optional<OutputRing::Slice> OutputRing::read(Cursor& cursor) const {
  if (cursor.piece < first_piece_) cursor = {first_piece_, 0};
  if (at_end(cursor)) return std::nullopt;
  const Piece* piece = &pieces_[cursor.piece - first_piece_];
  if (cursor.taken == piece->bytes.size()) {
    cursor = {cursor.piece + 1, 0};  // exists: the cursor is before the end
    piece = &pieces_[cursor.piece - first_piece_];
  }
  const Slice slice{piece->fd, piece->offset + cursor.taken, std::string_view(piece->bytes).substr(cursor.taken)};
  cursor.taken = piece->bytes.size();
  return slice;
}

bool OutputRing::at_end(const Cursor& cursor) const { return cursor >= end(); }

OutputRing::Cursor OutputRing::end() const {
  if (pieces_.empty()) return {first_piece_, 0};
  return {first_piece_ + pieces_.size() - 1, pieces_.back().bytes.size()};
}

bool OutputRing::make_room(Cursor keep_from) {
  while (full() && !pieces_.empty() && first_piece_ < keep_from.piece) {
    cost_ -= pieces_.front().bytes.size() + kPieceOverhead;
    pieces_.pop_front();
    first_piece_++;
  }
  return !full();
}

void OutputRing::clear_history() {
  first_piece_ += pieces_.size();
  pieces_.clear();
  cost_ = 0;
}

}  // namespace ramet::guest
