// penstock::Pool: what operators ask.
#include <map>

#include "base/config.hpp"
#include "directory/open.hpp"
#include "penstock/pool.hpp"
#include "penstock/stream.hpp"
#include "pool/client/client_impl.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/server_status.hpp"
#include "pool/keys/stream_keys.hpp"
#include "stream/api/context.hpp"

namespace penstock {

namespace fb = pool::fb;
using fabric::Task;

namespace {

// A channel of its own to a server: it stays when the server leaves the pool, so that it can still say how a drain has ended.
Task<std::shared_ptr<rpc::Channel>> administrators_channel(std::shared_ptr<Pool::Impl> impl, std::string server,
                                                           base::Deadline deadline) {
  const auto known = impl->administered[server];
  if (known && known->open()) co_return known;
  auto& members = impl->client->members();
  const auto placement = co_await members.at_least(1, deadline);
  std::string names;
  for (const auto& member : placement->view().members) {
    if (member.name != server && std::to_string(member.id) != server) {
      names += (names.empty() ? "" : ", ") + member.name;
      continue;
    }
    fabric::Endpoint endpoint = member.endpoint;
    std::string realm = impl->client->pool() + "/" + members.options().role;
    const auto token = members.options().token;
    auto channel =
        co_await rpc::connect(impl->progress, std::move(endpoint), token, std::move(realm), nullptr, deadline);
    impl->administered[server] = channel;
    co_return channel;
  }
  throw Error(Errc::not_found, "pool " + impl->client->pool() + " has no server " + server + "; it has " + names);
}

Task<std::string> send_command(std::shared_ptr<Pool::Impl> impl, std::string server, std::string command,
                               base::Deadline deadline) {
  auto channel = co_await administrators_channel(std::move(impl), std::move(server), deadline);
  fb::AdminRequestT request;
  request.command = std::move(command);
  rpc::CallOptions options{deadline};
  auto reply = co_await fb::ObjectsClient(channel).admin(std::move(request), options);
  co_return reply.json;
}

Task<std::string> token_from_directory(std::shared_ptr<pool::PoolClient> client, std::string role,
                                       base::Deadline deadline) {
  auto path = pool::pool_path(client->pool(), "secret");
  auto secret = co_await client->members().directory().get(std::move(path), deadline);
  if (!secret) throw Error(Errc::not_found, "the directory no longer has pool " + client->pool());
  co_return pool::role_token(fabric::Token::from_hex(secret->value), role).hex();
}

Task<std::string> info_of(std::shared_ptr<pool::PoolClient> client, std::string stream, base::Deadline deadline) {
  std::function<Task<std::string>(std::shared_ptr<rpc::Channel>, std::uint64_t, pool::PoolClient::Attempt)> call =
      [stream, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                         pool::PoolClient::Attempt) -> Task<std::string> {
    return [](std::shared_ptr<rpc::Channel> at, std::uint64_t number, std::string name,
              base::Deadline until) -> Task<std::string> {
      fb::StreamInfoRequestT request;
      request.view = number;
      request.stream = std::move(name);
      rpc::CallOptions options{until};
      auto reply = co_await fb::StreamsClient(at).stream_info(std::move(request), options);
      co_return reply.json;
    }(std::move(channel), view, stream, deadline);
  };
  auto row = pool::stream_row(stream);
  co_return co_await client->at_primary<std::string>(pool::streams_namespace(), std::move(row), std::nullopt, deadline,
                                                     std::move(call));
}

Task<fb::EmptyT> send_drop(std::shared_ptr<rpc::Channel> channel, std::uint64_t view, std::string stream,
                           base::Deadline deadline) {
  fb::DropStreamRequestT request;
  request.view = view;
  request.stream = std::move(stream);
  rpc::CallOptions options{deadline};
  fb::StreamsClient client(std::move(channel));
  co_return co_await client.drop_stream(std::move(request), options);
}

Task<void> drop_there(std::shared_ptr<pool::PoolClient> client, std::string stream, base::Deadline deadline) {
  std::function<Task<fb::EmptyT>(std::shared_ptr<rpc::Channel>, std::uint64_t, pool::PoolClient::Attempt)> call =
      [stream, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view, pool::PoolClient::Attempt) {
        return send_drop(std::move(channel), view, stream, deadline);
      };
  auto row = pool::stream_row(stream);
  co_await client->at_primary<fb::EmptyT>(pool::streams_namespace(), std::move(row), std::nullopt, deadline,
                                          std::move(call));
}

// Every entry below /pools/, which are few: views, secrets, servers.
Task<std::vector<directory::DirectoryEntry>> pool_entries(std::shared_ptr<directory::Directory> directory,
                                                          base::Deadline deadline) {
  constexpr std::size_t page = 1000;
  std::vector<directory::DirectoryEntry> all;
  std::string after;
  for (;;) {
    std::string prefix = "/pools/";
    auto entries = co_await directory->list(std::move(prefix), after, page, deadline);
    const bool end = entries.size() < page;
    for (auto& entry : entries) all.push_back(std::move(entry));
    if (end) co_return all;
    after = all.back().path;
  }
}

}  // namespace

std::string Pool::administer(const std::string& server, const std::string& command) {
  const auto deadline = impl_->deadline(configured);
  return fabric::run_task(*impl_->progress, send_command(impl_, server, command, deadline), base::Deadline::never());
}

std::string Pool::token(const std::string& role) {
  if (pool::role_rank(role) < 0 || role == "server")
    throw Error(Errc::invalid_argument, "role " + role + ": choose read, write, compute or admin");
  if (!impl_->options.token.empty()) throw Error(Errc::forbidden, "tokens are given out by who can read the directory");
  const auto deadline = impl_->deadline(configured);
  return fabric::run_task(*impl_->progress, token_from_directory(impl_->client, role, deadline),
                          base::Deadline::never());
}

std::string Pool::directory_for_roles() const {
  return directory::reader_address(directory::resolve_directory_service(impl_->options.directory), impl_->registration);
}

std::string Pool::stream_info(const std::string& stream) {
  const auto deadline = impl_->deadline(configured);
  return fabric::run_task(*impl_->progress, info_of(impl_->client, stream, deadline), base::Deadline::never());
}

void Pool::drop_stream(const std::string& stream) {
  const auto deadline = impl_->deadline(configured);
  fabric::run_task(*impl_->progress, drop_there(impl_->client, stream, deadline), base::Deadline::never());
}

std::vector<PoolStatus> Pool::known(const Context& context, const std::string& directory, Timeout timeout) {
  const base::Deadline deadline(timeout);
  const auto registered = base::settings(context.impl_->options).directory;
  std::shared_ptr<directory::Directory> service = directory::open_directory(
      context.impl_->engines.progress, directory::resolve_directory_service(directory), registered);
  const auto entries =
      fabric::run_task(*context.impl_->engines.progress, pool_entries(service, deadline), base::Deadline::never());
  std::map<std::string, PoolStatus> pools;
  for (const auto& entry : entries) {
    const auto end = entry.path.find('/', 7);
    if (end == std::string::npos) continue;
    auto& status = pools[entry.path.substr(7, end - 7)];
    if (entry.path.substr(end) != "/view") continue;
    status = pool::status_of(pool::view_from_json(entry.value));
  }
  std::vector<PoolStatus> result;
  for (auto& [name, status] : pools) {
    status.name = name;
    result.push_back(std::move(status));
  }
  return result;
}

}  // namespace penstock
