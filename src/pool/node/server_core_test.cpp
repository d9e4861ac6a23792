// What the servers of a pool do among themselves: real ones in this process, asked by clients and, as another server would,
// by hand.
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
namespace {

using namespace std::chrono_literals;

std::vector<std::uint8_t> data_of(std::string_view text) { return {text.begin(), text.end()}; }

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

PutOptions with(IfExists if_exists, Acknowledge acknowledge = Acknowledge::memory) {
  PutOptions o;
  o.if_exists = if_exists;
  o.acknowledge = acknowledge;
  return o;
}

TEST_F(Servers, AllKeptVersionsMoveWithTheirKey) {
  start(2);
  const auto text = [](int key, int version) { return "k" + std::to_string(key) + " v" + std::to_string(version); };
  for (int k = 0; k < 50; ++k)
    for (int v = 1; v <= 3; ++v)
      pool->put({"key " + std::to_string(k), "c"}, bytes_of(text(k, v)), with(IfExists::add_version));
  add(options(2, 2, 1));
  servers[2].server->start(patience);
  // While they move, a fourth comes to some.
  for (int k = 0; k < 50; k += 2)
    EXPECT_EQ(pool->put({"key " + std::to_string(k), "c"}, bytes_of(text(k, 4)), with(IfExists::add_version)), 4u);
  settle();
  int moved = 0;
  for (int k = 0; k < 50; ++k) {
    const Key key{"key " + std::to_string(k), "c"};
    moved += primary(2, key.row);
    for (std::uint64_t v = 1; v <= (k % 2 == 0 ? 4u : 3u); ++v) {
      GetOptions get;
      get.version = v;
      EXPECT_EQ(pool->get(key, get).text(), text(k, static_cast<int>(v)));
    }
  }
  EXPECT_GT(moved, 0);
}

TEST_F(Servers, WhatWasDroppedIsNotBroughtBackByALateReplica) {
  start(2, 2);
  const Key key{"row", "a"};
  pool->put(key, bytes_of("x"));
  EXPECT_TRUE(pool->drop(key));
  const auto replica = 1 - primary_of("row");
  EXPECT_EQ(held(replica, key).size(), 0u);
  const auto reply = replicate(replica, key, 1, "x");  // its sender had given it up
  EXPECT_EQ(reply.failed, std::vector<std::uint32_t>{0});
  EXPECT_EQ(held(replica, key).size(), 0u);
  // Put again, it is taken by everybody; the late one and a late drop do it no harm.
  PutOptions replicated = with(IfExists::refuse, Acknowledge::replicated);
  EXPECT_GT(pool->put(key, bytes_of("y"), replicated), 1u);
  replicate(replica, key, 1, "x");
  replicate(replica, key, 1, "", true);
  EXPECT_EQ(held(replica, key), std::vector<std::string>{"y"});
}

TEST_F(Servers, ADropFollowsTheReplicationOfWhatItDrops) {
  start(2, 2);
  const std::string large(600'000, 'x');  // goes by bulk, later than a drop would
  for (int i = 0; i < 50; ++i) {
    const Key key{"row " + std::to_string(i), ""};
    pool->put(key, bytes_of(large));
    EXPECT_EQ(pool->put(key, bytes_of(std::to_string(i)), with(IfExists::overwrite)), 2u);
    if (i % 2 == 0) {
      EXPECT_TRUE(pool->drop(key));
    }
  }
  for (int i = 0; i < 50; ++i) {
    const Key key{"row " + std::to_string(i), ""};
    // Behind the replication of what came before.
    pool->put(key, bytes_of("last"), with(IfExists::overwrite, Acknowledge::replicated));
    EXPECT_EQ(held(0, key), std::vector<std::string>{"last"});
    EXPECT_EQ(held(1, key), std::vector<std::string>{"last"});
    EXPECT_TRUE(pool->drop(key));
    EXPECT_EQ(held(0, key).size() + held(1, key).size(), 0u);
  }
}

TEST_F(Servers, AReplicaWithOtherBytesIsNoticedAndReplaced) {
  start(2, 2);
  for (const auto acknowledge : {Acknowledge::memory, Acknowledge::replicated}) {
    const Key key{"row", acknowledge == Acknowledge::memory ? "m" : "r"};
    const auto replica = 1 - primary_of("row");
    // Left by a put that failed.
    EXPECT_TRUE(replicate(replica, key, 5, "other").failed.empty());
    EXPECT_TRUE(replicate(replica, key, 5, "other").failed.empty());  // it has it: well
    const auto refused = replicate(replica, key, 5, "mine");
    ASSERT_EQ(refused.failed.size(), 1u);
    EXPECT_EQ(refused.newest, std::vector<std::uint64_t>{5});
    pool->put(key, bytes_of("mine"), with(IfExists::refuse, acknowledge));
    pool->put({"row", "after"}, bytes_of("z"), with(IfExists::overwrite, Acknowledge::replicated));
    // The next change waits for the replication of this one.
    EXPECT_EQ(code_of([&] { pool->put(key, bytes_of("more")); }), Errc::already_exists);
    EXPECT_EQ(held(replica, key), std::vector<std::string>{"mine"});
    EXPECT_EQ(held(1 - replica, key), std::vector<std::string>{"mine"});
  }
}

// An embedded directory refuses them when they connect; etcd, for which this one stands here, takes what anybody writes.
TEST_F(Servers, OneOfAnotherProtocolComesIntoNoView) {
  start(2);
  auto directory =
      std::shared_ptr<directory::Directory>(directory::open_directory(client_progress, "embedded", folder.path()));
  const base::Deadline deadline(patience);
  const auto path = pool_path("stage", "servers/7");
  const auto come = [&](const std::string& announcement) {
    fabric::run_task(*client_progress, directory->put(path, announcement, std::nullopt, 0, deadline), deadline);
  };
  const auto why_refused = [&] {
    add(options(2, 2, 1));
    try {
      servers.back().server->start(patience);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
      servers.pop_back();
      return std::string(error.what());
    }
    return std::string();
  };
  Announcement other;
  other.member.id = 7;  // the lowest
  other.member.name = "node7:1";
  other.member.endpoint = servers[0].server->endpoint();
  other.protocol = wire::service_protocol + 1;
  come(to_json(other));
  const auto ours = "version " + std::to_string(wire::service_protocol);
  EXPECT_THAT(why_refused(), testing::AllOf(testing::HasSubstr("server node7:1 of pool stage speaks version " +
                                                               std::to_string(other.protocol) +
                                                               " of the service protocol, server-2 " + ours),
                                            testing::HasSubstr("same release")));
  auto text = to_json(other);  // as one that does not say it
  const auto said = "\"protocol\":" + std::to_string(other.protocol) + ",";
  ASSERT_NE(text.find(said), std::string::npos);
  text.erase(text.find(said), said.size());
  come(text);
  EXPECT_THAT(why_refused(), testing::HasSubstr("speaks version 2 of"));
  // Views go on without it, and others come when it is gone.
  servers[1].server->drain(patience);
  const auto members = core(0).placement()->view().members;
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].id, 100u);
  fabric::run_task(*client_progress, directory->remove(path, std::nullopt, deadline), deadline);
  EXPECT_EQ(why_refused(), "");
}

TEST_F(Servers, AHolderThatDoesNotAnswerIsNotAbsence) {
  start(2);
  std::vector<Key> keys;
  for (int i = 0; i < 60; ++i) {
    keys.push_back({"k " + std::to_string(i), ""});
    pool->put(keys.back(), bytes_of(std::to_string(i)));
  }
  // A server that is announced and cannot be reached: the pool does not settle.
  auto directory =
      std::shared_ptr<directory::Directory>(directory::open_directory(client_progress, "embedded", folder.path()));
  Announcement silent;
  silent.member.id = 999;
  silent.member.name = "silent";
  silent.member.endpoint = servers[0].server->endpoint();
  silent.member.endpoint.unix_name = "penstock-nobody-" + std::to_string(::getpid());
  silent.member.endpoint.tcp_hosts.clear();
  const auto path = pool_path("stage", "servers/999");
  const base::Deadline deadline(patience);
  fabric::run_task(*client_progress, directory->put(path, to_json(silent), std::nullopt, 0, deadline), deadline);
  add(options(2, 2, 1));
  servers[2].server->start(patience);
  const auto joined = [&] { return core(2).placement()->view().find(999) != nullptr; };
  while (!joined() && !deadline.passed()) std::this_thread::yield();
  ASSERT_TRUE(joined());
  // A key that is the new server's, and that only the silent one might still have.
  int i = 0;
  while (!primary(2, "absent " + std::to_string(i))) ++i;
  const Key absent{"absent " + std::to_string(i), ""};
  GetOptions soon;
  soon.timeout = Timeout(1500);
  EXPECT_EQ(code_of([&] { pool->get(absent, soon); }), Errc::timeout);
  const auto asked = [&] {
    run(2, core(2).load(Namespace{}, absent.row, absent.column, std::nullopt, std::nullopt, base::Deadline(patience)));
  };
  EXPECT_EQ(code_of(asked), Errc::stale_view);  // to be asked again
  PutOptions brief;
  brief.timeout = Timeout(1500);
  EXPECT_EQ(code_of([&] { pool->put(absent, bytes_of("x"), brief); }), Errc::timeout);
  // It is gone: the others know everything.
  fabric::run_task(*client_progress, directory->remove(path, std::nullopt, deadline), deadline);
  EXPECT_EQ(code_of([&] { pool->get(absent); }), Errc::not_found);
  EXPECT_GT(pool->put(absent, bytes_of("x")), 1u) << "above what it may bring back";
  const auto all = pool->get(keys);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    ASSERT_TRUE(all[k]) << all[k].message;
    EXPECT_EQ(all[k].value->text(), std::to_string(k));
    EXPECT_EQ(code_of([&] { pool->put(keys[k], bytes_of("again")); }), Errc::already_exists);
  }
  directory.reset();
}

// Another server's part in what servers do among themselves. It tells of one version of each object that it is asked for, and
// has replaced that when it is fetched.
class ReplacingHolder final : public fb::PeersService {
 public:
  static constexpr std::string_view text = "newer";
  fabric::Task<fb::HaveReplyT> have(rpc::Call&, fb::HaveRequestT request) override {
    fb::HaveReplyT reply;
    for (std::uint32_t i = 0; i < unpack_keys(request.keys.get()).keys.size(); ++i) {
      reply.index.push_back(i);
      reply.versions.push_back(version_);
      reply.bytes.push_back(text.size());
      reply.checksums.push_back(storage::checksum(bytes_of(text)));
    }
    co_return reply;
  }
  fabric::Task<fb::GetReplyT> fetch(rpc::Call&, fb::FetchRequestT request) override {
    fb::GetReplyT reply;
    auto& got = *reply.got.emplace_back(std::make_unique<fb::GotT>());
    if (std::exchange(version_, 2) == 1) {
      got.code = static_cast<std::uint16_t>(Errc::not_found);
      co_return reply;
    }
    got.info = std::make_unique<fb::InfoT>();
    got.info->version = request.versions.at(0);
    got.info->bytes = got.inline_size = text.size();
    got.info->checksum = storage::checksum(bytes_of(text));
    got.inlined = true;
    reply.data = data_of(text);
    co_return reply;
  }
  fabric::Task<fb::ReplicateReplyT> replicate(rpc::Call&, fb::ReplicateRequestT) override {
    co_return fb::ReplicateReplyT{};
  }
  fabric::Task<fb::MissingReplyT> missing(rpc::Call&, fb::MissingRequestT) override { co_return fb::MissingReplyT{}; }
  fabric::Task<fb::PullReplyT> pull(rpc::Call&, fb::PullRequestT) override { co_return fb::PullReplyT{}; }

 private:
  std::uint64_t version_ = 1;
};

// A put comes to its replicas before it comes to its primary, which may not have had the older version either.
TEST_F(Servers, WhatIsReplacedWhileItIsFetchedIsNotAbsent) {
  start(2);
  auto services = std::make_shared<rpc::ServiceTable>();
  services->add(std::make_shared<ReplacingHolder>());
  const auto token = servers[0].server->token("server");
  const auto token_of = [token](const std::string&) { return std::optional(token); };
  rpc::Server holder(fabric::Progress::create(), services, token_of, "127.0.0.1");
  auto directory =
      std::shared_ptr<directory::Directory>(directory::open_directory(client_progress, "embedded", folder.path()));
  Announcement announcement;  // and it says of no view that it has passed on all: the pool does not settle
  announcement.member.id = 999;
  announcement.member.name = "holder";
  announcement.member.endpoint = holder.endpoint();
  const auto path = pool_path("stage", "servers/999");
  const base::Deadline deadline(patience);
  fabric::run_task(*client_progress, directory->put(path, to_json(announcement), std::nullopt, 0, deadline), deadline);
  add(options(2, 2, 1));
  servers[2].server->start(patience);
  while (pool->status().servers.size() < 4 && !deadline.passed()) std::this_thread::yield();
  int i = 0;
  while (!primary(2, "row " + std::to_string(i))) ++i;
  EXPECT_EQ(pool->get({"row " + std::to_string(i), "a"}).text(), ReplacingHolder::text);
  fabric::run_task(*client_progress, directory->remove(path, std::nullopt, deadline), deadline);
  directory.reset();
}

TEST_F(Servers, WhatOverlapsAChangeOfViewIsNeitherLostNorBroughtBack) {
  start(3, 2);
  std::vector<Key> keys;
  std::vector<std::string> texts;  // "": dropped
  std::atomic<bool> enough{false};
  std::atomic<int> done{0};
  std::thread writer([&] {
    for (int n = 0; !enough; ++n, ++done) {
      const Key key{"row " + std::to_string(n % 20), std::to_string(n)};
      std::string text = "put " + std::to_string(n);
      const auto code = code_of([&] {
        pool->put(key, bytes_of(text), with(IfExists::refuse, Acknowledge::replicated));
        if (n % 3 == 1) {
          pool->drop(key);
          text.clear();
        } else if (n % 3 == 2) {
          text += " again";
          pool->put(key, bytes_of(text), with(IfExists::overwrite, Acknowledge::replicated));
        }
      });
      EXPECT_EQ(code, Errc::ok) << n;
      keys.push_back(key);
      texts.push_back(text);
    }
  });
  const auto more = [&] {
    const base::Deadline deadline(patience);
    for (const int until = done + 100; done < until && !deadline.passed();) std::this_thread::yield();
  };
  more();
  add(options(3, 3, 2));
  servers[3].server->start(patience);
  more();
  servers[1].server->drain(patience);
  more();
  enough = true;
  writer.join();
  settle();
  const auto found = pool->get(keys);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    EXPECT_EQ(static_cast<bool>(found[k]), !texts[k].empty()) << keys[k].row << "/" << keys[k].column;
    if (found[k]) {
      EXPECT_EQ(found[k].value->text(), texts[k]);
    }
    const auto copies = held(0, keys[k]).size() + held(2, keys[k]).size() + held(3, keys[k]).size();
    EXPECT_GE(copies, texts[k].empty() ? 0u : 2u) << keys[k].row << "/" << keys[k].column;
  }
}

TEST_F(Servers, WhatIsPutAgainAfterADropComesBackToItsFormerOwner) {
  start(2);
  std::vector<Key> keys;
  for (int i = 0; i < 100; ++i) {
    keys.push_back({"row " + std::to_string(i), "a"});
    pool->put(keys.back(), bytes_of("old"));
    EXPECT_TRUE(pool->drop(keys.back()));
  }
  add(options(2, 2, 1));
  servers[2].server->start(patience);
  const auto put = [&](int i) { pool->put(keys[i], bytes_of(std::to_string(i))); };
  for (int i = 0; i < 50; ++i) put(i);  // not settled, as likely as not
  settle();
  for (int i = 50; i < 100; ++i) put(i);
  servers[2].server->drain(patience);
  settle();
  const auto found = pool->get(keys);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(found[i]) << i << ": " << found[i].message;
    EXPECT_EQ(found[i].value->text(), std::to_string(i));
  }
}

TEST_F(Servers, ADropWhoseAnswerWasLostIsToldAgain) {
  start(2, 2);
  const Key key{"row", "a"};
  pool->put(key, bytes_of("x"), with(IfExists::refuse, Acknowledge::replicated));
  const auto at = primary_of("row");
  fb::ObjectsClient client(channel(at, "write"));
  const auto drop = [&](std::uint64_t id) {
    const auto reply = client.start_drop(drop_request(at, key, id), {}).get(base::Deadline(patience));
    return static_cast<bool>(reply.dropped.at(0));
  };
  EXPECT_TRUE(drop(7));
  EXPECT_TRUE(drop(7));
  EXPECT_FALSE(drop(8));
  // What was put since is not what that drop was about.
  pool->put(key, bytes_of("y"), with(IfExists::refuse, Acknowledge::replicated));
  EXPECT_TRUE(drop(7));
  EXPECT_EQ(pool->get(key).text(), "y");
  EXPECT_TRUE(drop(9));
  // The other owner knows of it too: it may be the primary by the time it is asked.
  servers[at].progress->call([] {});
  EXPECT_EQ(held(1 - at, key).size(), 0u);
}

TEST_F(Servers, APutWhoseAnswerWasLostIsDoneOnce) {
  start(1);
  fb::ObjectsClient client(channel(0, "write"));
  const Key key{"row", "a"};
  const auto put = [&](std::string_view text, IfExists if_exists, bool again) {
    return client.start_put(put_request(0, key, text, if_exists, again), {}).get(base::Deadline(patience));
  };
  EXPECT_EQ(put("x", IfExists::refuse, false).versions[0], 1u);
  const auto again = put("x", IfExists::refuse, true);
  EXPECT_TRUE(again.failed.empty());
  EXPECT_EQ(again.versions[0], 1u);
  EXPECT_EQ(put("x", IfExists::refuse, false).failed.size(), 1u);
  EXPECT_EQ(put("y", IfExists::refuse, true).failed.size(), 1u);  // another's
  EXPECT_EQ(put("y", IfExists::add_version, false).versions[0], 2u);
  EXPECT_EQ(put("y", IfExists::add_version, true).versions[0], 2u);
  EXPECT_EQ(held(0, key), (std::vector<std::string>{"x", "y"}));
}

TEST_F(Servers, AFullReplicaSaysSo) {
  start(2, 2);
  const std::string row = "row";
  auto& replica = core(1 - primary_of(row));
  const auto all =
      run(1 - primary_of(row), replica.store().reserve(replica.store().memory_limit(), base::Deadline(patience)));
  PoolOptions o;
  o.pool = "stage";
  o.timeout_ms = 1000;
  Pool soon(*context, o);
  for (const std::size_t bytes : {100, 1 << 20}) {
    const std::string text(bytes, 'x');
    try {
      soon.put({row, "c"}, bytes_of(text), with(IfExists::overwrite, Acknowledge::replicated));
      ADD_FAILURE() << "it is at one server only";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::pool_full) << error.what();
    }
  }
}

// The primary has nothing of a put that failed, but a replica may: the drop reaches it, or the next view would restore it.
TEST_F(Servers, ADropCoversAPutThatFailed) {
  start(3, 3);
  const Key key{"row", "a"};
  const auto at = primary_of("row"), full = (at + 1) % 3, other = (at + 2) % 3;
  auto& store = core(full).store();
  const auto all = run(full, store.reserve(store.memory_limit(), base::Deadline(patience)));
  PoolOptions o;
  o.pool = "stage";
  o.timeout_ms = 1000;
  Pool soon(*context, o);
  EXPECT_THROW(soon.put(key, bytes_of("x"), with(IfExists::overwrite, Acknowledge::replicated)), Error);
  EXPECT_EQ(held(at, key).size(), 0u);
  ASSERT_EQ(held(other, key).size(), 1u);
  EXPECT_FALSE(pool->drop(key));
  EXPECT_EQ(held(other, key).size(), 0u);
}

// A put that timed out may come yet: the next one of its key goes on above it.
TEST_F(Servers, WhatWasGivenUpDoesNotTakeTheNextOnesPlace) {
  auto with_tier = options(0, 1, 1);
  with_tier.server.store.memory_bytes = 4 << 20;
  with_tier.server.store.tiers.resize(1);
  with_tier.server.store.tiers[0].path = folder / "tier";
  start({with_tier});
  auto& core = this->core(0);
  auto& store = core.store();
  const auto blob_of = [&](std::string_view text) {
    auto blob = store.try_reserve(text.size());
    std::ranges::copy(bytes_of(text), blob->writable().begin());
    return blob;
  };
  const auto found = [&](const std::string& row) {
    const auto loaded = run(0, core.load(Namespace{}, row, "c", std::nullopt, std::nullopt, base::Deadline(patience)));
    const auto bytes = loaded.value().object.blob->bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  struct Case {
    std::string row, second;
    IfExists if_exists;
    bool again;
    Acknowledge acknowledge;
    std::uint64_t version;
  };
  const auto durable = Acknowledge::durable;
  std::vector<fabric::Future<void>> given_up;
  const std::vector<Case> cases = {{"refuse", "second", IfExists::refuse, false, durable, 2},
                                   {"overwrite", "second", IfExists::overwrite, false, durable, 2},
                                   {"memory", "second", IfExists::refuse, false, Acknowledge::memory, 2},
                                   {"again", "first", IfExists::add_version, true, durable, 1},
                                   {"again, other bytes", "second", IfExists::add_version, true, durable, 2}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.row);
    fabric::Future<std::vector<ServerCore::PutResult>> putting;
    servers[0].progress->call([&] {
      // Its caller gave up before it ended, as at a deadline: the key is not locked, and the disk has it.
      auto first = blob_of("first");
      std::vector<ObjectStore::Write> writes(1);
      auto& object = writes[0].object;
      writes[0].row = c.row;
      writes[0].column = "c";
      writes[0].keep_older = c.if_exists == IfExists::add_version;
      object.version = store.first_version();
      object.bytes = first->size();
      object.checksum = storage::checksum(first->bytes());
      object.blob = std::move(first);
      given_up.push_back(
          fabric::spawn(*servers[0].progress, store.put(std::move(writes), true, true, base::Deadline(patience))));
      std::vector<ServerCore::Put> puts(1);
      puts[0].row = c.row;
      puts[0].column = "c";
      auto second = blob_of(c.second);
      puts[0].checksum = storage::checksum(second->bytes());
      puts[0].blob = std::move(second);
      putting = fabric::spawn(*servers[0].progress,
                              core.put(std::move(puts), c.if_exists, c.acknowledge, base::Deadline(patience), c.again));
    });
    const auto results = putting.get(base::Deadline(patience));
    ASSERT_FALSE(results.at(0).error) << results[0].error->what();
    EXPECT_EQ(results[0].version, c.version);
    EXPECT_EQ(found(c.row), c.second);
  }
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) pool->put({"large", std::to_string(i)}, bytes_of(large), with(IfExists::refuse, durable));
  for (const auto& c : cases) {
    SCOPED_TRACE(c.row);
    servers[0].progress->call([&] { EXPECT_FALSE(store.table().find(Namespace{}, c.row, "c")->blob); });
    EXPECT_EQ(found(c.row), c.second);
  }
}

TEST_F(Servers, ASubscriptionMayEndInItsCallbackAndItsCallbackMayThrow) {
  start(1);
  std::unique_ptr<Subscription> once;
  std::promise<void> ended;
  std::atomic<int> calls{0};
  std::latch ready(1);
  once = pool->subscribe(
      {"*", "*"},
      [&, owned = std::string(100, 'x')](const ObjectEvent&) {
        ready.wait();
        ++calls;
        once.reset();
        EXPECT_EQ(owned, std::string(100, 'x'));  // what it has captured is still there
        ended.set_value();
      },
      true);
  ready.count_down();
  std::atomic<int> heard{0};
  std::promise<void> all;
  auto throwing = pool->subscribe(
      {"*", "*"},
      [&](const ObjectEvent&) {
        if (++heard == 3) all.set_value();
        throw std::runtime_error("the callback's own");
      },
      true);
  for (int i = 0; i < 3; ++i) pool->put({"row", std::to_string(i)}, bytes_of("x"));
  EXPECT_EQ(ended.get_future().wait_for(patience), std::future_status::ready);
  EXPECT_EQ(all.get_future().wait_for(patience), std::future_status::ready);
  EXPECT_EQ(calls, 1);
}

TEST_F(Servers, AClientsLeasesWaitsAndSubscriptionsAreBounded) {
  every.server.max_leases = 2;
  every.server.max_subscriptions = 1;
  every.server.max_waits = 1;
  start(1);
  const std::string large(300'000, 'x');
  for (int i = 0; i < 3; ++i) pool->put({"large", std::to_string(i)}, bytes_of(large));
  {
    const auto first = pool->get({"large", "0"});
    const auto second = pool->get({"large", "1"});
    EXPECT_EQ(code_of([&] { pool->get({"large", "2"}); }), Errc::overloaded);
  }
  const base::Deadline deadline(patience);
  const auto leases = [&] {
    std::uint64_t all = 0;
    servers[0].progress->call([&] { all = core(0).leases(); });
    return all;
  };
  while (leases() != 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(pool->get({"large", "2"}).text(), large);

  auto first = pool->want({"never", "1"});
  GetOptions soon;
  soon.timeout = Timeout(5000);
  const auto second = code_of([&] { pool->need({"never", "2"}, soon); });
  EXPECT_EQ(second, Errc::overloaded);
  pool->put({"never", "1"}, bytes_of("x"));
  EXPECT_EQ(first.get(patience).text(), "x");

  fb::ObjectsClient client(channel(0, "read"));
  fb::SubscribeRequestT request;
  request.ns = pack_namespace(Namespace{});
  request.row = request.column = pack_bytes("*");
  client.start_subscribe(request, {}).get(deadline);
  EXPECT_EQ(code_of([&] { client.start_subscribe(request, {}).get(deadline); }), Errc::overloaded);
}

TEST_F(Servers, AnObjectOfNoBytesIsLoadedFromWhereItLies) {
  start(2);
  pool->put({"row", "empty"}, {});
  const auto other = 1 - primary_of("row");
  const auto loaded =
      run(other, core(other).load_anywhere(Namespace{}, "row", "empty", std::nullopt, false, base::Deadline(patience)));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->object.blob->bytes().size(), 0u);
  EXPECT_EQ(loaded->object.version, 1u);
}

TEST_F(Servers, AVersionThatIsNotThereIsWaitedForWithoutHarm) {
  start(1);
  pool->put({"row", "a"}, bytes_of("1"));
  GetOptions later;
  later.version = 2;
  later.timeout = Timeout(300);
  EXPECT_EQ(code_of([&] { pool->need({"row", "a"}, later); }), Errc::timeout);
  later.timeout = patience;
  auto second = pool->want({"row", "a"}, later);
  pool->put({"row", "a"}, bytes_of("2"), with(IfExists::add_version));
  EXPECT_EQ(second.get(patience).text(), "2");
}

}  // namespace
}  // namespace penstock::pool
