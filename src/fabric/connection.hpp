// A control connection: framed messages over a Unix or TCP socket, with descriptors over Unix.
//
// Frame: u32 length, u16 kind, u16 has_fd (0 or 1), then `length` bytes, at most max_frame_bytes. A peer that breaks the
// framing, does not read (its queue outgrows max_queue_bytes) or is gone ends the connection, and only that.
// Threads: send, close, and the getters from any thread; callbacks run on the engine thread, none before start().
// Destroying the last shared_ptr closes it at once. Callbacks are dropped when it ends, so they may own it: such a
// connection lives until the peer or close() ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fabric/progress.hpp"
#include "memory/unique_fd.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {

using memory::UniqueFd;

inline constexpr std::size_t max_frame_bytes = std::size_t{16} << 20;
inline constexpr std::size_t max_queue_bytes = std::size_t{64}
                                               << 20;  // waiting to be sent on one connection, but see send

struct FrameHeader {
  std::uint32_t length;
  std::uint16_t kind;
  std::uint16_t has_fd;
};
static_assert(sizeof(FrameHeader) == 8);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // bytes are valid during the call only; the descriptor is the callee's (empty when the frame had none).
  using OnMessage = std::function<void(std::uint16_t kind, std::span<const std::byte> bytes, UniqueFd fd)>;
  // The peer is gone (peer_lost) or broke the protocol (protocol).
  using OnClosed = std::function<void(const Error&)>;

  // Takes a connected stream socket.
  static std::shared_ptr<Connection> adopt(Progress& progress, UniqueFd socket, std::string peer_name);
  ~Connection();

  // Begins to read. Every message that the peer sent before it ended is delivered before on_closed. on_closed is called
  // exactly once, unless close() was called first: on the engine thread neither is called after close(). May be called
  // again to replace both (a handler taking over from another), on the engine thread.
  void start(OnMessage on_message, OnClosed on_closed);

  // Never blocks, and never throws because of the peer: what the socket does not take at once is queued; when the peer is gone it is dropped
  // (on_closed tells). kind_name names the fault points "send:<name>". fd: sent along (Unix only); stays the caller's.
  // Throws Error(invalid_argument) when the message is too long.
  // owed: does not count against max_queue_bytes; for what is large, and bounded by what the peer has still to answer.
  void send(std::uint16_t kind, std::string_view kind_name, std::span<const std::byte> bytes, int fd = -1,
            bool owed = false);

  // Sends what is queued (two seconds at most), then closes. No callbacks any more.
  void close();
  // Stops reading and drops both callbacks until start() is called again; on the engine thread, within on_message too.
  void pause();
  // Frames longer than this end the connection (max_frame_bytes to begin with), and so does a descriptor unless
  // descriptors are accepted (they are to begin with). The buffer for what is received is no larger at first.
  void limit_frames(std::size_t bytes, bool descriptors = true);
  // The peer sees the end of what we send (at once: what is queued is dropped); we go on reading until it closes.
  void end_sending();
  // Gives the socket up (blocking mode) for other use; on the engine thread, while not started or paused. Throws
  // Error(protocol) when the peer has sent, or we have queued, more than was handled.
  UniqueFd release();

  bool open() const;                     // false once it ended, for whatever reason
  bool local() const;                    // over a Unix socket: the peer is on this node and can receive descriptors
  const std::string& peer_name() const;  // "host:pid" as the peer said
  void set_peer_name(std::string name);  // before others use it
  std::uint64_t bytes_sent() const;      // payload and headers, queued or sent
  std::uint64_t queued_bytes() const;    // not taken by the socket yet

 private:
  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  void enqueue(std::span<const std::byte> header, std::span<const std::byte> bytes, std::size_t sent, int fd,
               bool owed);
  void break_writing(std::optional<Error> now, int code);
  void arm_read();
  void arm_write();
  void on_readable();
  void on_resumed();
  bool read_some();
  bool deliver();
  void guarded(void (Connection::*handler)());
  void on_writable();
  void fail(Error error);
  void finish_close();
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::fabric
