#include "fabric/connect.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "base/fault.hpp"
#include "fabric/asio.hpp"
#include "fabric/handshake.hpp"
#include "fabric/socket.hpp"
#include "penstock/interrupt.hpp"

namespace penstock::fabric {

namespace {

using base::Clock;
using base::Deadline;

constexpr std::chrono::milliseconds busy_pause{20};  // a full backlog, or a full table of handshakes, empties soon
constexpr std::chrono::seconds one_address_time{5};  // of several: an address may lead nowhere

// A full backlog of a Unix socket, which asks for another try; everything else is final for the address.
bool is_busy(int code) { return code == EAGAIN; }

// Collects what went wrong, address by address.
class Failures {
 public:
  explicit Failures(std::string unresolved) : text_(std::move(unresolved)) {}
  void add(const std::string& where, const Error& error) {
    const bool same = !last_.empty() && last_ == error.what();
    if (same) text_.insert(text_.size() - last_.size() - 2, ", " + where);
    else text_ += (text_.empty() ? "" : "; ") + where + ": " + error.what();
    last_ = error.what();
    // What a process that did answer said is worth more than that others did not.
    const bool told = error.code() == Errc::authentication || error.code() == Errc::unsupported;
    if (told || code_ == Errc::ok) code_ = error.code();
  }
  Error error(const std::string& stream) const {
    if (text_.empty()) return Error(Errc::peer_lost, "'" + stream + "' has no address that may be tried");
    return Error(code_ == Errc::ok ? Errc::peer_lost : code_, "cannot connect: " + text_);
  }

 private:
  std::string text_, last_;  // the latter: the end of text_
  Errc code_ = Errc::ok;
};

Deadline limit_of(Deadline deadline, bool last) {
  return last ? deadline : earlier(deadline, Deadline::at(Clock::now() + one_address_time));
}

// ---------------------------------------------------------------------------------------------------- on the engine

// One call of connect_async; owns itself through its pending callbacks.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  using Done = std::function<void(std::shared_ptr<Connection>, std::optional<Error>)>;
  Attempt(Progress& progress, const Token& token, wire::Hello hello, std::vector<SocketAddress> addresses,
          std::string unresolved, Deadline deadline, Done done)
      : progress_(progress),
        token_(token),
        hello_(std::move(hello)),
        addresses_(std::move(addresses)),
        failures_(std::move(unresolved)),
        deadline_(deadline),
        done_(std::move(done)) {}

  void next() {
    timer_.cancel();
    descriptor_.reset();
    if (connection_) connection_->close();
    connection_.reset();
    if (at_ == addresses_.size()) {
      finish(nullptr, failures_.error(hello_.stream));
      return;
    }
    limit_ = limit_of(deadline_, at_ + 1 == addresses_.size());
    refusal_.clear();
    begin();
  }

 private:
  void begin_later() {
    timer_ = progress_.after(busy_pause, [self = shared_from_this()] { self->begin(); });
  }

  void begin() {
    int error = 0;
    UniqueFd fd = begin_connect(addresses_[at_], error);
    if (is_busy(error) && !limit_.passed()) {
      begin_later();
      return;
    }
    if (!fd) {
      give_up(Error(Errc::peer_lost, errno_text(error)));
      return;
    }
    if (!limit_.is_never())
      timer_ = progress_.after(limit_.when() - Clock::now(), [self = shared_from_this()] {
        self->give_up(Error(Errc::timeout, "no answer in time" + self->refusal_));
      });
    if (error == 0) {
      shake_hands(std::move(fd));
      return;
    }
    descriptor_ = std::make_unique<asio::posix::stream_descriptor>(context_of(progress_), fd.release());
    descriptor_->async_wait(asio::posix::descriptor_base::wait_write,
                            [self = shared_from_this(), at = at_](const asio::error_code& code) {
                              if (code || !self->descriptor_ || at != self->at_) return;
                              self->connected();
                            });
  }

  void connected() {
    UniqueFd fd(descriptor_->release());
    descriptor_.reset();
    if (const int code = connect_result(fd.get()); code != 0) give_up(Error(Errc::peer_lost, errno_text(code)));
    else shake_hands(std::move(fd));
  }

  void shake_hands(UniqueFd fd) {
    connection_ = Connection::adopt(progress_, std::move(fd), addresses_[at_].text);
    connection_->limit_frames(wire::max_handshake_bytes);
    handshake_.emplace(token_, hello_);
    connection_->start([self = shared_from_this()](std::uint16_t kind, std::span<const std::byte> bytes,
                                                   UniqueFd) { self->on_frame(kind, bytes); },
                       [self = shared_from_this()](const Error& error) { self->give_up(error); });
    send(handshake_->start());
  }

  void send(const HandshakeFrame& frame) {
    connection_->send(static_cast<std::uint16_t>(frame.kind), wire::name_of(frame.kind), frame.bytes);
  }

  void on_frame(std::uint16_t kind, std::span<const std::byte> bytes) {
    const auto self = shared_from_this();
    try {
      if (const auto reply = handshake_->receive(kind, bytes)) send(*reply);
    } catch (const Error& error) {
      give_up(error);
      return;
    }
    if (!handshake_->done()) return;
    auto connection = std::move(connection_);
    connection->pause();
    connection->limit_frames(max_frame_bytes);
    connection->set_peer_name(handshake_->server_name());
    timer_.cancel();
    finish(std::move(connection), std::nullopt);
  }

  void give_up(const Error& error) {
    const auto self = shared_from_this();
    if (at_ >= addresses_.size()) return;
    if (error.code() == Errc::overloaded) {  // until the timer that begin() sets
      refusal_ = std::string(": ") + error.what();
      if (connection_) connection_->close();
      connection_.reset();
      begin_later();
      return;
    }
    failures_.add(addresses_[at_].text, error);
    ++at_;
    // A wrong token at the Unix socket, whose name nobody else can have, is wrong everywhere; so is a wrong version.
    const bool final = error.code() == Errc::authentication || error.code() == Errc::unsupported;
    if (final && connection_ && connection_->local()) at_ = addresses_.size();
    if (deadline_.passed()) at_ = addresses_.size();
    next();
  }

  void finish(std::shared_ptr<Connection> connection, std::optional<Error> error) {
    if (auto done = std::exchange(done_, nullptr)) done(std::move(connection), std::move(error));
  }

  Progress& progress_;
  const Token token_;
  const wire::Hello hello_;
  const std::vector<SocketAddress> addresses_;
  Failures failures_;
  const Deadline deadline_;
  Done done_;
  std::size_t at_ = 0;
  std::string refusal_;  // why the last try at this address is repeated
  Deadline limit_ = Deadline::never();
  Timer timer_;
  std::unique_ptr<asio::posix::stream_descriptor> descriptor_;
  std::shared_ptr<Connection> connection_;
  std::optional<ClientHandshake> handshake_;
};

// --------------------------------------------------------------------------------------------------------- blocking

// Waits until the socket is ready for `events`, in slices, so that the caller can be interrupted.
void wait_ready(int socket, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::min(deadline.remaining(), std::chrono::duration_cast<Timeout>(interruption_period));
    pollfd entry{socket, events, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(left.count()));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw Error(Errc::system, "poll failed: " + errno_text(errno));
    if (deadline.passed()) throw Error(Errc::timeout, "no answer in time");
    if (interrupted()) throw Error(Errc::timeout, "interrupted");
  }
}

class BlockingHandshake {
 public:
  BlockingHandshake(int socket, Deadline deadline) : socket_(socket), deadline_(deadline) {}

  void run(ClientHandshake& handshake) {
    send(handshake.start());
    while (!handshake.done())
      if (const auto reply = answer(handshake)) send(*reply);
  }

  // Only as far as to see that the other end knows the token.
  void probe(ClientHandshake& handshake) {
    send(handshake.start());
    answer(handshake);
  }

 private:
  void send(const HandshakeFrame& frame) {
    const char* kind = wire::name_of(frame.kind);
    const bool garbage = base::fault_point("send", kind, base::FaultPhase::before);
    const FrameHeader header{static_cast<std::uint32_t>(frame.bytes.size()), static_cast<std::uint16_t>(frame.kind), 0};
    std::vector<std::byte> all(sizeof header + frame.bytes.size());
    std::memcpy(all.data(), &header, sizeof header);
    std::copy(frame.bytes.begin(), frame.bytes.end(), all.begin() + sizeof header);
    if (garbage) std::memset(all.data(), 0xa5, all.size());
    for (std::size_t at = 0; at < all.size();) {
      const iovec part{all.data() + at, all.size() - at};
      const auto sent = send_some(socket_, std::span(&part, 1), -1);
      if (sent >= 0) at += static_cast<std::size_t>(sent);
      else if (sent == -EAGAIN) wait_ready(socket_, POLLOUT, deadline_);
      else break;  // it may have said why before it closed: the answer tells
    }
    base::fault_point("send", kind, base::FaultPhase::after);
  }

  std::optional<HandshakeFrame> answer(ClientHandshake& handshake) {
    FrameHeader header{};
    receive(std::as_writable_bytes(std::span(&header, 1)));
    if (header.length > wire::max_handshake_bytes || header.has_fd != 0)
      throw Error(Errc::protocol, "the answer is no handshake");
    std::vector<std::byte> bytes(header.length);
    receive(bytes);
    return handshake.receive(header.kind, bytes);
  }

  // Exactly so many: what follows the handshake belongs to the caller.
  void receive(std::span<std::byte> into) {
    std::vector<UniqueFd> fds;  // none are expected; any that come are closed
    while (!into.empty()) {
      const auto count = receive_some(socket_, into, fds);
      if (count > 0) into = into.subspan(static_cast<std::size_t>(count));
      else if (count == -EAGAIN) wait_ready(socket_, POLLIN, deadline_);
      else if (count == 0) throw Error(Errc::peer_lost, "closed the connection");
      else throw Error(Errc::peer_lost, errno_text(static_cast<int>(-count)));
    }
  }

  const int socket_;
  const Deadline deadline_;
};

// A connected socket, before the handshake.
UniqueFd open_socket(const SocketAddress& address, Deadline deadline) {
  int error = 0;
  UniqueFd fd = begin_connect(address, error);
  while (is_busy(error)) {
    if (deadline.passed()) throw Error(Errc::timeout, "too busy to answer in time");
    if (interrupted()) throw Error(Errc::timeout, "interrupted");
    ::poll(nullptr, 0, static_cast<int>(busy_pause.count()));
    fd = begin_connect(address, error);
  }
  if (!fd) throw Error(Errc::peer_lost, errno_text(error));
  if (error != 0) {
    wait_ready(fd.get(), POLLOUT, deadline);
    if (const int code = connect_result(fd.get()); code != 0) throw Error(Errc::peer_lost, errno_text(code));
  }
  return fd;
}

// A connected socket after `shake`, which uses it; again and again while the other end has no place for the handshake.
template <class F>
UniqueFd shake_hands(const SocketAddress& address, Deadline deadline, F shake) {
  std::string refusal;
  for (;;) {
    try {
      UniqueFd fd = open_socket(address, deadline);
      shake(fd.get());
      return fd;
    } catch (const Error& error) {
      if (error.code() == Errc::timeout) throw Error(Errc::timeout, error.what() + refusal);
      if (error.code() != Errc::overloaded) throw;
      refusal = std::string(": ") + error.what();
    }
    if (deadline.passed() || interrupted()) throw Error(Errc::timeout, "no answer in time" + refusal);
    ::poll(nullptr, 0, static_cast<int>(busy_pause.count()));
  }
}

}  // namespace

void connect_async(Progress& progress, const Endpoint& endpoint, const Token& token, wire::Hello hello, Reach reach,
                   Deadline deadline, std::function<void(std::shared_ptr<Connection>, std::optional<Error>)> done) {
  std::string unresolved;
  auto addresses = addresses_of(endpoint, reach, unresolved);
  auto attempt = std::make_shared<Attempt>(progress, token, std::move(hello), std::move(addresses),
                                           std::move(unresolved), deadline, std::move(done));
  progress.post([attempt = std::move(attempt)] { attempt->next(); });
}

UniqueFd connect_blocking(const Endpoint& endpoint, const Token& token, wire::Hello hello, Reach reach,
                          Deadline deadline) {
  std::string unresolved;
  const auto addresses = addresses_of(endpoint, reach, unresolved);
  Failures failures(std::move(unresolved));
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    try {
      const Deadline limit = limit_of(deadline, i + 1 == addresses.size());
      UniqueFd fd = shake_hands(addresses[i], limit, [&](int socket) {
        ClientHandshake handshake(token, hello);
        BlockingHandshake(socket, limit).run(handshake);
      });
      set_blocking(fd.get(), true);
      return fd;
    } catch (const Error& error) {
      failures.add(addresses[i].text, error);
      if (deadline.passed() || interrupted()) break;
    }
  }
  throw failures.error(hello.stream);
}

bool answers(const Endpoint& endpoint, const Token& token, const std::string& stream, Deadline deadline) {
  std::string unresolved;
  for (const SocketAddress& address : addresses_of(endpoint, Reach::automatic, unresolved)) {
    try {
      shake_hands(address, deadline, [&](int socket) {
        if (is_local(socket)) return;
        ClientHandshake handshake(token, {.purpose = wire::Purpose::inspect, .stream = stream});
        BlockingHandshake(socket, deadline).probe(handshake);
      });
      return true;
    } catch (const Error&) {
      // Not at this address.
    }
  }
  return false;
}

}  // namespace penstock::fabric
