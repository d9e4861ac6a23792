// What one side of a link asks of the other: cuts transfers into requests, and puts what comes where it belongs.
//
// Requests are pipelined up to a bound of bytes, of the transfers in turn. Where a destination lies in long enough runs the
// bytes are received straight into it. Of one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/piece_chunks.hpp"
#include "transport/transfer.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

class Requester {
 public:
  explicit Requester(std::uint64_t in_flight_bytes) : in_flight_bytes_(in_flight_bytes) {}

  void submit(TransferPtr transfer);
  // Every transfer that has not finished fails so.
  void end(const Error& error);

  bool may_ask() const {
    return !waiting_.empty() && requests_.size() < most_requests && asked_bytes_ < most_asked_bytes &&
           (requests_.empty() || outstanding_ < in_flight_bytes_);
  }
  struct Question {
    TransferPtr transfer;
    std::vector<std::byte> frame;
    std::span<const std::byte> body;  // of a write: follows; touched with the transfer's mutex only
  };
  std::optional<Question> ask();  // nothing when nobody waits for an answer any more

  // An answer. Returns how many bytes follow. Throws Error(protocol).
  std::uint64_t take_reply(std::span<const std::byte> message);
  // The bytes of the answer, with the mutex held: where the next ones go (empty: all are there), and how many came.
  std::mutex& mutex() { return requests_[answered_].transfer->mutex; }
  std::span<iovec> places();
  std::uint64_t left() const { return left_; }  // of its bytes, that have not come
  void filled(std::size_t count);
  // After the bytes. Throws Error(protocol).
  void take_trailer(std::uint64_t code);

 private:
  static constexpr std::size_t most_requests = 64, most_asked_bytes = std::size_t{8} << 20;
  // Parts [first, last) of a transfer.
  struct Request {
    std::uint64_t id = 0;
    TransferPtr transfer;
    std::size_t first = 0, last = 0;
    std::uint64_t bytes = 0;
    std::size_t asked_bytes = 0;
  };
  struct Unpack {
    model::Piece piece;
    std::byte* out;
    std::size_t bounce_offset;
  };

  void fill_message(Request& request);
  void answer(std::optional<Error> error);
  void fail(Transfer& transfer, const Error& error);
  void build_batch();
  void open_part(const Transfer::Part& part);
  bool add_direct(const Transfer::Part& part, std::uint64_t& room);
  bool add_packed(const Transfer::Part& part, std::uint64_t& room);
  void next_part();
  void finish_batch();

  const std::uint64_t in_flight_bytes_;
  std::deque<TransferPtr> waiting_;  // with parts that are not asked for
  std::deque<Request> requests_;     // not answered
  std::uint64_t outstanding_ = 0;    // bytes of their answers
  std::size_t asked_bytes_ = 0;      // of themselves
  std::uint64_t next_id_ = 1;
  wire::DataRequest message_;

  // Of the answer that is being received.
  std::size_t answered_ = 0;  // its request
  std::uint64_t left_ = 0;
  std::size_t part_ = 0;
  bool part_open_ = false;
  std::vector<model::SourceRun> runs_;  // of the destination of a part received in place
  std::size_t run_ = 0;
  std::uint64_t run_bytes_ = 0;
  std::optional<PieceChunks> chunks_;
  std::vector<iovec> batch_;
  std::size_t batch_at_ = 0;
  std::vector<Unpack> unpacks_;
  std::vector<std::byte> bounce_;
  iovec waste_{};
};

}  // namespace penstock::transport
