// What changes of view do to objects: handed on, found elsewhere, not lost and not brought back.
#include "pool/node/server_core_test_support.hpp"

namespace penstock::pool {
namespace {

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

// It takes its share of the bandwidth.
TEST_F(Servers, MetadataCountAsWhatIsPassedOn) {
  start(1);
  PutOptions o = with(IfExists::refuse);
  o.metadata = std::string(max_metadata_bytes, 'm');
  for (int i = 0; i < 20; ++i) pool->put({"row" + std::to_string(i), "a"}, bytes_of("x"), o);
  add(options(1, 2, 1));
  servers[1].server->start(patience);
  const base::Deadline deadline(patience);
  while (!deadline.passed()) {
    const auto placement = core(0).placement();
    if (placement->view().settled && placement->view().members.size() == 2) break;
  }
  std::uint64_t moved = 0, bytes = 0;
  for (int i = 0; i < 20; ++i) moved += held(1, {"row" + std::to_string(i), "a"}).size();
  servers[0].progress->call([&] { bytes = core(0).counters().rebalanced_bytes; });
  EXPECT_GT(moved, 0u);
  EXPECT_GE(bytes, moved * (1 + max_metadata_bytes));
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

// A server of which the directory tells, and nobody else. It says of no view that it has passed on all: the pool does not settle.
class Announced {
 public:
  Announced(std::shared_ptr<fabric::Progress> progress, const std::string& folder, const std::string& name,
            const fabric::Endpoint& endpoint)
      : progress_(std::move(progress)), directory_(directory::open_directory(progress_, "embedded", folder)) {
    Announcement announcement;
    announcement.member.id = 999;
    announcement.member.name = name;
    announcement.member.endpoint = endpoint;
    const base::Deadline deadline(patience);
    fabric::run_task(*progress_, directory_->put(path_, to_json(announcement), std::nullopt, 0, deadline), deadline);
  }
  void remove() {
    const base::Deadline deadline(patience);
    fabric::run_task(*progress_, directory_->remove(path_, std::nullopt, deadline), deadline);
  }

 private:
  const std::string path_ = pool_path("stage", "servers/999");
  const std::shared_ptr<fabric::Progress> progress_;
  const std::shared_ptr<directory::Directory> directory_;
};

TEST_F(Servers, AHolderThatDoesNotAnswerIsNotAbsence) {
  start(2);
  std::vector<Key> keys;
  for (int i = 0; i < 60; ++i) {
    keys.push_back({"k " + std::to_string(i), ""});
    pool->put(keys.back(), bytes_of(std::to_string(i)));
  }
  // A server that is announced and cannot be reached: the pool does not settle.
  auto nowhere = servers[0].server->endpoint();
  nowhere.unix_name = "penstock-nobody-" + std::to_string(::getpid());
  nowhere.tcp_hosts.clear();
  Announced silent(client_progress, folder.path(), "silent", nowhere);
  const base::Deadline deadline(patience);
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
  silent.remove();
  EXPECT_EQ(code_of([&] { pool->get(absent); }), Errc::not_found);
  EXPECT_GT(pool->put(absent, bytes_of("x")), 1u) << "above what it may bring back";
  const auto all = pool->get(keys);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    ASSERT_TRUE(all[k]) << all[k].message;
    EXPECT_EQ(all[k].value->text(), std::to_string(k));
    EXPECT_EQ(code_of([&] { pool->put(keys[k], bytes_of("again")); }), Errc::already_exists);
  }
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
  Announced announced(client_progress, folder.path(), "holder", holder.endpoint());
  const base::Deadline deadline(patience);
  add(options(2, 2, 1));
  servers[2].server->start(patience);
  while (pool->status().servers.size() < 4 && !deadline.passed()) std::this_thread::yield();
  int i = 0;
  while (!primary(2, "row " + std::to_string(i))) ++i;
  EXPECT_EQ(pool->get({"row " + std::to_string(i), "a"}).text(), ReplacingHolder::text);
  announced.remove();
}

// The system gives the port of a server that has died to any other process.
TEST_F(Servers, AStrangerAtAServersAddressIsAServerThatIsLost) {
  start(1);
  pool->put({"row", "a"}, bytes_of("bytes"));
  const auto stranger_token = fabric::Token::random();
  const auto token_of = [&](const std::string&) { return std::optional(stranger_token); };
  rpc::Server stranger(fabric::Progress::create(), std::make_shared<rpc::ServiceTable>(), token_of, "127.0.0.1");
  Announced announced(client_progress, folder.path(), "gone", stranger.endpoint());
  const base::Deadline deadline(patience);
  while (pool->status().servers.size() < 2 && !deadline.passed()) std::this_thread::yield();
  int i = 0;
  while (primary(0, "row " + std::to_string(i))) ++i;
  const Key key{"row " + std::to_string(i), "a"};
  EXPECT_THAT(code_of([&] { pool->get(key, {.timeout = 300ms}); }), testing::AnyOf(Errc::timeout, Errc::peer_lost));
  announced.remove();
  EXPECT_EQ(code_of([&] { pool->get(key, {.timeout = patience}); }), Errc::not_found);
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

}  // namespace
}  // namespace penstock::pool
