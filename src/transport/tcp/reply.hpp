// One answer to a read request on its way out: header, bytes of a region, trailer.
//
// prepare() checks the request against the source; next() gives what to send, piece by piece, until it is empty. Whether the
// bytes were good is looked at when the last was handed out. What is given is touched with lock() held.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/piece_chunks.hpp"
#include "transport/source.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

class Reply {
 public:
  Reply();
  // Never throws Error for what the peer asked: the reply then says what is wrong with it.
  void prepare(Source& source, std::span<const std::byte> request);
  std::unique_lock<std::mutex> lock() const { return lock_of(mutex_); }
  // The next parts to send, about 1 MiB, valid until the next call; empty at the end.
  std::span<iovec> next();
  // After the lock was given back: the rest of what next() gave is replaced where its memory may be gone.
  void look_again(std::span<iovec> rest);
  std::uint64_t payload_bytes() const { return reply_.bytes; }
  // Releases the region.
  void clear();

 private:
  // A stretch of memory sent as it lies, or a piece to be packed.
  struct Part {
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::size_t piece = 0;
    bool packed = false;
  };
  void refuse(const Error& error);
  void resolve(Source& source);
  void add_piece(const wire::DataPiece& wanted, const std::byte* base);
  void add_parts(std::uint64_t room);
  bool add_packed(std::uint64_t& room);

  wire::DataRequest request_;
  wire::DataReply reply_;
  std::vector<std::byte> header_;
  std::vector<Part> parts_;
  std::vector<model::Piece> pieces_;  // to be packed
  std::vector<const std::byte*> bases_;
  std::vector<model::PointMove> moves_;
  std::vector<model::SourceRun> runs_;
  std::unique_ptr<Region> region_;
  std::mutex* mutex_ = nullptr;  // the region's
  std::uint64_t left_ = 0;       // bytes that next() has not given
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
