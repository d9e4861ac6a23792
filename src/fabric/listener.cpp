#include "fabric/listener.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "fabric/asio.hpp"
#include "fabric/handshake.hpp"
#include "fabric/socket.hpp"

namespace penstock::fabric {

namespace {

constexpr std::size_t max_handshakes = 256;
constexpr std::size_t max_handshake_bytes = 4096;
constexpr std::chrono::seconds handshake_time{10};
constexpr std::chrono::milliseconds accept_pause{100};  // while there are no descriptors left

}  // namespace

// All on the engine thread, but for construction and endpoint().
struct Listener::Impl : std::enable_shared_from_this<Listener::Impl> {
  struct Guest {
    std::shared_ptr<Connection> connection;
    ServerHandshake handshake;
    Timer timer;
  };
  struct Socket {
    asio::posix::stream_descriptor descriptor;
    bool armed = false;
  };

  Impl(Progress& owner, const Token& secret, TokenOf lookup, std::string name, OnPeer handler)
      : progress(owner),
        token(secret),
        token_of(std::move(lookup)),
        stream(std::move(name)),
        on_peer(std::move(handler)) {}

  void add_socket(UniqueFd socket) {
    sockets.push_back(std::make_unique<Socket>(
        Socket{asio::posix::stream_descriptor(context_of(progress), socket.release()), false}));
  }
  void arm(Socket& socket) {
    if (std::exchange(socket.armed, true)) return;
    socket.descriptor.async_wait(asio::posix::descriptor_base::wait_read,
                                 [weak = weak_from_this(), &socket](const asio::error_code& error) {
                                   const auto self = weak.lock();
                                   if (!self || self->stopped || error) return;
                                   socket.armed = false;
                                   self->accept_from(socket);
                                 });
  }
  void arm_all() {
    if (stopped) return;
    for (auto& socket : sockets) arm(*socket);
  }
  void accept_from(Socket& socket);
  void accept_later(const std::string& why);
  void welcome(UniqueFd socket);
  void on_frame(std::uint64_t id, std::uint16_t kind, std::span<const std::byte> bytes);
  void drop(std::uint64_t id, const std::string& why, bool log);
  void forget(std::unordered_map<std::uint64_t, Guest>::iterator guest);
  void stop();

  Progress& progress;
  const Token token;
  const TokenOf token_of;  // when set, instead of token
  const std::string stream;
  OnPeer on_peer;
  Endpoint endpoint;
  std::vector<std::unique_ptr<Socket>> sockets;
  std::unordered_map<std::uint64_t, Guest> guests;
  std::uint64_t next_guest = 1;
  Timer pause;
  bool stopped = false;
};

void Listener::Impl::accept_from(Socket& socket) {
  while (guests.size() < max_handshakes) {  // forget() goes on when one of so many has finished
    UniqueFd peer(::accept4(socket.descriptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) arm(socket);
      else accept_later(errno_text(errno));
      return;
    }
    try {
      welcome(std::move(peer));
    } catch (const std::exception& error) {
      accept_later(error.what());
      return;
    }
    if (stopped) return;
  }
  base::log(base::Level::warn, "too many connections that have not proved the token; others wait",
            {{"stream", stream}});
}

// Out of descriptors or memory: others may give some back.
void Listener::Impl::accept_later(const std::string& why) {
  base::log(base::Level::warn, "cannot accept connections", {{"stream", stream}, {"error", why}});
  pause = progress.after(accept_pause, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->arm_all();
  });
}

void Listener::Impl::welcome(UniqueFd socket) {
  auto connection = Connection::adopt(progress, std::move(socket), "an unknown process");
  connection->limit_frames(max_handshake_bytes);
  const std::uint64_t id = next_guest++;
  auto timer = progress.after(handshake_time, [weak = weak_from_this(), id] {
    if (const auto self = weak.lock()) self->drop(id, "did not finish the handshake in time", true);
  });
  ServerHandshake handshake = token_of ? ServerHandshake(token_of) : ServerHandshake(token, stream);
  guests.emplace(id, Guest{connection, std::move(handshake), std::move(timer)});
  connection->start(
      [weak = weak_from_this(), id](std::uint16_t kind, std::span<const std::byte> bytes, UniqueFd) {
        if (const auto self = weak.lock()) self->on_frame(id, kind, bytes);
      },
      [weak = weak_from_this(), id](const Error& error) {
        // Somebody who looks whether the stream is alive says nothing; that is no news.
        if (const auto self = weak.lock()) self->drop(id, error.what(), error.code() != Errc::peer_lost);
      });
}

void Listener::Impl::on_frame(std::uint64_t id, std::uint16_t kind, std::span<const std::byte> bytes) {
  const auto found = guests.find(id);
  if (found == guests.end()) return;
  Guest& guest = found->second;
  try {
    const auto reply = guest.handshake.receive(kind, bytes);
    if (reply)
      guest.connection->send(static_cast<std::uint16_t>(reply->kind), wire::name_of(reply->kind), reply->bytes);
  } catch (const Error& error) {
    const HandshakeFrame refusal = ServerHandshake::refusal(error);
    guest.connection->send(static_cast<std::uint16_t>(refusal.kind), wire::name_of(refusal.kind), refusal.bytes);
    drop(id, error.what(), true);
    return;
  }
  if (!guest.handshake.done()) return;
  const auto connection = std::move(guest.connection);
  const wire::Hello hello = guest.handshake.hello();
  forget(found);
  connection->pause();
  connection->limit_frames(max_frame_bytes);
  connection->set_peer_name(hello.name);
  on_peer(connection, hello);
}

void Listener::Impl::drop(std::uint64_t id, const std::string& why, bool log) {
  const auto found = guests.find(id);
  if (found == guests.end()) return;
  if (log) base::log(base::Level::warn, "a peer was turned away", {{"stream", stream}, {"why", why}});
  const auto connection = std::move(found->second.connection);
  forget(found);
  connection->close();
}

void Listener::Impl::forget(std::unordered_map<std::uint64_t, Guest>::iterator guest) {
  const bool full = guests.size() >= max_handshakes;
  guests.erase(guest);
  if (full) arm_all();
}

void Listener::Impl::stop() {
  stopped = true;
  pause.cancel();
  for (auto& [id, guest] : std::exchange(guests, {})) guest.connection->close();
  sockets.clear();
  on_peer = nullptr;
}

Listener::Listener(Progress& progress, const Token& token, std::string stream, const std::string& address,
                   OnPeer on_peer)
    : impl_(std::make_shared<Impl>(progress, token, TokenOf(), std::move(stream), std::move(on_peer))) {
  listen(address, 0);
}

Listener::Listener(Progress& progress, TokenOf token_of, std::string name, const std::string& address, OnPeer on_peer,
                   std::uint16_t port)
    : impl_(std::make_shared<Impl>(progress, Token{}, std::move(token_of), std::move(name), std::move(on_peer))) {
  listen(address, port);
}

void Listener::listen(const std::string& address, std::uint16_t port) {
  UniqueFd local = listen_unix(impl_->endpoint.unix_name);
  UniqueFd tcp = listen_tcp(address, impl_->endpoint.tcp_port, port);
  if (address.empty() || address == "0.0.0.0" || address == "::") impl_->endpoint.tcp_hosts = interface_addresses();
  else impl_->endpoint.tcp_hosts = {address};
  impl_->progress.call([&] {
    impl_->add_socket(std::move(local));
    impl_->add_socket(std::move(tcp));
    impl_->arm_all();
  });
}

Listener::~Listener() {
  impl_->progress.call([this] { impl_->stop(); });
}

const Endpoint& Listener::endpoint() const { return impl_->endpoint; }

}  // namespace penstock::fabric
