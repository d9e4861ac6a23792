#include "fabric/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

#include "base/fault.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "fabric/asio.hpp"
#include "fabric/send_queue.hpp"
#include "fabric/socket.hpp"

namespace penstock::fabric {

namespace {

using base::FaultPhase;

constexpr std::size_t first_buffer_bytes = std::size_t{64} << 10;
constexpr std::size_t most_unclaimed_fds = 4;
constexpr int reads_per_turn = 16;  // then others have theirs
constexpr std::chrono::seconds flush_time{2};
constexpr std::chrono::seconds drain_time{1};
// Between finding that the peer takes nothing any more and giving up on what it may have sent before.
constexpr std::chrono::seconds last_words_time{1};

}  // namespace

struct Connection::Impl {
  Impl(Progress& owner, UniqueFd socket, std::string name)
      : progress(owner),
        loop(owner.impl()),
        descriptor(context_of(owner), socket.get()),
        fd(socket.release()),
        local(is_local(fd)),
        peer_name(std::move(name)) {}

  struct Handlers {
    OnMessage on_message;
    OnClosed on_closed;
  };

  Progress& progress;
  Progress::Impl& loop;  // outlives progress while the loop is taken down
  asio::posix::stream_descriptor descriptor;
  const int fd;  // the descriptor's
  const bool local;
  std::string peer_name;
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<std::uint64_t> queued_bytes{0};  // queue.size(), to be read without the mutex
  std::atomic<bool> ended{false};
  std::atomic<bool> closing{false};  // close() was called

  // Guards what follows, and that the socket stays open while send() uses it.
  std::mutex mutex;
  SendQueue queue;
  std::size_t owed = 0;       // bytes queued since it was last empty that its bound does not count
  bool write_broken = false;  // the peer takes nothing any more
  bool write_armed = false;

  // The engine thread's own.
  std::shared_ptr<Handlers> handlers;  // null: not started, paused or ended
  bool read_armed = false;
  std::optional<Error> pending_error;  // found before start()
  std::vector<std::byte> buffer;
  std::size_t begin = 0, end = 0;  // of the bytes received and not delivered
  std::size_t frame_limit = max_frame_bytes;
  std::size_t unclaimed_fds = most_unclaimed_fds;
  std::vector<UniqueFd> received;
  std::deque<UniqueFd> fds;  // received, in order, and not yet claimed by a frame
  Timer timer;
};

std::shared_ptr<Connection> Connection::adopt(Progress& progress, UniqueFd socket, std::string peer_name) {
  base::leave_to_parent(socket.get());
  set_blocking(socket.get(), false);
  set_stream_options(socket.get());
  const std::shared_ptr<Connection> connection(
      new Connection(std::make_unique<Impl>(progress, std::move(socket), std::move(peer_name))));
  auto& loop = connection->impl_->loop;
  std::lock_guard lock(loop.mutex);
  loop.owners.emplace(connection.get(), [weak = std::weak_ptr(connection)] {
    if (const auto self = weak.lock()) self->impl_->handlers.reset();
  });
  return connection;
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Connection::~Connection() {
  std::lock_guard lock(impl_->loop.mutex);
  impl_->loop.owners.erase(this);
}

bool Connection::open() const { return !impl_->ended.load(); }
bool Connection::local() const { return impl_->local; }
const std::string& Connection::peer_name() const { return impl_->peer_name; }
void Connection::set_peer_name(std::string name) { impl_->peer_name = std::move(name); }
std::uint64_t Connection::bytes_sent() const { return impl_->bytes_sent.load(std::memory_order_relaxed); }
std::uint64_t Connection::queued_bytes() const { return impl_->queued_bytes.load(std::memory_order_relaxed); }
void Connection::limit_frames(std::size_t bytes, bool descriptors) {
  impl_->frame_limit = std::min(bytes, max_frame_bytes);
  impl_->unclaimed_fds = descriptors ? most_unclaimed_fds : 0;
}

void Connection::start(OnMessage on_message, OnClosed on_closed) {
  auto handlers = std::make_shared<Impl::Handlers>(Impl::Handlers{std::move(on_message), std::move(on_closed)});
  const auto begin = [self = shared_from_this(), handlers] {
    Impl& impl = *self->impl_;
    const bool running = impl.handlers != nullptr;
    if (impl.closing || (impl.ended && !impl.pending_error)) return;
    impl.handlers = handlers;
    if (impl.pending_error) {
      self->fail(Error(*impl.pending_error));
    } else if (!impl.ended && !running && !impl.read_armed) {
      // What was received before a pause is delivered first, but never from within another callback.
      impl.read_armed = true;
      asio::post(context_of(impl.progress), [weak = self->weak_from_this()] {
        const auto again = weak.lock();
        if (!again) return;
        again->impl_->read_armed = false;
        again->guarded(&Connection::on_resumed);
      });
    }
  };
  if (impl_->progress.on_engine_thread()) begin();
  else impl_->progress.post(begin);
}

void Connection::pause() { impl_->handlers.reset(); }

UniqueFd Connection::release() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->ended) throw Error(Errc::peer_lost, impl_->peer_name + " is gone");
  if (impl_->begin != impl_->end || !impl_->queue.empty() || !impl_->fds.empty())
    throw Error(Errc::protocol, impl_->peer_name + " spoke out of turn");
  impl_->ended = true;
  impl_->handlers.reset();
  UniqueFd fd(impl_->descriptor.release());
  set_blocking(fd.get(), true);
  return fd;
}

// ------------------------------------------------------------------------------------------------------------ sending

void Connection::send(std::uint16_t kind, std::string_view kind_name, std::span<const std::byte> bytes, int fd,
                      bool owed) {
  Impl& impl = *impl_;
  if (bytes.size() > max_frame_bytes)
    throw Error(Errc::invalid_argument, "a message of " + std::to_string(bytes.size()) + " bytes is too long");
  if (fd >= 0 && !impl.local) throw Error(Errc::invalid_argument, "descriptors do not travel over TCP");
  FrameHeader header{static_cast<std::uint32_t>(bytes.size()), kind, static_cast<std::uint16_t>(fd >= 0 ? 1 : 0)};
  const bool watched = base::fault_hook.load(std::memory_order_relaxed) != nullptr;
  if (base::fault_point("send", kind_name, FaultPhase::before)) std::memset(&header, 0xa5, sizeof header);
  {
    std::lock_guard lock(impl.mutex);
    if (impl.ended || impl.closing || impl.write_broken) return;
    impl.bytes_sent.fetch_add(sizeof header + bytes.size(), std::memory_order_relaxed);
    std::ptrdiff_t sent = 0;
    if (impl.queue.empty()) {
      // From this thread, without waking the engine.
      const iovec parts[2] = {{&header, sizeof header}, {const_cast<std::byte*>(bytes.data()), bytes.size()}};
      const std::size_t count = watched ? 1 : 2;  // tests may stop us after the header
      sent = send_some(impl.fd, std::span(parts, count), fd);
    }
    if (watched) {
      base::fault_point("send", kind_name, FaultPhase::half);
      const iovec rest{const_cast<std::byte*>(bytes.data()), bytes.size()};
      if (sent == sizeof header) sent += std::max<std::ptrdiff_t>(0, send_some(impl.fd, std::span(&rest, 1), -1));
    }
    if (sent == -EAGAIN || sent == -EWOULDBLOCK) sent = 0;
    if (sent < 0) break_writing(std::nullopt, static_cast<int>(-sent));
    else enqueue(std::as_bytes(std::span(&header, 1)), bytes, static_cast<std::size_t>(sent), fd, owed);
  }
  if (watched) base::fault_point("send", kind_name, FaultPhase::after);
}

// Queues what was not sent of a message. Called with the mutex held.
void Connection::enqueue(std::span<const std::byte> header, std::span<const std::byte> bytes, std::size_t sent, int fd,
                         bool owed) {
  Impl& impl = *impl_;
  if (sent == header.size() + bytes.size()) return;
  if (sent == 0 && fd >= 0) {
    try {
      impl.queue.append_fd(UniqueFd::duplicate_of(fd));
    } catch (const Error& error) {
      break_writing(error, 0);
      return;
    }
  }
  if (impl.queue.empty()) impl.owed = 0;
  if (owed) impl.owed += header.size() + bytes.size() - sent;
  if (sent < header.size()) impl.queue.append(header.subspan(sent));
  impl.queue.append(bytes.subspan(sent > header.size() ? sent - header.size() : 0));
  impl.queued_bytes.store(impl.queue.size(), std::memory_order_relaxed);
  if (impl.queue.size() > max_queue_bytes + impl.owed) {
    break_writing(Error(Errc::peer_lost, impl.peer_name + " stopped reading"), 0);
    return;
  }
  if (impl.write_armed) return;
  impl.write_armed = true;
  impl.progress.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->guarded(&Connection::on_writable);
  });
}

// Nothing can be sent any more: ends the connection with the error at once, or, for a socket's error code, once what the
// peer sent before it died has been read. Called with the mutex held.
void Connection::break_writing(std::optional<Error> now, int code) {
  impl_->write_broken = true;
  impl_->queue.clear();
  impl_->progress.post([weak = weak_from_this(), now = std::move(now), code] {
    const auto self = weak.lock();
    if (!self || self->impl_->ended) return;
    if (now) {
      self->fail(*now);
      return;
    }
    self->impl_->timer = self->impl_->progress.after(last_words_time, [weak, code] {
      if (const auto again = weak.lock())
        again->fail(Error(Errc::peer_lost, again->peer_name() + " is gone: " + errno_text(code)));
    });
  });
}

void Connection::end_sending() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->ended) return;
  impl_->write_broken = true;
  impl_->queue.clear();
  ::shutdown(impl_->fd, SHUT_WR);
}

void Connection::arm_write() {
  impl_->descriptor.async_wait(asio::posix::descriptor_base::wait_write,
                               [weak = weak_from_this()](const asio::error_code& error) {
                                 const auto self = weak.lock();
                                 if (self && error != asio::error::operation_aborted)
                                   self->guarded(&Connection::on_writable);
                               });
}

void Connection::on_writable() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  if (impl.ended) return;
  while (!impl.queue.empty() && !impl.write_broken) {
    const auto chunk = impl.queue.front();
    const iovec part{const_cast<std::byte*>(chunk.bytes.data()), chunk.bytes.size()};
    const auto sent = send_some(impl.fd, std::span(&part, 1), chunk.fd);
    if (sent >= 0) {
      impl.queue.pop(static_cast<std::size_t>(sent));
      impl.queued_bytes.store(impl.queue.size(), std::memory_order_relaxed);
      continue;
    }
    if (sent == -EAGAIN || sent == -EWOULDBLOCK) {
      arm_write();
      return;
    }
    break_writing(std::nullopt, static_cast<int>(-sent));
  }
  impl.write_armed = false;
  const bool closing = impl.closing;
  lock.unlock();
  if (closing) finish_close();
}

// ------------------------------------------------------------------------------------------------------------ reading

void Connection::arm_read() {
  if (impl_->read_armed || impl_->ended) return;
  impl_->read_armed = true;
  impl_->descriptor.async_wait(asio::posix::descriptor_base::wait_read,
                               [weak = weak_from_this()](const asio::error_code& error) {
                                 const auto self = weak.lock();
                                 if (!self) return;
                                 self->impl_->read_armed = false;
                                 if (error != asio::error::operation_aborted) self->guarded(&Connection::on_readable);
                               });
}

// No memory to go on with, say: that ends this connection, not the engine thread.
void Connection::guarded(void (Connection::*handler)()) {
  try {
    (this->*handler)();
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "a connection failed", {{"peer", impl_->peer_name}, {"error", error.what()}});
    fail(Error(Errc::peer_lost, impl_->peer_name + ": " + error.what()));
  }
}

void Connection::on_resumed() {
  if (deliver()) arm_read();
}

void Connection::on_readable() {
  for (int i = 0; i < reads_per_turn; ++i) {
    if (impl_->ended || !impl_->handlers) return;
    if (!read_some()) return;  // ended, or nothing more just now
    if (!deliver()) return;
  }
  arm_read();
}

// One receive into the buffer. False when there was nothing (then reading is armed again) or the connection ended.
bool Connection::read_some() {
  Impl& impl = *impl_;
  if (impl.begin > 0) {
    std::memmove(impl.buffer.data(), impl.buffer.data() + impl.begin, impl.end - impl.begin);
    impl.end -= impl.begin;
    impl.begin = 0;
  }
  const std::size_t first = std::min(first_buffer_bytes, sizeof(FrameHeader) + impl.frame_limit);
  if (impl.buffer.size() < first) impl.buffer.resize(first);
  // Grown as bytes come, not as a header claims.
  if (impl.end == impl.buffer.size()) impl.buffer.resize(impl.buffer.size() * 2);
  const auto count = receive_some(impl.fd, std::span(impl.buffer).subspan(impl.end), impl.received);
  for (UniqueFd& fd : impl.received) impl.fds.push_back(std::move(fd));
  impl.received.clear();
  if (count == -EAGAIN || count == -EWOULDBLOCK) {
    arm_read();
    return false;
  }
  if (count == -EPROTO || impl.fds.size() > impl.unclaimed_fds) {
    fail(Error(Errc::protocol, impl.peer_name + " sent more descriptors than messages for them"));
    return false;
  }
  if (count <= 0) {
    const std::string why = count == 0 || count == -ECONNRESET ? "closed the connection"
                                                               : "is gone: " + errno_text(static_cast<int>(-count));
    fail(Error(Errc::peer_lost, impl.peer_name + " " + why));
    return false;
  }
  impl.end += static_cast<std::size_t>(count);
  return true;
}

// Hands over the frames that are complete. False when the connection ended or was paused meanwhile.
bool Connection::deliver() {
  Impl& impl = *impl_;
  while (!impl.ended && impl.handlers) {
    FrameHeader header{};
    if (impl.end - impl.begin < sizeof header) break;
    std::memcpy(&header, impl.buffer.data() + impl.begin, sizeof header);
    if (header.length > impl.frame_limit || header.has_fd > 1 || (header.has_fd == 1 && impl.fds.empty())) {
      fail(Error(Errc::protocol, impl.peer_name + " sent what is no message"));
      return false;
    }
    if (impl.end - impl.begin < sizeof header + header.length) break;
    UniqueFd fd;
    if (header.has_fd == 1) {
      fd = std::move(impl.fds.front());
      impl.fds.pop_front();
    }
    const std::span<const std::byte> bytes(impl.buffer.data() + impl.begin + sizeof header, header.length);
    impl.begin += sizeof header + header.length;
    // The handler may replace or drop itself.
    const auto handlers = impl.handlers;
    try {
      handlers->on_message(header.kind, bytes, std::move(fd));
    } catch (const Error& error) {
      fail(error.in(impl.peer_name));
    } catch (const std::exception& error) {
      fail(Error(Errc::internal, impl.peer_name + ": " + error.what()));
    }
  }
  if (impl.begin == impl.end) {
    impl.begin = impl.end = 0;
    if (impl.buffer.size() > (std::size_t{1} << 20)) impl.buffer = {};
  }
  return !impl.ended && impl.handlers != nullptr;
}

// ------------------------------------------------------------------------------------------------------------- ending

void Connection::fail(Error error) {
  Impl& impl = *impl_;
  const auto self = shared_from_this();  // callbacks may hold the last reference
  {
    std::lock_guard lock(impl.mutex);
    if (impl.ended && !impl.pending_error) return;
    impl.ended = true;
    impl.queue.clear();
    asio::error_code ignored;
    impl.descriptor.close(ignored);
  }
  impl.timer.cancel();
  impl.fds.clear();
  impl.pending_error.reset();
  auto handlers = std::move(impl.handlers);
  impl.handlers.reset();
  if (!handlers) {
    if (!impl.closing) impl.pending_error = std::move(error);
    return;
  }
  if (handlers->on_closed) handlers->on_closed(error);
}

void Connection::close() {
  const auto self = shared_from_this();
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->closing) return;
    impl_->closing = true;
  }
  const auto begin = [self] {
    Impl& impl = *self->impl_;
    const auto dropped = std::move(impl.handlers);  // destroyed on the way out
    impl.handlers.reset();
    if (impl.ended) return;
    bool idle;
    {
      std::lock_guard lock(impl.mutex);
      idle = impl.queue.empty();
    }
    if (idle) {
      self->finish_close();
      return;
    }
    impl.timer = impl.progress.after(flush_time, [self] { self->fail(Error(Errc::stream_closed, "closed")); });
  };
  if (impl_->progress.on_engine_thread()) begin();
  else impl_->progress.post(begin);
}

// Everything is sent. A TCP socket that is closed with unread bytes resets the connection, which may destroy what the
// peer has not read yet: it is closed once the peer has closed too, or after a while.
void Connection::finish_close() {
  Impl& impl = *impl_;
  if (impl.ended) return;
  if (impl.local) {
    fail(Error(Errc::stream_closed, "closed"));
    return;
  }
  ::shutdown(impl.fd, SHUT_WR);
  const auto self = shared_from_this();
  impl.timer = impl.progress.after(drain_time, [self] { self->fail(Error(Errc::stream_closed, "closed")); });
  struct Drain {
    static void wait(const std::shared_ptr<Connection>& connection) {
      Impl& impl = *connection->impl_;
      if (impl.ended) return;
      impl.descriptor.async_wait(asio::posix::descriptor_base::wait_read, [connection](const asio::error_code& error) {
        Impl& impl = *connection->impl_;
        if (error || impl.ended) return;
        std::byte waste[4096];
        std::ptrdiff_t count = 0;
        for (int i = 0; i < reads_per_turn; ++i) {
          count = ::recv(impl.fd, waste, sizeof waste, MSG_DONTWAIT);
          if (count <= 0) break;
        }
        if (count > 0 || (count < 0 && errno == EAGAIN)) wait(connection);
        else connection->fail(Error(Errc::stream_closed, "closed"));
      });
    }
  };
  Drain::wait(self);
}

}  // namespace penstock::fabric
