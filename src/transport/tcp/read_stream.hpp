// One data connection to a writer rank: sends read requests, receives their replies into the caller's memory.
//
// Non-blocking: the owner polls the socket and calls advance(). Requests are pipelined up to a bound of bytes; replies
// come in order. Where the destination lies in long enough runs the bytes are received straight into it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/connection.hpp"
#include "memory/unique_fd.hpp"
#include "model/plan.hpp"
#include "transport/tcp/piece_chunks.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

class ReadStream {
 public:
  ReadStream(memory::UniqueFd socket, std::uint64_t in_flight_bytes);

  int socket() const { return socket_.get(); }
  // Starts a new fetch; the previous one has finished. ordered: pieces may overlap at the destination.
  void begin(std::uint64_t step, std::uint32_t slot, bool ordered);
  // The piece's plan and `out` live until the fetch has finished.
  void add(const model::Piece& piece, std::byte* out);
  bool finished() const { return next_ == parts_.size() && requests_.empty(); }
  bool wants_write() const { return sent_ < sending_.size() || may_request(); }
  // Does what it can without waiting. Throws Error: peer_lost, protocol, step_gone, and what the server reported.
  void advance();
  std::uint64_t received_bytes() const { return received_; }

 private:
  struct Part {
    model::Piece piece;
    std::byte* out = nullptr;
  };
  // Parts [first, last) in one message.
  struct Request {
    std::uint64_t id = 0;
    std::size_t first = 0, last = 0;
    std::uint64_t bytes = 0;
  };
  struct Unpack {
    model::Piece piece;
    std::byte* out;
    std::size_t bounce_offset;
  };
  enum class State { header, payload, trailer };

  bool may_request() const;
  void make_request();
  bool write_some();
  bool read_some();
  bool process();
  bool take_reply();
  void build_batch();
  bool add_direct(const Part& part, std::uint64_t& room);
  bool add_packed(const Part& part, std::uint64_t& room);
  void next_part();
  void drain_buffer();
  void consume(std::size_t count);
  void finish_batch();

  memory::UniqueFd socket_;
  const std::uint64_t in_flight_bytes_;
  std::uint64_t step_ = 0;
  std::uint32_t slot_ = 0;
  bool ordered_ = false;
  std::vector<Part> parts_;
  std::size_t next_ = 0;  // first part not yet asked for
  std::uint64_t outstanding_ = 0;
  std::uint64_t next_id_ = 1;
  std::deque<Request> requests_;
  wire::ReadRequest message_;
  std::vector<std::byte> sending_;
  std::size_t sent_ = 0;

  // Of the reply being received.
  State state_ = State::header;
  std::size_t part_ = 0;
  std::vector<model::SourceRun> runs_;  // of the destination of a part received in place
  std::size_t run_ = 0;
  std::uint64_t run_bytes_ = 0;
  bool part_open_ = false;
  std::optional<PieceChunks> chunks_;
  std::vector<iovec> batch_;
  std::size_t batch_at_ = 0;
  std::vector<Unpack> unpacks_;
  std::vector<std::byte> bounce_;
  std::vector<std::byte> buffer_;  // headers and trailers, and what came with them
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace penstock::transport
