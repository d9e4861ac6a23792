// Cuts a piece of a plan into parts of bounded size, in the order of its packed form.
//
// What crosses a network is a piece's packed bytes; both sides convert through small buffers that stay in the cache, and
// cut where they like: the bytes are the same.
#pragma once

#include <cstdint>
#include <span>

#include "model/plan.hpp"

namespace penstock::transport {

class PieceChunks {
 public:
  // The piece (and what its points refer to) must outlive this. limit_bytes: of a part; at least one element.
  PieceChunks(const model::Piece& piece, std::uint64_t limit_bytes);
  bool done() const { return at_ == total_; }
  // The next part, as a piece of its own, to be packed or unpacked with the same bases. Undefined when done.
  model::Piece next();

 private:
  model::Piece next_points();
  model::Piece next_box();
  const model::Piece& piece_;
  std::uint64_t total_ = 0;  // elements
  std::uint64_t at_ = 0;
  std::uint64_t limit_ = 1;  // elements of a part
  // Parts take some indices of dimension split_ at a time, whole in the dimensions after it.
  std::size_t split_ = 0;
  std::uint64_t inner_ = 1;  // elements of one index of dimension split_
};

}  // namespace penstock::transport
