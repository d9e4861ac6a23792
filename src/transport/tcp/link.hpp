// A socket over which two processes read and write each other's memory. This module's own.
//
// Each side may ask (Requester) and answer from what it lends (Source). Bytes go straight between the socket and the memory
// that they are for, where that lies in long enough runs. Non-blocking, and of one thread: its owner waits for the socket and
// calls advance(). wire/data.hpp says what travels.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fabric/connection.hpp"
#include "memory/unique_fd.hpp"
#include "transport/source.hpp"
#include "transport/tcp/reply.hpp"
#include "transport/tcp/requester.hpp"

namespace penstock::transport {

inline constexpr std::uint64_t default_in_flight_bytes = std::uint64_t{8} << 20;

class Link {
 public:
  // source: null where the peer may ask for nothing. in_flight_bytes: asked for and not yet received.
  Link(memory::UniqueFd socket, std::shared_ptr<Source> source,
       std::uint64_t in_flight_bytes = default_in_flight_bytes);

  int socket() const { return socket_.get(); }
  void submit(TransferPtr transfer) { requester_.submit(std::move(transfer)); }
  bool wants_write() const { return !shut_ && (!out_.empty() || requester_.may_ask()); }
  // Does some of what can be done without waiting. Throws Error (peer_lost, protocol): then the link is of no use any more.
  void advance(bool readable);
  // Closes the socket; what was submitted fails so.
  void end(const Error& error);

 private:
  // What is to be sent: a frame of ours, with a write's bytes behind it, or the answer to the request that lies in `frame`.
  struct Out {
    enum class What { frame, write, reply } what = What::frame;
    std::vector<std::byte> frame;
    std::string_view point;           // of faults
    TransferPtr transfer;             // of a write
    std::span<const std::byte> body;  // what is left of it
    std::uint64_t trailer = 0;
    bool question = false;  // ours; else the answer to one of the peer's
    bool begun = false, given = false, ended = false;
  };
  enum class Reading { frame, reply, written, trailer };
  // A peer's write that is being received.
  struct Written {
    std::uint64_t id = 0;
    std::unique_ptr<Region> region;  // null: refused
    std::byte* to = nullptr;
    std::uint64_t left = 0;
    std::optional<Error> refused;
  };

  bool send();
  bool send_batch();
  bool ask(Out& out);
  void begin(Out& out);
  std::unique_lock<std::mutex> lock_out(const Out& out) const;
  void give_more(Out& out);
  void look_again(Out& out);
  void finish();
  Out& answer(std::vector<std::byte> frame);

  bool receive();
  std::size_t frame_bytes_missing() const;
  bool process();
  bool take_frame();
  void take_write(std::span<const std::byte> message);
  std::uint64_t left_of_body() const;
  std::unique_lock<std::mutex> lock_body();
  std::span<iovec> places();
  void filled(std::size_t bytes);
  void answer_write(std::uint64_t trailer);

  memory::UniqueFd socket_;
  const std::shared_ptr<Source> source_;
  Requester requester_;

  std::deque<Out> out_;
  std::size_t waiting_answers_ = 0, waiting_bytes_ = 0;  // to the peer's requests, in out_
  bool shut_ = false;                                    // the peer reads no more
  Reply reply_;
  std::span<iovec> batch_;  // what is left of the last parts of the first in out_
  std::vector<iovec> parts_;

  Reading reading_ = Reading::frame;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool trailer_of_reply_ = false;
  Written written_;
  iovec place_{};
};

}  // namespace penstock::transport
