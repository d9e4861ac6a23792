#include "pool/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/test_support.hpp"
#include "model/random_test_support.hpp"
#include "pool/trace_writer.hpp"

namespace penstock::pool {
namespace {

using namespace std::string_literals;

class TraceTest : public testing::Test {
 protected:
  static std::vector<std::byte> content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }
  std::string file(const char* name = "one.trace") const { return folder / name; }

  TestFolder folder;
};

TraceEvent event(Verb verb, std::span<const Key> keys) {
  TraceEvent event;
  event.verb = verb;
  event.keys = keys;
  event.start_ns = TraceWriter::now_ns();
  event.duration_ns = 1000;
  return event;
}

TEST_F(TraceTest, EverythingBothWays) {
  const std::vector<Key> keys = {{"rank/1", "T"}, {"\0\xff"s, ""}, {"rank/1", "U"}};
  const std::vector<std::uint64_t> sizes = {8, 1ull << 40, 0}, same = {100, 100, 100};
  Namespace ns;
  ns.bytes[3] = 7;
  {
    const auto writer = TraceWriter::open(file());
    EXPECT_EQ(writer->client("heat"), 0u);
    EXPECT_EQ(writer->client("other"), 1u);
    TraceEvent put = event(Verb::put, keys);
    put.start_ns = -5, put.duration_ns = 77;
    put.ns = ns;
    put.batch = put.asynchronous = true;
    put.if_exists = IfExists::add_version;
    put.acknowledge = Acknowledge::durable;
    put.tag = 0;
    put.sizes = sizes;
    put.metadata = "units: K";
    put.outcome = Errc::pool_full, put.failed = 2;
    put.client = 1, put.thread = 9;
    put.timeout = Timeout(30'000);
    writer->record(put);
    TraceEvent get = event(Verb::get, keys);
    get.version = ~std::uint64_t{0};
    get.offset = 4, get.part_bytes = 5;
    get.sizes = same;
    get.timeout = forever;
    writer->record(get);
    TraceEvent compute = event(Verb::compute, std::span(keys).first(1));
    compute.function = "sum", compute.arguments = "{}";
    compute.wait = true, compute.count = 10'000, compute.memory_bytes = 1 << 20;
    writer->record(compute);
    TraceEvent subscribe = event(Verb::subscribe, std::span(keys).first(1));
    subscribe.existing = true;
    writer->record(subscribe);
    writer->record(event(Verb::status, {}));
  }
  const Trace trace = read_trace(file());
  EXPECT_EQ(trace.problem, "");
  EXPECT_EQ(trace.header.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_FALSE(trace.header.host.empty());
  EXPECT_GT(trace.header.realtime_ns, 1'000'000'000'000'000'000);
  EXPECT_THAT(trace.clients, testing::ElementsAre("heat", "other"));
  ASSERT_EQ(trace.records.size(), 5u);
  const TraceRecord& put = trace.records[0];
  EXPECT_EQ(put.start_ns, -5);
  EXPECT_EQ(put.duration_ns, 77);
  EXPECT_EQ(trace.ns(put), ns);
  EXPECT_TRUE(put.batch && put.asynchronous && !put.existing && !put.wait);
  EXPECT_EQ(put.if_exists, IfExists::add_version);
  EXPECT_EQ(put.acknowledge, Acknowledge::durable);
  EXPECT_EQ(put.tag, 0u);
  EXPECT_EQ(put.version, std::nullopt);
  EXPECT_EQ(put.sizes, sizes);
  EXPECT_EQ(trace.texts[put.metadata], "units: K");
  EXPECT_EQ(put.outcome, Errc::pool_full);
  EXPECT_EQ(put.failed, 2u);
  EXPECT_EQ(put.client, 1u);
  EXPECT_EQ(put.thread, 9u);
  EXPECT_EQ(put.timeout, Timeout(30'000));
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(trace.key(put.keys[i]), keys[i]);
  const TraceRecord& get = trace.records[1];
  EXPECT_EQ(get.keys, put.keys);  // the same numbers: written once
  EXPECT_EQ(get.version, ~std::uint64_t{0});
  EXPECT_EQ(get.offset, 4u);
  EXPECT_EQ(get.part_bytes, 5u);
  EXPECT_EQ(get.sizes, same);
  EXPECT_EQ(get.timeout, forever);
  const TraceRecord& compute = trace.records[2];
  EXPECT_EQ(trace.texts[compute.function], "sum");
  EXPECT_EQ(trace.texts[compute.arguments], "{}");
  EXPECT_TRUE(compute.wait);
  EXPECT_EQ(compute.count, 10'000u);
  EXPECT_EQ(compute.memory_bytes, 1u << 20);
  EXPECT_TRUE(trace.records[3].existing);
  EXPECT_TRUE(trace.records[4].keys.empty());
  for (const auto& record : trace.records)
    if (&record != &put) {
      EXPECT_EQ(record.part_bytes == ~std::uint64_t{0}, &record != &get);
    }
}

// More texts than are remembered: their numbers begin again.
TEST_F(TraceTest, ManyKeys) {
  constexpr std::size_t count = 200'000;
  {
    const auto writer = TraceWriter::open(file());
    writer->client("heat");
    for (std::size_t i = 0; i < count; ++i) {
      const Key key{"row/" + std::to_string(i), "T"};
      writer->record(event(Verb::put, {&key, 1}));
    }
  }
  const Trace trace = read_trace(file());
  ASSERT_EQ(trace.records.size(), count);
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(trace.key(trace.records[i].keys[0]), (Key{"row/" + std::to_string(i), "T"}));
}

// What a process that was killed leaves behind is readable up to its last whole block, wherever it was cut.
TEST_F(TraceTest, CutAnywhere) {
  const Key key{"row", "column"};
  {
    const auto writer = TraceWriter::open(file());
    writer->client("heat");
    for (int block = 0; block < 4; ++block) {
      for (int i = 0; i < 5; ++i) writer->record(event(Verb::put, {&key, 1}));
      writer->flush();
    }
  }
  const auto whole = content(file());
  std::size_t before = 0, sizes = 0;
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    try {
      const Trace trace = decode_trace(std::span(whole).first(bytes));
      EXPECT_EQ(trace.records.size() % 5, 0u);
      EXPECT_GE(trace.records.size(), before);
      sizes += trace.records.size() != before;
      before = trace.records.size();
      EXPECT_EQ(trace.problem.empty(), trace.lost_bytes == 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol);
      EXPECT_LT(bytes, 200u);  // not even the header
    }
  }
  EXPECT_EQ(before, 20u);
  EXPECT_EQ(sizes, 4u);
}

TEST_F(TraceTest, DamagedAnywhere) {
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(model::test_seed()));
  model::Random random(77);
  const Key key{"row", "column"};
  {
    const auto writer = TraceWriter::open(file());
    writer->client("heat");
    for (int block = 0; block < 4; ++block) {
      for (int i = 0; i < 5; ++i) writer->record(event(Verb::put, {&key, 1}));
      writer->flush();
    }
  }
  const auto whole = content(file());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    auto bytes = whole;
    bytes[at] ^= static_cast<std::byte>(random.from(1, 255));
    try {
      const Trace trace = decode_trace(bytes);
      EXPECT_LT(trace.records.size(), 20u) << at;
      EXPECT_FALSE(trace.problem.empty()) << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol);
    }
  }
}

TEST_F(TraceTest, AKilledProcessLosesItsLastBlock) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto writer = TraceWriter::open(file());
    writer->client("heat");
    const Key key{"row", "column"};
    for (int i = 0; i < 100; ++i) writer->record(event(Verb::put, {&key, 1}));
    writer->flush();
    for (int i = 0; i < 3; ++i) writer->record(event(Verb::get, {&key, 1}));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  const Trace trace = read_trace(file());
  EXPECT_EQ(trace.records.size(), 100u);
  EXPECT_EQ(trace.problem, "");
}

TEST_F(TraceTest, AForkedChildWritesNothingOfItsParents) {
  const auto writer = TraceWriter::shared(file());
  writer->client("heat");
  const Key key{"row", "column"};
  writer->record(event(Verb::put, {&key, 1}));
  std::atomic<bool> enough{false};
  std::jthread busy([&] {  // has the lock, as likely as not, when the child is made
    while (!enough) writer->flush();
  });
  for (int i = 0; i < 20; ++i) {
    writer->record(event(Verb::put, {&key, 1}));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(20);
      std::quick_exit((writer->record(event(Verb::get, {&key, 1})), writer->flush(), 0));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
  }
  enough = true;
  busy.join();
  writer->record(event(Verb::put, {&key, 1}));
  EXPECT_EXIT(std::exit(0), ::testing::ExitedWithCode(0), "");
  writer->flush();
  const Trace trace = read_trace(file());
  EXPECT_EQ(trace.records.size(), 22u);
  for (const auto& record : trace.records) EXPECT_EQ(record.verb, Verb::put);
  EXPECT_EQ(trace.problem, "");
}

TEST_F(TraceTest, ManyThreads) {
  constexpr int threads = 4, each = 20'000;
  {
    const auto writer = TraceWriter::open(file());
    writer->client("heat");
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        for (int i = 0; i < each; ++i) {
          const Key key{"thread/" + std::to_string(TraceWriter::this_thread()), std::to_string(i % 100)};
          TraceEvent put = event(Verb::put, {&key, 1});
          put.thread = TraceWriter::this_thread();
          put.count = static_cast<std::uint64_t>(i);
          writer->record(put);
        }
      });
  }
  const Trace trace = read_trace(file());
  std::map<std::uint32_t, std::uint64_t> next;
  for (const auto& record : trace.records) {
    ASSERT_EQ(trace.key(record.keys[0]).row, "thread/" + std::to_string(record.thread));
    ASSERT_EQ(record.count, next[record.thread]++);
  }
  EXPECT_EQ(next.size(), static_cast<std::size_t>(threads));
  EXPECT_EQ(trace.records.size(), static_cast<std::size_t>(threads * each));
}

TEST_F(TraceTest, Files) {
  const auto one = TraceWriter::open(folder.path()), two = TraceWriter::open(folder.path());
  EXPECT_NE(one->path(), two->path());
  EXPECT_EQ(read_traces(folder.path()).size(), 2u);
  EXPECT_EQ(read_traces(one->path()).size(), 1u);
  EXPECT_THROW(TraceWriter::open(one->path()), Error);
  const auto deep = folder / "a/b";
  EXPECT_EQ(std::filesystem::path(TraceWriter::open(deep)->path()).parent_path(), deep);
  const auto kept = TraceWriter::shared(file("kept.trace"));
  EXPECT_EQ(kept, TraceWriter::shared(file("kept.trace")));
  EXPECT_THROW(read_trace(file("none")), Error);
  std::ofstream(file("no.trace")) << "something else";
  EXPECT_THROW(read_trace(file("no.trace")), Error);
}

}  // namespace
}  // namespace penstock::pool
