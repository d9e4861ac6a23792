// What the tests of a pool's servers share: real servers in this process, asked by clients and, as another server would, by
// hand.
#pragma once

#include "pool/server/server_core.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <latch>
#include <stdexcept>
#include <thread>

#include "base/test_support.hpp"
#include "directory/open.hpp"
#include "penstock/stream.hpp"
#include "pool/node/server.hpp"

namespace penstock::pool {

using namespace std::chrono_literals;

inline std::vector<std::uint8_t> data_of(std::string_view text) { return {text.begin(), text.end()}; }

class Servers : public testing::Test {
 protected:
  struct Running {
    std::shared_ptr<fabric::Progress> progress;
    std::unique_ptr<PoolServer> server;
  };

  void SetUp() override {
    ContextOptions o;
    o.directory = folder.path();
    context.emplace(o);
  }
  void TearDown() override {
    pool.reset();
    context.reset();
    while (!servers.empty()) {  // the directory goes last
      servers.back().server->stop(Timeout(5000));
      servers.pop_back();
    }
  }

  PoolServerOptions options(std::uint32_t number, std::uint32_t count, std::uint32_t replication) {
    PoolServerOptions o = every;
    o.server.pool = "stage";
    o.server.id = 100 + number;
    o.server.name = "server-" + std::to_string(number);
    o.server.listen = "127.0.0.1";
    o.server.servers = count;
    o.server.replication = replication;
    o.server.store.memory_bytes = 256 << 20;
    o.directory = number == 0 ? "embedded" : "registered";
    o.registration_directory = folder.path();
    return o;
  }
  void add(PoolServerOptions o) {
    Running running;
    running.progress = fabric::Progress::create();
    running.server = std::make_unique<PoolServer>(running.progress, std::move(o));
    servers.push_back(std::move(running));
  }
  void start(std::uint32_t count, std::uint32_t replication = 1) {
    std::vector<PoolServerOptions> each;
    for (std::uint32_t i = 0; i < count; ++i) each.push_back(options(i, count, replication));
    start(std::move(each));
  }
  void start(std::vector<PoolServerOptions> each) {
    for (auto& o : each) add(std::move(o));
    std::vector<std::future<void>> starting;
    for (auto& s : servers) {
      starting.push_back(std::async(std::launch::async, [&s] { s.server->start(patience); }));
      if (starting.size() == 1)
        while (!std::filesystem::exists(folder / "directory.json") &&
               starting[0].wait_for(0s) != std::future_status::ready)
          std::this_thread::yield();
    }
    for (auto& s : starting) s.get();
    PoolOptions o;
    o.pool = "stage";
    o.timeout_ms = 20'000;
    pool.emplace(*context, o);
    settle();
  }
  void settle() {
    const base::Deadline deadline(patience);
    while (!pool->status().settled && !deadline.passed()) std::this_thread::yield();
    ASSERT_TRUE(pool->status().settled);
  }

  ServerCore& core(std::size_t i) { return servers[i].server->core(); }
  template <class T>
  T run(std::size_t i, fabric::Task<T> task) {
    return fabric::run_task(*servers[i].progress, std::move(task), base::Deadline::never());
  }
  bool primary(std::size_t i, const std::string& row) {
    return core(i).is_primary(*core(i).placement(), Namespace{}, row, std::nullopt);
  }
  std::size_t primary_of(const std::string& row) {
    std::size_t i = 0;
    while (!primary(i, row)) ++i;
    return i;
  }
  // Objects "x" with these metadata, in one put.
  void put_many(const std::string& row, std::size_t count, const std::string& metadata,
                Acknowledge acknowledge = Acknowledge::memory) {
    std::vector<Pool::PutItem> items;
    for (std::size_t i = 0; i < count; ++i) items.push_back({{row, column_of(i)}, bytes_of("x")});
    PutOptions o;
    o.metadata = metadata;
    o.acknowledge = acknowledge;
    o.timeout = patience;
    for (const auto& result : pool->put(items, o)) ASSERT_EQ(result.code, Errc::ok) << result.message;
  }
  static std::string column_of(std::size_t i) { return std::to_string(100'000 + i); }  // in the order of the numbers
  // What a server has of a key, by itself.
  std::vector<std::string> held(std::size_t i, const Key& key) {
    std::vector<std::string> texts;
    servers[i].progress->call([&] {
      for (const auto& object : core(i).store().table().versions(Namespace{}, key.row, key.column)) {
        const auto bytes = object.blob->bytes();
        texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    });
    return texts;
  }
  std::shared_ptr<rpc::Channel> channel(std::size_t i, const std::string& role) {
    auto& s = servers[i];
    auto connecting = rpc::connect(client_progress, s.server->endpoint(), s.server->token(role), "stage/" + role,
                                   nullptr, base::Deadline(patience));
    return fabric::run_task(*client_progress, std::move(connecting), base::Deadline(patience));
  }
  // As a primary would send it.
  fb::ReplicateReplyT replicate(std::size_t to, const Key& key, std::uint64_t version, const std::string& text,
                                bool dropped = false, std::uint64_t request_id = 0) {
    fb::ReplicateRequestT request;
    request.view = core(to).placement()->view().number;
    std::vector<Key> keys{key};
    request.keys = pack_keys(Namespace{}, keys);
    request.sizes = {dropped ? 0 : text.size()};
    request.versions = {version};
    request.checksums = {storage::checksum(bytes_of(text))};
    request.put_us = {1};
    request.tags = {0};
    request.tagged = {false};
    request.dropped = {dropped};
    request.keep_older = {false};
    request.metadata = {""};
    request.request = request_id;
    if (!dropped) request.data = data_of(text);
    return fb::PeersClient(channel(to, "server")).start_replicate(request, {}).get(base::Deadline(patience));
  }
  fb::DropRequestT drop_request(std::size_t at, const Key& key, std::uint64_t id) {
    fb::DropRequestT request;
    request.view = core(at).placement()->view().number;
    std::vector<Key> keys{key};
    request.keys = pack_keys(Namespace{}, keys);
    request.request = id;
    return request;
  }
  fb::PutRequestT put_request(std::size_t at, const Key& key, std::string_view text, IfExists if_exists, bool again) {
    fb::PutRequestT request;
    request.view = core(at).placement()->view().number;
    std::vector<Key> keys{key};
    request.keys = pack_keys(Namespace{}, keys);
    request.sizes = {text.size()};
    request.data = data_of(text);
    request.if_exists = static_cast<std::uint8_t>(if_exists);
    request.again = again;
    return request;
  }

  TestFolder folder;
  PoolServerOptions every;  // what all servers' options begin with
  std::vector<Running> servers;
  std::optional<Context> context;
  std::optional<Pool> pool;
  std::shared_ptr<fabric::Progress> client_progress = fabric::Progress::create();
};

inline PutOptions with(IfExists if_exists, Acknowledge acknowledge = Acknowledge::memory) {
  PutOptions o;
  o.if_exists = if_exists;
  o.acknowledge = acknowledge;
  return o;
}

}  // namespace penstock::pool
