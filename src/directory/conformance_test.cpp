// What every directory must do. A directory joins by one line at the end of this file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/test_support.hpp"
#include "directory/directory_test_support.hpp"
#include "directory/etcd/etcd_test_support.hpp"
#include "directory/open.hpp"
#include "directory/server.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;

// The shortest that etcd has, and long enough for owners on a machine that stands still for a moment.
constexpr std::chrono::milliseconds short_ttl = 1s;

// A running directory.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Directory> open(std::shared_ptr<fabric::Progress> progress) = 0;
  virtual void stop() = 0;   // dies
  virtual void start() = 0;  // again, with what it had acknowledged
};

class Embedded final : public Backend {
 public:
  Embedded() { start(); }
  std::unique_ptr<Directory> open(std::shared_ptr<fabric::Progress> progress) override {
    return open_directory(std::move(progress), "embedded", folder_ / "registered");
  }
  void stop() override { host_.reset(); }
  void start() override {
    DirectoryServerOptions options;
    options.folder = folder_ / "journal";
    host_ = std::make_unique<DirectoryHost>(progress_, options, "127.0.0.1", folder_ / "registered");
  }

 private:
  TestFolder folder_;
  std::shared_ptr<fabric::Progress> progress_ = fabric::Progress::create();
  std::unique_ptr<DirectoryHost> host_;
};

// One member serves all tests of this program, each with a root of its own.
class Etcd final : public Backend {
 public:
  std::unique_ptr<Directory> open(std::shared_ptr<fabric::Progress> progress) override {
    return open_directory(std::move(progress), cluster().address() + root_, "");
  }
  void stop() override { cluster().kill(0); }
  void start() override { cluster().start(0); }

 private:
  static EtcdCluster& cluster() {
    static EtcdCluster one(1);
    return one;
  }
  static inline int count_ = 0;
  std::string root_ = "/test-" + std::to_string(++count_);
};

struct Kind {
  const char* name;
  std::unique_ptr<Backend> (*make)();  // an Error when it cannot run here
};

class DirectoryConformance : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    base::set_log_level(base::Level::error);  // lost connections are the point of some tests
    try {
      backend_ = GetParam().make();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override {
    base::set_log_level(base::Level::warn);
    backend_.reset();
  }
  Client open() { return {progress_, backend_->open(progress_)}; }
  // Lets time pass that is long enough for a lease of the short ttl to end, if nobody heartbeats.
  void let_a_lease_end() {
    auto watching = open();
    Told told(*progress_, *watching, "/clock/");
    {
      auto dying = open();
      dying.put("/clock/tick", "", {}, dying.grant(short_ttl));
      ASSERT_TRUE(told.wait([&] { return told.now().contains("/clock/tick"); }));
    }
    ASSERT_TRUE(told.wait_gone("/clock/tick"));
  }

  std::shared_ptr<fabric::Progress> progress_ = fabric::Progress::create();
  std::unique_ptr<Backend> backend_;
};

TEST_P(DirectoryConformance, CreateIfAbsent) {
  auto client = open();
  const auto created = client.put("/a/b", "one", 0);
  ASSERT_TRUE(created);
  EXPECT_FALSE(client.put("/a/b", "two", 0));
  const auto entry = client.get("/a/b");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->path, "/a/b");
  EXPECT_EQ(entry->value, "one");
  EXPECT_EQ(entry->revision, *created);
  EXPECT_EQ(entry->created, *created);
  EXPECT_EQ(entry->lease, 0U);
  EXPECT_FALSE(client.get("/a"));
}

TEST_P(DirectoryConformance, CompareAndPut) {
  auto client = open();
  EXPECT_FALSE(client.put("/a", "0", 12345));
  const auto first = client.put("/a", "1");
  const auto second = client.put("/a", "2", *first);
  ASSERT_TRUE(second);
  EXPECT_GT(*second, *first);
  EXPECT_FALSE(client.put("/a", "3", *first));
  EXPECT_EQ(client.get("/a")->value, "2");
  EXPECT_EQ(client.get("/a")->created, *first);
  EXPECT_TRUE(client.put("/a", "4"));
}

TEST_P(DirectoryConformance, Remove) {
  auto client = open();
  EXPECT_FALSE(client.remove("/a"));
  const auto first = client.put("/a", "1");
  EXPECT_FALSE(client.remove("/a", *first + 1));
  EXPECT_TRUE(client.remove("/a", *first));
  EXPECT_FALSE(client.get("/a"));
  EXPECT_FALSE(client.remove("/a", *first));
  client.put("/a", "2");
  EXPECT_TRUE(client.remove("/a"));
  EXPECT_TRUE(client.put("/a", "3", 0));
}

TEST_P(DirectoryConformance, ValuesAreAnyBytesUpToTheirBound) {
  auto client = open();
  std::string value(std::size_t{256} << 10, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 256);
  client.put("/large", value);
  EXPECT_EQ(client.get("/large")->value, value);
  client.put("/empty", "");
  EXPECT_EQ(client.get("/empty")->value, "");
  EXPECT_EQ(code_of([&] { client.put("/large", value + "x"); }), Errc::invalid_argument);
  // Together larger than any one answer.
  for (int i = 0; i < 24; ++i) client.put("/many/" + std::to_string(i), value);
  EXPECT_EQ(client.list("/many/").size(), 24U);
}

TEST_P(DirectoryConformance, RefusesBadPaths) {
  auto client = open();
  for (const std::string path : {"", "/", "a", "/a/", "//a", "/a//b", "/a b", "/\xff"}) {
    EXPECT_EQ(code_of([&] { client.put(path, ""); }), Errc::invalid_argument) << path;
    EXPECT_EQ(code_of([&] { client.get(path); }), Errc::invalid_argument) << path;
    EXPECT_EQ(code_of([&] { client.remove(path); }), Errc::invalid_argument) << path;
  }
  EXPECT_EQ(code_of([&] { client.list("x"); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { client->watch("x", [](const auto&) {}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { client.put("/" + std::string(512, 'x'), ""); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { client.put("/a", "", {}, 4711); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { client.grant(0ms); }), Errc::invalid_argument);
}

TEST_P(DirectoryConformance, ListsAThousandEntriesInPages) {
  auto client = open();
  std::vector<fabric::Future<std::optional<std::uint64_t>>> puts;
  for (int i = 0; i < 1000; ++i)
    puts.push_back(fabric::spawn(*progress_, client->put("/n/" + std::to_string(i), std::to_string(i), 0, 0, soon())));
  for (auto& put : puts) EXPECT_TRUE(put.get(soon()));
  client.put("/m", "");
  client.put("/o", "");
  const auto all = client.list("/n/");
  ASSERT_EQ(all.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto& a, auto& b) { return a.path < b.path; }));
  EXPECT_EQ(client.list("").size(), 1002U);
  EXPECT_EQ(client.list("/n/99").size(), 11U);
  std::vector<DirectoryEntry> paged;
  while (true) {
    const auto page = client.list("/n/", paged.empty() ? "" : paged.back().path, 130);
    if (page.empty()) break;
    EXPECT_LE(page.size(), 130U);
    paged.insert(paged.end(), page.begin(), page.end());
  }
  ASSERT_EQ(paged.size(), 1000U);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(paged[i].path, all[i].path);
  // What is there is told first, whole.
  Told told(*progress_, *client, "/n/");
  ASSERT_TRUE(told.wait_first());
  EXPECT_EQ(told.now().size(), 1000U);
}

TEST_P(DirectoryConformance, EntriesVanishWithTheirLease) {
  auto client = open();
  Told told(*progress_, *client, "/l/");
  {
    auto dying = open();
    const auto lease = dying.grant(short_ttl);
    dying.put("/l/a", "", {}, lease);
    dying.put("/l/b", "", {}, lease);
    dying.put("/l/stays", "", {}, lease);
    dying.put("/l/stays", "", {}, 0);
    ASSERT_TRUE(told.wait([&] { return told.now().size() == 3; }));
    EXPECT_EQ(client.get("/l/a")->lease, lease);
    EXPECT_EQ(client.get("/l/stays")->lease, 0U);
  }
  ASSERT_TRUE(told.wait([&] { return told.now().size() == 1; }));
  EXPECT_EQ(client.list("/l/").size(), 1U);
}

TEST_P(DirectoryConformance, HeartbeatsKeepALease) {
  auto client = open();
  std::atomic<bool> lost{false};
  const auto lease = client.grant(short_ttl, [&] { lost = true; });
  const auto revision = client.put("/kept", "", {}, lease);
  for (int i = 0; i < 3; ++i) let_a_lease_end();
  EXPECT_FALSE(lost);
  EXPECT_EQ(client.get("/kept")->revision, *revision);
  client.revoke(lease);
  EXPECT_FALSE(client.get("/kept"));
  EXPECT_EQ(code_of([&] { client.put("/kept", "", {}, lease); }), Errc::not_found);
}

TEST_P(DirectoryConformance, TheOwnerHearsThatItsLeaseHasEnded) {
  auto client = open(), other = open();
  std::atomic<int> lost{0};
  const auto lease = client.grant(short_ttl, [&] {
    EXPECT_TRUE(progress_->on_engine_thread());
    ++lost;
    progress_->notify();
  });
  other.revoke(lease);
  EXPECT_TRUE(progress_->wait_for([&] { return lost > 0; }, soon()));
  let_a_lease_end();
  EXPECT_EQ(lost, 1);
}

TEST_P(DirectoryConformance, AWatchTellsEveryChangeInOrder) {
  auto client = open(), other = open();
  client.put("/w/before", "x");
  client.put("/elsewhere", "x");
  Told told(*progress_, *client, "/w/");
  ASSERT_TRUE(told.wait_first());
  EXPECT_EQ(told.now().size(), 1U);
  std::vector<std::pair<std::string, std::string>> made;
  for (int i = 0; i < 200; ++i) {
    const std::string path = "/w/" + std::to_string(i % 3), value = std::to_string(i);
    if (i % 10 == 9) {
      other.remove(path);
      made.emplace_back(path, "removed");
    } else {
      other.put(path, value);
      made.emplace_back(path, value);
    }
    if (i % 7 == 0) other.put("/x", value);
  }
  other.put("/w/end", "");
  ASSERT_TRUE(told.wait([&] { return told.now().contains("/w/end"); }));
  const auto events = told.events();
  ASSERT_EQ(events.size(), made.size() + 2);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto& event = events[i + 1];
    EXPECT_EQ(event.entry.path, made[i].first);
    EXPECT_EQ(event.removed ? "removed" : event.entry.value, made[i].second);
    EXPECT_GT(event.entry.revision, events[i].entry.revision);
  }
}

TEST_P(DirectoryConformance, AWatchThatHasEndedTellsNothing) {
  auto client = open();
  Told ended(*progress_, *client, "/w/"), going(*progress_, *client, "/w/");
  client.put("/w/a", "1");
  ASSERT_TRUE(ended.wait_value("/w/a", "1"));
  ended.end();
  client.put("/w/a", "2");
  ASSERT_TRUE(going.wait_value("/w/a", "2"));
  EXPECT_EQ(ended.now().at("/w/a").value, "1");
  // Begun and ended at once, many times.
  for (int i = 0; i < 50; ++i) Told(*progress_, *client, "/w/");
  client.put("/w/a", "3");
  EXPECT_TRUE(going.wait_value("/w/a", "3"));
}

TEST_P(DirectoryConformance, WatchesAndLeasesGoOnAfterARestart) {
  auto client = open();
  Told told(*progress_, *client, "/w/");
  std::atomic<bool> lost{false};
  const auto lease = client.grant(20s, [&] { lost = true; });
  client.put("/w/owner", "", {}, lease);
  client.put("/w/gone", "1");
  for (int round = 1; round <= 3; ++round) {
    const std::string value = std::to_string(round);
    client.put("/w/a", value);
    ASSERT_TRUE(told.wait_value("/w/a", value));
    backend_->stop();
    // Made while nobody is there; done when somebody is again.
    auto waiting = fabric::spawn(*progress_, client->put("/w/while", value, {}, 0, soon()));
    backend_->start();
    EXPECT_TRUE(waiting.get(soon()));
    EXPECT_EQ(client.get("/w/a")->value, value);
    ASSERT_TRUE(told.wait_value("/w/while", value));
  }
  client.remove("/w/gone");
  client.put("/w/end", "");
  ASSERT_TRUE(told.wait([&] { return told.now().contains("/w/end") && !told.now().contains("/w/gone"); }));
  EXPECT_FALSE(lost);
  // Nothing told twice, nothing missed.
  std::map<std::string, std::uint64_t> revisions;
  for (const auto& event : told.events()) {
    EXPECT_GT(event.entry.revision, revisions[event.entry.path]) << event.entry.path;
    revisions[event.entry.path] = event.entry.revision;
  }
  const auto there = client.list("/w/");
  const auto seen = told.now();
  ASSERT_EQ(there.size(), seen.size());
  for (const auto& entry : there) EXPECT_EQ(seen.at(entry.path).revision, entry.revision);
}

fabric::Task<int> count_up(Directory& directory, std::string path, int times) {
  int refused = 0;
  for (int done = 0; done < times;) {
    const auto deadline = soon();
    const auto entry = co_await directory.get(path, deadline);
    const int value = entry ? std::stoi(entry->value) : 0;
    std::string next = std::to_string(value + 1);
    const std::optional<std::uint64_t> expected = entry ? entry->revision : 0;
    const auto put = co_await directory.put(path, std::move(next), expected, 0, deadline);
    if (put) ++done;
    else ++refused;
  }
  co_return refused;
}

TEST_P(DirectoryConformance, RacingClientsLoseNothing) {
  auto a = open(), b = open();
  std::vector<fabric::Future<int>> running;
  for (int i = 0; i < 4; ++i) running.push_back(fabric::spawn(*progress_, count_up(i % 2 ? *a : *b, "/counter", 25)));
  for (auto& each : running) each.get(soon());
  EXPECT_EQ(a.get("/counter")->value, "100");
}

TEST_P(DirectoryConformance, ADirectoryThatIsNotThereIsAnErrorInTime) {
  auto client = open();
  client.put("/a", "");
  backend_->stop();
  const auto begun = base::Clock::now();
  const auto code = code_of([&] { fabric::run_task(*progress_, client->get("/a", base::Deadline(300ms)), soon()); });
  EXPECT_TRUE(code == Errc::peer_lost || code == Errc::timeout) << name_of(code);
  EXPECT_LT(base::Clock::now() - begun, 20s);
  backend_->start();
  EXPECT_TRUE(client.get("/a"));
}

std::unique_ptr<Backend> make_embedded() { return std::make_unique<Embedded>(); }
std::unique_ptr<Backend> make_etcd() {
  if (find_etcd().empty()) throw Error(Errc::unsupported, "needs etcd (Debian: etcd-server)");
  open_directory(fabric::Progress::create(), "etcd://127.0.0.1:1", "");  // throws where Penstock has no client of etcd
  return std::make_unique<Etcd>();
}

INSTANTIATE_TEST_SUITE_P(Directories, DirectoryConformance,
                         ::testing::Values(Kind{"embedded", make_embedded},  //
                                           Kind{"etcd", make_etcd}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock::directory
