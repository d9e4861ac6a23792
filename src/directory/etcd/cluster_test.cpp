// A real etcd of three members, one of which dies (SIGKILL) while clients work.
#include <gtest/gtest.h>

#include <atomic>

#include "base/log.hpp"
#include "directory/directory_test_support.hpp"
#include "directory/etcd/etcd_test_support.hpp"
#include "directory/open.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;

// What all clients have done, read by the test's thread.
struct Progressed {
  std::atomic<std::uint64_t> done{0};     // acknowledged changes
  std::atomic<std::uint64_t> unknown{0};  // lost answers: made or not
  std::atomic<bool> stop{false};
};

// Counts a number up by compare-and-put until it is told to stop; how often that was acknowledged.
fabric::Task<std::uint64_t> count_up_until_stopped(Directory& directory, std::string path, fabric::Progress& progress,
                                                   Progressed& progressed) {
  std::uint64_t done = 0;
  while (!progressed.stop) {
    const auto deadline = soon();
    try {
      const auto entry = co_await directory.get(path, deadline);
      const std::uint64_t value = entry ? std::stoull(entry->value) : 0;
      std::optional<std::uint64_t> expected;
      expected = entry ? entry->revision : 0;
      std::string next = std::to_string(value + 1);
      const auto put = co_await directory.put(path, std::move(next), expected, 0, deadline);
      if (put) {
        ++done;
        ++progressed.done;
      }
    } catch (const Error& error) {
      if (error.code() != Errc::peer_lost) throw;
      ++progressed.unknown;
    }
    progress.notify();
  }
  co_return done;
}

TEST(EtcdCluster, GoesOnWhenAMemberIsKilledUnderLoad) {
  if (find_etcd().empty()) GTEST_SKIP() << "needs etcd (Debian: etcd-server)";
  base::set_log_level(base::Level::error);
  auto progress = fabric::Progress::create();
  EtcdCluster cluster(3);
  std::unique_ptr<Directory> opened;
  try {
    opened = open_directory(progress, cluster.address(), "");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Client client(progress, std::move(opened));
  ASSERT_FALSE(client.get("/ready"));  // answered: the cluster is up
  Told told(*progress, *client, "/");
  ASSERT_TRUE(told.wait_first());
  std::atomic<bool> lost{false};
  const auto lease = client.grant(5s, [&] { lost = true; });
  client.put("/server", "alive", {}, lease);

  Progressed progressed;
  std::vector<fabric::Future<std::uint64_t>> running;
  for (int i = 0; i < 3; ++i)
    running.push_back(fabric::spawn(
        *progress, count_up_until_stopped(*client, "/counter/" + std::to_string(i % 2), *progress, progressed)));
  const auto wait_for_more = [&](std::uint64_t more) {
    const auto target = progressed.done + more;
    return progress->wait_for([&] { return progressed.done >= target; }, soon());
  };
  ASSERT_TRUE(wait_for_more(100));
  // The one that the client is connected to, then another (the first is back).
  base::Clock::duration longest{};
  for (const int member : {0, 1}) {
    cluster.kill(member);
    const auto killed = base::Clock::now();
    ASSERT_TRUE(wait_for_more(1));
    longest = std::max(longest, base::Clock::now() - killed);
    ASSERT_TRUE(wait_for_more(100));
    cluster.start(member);
    ASSERT_TRUE(wait_for_more(100));
  }
  progressed.stop = true;
  std::uint64_t acknowledged = 0;
  for (auto& each : running) acknowledged += each.get(soon());

  // Every acknowledged change is there, and none more than may be.
  std::uint64_t counted = 0;
  for (const auto& entry : client.list("/counter/")) counted += std::stoull(entry.value);
  EXPECT_GE(counted, acknowledged);
  EXPECT_LE(counted, acknowledged + progressed.unknown);
  EXPECT_FALSE(lost);
  EXPECT_EQ(client.get("/server")->lease, lease);
  // The watch told each change once, in order, and ends where the tree is.
  client.put("/end", "");
  ASSERT_TRUE(told.wait([&] { return told.now().contains("/end"); }));
  std::map<std::string, std::uint64_t> values;
  for (const auto& event : told.events()) {
    if (!event.entry.path.starts_with("/counter/")) continue;
    const auto value = std::stoull(event.entry.value);
    EXPECT_EQ(value, values[event.entry.path] + 1) << event.entry.path;
    values[event.entry.path] = value;
  }
  EXPECT_EQ(values["/counter/0"] + values["/counter/1"], counted);
  RecordProperty("changes", static_cast<int>(counted));
  RecordProperty("unknown", static_cast<int>(progressed.unknown));
  RecordProperty("longest_pause_ms",
                 static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(longest).count()));
  base::set_log_level(base::Level::warn);
}

}  // namespace
}  // namespace penstock::directory
