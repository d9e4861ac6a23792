#include "fabric/listener.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "fabric/asio.hpp"
#include "fabric/guest_table.hpp"
#include "fabric/handshake.hpp"
#include "fabric/socket.hpp"

namespace penstock::fabric {

namespace {

constexpr std::size_t places = 128;
constexpr std::chrono::seconds handshake_time{10};
constexpr std::chrono::seconds refusal_time{1};         // for a refused peer to read why and to close
constexpr int accepts_per_turn = 16;                    // then the guests are read, so that who answers is known
constexpr std::chrono::milliseconds accept_pause{100};  // while there are no descriptors left
constexpr std::chrono::seconds log_period{1};

constexpr const char* crowded = "too many connections have not proved the token yet; try again";

// To a socket that is closed next; a fresh socket takes it at once.
void send_refusal(int socket, const Error& why) {
  const HandshakeFrame frame = ServerHandshake::refusal(why);
  const FrameHeader header{static_cast<std::uint32_t>(frame.bytes.size()), static_cast<std::uint16_t>(frame.kind), 0};
  const iovec parts[2] = {{const_cast<FrameHeader*>(&header), sizeof header},
                          {const_cast<std::byte*>(frame.bytes.data()), frame.bytes.size()}};
  send_some(socket, parts, -1);
}

UniqueFd spare_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool out_of_descriptors(int code) { return code == EMFILE || code == ENFILE; }

}  // namespace

// All on the engine thread, but for construction and endpoint().
struct Listener::Impl : std::enable_shared_from_this<Listener::Impl> {
  struct Guest {
    std::shared_ptr<Connection> connection;
    ServerHandshake handshake;
    Timer timer;
    bool refused = false;
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
  bool make_room();
  void refuse_without_descriptors(int listening);
  void receive(UniqueFd socket);
  void welcome(std::uint64_t id, UniqueFd socket);
  void on_frame(std::uint64_t id, std::uint16_t kind, std::span<const std::byte> bytes);
  void refuse(std::uint64_t id, const Error& why);
  void displace(std::uint64_t id);
  void drop(std::uint64_t id, const std::string& why, bool log);
  std::shared_ptr<Connection> forget(std::uint64_t id);
  void log_refusal(const std::string& why);
  void stop();

  Progress& progress;
  const Token token;
  const TokenOf token_of;  // when set, instead of token
  const std::string stream;
  OnPeer on_peer;
  Endpoint endpoint;
  std::vector<std::unique_ptr<Socket>> sockets;
  GuestTable table{places};
  std::unordered_map<std::uint64_t, Guest> guests;  // those in the table
  std::uint64_t next_guest = 1;
  UniqueFd spare = spare_descriptor();  // given up to accept and refuse when there are no others
  Timer pause;
  base::Clock::time_point logged{};
  std::uint64_t not_logged = 0;  // refusals since
  bool stopped = false;
};

void Listener::Impl::accept_from(Socket& socket) {
  const int listening = socket.descriptor.native_handle();
  for (int i = 0; i < accepts_per_turn; ++i) {
    UniqueFd peer(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) {
      const int code = errno;
      if (code == EINTR || code == ECONNABORTED) continue;
      if (code == EAGAIN || code == EWOULDBLOCK) break;
      if (out_of_descriptors(code) && make_room()) continue;
      if (out_of_descriptors(code)) refuse_without_descriptors(listening);
      accept_later(errno_text(code));
      return;
    }
    try {
      receive(std::move(peer));
    } catch (const std::exception& error) {
      accept_later(error.what());
      return;
    }
    if (stopped) return;
  }
  arm(socket);
}

// Out of descriptors or memory: others may give some back.
void Listener::Impl::accept_later(const std::string& why) {
  log_refusal("cannot accept connections: " + why);
  pause = progress.after(accept_pause, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->arm_all();
  });
}

// The guests give a descriptor back. False when all of them may still answer.
bool Listener::Impl::make_room() {
  const auto leaves = table.expendable(base::Clock::now());
  if (leaves) displace(*leaves);
  return leaves.has_value();
}

void Listener::Impl::refuse_without_descriptors(int listening) {
  for (int i = 0; i < accepts_per_turn && spare; ++i) {
    spare.reset();
    {
      const UniqueFd peer(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!peer) i = accepts_per_turn;
      else send_refusal(peer.get(), Error(Errc::overloaded, process_name() + " has no file descriptors left"));
    }
    spare = spare_descriptor();
  }
}

void Listener::Impl::receive(UniqueFd socket) {
  const std::uint64_t id = next_guest++;
  const auto leaves = table.add(id, source_of(socket.get()), base::Clock::now());
  if (leaves == id) {
    table.remove(id);
    log_refusal(crowded);
    send_refusal(socket.get(), Error(Errc::overloaded, crowded));
    return;
  }
  if (leaves) displace(*leaves);
  try {
    welcome(id, std::move(socket));
  } catch (...) {
    forget(id);
    throw;
  }
}

void Listener::Impl::welcome(std::uint64_t id, UniqueFd socket) {
  auto connection = Connection::adopt(progress, std::move(socket), "an unknown process");
  connection->limit_frames(wire::max_handshake_bytes, false);
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
  if (found == guests.end() || found->second.refused) return;
  Guest& guest = found->second;
  try {
    const auto reply = guest.handshake.receive(kind, bytes);
    table.set_answering(id, true);
    if (reply)
      guest.connection->send(static_cast<std::uint16_t>(reply->kind), wire::name_of(reply->kind), reply->bytes);
  } catch (const Error& error) {
    refuse(id, error);
    return;
  }
  if (!guest.handshake.done()) return;
  const wire::Hello hello = guest.handshake.hello();
  const auto connection = forget(id);
  connection->pause();
  connection->limit_frames(max_frame_bytes);
  connection->set_peer_name(hello.name);
  on_peer(connection, hello);
}

// It keeps its place until it has closed, so that refused peers are bounded too.
void Listener::Impl::refuse(std::uint64_t id, const Error& why) {
  log_refusal(why.what());
  Guest& guest = guests.at(id);
  const HandshakeFrame refusal = ServerHandshake::refusal(why);
  guest.connection->send(static_cast<std::uint16_t>(refusal.kind), wire::name_of(refusal.kind), refusal.bytes);
  guest.connection->end_sending();
  guest.refused = true;
  guest.timer = progress.after(refusal_time, [weak = weak_from_this(), id] {
    if (const auto self = weak.lock()) self->drop(id, "", false);
  });
  table.set_answering(id, false);
}

// Others need its place.
void Listener::Impl::displace(std::uint64_t id) {
  const auto found = guests.find(id);
  if (found == guests.end()) return;
  const bool refused = found->second.refused;
  const auto connection = forget(id);
  if (refused) return;
  log_refusal(crowded);
  const HandshakeFrame refusal = ServerHandshake::refusal(Error(Errc::overloaded, crowded));
  connection->send(static_cast<std::uint16_t>(refusal.kind), wire::name_of(refusal.kind), refusal.bytes);
}

void Listener::Impl::drop(std::uint64_t id, const std::string& why, bool log) {
  if (!guests.contains(id)) return;
  if (log) log_refusal(why);
  forget(id);
}

// Its connection is closed at once unless the caller keeps it.
std::shared_ptr<Connection> Listener::Impl::forget(std::uint64_t id) {
  table.remove(id);
  const auto found = guests.find(id);
  if (found == guests.end()) return nullptr;
  auto connection = std::move(found->second.connection);
  guests.erase(found);
  return connection;
}

void Listener::Impl::log_refusal(const std::string& why) {
  const auto now = base::Clock::now();
  if (now - logged < log_period) {
    ++not_logged;
    return;
  }
  base::log(base::Level::warn, "a peer was turned away",
            {{"stream", stream}, {"why", why}, {"not logged before", std::exchange(not_logged, 0)}});
  logged = now;
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
