// One answer to a read request on its way out: header, bytes of the arena, trailer.
//
// prepare() checks the request against the arena; next() gives what to send, piece by piece, until it is empty. The
// arena's memory stays mapped meanwhile; whether it still holds the step is looked at when the last byte was handed out.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "memory/arena.hpp"
#include "transport/tcp/piece_chunks.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

class Reply {
 public:
  Reply();
  // Never throws Error for what the peer asked: the reply then says what is wrong with it.
  void prepare(const memory::Arena& arena, const wire::ReadRequest& request);
  // Says why a request was not even looked at.
  void refuse(std::uint64_t id, const Error& error);
  // The next parts to send, about 1 MiB, valid until the next call; empty at the end.
  std::span<iovec> next();
  std::uint64_t payload_bytes() const { return reply_.bytes; }
  // Lets go of the arena's memory.
  void clear();

 private:
  // A stretch of memory sent as it lies, or a piece to be packed.
  struct Part {
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::size_t piece = 0;
    bool packed = false;
  };
  void reset(std::uint64_t id);
  void resolve(const memory::Arena& arena, const wire::ReadRequest& request);
  void add_piece(const wire::ReadPiece& wanted, std::span<const std::uint64_t> points, const std::byte* base);
  void encode_header();
  bool add_packed(std::uint64_t& room);

  wire::ReadReply reply_;
  std::vector<std::byte> header_;
  std::vector<Part> parts_;
  std::vector<model::Piece> pieces_;  // to be packed
  std::vector<const std::byte*> bases_;
  std::vector<model::PointMove> moves_;
  std::vector<model::SourceRun> runs_;
  std::vector<std::shared_ptr<const memory::Segment>> owners_;  // by segment
  const memory::Arena* arena_ = nullptr;
  std::uint32_t slot_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t trailer_ = 0;

  bool header_sent_ = false;
  bool trailer_sent_ = false;
  std::size_t at_ = 0;                 // part
  std::uint64_t at_bytes_ = 0;         // of a part sent as it lies
  std::optional<PieceChunks> chunks_;  // of a packed part
  std::vector<iovec> batch_;
  std::vector<std::byte> bounce_;
};

}  // namespace penstock::transport
