// What is the embedded directory's alone: its disk, its roles, its bounds, and how it is found.
#include "directory/server.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/log.hpp"
#include "base/test_support.hpp"
#include "directory/directory_test_support.hpp"
#include "directory/embedded.hpp"
#include "directory/etcd/directory.hpp"
#include "directory/etcd/etcd_test_support.hpp"
#include "directory/open.hpp"
#include "fabric/socket.hpp"
#include "penstock/error.hpp"
#include "wire/versions.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;

class DirectoryServerTest : public ::testing::Test {
 protected:
  DirectoryServerTest() { base::set_log_level(base::Level::off); }
  ~DirectoryServerTest() override { base::set_log_level(base::Level::warn); }
  void serve(DirectoryServerOptions options) {
    host_ = std::make_unique<DirectoryHost>(progress_, std::move(options), "127.0.0.1", "");
    std::lock_guard lock(mutex_);
    location_ = {host_->registration().endpoint, host_->registration().token};
  }
  Client open(const std::string& role = "write") {
    auto locate = [this, role] {
      std::lock_guard lock(mutex_);
      auto location = location_;
      if (role == "read") location.token = reader_token(location.token);
      return location;
    };
    return {progress_, open_embedded_directory(progress_, locate, "here", role)};
  }

  TestFolder folder_;
  std::shared_ptr<fabric::Progress> progress_ = fabric::Progress::create();
  std::unique_ptr<DirectoryHost> host_;
  std::mutex mutex_;  // guards what follows, which the engine reads
  DirectoryLocation location_;
};

TEST_F(DirectoryServerTest, HasTheSameAddressAfterARestartUnlessItsPortIsTaken) {
  DirectoryServerOptions options;
  options.folder = folder_.path();
  serve(options);
  const std::string address = host_->address();
  const std::uint16_t port = location_.endpoint.tcp_port;
  auto client = Client{progress_, open_directory(progress_, address, "")};
  EXPECT_TRUE(client.put("/a", "1"));
  host_.reset();
  serve(options);
  EXPECT_EQ(host_->address(), address);
  EXPECT_EQ(client.get("/a")->value, "1");

  host_.reset();
  std::uint16_t taken = 0;
  const auto other = fabric::listen_tcp("127.0.0.1", taken, port);
  ASSERT_EQ(taken, port);
  serve(options);
  EXPECT_NE(location_.endpoint.tcp_port, port);
  const std::string second = host_->address();
  host_.reset();
  serve(options);
  EXPECT_EQ(host_->address(), second);
}

// In a folder that several hosts share, its registration is looked at from where its Unix name means nothing.
TEST_F(DirectoryServerTest, ItsRegistrationIsAliveFromAnotherHost) {
  serve({});
  fabric::Registration found;
  found.stream = directory_registration;
  found.token = location_.token;
  found.endpoint = location_.endpoint;
  found.endpoint.unix_name.clear();
  EXPECT_TRUE(fabric::alive(found));
  found.token = fabric::Token::random();
  EXPECT_FALSE(fabric::alive(found));
}

// A double of a server of another release: it refuses whoever says hello. Nobody waits for it to come to its senses.
TEST_F(DirectoryServerTest, AServerOfAnotherVersionIsNotWaitedFor) {
  auto listener = fabric::listen_unix(location_.endpoint.unix_name);
  std::atomic<bool> over{false};
  std::thread server([&] {
    while (!over) {
      pollfd entry{listener.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10) <= 0) continue;
      const memory::UniqueFd peer(::accept(listener.get(), nullptr, nullptr));
      fabric::FrameHeader header{};
      if (::recv(peer.get(), &header, sizeof header, MSG_WAITALL) != sizeof header) continue;
      std::vector<std::byte> bytes(header.length);
      if (::recv(peer.get(), bytes.data(), bytes.size(), MSG_WAITALL) != static_cast<ssize_t>(bytes.size())) continue;
      EXPECT_EQ(wire::decode_hello(bytes).version, wire::service_protocol);
      bytes.clear();
      encode(wire::Refused{"node:1 speaks version 1", Errc::unsupported}, bytes);
      header = {static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint16_t>(wire::HandshakeKind::refused), 0};
      ::send(peer.get(), &header, sizeof header, MSG_NOSIGNAL);
      ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ::recv(peer.get(), &header, 1, 0);  // its end
    }
  });
  auto client = open();
  EXPECT_EQ(code_of([&] { client.get("/a"); }), Errc::unsupported);
  EXPECT_EQ(code_of([&] { client.put("/a", "1"); }), Errc::unsupported);
  over = true;
  server.join();
  // It is gone: whoever comes in its place may be of this version.
  listener = memory::UniqueFd();
  const base::Deadline deadline(20s);
  const auto look = [&] { client.run(client->get("/a", base::Deadline(1s))); };
  auto seen = Errc::unsupported;
  while (seen == Errc::unsupported && !deadline.passed()) seen = code_of(look);
  EXPECT_EQ(seen, Errc::peer_lost);
  serve({});
  EXPECT_FALSE(client.get("/a"));
}

TEST_F(DirectoryServerTest, AFullDiskRefusesChangesUntilThereIsRoom) {
  DirectoryServerOptions options;
  options.folder = folder_.path();
  serve(options);
  auto client = open();
  client.put("/before", "x");
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 400, old.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Errc first = code_of([&] { client.put("/large", std::string(10'000, 'x')); });
  const Errc second = code_of([&] { client.put("/refused", "x", 0); });
  const Errc third = code_of([&] { client.get("/refused"); });
  const Errc grant = code_of([&] { client.grant(1s); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(first, Errc::system);
  EXPECT_EQ(second, Errc::system);
  EXPECT_EQ(third, Errc::ok);
  EXPECT_EQ(grant, Errc::system);
  EXPECT_FALSE(client.get("/refused"));
  EXPECT_TRUE(client.put("/refused", "x", 0));
  host_.reset();
  serve(options);
  EXPECT_TRUE(client.get("/before"));
  EXPECT_TRUE(client.get("/refused"));
}

TEST_F(DirectoryServerTest, ReadersMayNotChangeAnything) {
  serve({});
  auto writer = open(), reader = open("read"), stranger = open("admin");
  const auto lease = writer.grant(10s);
  writer.put("/a", "1");
  Told told(*progress_, *reader, "/");
  ASSERT_TRUE(told.wait_value("/a", "1"));
  EXPECT_EQ(reader.list("/").size(), 1U);
  EXPECT_EQ(code_of([&] { reader.put("/a", "2"); }), Errc::forbidden);
  EXPECT_EQ(code_of([&] { reader.remove("/a"); }), Errc::forbidden);
  EXPECT_EQ(code_of([&] { reader.grant(1s); }), Errc::forbidden);
  EXPECT_EQ(code_of([&] { reader.revoke(lease); }), Errc::forbidden);
  EXPECT_NE(code_of([&] { fabric::run_task(*progress_, stranger->get("/a", base::Deadline(200ms)), soon()); }),
            Errc::ok);
  EXPECT_EQ(writer.get("/a")->value, "1");
}

TEST_F(DirectoryServerTest, ReadersSeeNoSecrets) {
  serve({});
  auto writer = open();
  writer.put("/pools/a/secret", "x");
  writer.put("/pools/a/servers", "y");
  const auto address = reader_address(host_->address(), "");
  EXPECT_EQ(reader_address(address, ""), address);
  EXPECT_EQ(code_of([] { reader_address("etcd://node:2379", ""); }), Errc::unsupported);
  EXPECT_EQ(code_of([] { reader_address("embedded", "etcd://node:2379"); }), Errc::unsupported);
  EXPECT_EQ(address.find(host_->registration().token.hex()), std::string::npos);
  auto reader = Client{progress_, open_directory(progress_, address, "")};
  EXPECT_FALSE(reader.get("/pools/a/secret"));
  EXPECT_EQ(reader.get("/pools/a/servers")->value, "y");
  ASSERT_EQ(reader.list("/pools/").size(), 1U);
  EXPECT_EQ(code_of([&] { reader.put("/a", "2"); }), Errc::forbidden);
  Told told(*progress_, *reader, "/pools/");
  ASSERT_TRUE(told.wait_value("/pools/a/servers", "y"));
  writer.put("/pools/b/secret", "z");
  writer.put("/pools/b/servers", "z");
  ASSERT_TRUE(told.wait_value("/pools/b/servers", "z"));
  EXPECT_FALSE(told.now().contains("/pools/a/secret"));
  EXPECT_FALSE(told.now().contains("/pools/b/secret"));
  // The readers' token does not open the writers' door.
  auto claimed = fabric::parse_address(address);
  claimed.stream = directory_registration;
  auto thief = Client{progress_, open_directory(progress_, fabric::to_address(claimed), "")};
  EXPECT_NE(code_of([&] { fabric::run_task(*progress_, thief->get("/a", base::Deadline(200ms)), soon()); }), Errc::ok);
}

TEST_F(DirectoryServerTest, AWatcherThatFellBehindIsToldTheDifferences) {
  DirectoryServerOptions options;
  options.limits.history = 1;
  serve(options);
  auto client = open(), other = open();
  Told told(*progress_, *client, "/w/");
  ASSERT_TRUE(told.wait_first());
  std::vector<fabric::Future<std::optional<std::uint64_t>>> puts;
  std::vector<fabric::Future<bool>> removals;
  for (int i = 0; i < 500; ++i) {
    const std::string path = "/w/" + std::to_string(i % 50);
    if (i % 9 == 0) removals.push_back(fabric::spawn(*progress_, other->remove(path, {}, soon())));
    else puts.push_back(fabric::spawn(*progress_, other->put(path, std::to_string(i), {}, 0, soon())));
  }
  for (auto& put : puts) put.get(soon());
  for (auto& removal : removals) removal.get(soon());
  other.put("/w/end", "");
  ASSERT_TRUE(told.wait([&] { return told.now().contains("/w/end"); }));
  const auto there = client.list("/w/");
  ASSERT_TRUE(told.wait([&] {
    const auto seen = told.now();
    if (seen.size() != there.size()) return false;
    for (const auto& entry : there)
      if (!seen.contains(entry.path) || seen.at(entry.path).value != entry.value) return false;
    return true;
  }));
}

TEST_F(DirectoryServerTest, BoundsOfOneClientAreKept) {
  DirectoryServerOptions options;
  options.max_watches = 2;
  options.limits.leases = 1;
  serve(options);
  auto client = open(), other = open();
  Told a(*progress_, *client, "/"), b(*progress_, *client, "/");
  ASSERT_TRUE(a.wait_first() && b.wait_first());
  Told others(*progress_, *other, "/");
  client.put("/a", "1");
  EXPECT_TRUE(a.wait_value("/a", "1") && b.wait_value("/a", "1") && others.wait_value("/a", "1"));
  client.grant(10s);
  EXPECT_EQ(code_of([&] { other.grant(10s); }), Errc::overloaded);
}

// However long it was away, whether a heartbeat had come before or not.
TEST_F(DirectoryServerTest, ADirectoryThatWasAwayHearsOwnersBeforeTheirLeasesEnd) {
  constexpr auto ttl = 1s;
  serve({});
  auto client = open();
  std::atomic<bool> lost{false};
  const auto lease = client.grant(ttl, [&] { lost = true; });
  const auto revision = client.put("/a", "", {}, lease);
  progress_->call([&] {
    const base::Deadline away(ttl + 200ms);
    while (!away.passed()) std::this_thread::yield();
  });
  // Until another's lease, which nobody keeps, has ended.
  Told told(*progress_, *client, "/dead");
  {
    auto dying = open();
    dying.put("/dead", "", {}, dying.grant(ttl));
    ASSERT_TRUE(told.wait([&] { return told.now().contains("/dead"); }));
  }
  ASSERT_TRUE(told.wait_gone("/dead"));
  EXPECT_FALSE(lost);
  const auto entry = client.get("/a");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->revision, *revision);
}

// A lease shorter than the time in which its owner tries to connect again.
TEST_F(DirectoryServerTest, ADirectoryThatComesBackHearsOwnersBeforeTheirLeasesEnd) {
  constexpr auto ttl = 100ms;
  DirectoryServerOptions options;
  options.folder = folder_.path();
  options.synced = false;
  serve(options);
  auto client = open();
  std::atomic<bool> lost{false};
  client.put("/a", "", {}, client.grant(ttl, [&] { lost = true; }));
  Told told(*progress_, *client, "/dead");
  ASSERT_TRUE(told.wait_first());
  {
    auto dying = open();
    dying.put("/dead", "", {}, dying.grant(ttl));
    ASSERT_TRUE(told.wait([&] { return told.now().contains("/dead"); }));
    host_.reset();
  }
  // Away for so long that the pauses between two tries to connect are the longest.
  EXPECT_EQ(code_of([&] { client.run(client->get("/a", base::Deadline(1500ms))); }), Errc::peer_lost);
  serve(options);
  ASSERT_TRUE(told.wait_gone("/dead"));
  EXPECT_FALSE(lost);
  EXPECT_TRUE(client.get("/a"));
}

TEST_F(DirectoryServerTest, ADirectoryThatBeganAnewEndsOldLeases) {
  serve({});
  auto client = open();
  std::atomic<bool> lost{false};
  const auto lease = client.grant(1s, [&] {
    lost = true;
    progress_->notify();
  });
  client.put("/a", "", {}, lease);
  Told told(*progress_, *client, "/");
  ASSERT_TRUE(told.wait([&] { return told.now().contains("/a"); }));
  host_.reset();
  serve({});
  EXPECT_TRUE(progress_->wait_for([&] { return lost.load(); }, soon()));
  EXPECT_TRUE(told.wait_gone("/a"));
}

TEST_F(DirectoryServerTest, IsFoundByItsAddress) {
  serve({});
  Client client(progress_, open_directory(progress_, host_->address(), ""));
  EXPECT_TRUE(client.put("/a", ""));
  EXPECT_EQ(client->describe().find(host_->registration().token.hex()), std::string::npos);
}

TEST_F(DirectoryServerTest, NamesOfDirectoriesAreChecked) {
  const auto address = fabric::Token::random().hex();
  const std::string elsewhere = "tcp://127.0.0.1:1/heat?token=" + address;
  for (const char* where :
       {"zookeeper", elsewhere.c_str(), "etcd://", "etcd://host", "etcd://h:1,/x", "etcd://h:1/a b"})
    EXPECT_EQ(code_of([&] { open_directory(progress_, where, ""); }), Errc::invalid_argument) << where;
  const auto etcd = parse_etcd_address("etcd://a:1,[::1]:2/x/y/");
  EXPECT_EQ(etcd.members, (std::vector<std::string>{"a:1", "[::1]:2"}));
  EXPECT_EQ(etcd.root, "/x/y");
  EXPECT_EQ(parse_etcd_address("etcd://a:1").root, "/penstock");
  EXPECT_EQ(resolve_directory_service("etcd://a:1"), "etcd://a:1");
  ::setenv("PENSTOCK_DIRECTORY_SERVICE", "etcd://b:1", 1);
  EXPECT_EQ(resolve_directory_service(""), "etcd://b:1");
  ::unsetenv("PENSTOCK_DIRECTORY_SERVICE");
  EXPECT_EQ(resolve_directory_service(""), "embedded");
  // Nothing is registered: the first call says so.
  Client nowhere(progress_, open_directory(progress_, "embedded", folder_ / "none"));
  EXPECT_EQ(code_of([&] { fabric::run_task(*progress_, nowhere->get("/a", base::Deadline(100ms)), soon()); }),
            Errc::peer_lost);
}

}  // namespace
}  // namespace penstock::directory
