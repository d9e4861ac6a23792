#include <map>
#include <mutex>

#include "base/log.hpp"
#include "fabric/listener.hpp"
#include "rpc/channel_impl.hpp"

namespace penstock::rpc {

namespace {

constexpr std::chrono::seconds ticket_time{10};

}  // namespace

struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  void on_peer(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello);
  void open_channel(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello);
  void await_ticket(const std::shared_ptr<fabric::Connection>& connection, const std::string& realm_and_role);
  void admit(const std::shared_ptr<fabric::Connection>& connection, const transport::Ticket& ticket,
             const std::string& realm_and_role);
  void stop();

  std::shared_ptr<Progress> progress;
  std::shared_ptr<const ServiceTable> services;
  ServerOptions options;
  std::shared_ptr<Budget> budget;
  std::unique_ptr<fabric::Listener> listener;

  mutable std::mutex mutex;  // guards what follows
  std::map<const Channel*, std::shared_ptr<Channel>> channels;

  // The engine's own.
  struct Door {
    std::weak_ptr<Channel> channel;
    std::string realm_and_role;
  };
  std::map<transport::Ticket, Door> doors;  // channels whose bulk connection has not come
  struct Guest {
    std::shared_ptr<fabric::Connection> connection;
    fabric::Timer timer;
  };
  std::map<const fabric::Connection*, Guest> guests;  // bulk connections that have not shown their ticket
};

void Server::Impl::on_peer(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello) {
  switch (hello.purpose) {
    case wire::Purpose::rpc: open_channel(std::move(connection), hello); return;
    case wire::Purpose::bulk: await_ticket(connection, hello.stream); return;
    default: connection->close();  // somebody who thinks that a stream is written here
  }
}

void Server::Impl::open_channel(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello) {
  auto chosen = options;
  bool refused = false;
  try {
    chosen.plane = transport::bulk_plane(hello.plane, options.plane);
  } catch (const Error& error) {
    base::log(base::Level::warn, "a peer was turned away", {{"peer", hello.name}, {"error", error.what()}});
    chosen.plane = nullptr;
    refused = true;
  }
  const auto channel = Channel::adopt(progress, std::move(connection), services, hello.stream, chosen, budget);
  const transport::Ticket ticket = channel->impl().bulk->make_ticket(refused);
  {
    std::lock_guard lock(mutex);
    channels.emplace(channel.get(), channel);
  }
  doors.emplace(ticket, Door{channel, hello.stream});
  channel->on_closed([weak = weak_from_this(), ticket, key = channel.get()](const Error&) {
    const auto self = weak.lock();
    if (!self) return;
    self->doors.erase(ticket);
    std::shared_ptr<Channel> last;  // destroyed outside of the lock
    std::lock_guard lock(self->mutex);
    const auto found = self->channels.find(key);
    if (found == self->channels.end()) return;
    last = std::move(found->second);
    self->channels.erase(found);
  });
}

void Server::Impl::await_ticket(const std::shared_ptr<fabric::Connection>& connection,
                                const std::string& realm_and_role) {
  const auto* key = connection.get();
  const auto drop = [weak = weak_from_this(), key] {
    const auto self = weak.lock();
    if (!self) return;
    const auto found = self->guests.find(key);
    if (found == self->guests.end()) return;
    const auto dropped = std::move(found->second.connection);
    self->guests.erase(found);
    dropped->close();
  };
  guests.emplace(key, Guest{connection, progress->after(ticket_time, drop)});
  connection->start(
      [weak = weak_from_this(), key, realm_and_role](std::uint16_t kind, std::span<const std::byte> bytes,
                                                     memory::UniqueFd) {
        const auto self = weak.lock();
        if (!self || kind != static_cast<std::uint16_t>(transport::LinkFrame::ticket))
          throw Error(Errc::protocol, "expected the ticket of a channel");
        const auto found = self->guests.find(key);
        if (found == self->guests.end()) return;
        const transport::Ticket ticket = transport::decode_ticket(bytes);
        const auto guest = std::move(found->second.connection);
        self->guests.erase(found);
        self->admit(guest, ticket, realm_and_role);
      },
      [drop](const Error&) { drop(); });
}

void Server::Impl::admit(const std::shared_ptr<fabric::Connection>& connection, const transport::Ticket& ticket,
                         const std::string& realm_and_role) {
  connection->pause();
  const auto door = doors.find(ticket);
  const auto channel = door == doors.end() ? nullptr : door->second.channel.lock();
  if (!channel || door->second.realm_and_role != realm_and_role) {
    base::log(base::Level::warn, "a bulk connection without a channel was turned away",
              {{"peer", connection->peer_name()}});
    connection->close();
    return;
  }
  doors.erase(door);
  connection->send(static_cast<std::uint16_t>(transport::LinkFrame::admitted), "bulk-admitted", {});
  try {
    channel->impl().bulk->attach(connection->release());
  } catch (const Error& error) {
    channel->impl().end(error.in("the bulk connection"));
  }
}

void Server::Impl::stop() {
  listener.reset();
  for (auto& [key, guest] : std::exchange(guests, {})) guest.connection->close();
  decltype(channels) open;
  {
    std::lock_guard lock(mutex);
    open.swap(channels);
  }
  for (auto& [key, channel] : open) channel->close();
}

Server::Server(std::shared_ptr<Progress> progress, std::shared_ptr<const ServiceTable> services, TokenOf token_of,
               const std::string& listen, ServerOptions options)
    : impl_(std::make_shared<Impl>()) {
  impl_->progress = std::move(progress);
  impl_->services = std::move(services);
  impl_->options = options;
  impl_->budget = std::make_shared<Budget>(*impl_->progress, options.memory_bytes);
  impl_->listener = std::make_unique<fabric::Listener>(
      *impl_->progress, std::move(token_of), "services", listen,
      [weak = std::weak_ptr(impl_)](std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello) {
        if (const auto self = weak.lock()) self->on_peer(std::move(connection), hello);
      },
      options.port);
}

Server::~Server() {
  impl_->progress->call([this] { impl_->stop(); });
}

const fabric::Endpoint& Server::endpoint() const { return impl_->listener->endpoint(); }
const std::shared_ptr<Budget>& Server::budget() const { return impl_->budget; }

std::vector<std::shared_ptr<Channel>> Server::channels() const {
  std::vector<std::shared_ptr<Channel>> out;
  std::lock_guard lock(impl_->mutex);
  for (const auto& [key, channel] : impl_->channels) out.push_back(channel);
  return out;
}

Task<std::shared_ptr<Channel>> connect(std::shared_ptr<Progress> progress, fabric::Endpoint endpoint,
                                       fabric::Token token, std::string realm_and_role,
                                       std::shared_ptr<const ServiceTable> services, base::Deadline deadline,
                                       fabric::Reach reach, ServerOptions options) {
  auto promise = std::make_shared<Promise<std::shared_ptr<fabric::Connection>>>(*progress);
  auto future = promise->future();
  wire::Hello hello;
  hello.purpose = wire::Purpose::rpc;
  hello.stream = realm_and_role;
  if (options.plane != nullptr) hello.plane = options.plane->name;
  fabric::connect_async(*progress, endpoint, token, hello, reach, deadline,
                        [promise](std::shared_ptr<fabric::Connection> connection, std::optional<Error> error) {
                          if (connection) promise->set(std::move(connection));
                          else promise->set_error(*error);
                        });
  promise.reset();
  std::shared_ptr<fabric::Connection> connection = co_await std::move(future);
  auto channel = Channel::adopt(progress, std::move(connection), std::move(services), "", options);
  channel->impl().bulk->set_door({endpoint, token, realm_and_role});
  co_return channel;
}

}  // namespace penstock::rpc
