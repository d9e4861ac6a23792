// Streams that live in a pool, with the servers in this process: what the engine promises beyond the common contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>
#include <semaphore>
#include <thread>

#include "base/test_support.hpp"
#include "memory/arena.hpp"
#include "penstock/pool.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/keys/stream_keys.hpp"
#include "pool/node/server.hpp"
#include "pool/node/stream_pool_test_support.hpp"

namespace penstock::pool {
namespace {

using testing::ElementsAre;

TEST(StreamInPool, IsReadAfterItsWriterHasEnded) {
  Servers servers(1);
  {
    TestWriter writer(servers, "late", 1000);
    for (int i = 0; i < 10; ++i) writer.write();
    writer->close(patience);
    EXPECT_EQ(writer->statistics().steps, 10u);
  }
  for (int again = 0; again < 2; ++again) {
    TestReader reader(servers, "late");
    EXPECT_THAT(reader.rest(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(reader.last, Outcome::end_of_stream);
    EXPECT_EQ(reader->statistics().data_plane, "shm");
  }
}

TEST(StreamInPool, IsDescribed) {
  Servers servers(1);
  TestWriter writer(servers, "heat", 1000);
  writer.write();
  TestReader reader(servers, "heat");
  EXPECT_EQ(reader.read(), 0);
  ContextOptions where;
  where.directory = servers.folder();
  const Context context(where);
  const auto told = nlohmann::json::parse(Pool(context, {}).stream_info("heat"));
  EXPECT_EQ(told["stream"], "heat");
  EXPECT_EQ(told["home"], "\"server\" 0");
  EXPECT_EQ(told["state"], "open");
  EXPECT_EQ(told["ranks"], 1);
  EXPECT_EQ(told["steps"], 1);
  EXPECT_EQ(told["readers"], 1);
}

TEST(StreamInPool, IsReadWhileItIsWritten) {
  Servers servers(2);
  TestWriter writer(servers, "live", 300'000);
  TestReader reader(servers, "live");
  EXPECT_EQ(reader.read(Timeout(0)), -1);
  EXPECT_EQ(reader.last, Outcome::not_ready);
  for (int i = 0; i < 5; ++i) {
    writer.write();
    EXPECT_EQ(reader.read(), i);
  }
  writer->close(patience);
  EXPECT_EQ(reader.read(), -1);
  EXPECT_EQ(reader.last, Outcome::end_of_stream);
}

// Many stripes, asked for in several requests of which each is copied as it comes; read in place and over sockets.
TEST(StreamInPool, LargeStepsComeInParts) {
  Servers servers(2);
  constexpr std::uint64_t rows = 600, columns = 8192;  // 37.5 MiB
  auto options = pool_options();
  options.stripe_bytes = 1 << 20;
  const auto value = [](std::uint64_t i, std::uint64_t j) { return static_cast<double>(i * columns + j); };
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    const auto mine = rows / 2, first = static_cast<std::uint64_t>(cohort->rank()) * mine;
    auto writer = write_in_pool(servers.context(), "large", cohort, options);
    const auto x = writer->define("x", DType::float64, {rows, columns}, {});
    std::vector<double> values(mine * columns);
    std::iota(values.begin(), values.end(), value(first, 0));
    ASSERT_TRUE(writer->begin_step(patience));
    writer->put(x, Box{{first, 0}, {mine, columns}}, values.data(), {});
    writer->end_step();
    writer->close(patience);
  });
  for (const auto plane : {DataPlane::automatic, DataPlane::tcp}) {
    options.data_plane = plane;
    auto reader = read_from_pool(servers.context(), "large", solo(), options);
    ASSERT_EQ(reader->begin_step(patience), Outcome::ready);
    // All of it, a part of it, and that again from what is leased.
    const Box part{{100, 3}, {400, 8000}};
    std::vector<double> all(rows * columns), some(part.count[0] * part.count[1]), again(some.size());
    const auto id = reader->variable("x").id;
    reader->get(id, Selection::all(), all.data(), Order::row, {});
    reader->get(id, Selection::box(part), some.data(), Order::row, {});
    reader->wait(patience);
    reader->get(id, Selection::box(part), again.data(), Order::row, {});
    reader->wait(patience);
    std::uint64_t wrong = 0;
    for (std::uint64_t n = 0; n < all.size(); ++n) wrong += all[n] != static_cast<double>(n);
    for (std::uint64_t i = 0, n = 0; i < part.count[0]; ++i)
      for (std::uint64_t j = 0; j < part.count[1]; ++j, ++n)
        wrong += some[n] != value(part.start[0] + i, part.start[1] + j);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(some, again);
    reader->end_step();
  }
}

TEST(StreamInPool, ReadsOverSockets) {
  Servers servers(2);
  auto options = pool_options();
  options.data_plane = DataPlane::tcp;
  TestWriter writer(servers, "sockets", 1'000'000, options);
  for (int i = 0; i < 3; ++i) writer.write();
  writer->close(patience);
  TestReader reader(servers, "sockets", options);
  EXPECT_THAT(reader.rest(), ElementsAre(0, 1, 2));
  EXPECT_EQ(reader->statistics().data_plane, "tcp");
}

// What a server copies in pieces, with an end that fills none, is what was put, and so is its checksum.
TEST(StreamInPool, LargeStepsAreWholeAndWellSummed) {
  Servers servers(1);
  TestWriter writer(servers, "large", 900'001);  // 7.2 MB
  for (int i = 0; i < 2; ++i) writer.write();
  writer->close(patience);
  const auto stripes = objects_of(servers, "stripe/large/", [](const StoredObject& object) {
    EXPECT_EQ(object.checksum, storage::checksum(object.blob->bytes()));
  });
  EXPECT_GE(stripes, 2u);
  TestReader reader(servers, "large");
  EXPECT_THAT(reader.rest(), ElementsAre(0, 1));
}

// Its copies go before a pull; but one that never says that they have ended holds nothing up for long.
// A block of 1 MiB in stripes of 64 KiB: of 8192 elements each.
TEST(StreamInPool, BlocksThatWereCutAreViewed) {
  constexpr std::uint64_t elements = 128 << 10, each = 8192;
  Servers servers(2);
  auto options = pool_options();
  options.stripe_bytes = 64 << 10;
  options.retain_steps = 10;
  TestWriter writer(servers, "s", elements, options);
  for (int step = 0; step < 3; ++step) writer.write();
  writer->close(patience);
  const auto reader = read_from_pool(servers.context(), "s", solo(), pool_options());
  const auto check = [&](const penstock::View& view, std::uint64_t first, std::uint64_t count) {
    std::vector<double> expected(count);
    std::iota(expected.begin(), expected.end(),
              1000.0 * static_cast<double>(reader->step()) + static_cast<double>(first));
    const auto* values = reinterpret_cast<const double*>(view.bytes().data());
    EXPECT_EQ(std::vector<double>(values, values + view.bytes().size() / 8), expected);
  };
  const std::byte* before = nullptr;
  Views kept;
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(reader->begin_step(patience), Outcome::ready);
    const auto copied = [&] { return reader->statistics().bytes_copied; };
    const auto start = copied();
    const auto in_one = reader->view(0, Selection::box(Box{{each + 1000}, {each - 1000}}));
    check(in_one.front(), each + 1000, each - 1000);
    EXPECT_EQ(copied(), start) << "it lies in one stripe: nothing is put together";
    if (step == 0) check(reader->view(0, Selection::box(Box{{each - 1000}, {2000}})).front(), each - 1000, 2000);
    const auto joined = copied();
    EXPECT_EQ(joined, start + (step == 0 ? 8 * 2000 : 0));
    auto whole = reader->view(0, Selection::all());
    check(whole.front(), 0, elements);
    EXPECT_EQ(copied(), joined + 8 * elements);
    if (step == 1) {
      EXPECT_EQ(whole.front().bytes().data(), before) << "the memory of the last view is used again";
    }
    if (step == 2) {
      EXPECT_NE(whole.front().bytes().data(), before) << "while it is viewed it is nobody else's";
    }
    before = whole.front().bytes().data();
    reader->end_step();
    if (step == 1) kept = std::move(whole);
  }
}

TEST(StreamInPool, APullWaitsForItsWritersCopiesForAWhile) {
  constexpr std::uint64_t bytes = 1 << 20;
  Servers servers(1);
  auto options = pool_options();
  options.step_bytes = 2 * bytes;  // in one segment
  const auto writer = write_in_pool(servers.context(), "busy", solo(), options);
  const auto x = writer->define("x", DType::uint8, {bytes}, {});
  ASSERT_TRUE(writer->begin_step(patience)) << writer->awaited();
  const auto span = writer->put_span(x, Box{{0}, {bytes}});
  std::ranges::fill(span, std::byte{7});
  // The first block of a slot follows its header.
  reinterpret_cast<memory::SlotHeader*>(span.data() - memory::slot_header_bytes)->copying.store(1);
  const auto start = base::Clock::now();
  writer->end_step();
  const base::Deadline deadline(patience);
  while (writer->statistics().queue_depth > 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_GE(base::Clock::now() - start, std::chrono::milliseconds(5));
  EXPECT_EQ(writer->statistics().queue_depth, 0u);
  EXPECT_GE(objects_of(servers, "stripe/busy/"), 1u);
  writer->close(patience);
}

TEST(StreamInPool, TheWriterIsHeldByThePoolOnly) {
  Servers servers(1);
  TestWriter writer(servers, "free", 100);
  for (int i = 0; i < 50; ++i) writer.write();  // far more than its queue, and nobody reads
  writer->close(patience);
  TestReader reader(servers, "free");
  EXPECT_EQ(reader->steps().size(), 50u);
}

TEST(StreamInPool, AnyKeptStepInAnyOrder) {
  Servers servers(1);
  TestWriter writer(servers, "replay", 100);
  for (int i = 0; i < 6; ++i) writer.write();
  writer->close(patience);
  TestReader reader(servers, "replay");
  reader->seek(4);
  EXPECT_EQ(reader.read(), 4);
  reader->seek(1);
  EXPECT_EQ(reader.read(), 1);
  EXPECT_EQ(reader.read(), 2);
  auto options = pool_options();
  options.start = "newest";
  TestReader newest(servers, "replay", options);
  EXPECT_EQ(newest.read(), 5);
}

TEST(StreamInPool, RetentionKeepsTheNewest) {
  Servers servers(2);
  auto options = pool_options();
  options.retain_steps = 3;
  TestWriter writer(servers, "bounded", 200'000, options);
  for (int i = 0; i < 20; ++i) writer.write();
  writer->close(patience);
  TestReader reader(servers, "bounded");
  const base::Deadline deadline(patience);
  while (reader->steps().size() > 3 && !deadline.passed()) {
  }
  EXPECT_THAT(reader->steps(), ElementsAre(17, 18, 19));
  const auto used = [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < servers.size(); ++i) sum += servers[i].core().store().statistics().memory_used;
    return sum;
  };
  constexpr std::uint64_t bound = 4u * 200'000 * 8;
  while (used() >= bound && !deadline.passed()) {  // a step's stripes go after its record
  }
  EXPECT_LT(used(), bound) << "what was dropped is gone";
}

TEST(StreamInPool, AGroupHoldsStepsUntilItHasReadThem) {
  Servers servers(1);
  auto options = pool_options();
  options.retain_for = "analysis";
  TestWriter writer(servers, "held", 100, options);
  for (int i = 0; i < 8; ++i) writer.write();
  auto group = pool_options();
  group.group = "analysis";
  {
    TestReader reader(servers, "held", group);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(reader.read(), i);
    const std::vector<std::uint64_t> unread{4, 5, 6, 7};  // some may still be on their way into the pool
    const base::Deadline deadline(patience);
    while (reader->steps() != unread && !deadline.passed()) {
    }
    EXPECT_EQ(reader->steps(), unread);
  }
  TestReader again(servers, "held", group);
  EXPECT_EQ(again.read(), 4) << "the group goes on where it stopped";
  writer->close(patience);
}

TEST(StreamInPool, ANewWriterReplacesTheStream) {
  Servers servers(1);
  for (int run = 0; run < 2; ++run) {
    TestWriter writer(servers, "again", 100 + 50 * static_cast<std::uint64_t>(run));
    for (int i = 0; i < 3 - run; ++i) writer.write();
    if (run == 0) {
      EXPECT_THROW(TestWriter(servers, "again", 10), Error) << "one writer at a time";
    }
    writer->close(patience);
  }
  TestReader reader(servers, "again");
  EXPECT_THAT(reader.rest(), ElementsAre(0, 1));
}

TEST(StreamInPool, ALostWriterIsTold) {
  Servers servers(1);
  TestWriter writer(servers, "lost", 100);
  TestReader reader(servers, "lost");
  writer.write();
  EXPECT_EQ(reader.read(), 0);
  ASSERT_TRUE(writer->begin_step(patience));
  writer->lose();
  EXPECT_EQ(reader.read(), -1);
  EXPECT_EQ(reader.last, Outcome::writer_lost);
  EXPECT_THAT(reader->why(), testing::HasSubstr("the last step read was 0"));
}

StreamOptions resuming(const std::string& how) {
  auto options = pool_options();
  options.resume = how;
  return options;
}

TEST(StreamInPool, AWriterGoesOnWhereAnEarlierOneEnded) {
  Servers servers(2);
  for (const int steps : {3, 2, 4}) {
    TestWriter writer(servers, "goes-on", 100'000, resuming("append"));
    for (int i = 0; i < steps; ++i) writer.write();
    writer->close(patience);
  }
  TestReader reader(servers, "goes-on");
  EXPECT_THAT(reader.rest(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(StreamInPool, ARestartFromACheckpointPassesOverWhatIsThere) {
  Servers servers(2);
  {
    TestWriter writer(servers, "restart", 1000);
    for (int i = 0; i < 5; ++i) writer.write();
    ASSERT_TRUE(writer->begin_step(patience));
    writer->lose();  // in mid-step
  }
  TestReader early(servers, "restart");
  EXPECT_EQ(early.read(), 0);
  {
    TestWriter writer(servers, "restart", 2000, resuming("3"));  // its arrays have another shape: 3 and 4 must stay
    for (int i = 0; i < 5; ++i) {
      writer.write();
      if (i == 0) {
        EXPECT_EQ(early.read(), 1) << "who has the stream open goes on";
      }
    }
    writer->close(patience);
  }
  TestReader reader(servers, "restart");
  EXPECT_THAT(reader.rest(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(early.rest(), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_EQ(early.last, Outcome::end_of_stream);
}

TEST(StreamInPool, ARunOfMoreRanksGoesOn) {
  Servers servers(2);
  std::uint64_t step = 0;
  for (const int ranks : {1, 3}) {
    run_thread_cohort(ranks, [&](std::shared_ptr<Cohort> cohort) {
      const auto rank = static_cast<std::uint64_t>(cohort->rank());
      auto writer = write_in_pool(servers.context(), "ranks", cohort, resuming("append"));
      const auto x = writer->define("x", DType::float64, {6}, {});
      ASSERT_TRUE(writer->begin_step(patience));
      EXPECT_EQ(writer->step(), step);
      std::vector<double> values(6 / static_cast<std::size_t>(ranks));
      std::iota(values.begin(), values.end(),
                100.0 * static_cast<double>(step) + static_cast<double>(rank * values.size()));
      writer->put(x, Box{{rank * values.size()}, {values.size()}}, values.data(), {});
      writer->end_step();
      writer->close(patience);
    });
    ++step;
  }
  auto reader = read_from_pool(servers.context(), "ranks", solo(), pool_options());
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(reader->begin_step(patience), Outcome::ready);
    std::vector<double> values(6), expected(6);
    std::iota(expected.begin(), expected.end(), 100.0 * i);
    reader->get(reader->variable("x").id, Selection::all(), values.data(), Order::row, {});
    reader->wait(patience);
    EXPECT_EQ(values, expected);
    reader->end_step();
  }
}

TEST(StreamInPool, OnlyOneWriterGoesOn) {
  Servers servers(1);
  TestWriter writer(servers, "one", 100);
  writer.write();
  EXPECT_THROW(TestWriter(servers, "one", 100, resuming("append")), Error);
  writer.write();
  writer->close(patience);
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

void drop(Servers& servers, const std::string& name) {
  const base::Deadline deadline(patience);
  const auto client = shared_client(servers.context(), "", "write", deadline);
  std::function<Task<fb::EmptyT>(std::shared_ptr<rpc::Channel>, std::uint64_t, PoolClient::Attempt)> call =
      [name, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view, PoolClient::Attempt) {
        return send_drop(std::move(channel), view, name, deadline);
      };
  fabric::run_task(*client->progress(),
                   client->at_primary<fb::EmptyT>(streams_namespace(), stream_row(name), std::nullopt, deadline, call),
                   deadline);
}

TEST(StreamInPool, ADroppedStreamLeavesNothing) {
  Servers servers(2);
  TestWriter writer(servers, "gone", 300'000);
  for (int i = 0; i < 3; ++i) writer.write();
  EXPECT_THROW(drop(servers, "gone"), Error) << "it is being written";
  TestReader reader(servers, "gone");
  EXPECT_EQ(reader.read(), 0);
  writer->close(patience);
  drop(servers, "gone");
  EXPECT_EQ(objects_of(servers, "stripe/gone/"), 0u);
  EXPECT_EQ(objects_of(servers, "stream/gone"), 0u);
  EXPECT_EQ(reader.read(), -1);
  EXPECT_EQ(reader.last, Outcome::writer_lost);
  EXPECT_THROW(drop(servers, "gone"), Error) << "there is none";
  TestWriter again(servers, "gone", 100);
  again.write();
  again->close(patience);
  TestReader anew(servers, "gone");
  EXPECT_THAT(anew.rest(), ElementsAre(0));
}

// Stripes of steps that have no record, as a home leaves them that dies with its writer, go when a writer comes again.
TEST(StreamInPool, WhatALostWriterLeftIsDropped) {
  Servers servers(2);
  servers.wait_settled();
  std::uint64_t life = 0;
  {
    TestWriter writer(servers, "orphans", 100'000);
    for (int i = 0; i < 2; ++i) writer.write();
    const base::Deadline deadline(patience);
    while (writer->statistics().queue_depth > 0 && !deadline.passed()) {
    }
    for (std::size_t i = 0; i < servers.size(); ++i) {
      auto& store = servers[i].core().store();
      servers[i].core().progress()->call([&] {
        Pattern pattern;
        pattern.row = "stripe/orphans/*";
        store.table().scan(streams_namespace(), KeyPattern(pattern), "", 1, [&](const ObjectTable::Entry& entry) {
          life = std::stoull(std::string(entry.column));
          return true;
        });
      });
    }
    ASSERT_NE(life, 0u);
    put_at_owner(servers, stripe_row("orphans", 2, 0, 1), stripe_column(life),
                 stripe_tag(tag_base_of("orphans"), 2, 0, 1));
    writer->lose();
  }
  const auto whole = objects_of(servers, "stripe/orphans/00000000000000000000/");
  TestWriter writer(servers, "orphans", 100'000, resuming("append"));
  EXPECT_EQ(objects_of(servers, "stripe/orphans/00000000000000000002/"), 0u);
  EXPECT_EQ(objects_of(servers, "stripe/orphans/"), 2 * whole);
  writer.write();
  writer->close(patience);
  TestReader reader(servers, "orphans");
  EXPECT_THAT(reader.rest(), ElementsAre(0, 1, 2));
}

std::vector<std::size_t> stripes_by_server(Servers& servers) {
  std::vector<std::size_t> found(servers.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto& store = servers[i].core().store();
    servers[i].core().progress()->call([&] {
      Pattern pattern;
      pattern.row = "stripe/*";
      store.table().scan(streams_namespace(), KeyPattern(pattern), "", ~std::size_t{0},
                         [&](const ObjectTable::Entry&) { return ++found[i] > 0; });
    });
  }
  return found;
}

// A small step is one stripe: its place must follow from the stream too, or all small streams lie on one server.
TEST(StreamInPool, SmallStreamsLieOnAllServers) {
  constexpr std::size_t streams = 100, count = 4;
  Servers servers(count);
  servers.wait_settled();
  for (std::size_t i = 0; i < streams; ++i) {
    const auto name = "small" + std::to_string(i);
    TestWriter writer(servers, name, 8);
    writer.write();
    writer->close(patience);
    if (i % 10 == 0) {
      EXPECT_THAT(TestReader(servers, name).rest(), ElementsAre(0));
    }
  }
  const auto found = stripes_by_server(servers);
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), std::size_t{0}), streams);
  for (const auto at : found) EXPECT_GE(at, streams / count / 3) << testing::PrintToString(found);
}

// Nor do the small steps of one stream fill one server, while the others have room.
TEST(StreamInPool, SmallStepsLieOnAllServers) {
  Servers servers(4);
  servers.wait_settled();
  TestWriter writer(servers, "steps", 8);
  for (int i = 0; i < 12; ++i) writer.write();
  writer->close(patience);
  EXPECT_THAT(stripes_by_server(servers), testing::Each(3));
  EXPECT_THAT(TestReader(servers, "steps").rest(), testing::SizeIs(12));
}

// While the writer computes step n + 1 (it is between its puts and its end_step), a reader finds, reads and ends step n.
TEST(StreamInPool, ReadersWorkOnAStepWhileTheWriterComputesTheNext) {
  Servers servers(2);
  std::binary_semaphore computing(0), read(0);
  std::atomic<int> in_computation{-1};
  std::thread reading([&] {
    TestReader reader(servers, "overlap");
    for (int step = 0; step < 5; ++step) {
      computing.acquire();
      EXPECT_EQ(reader.read(), step);
      EXPECT_EQ(in_computation.load(), step + 1) << "the writer has not gone on";
      read.release();
    }
  });
  TestWriter writer(servers, "overlap", 50'000);
  writer.write();
  for (int step = 1; step <= 5; ++step) {
    in_computation = step;
    computing.release();
    EXPECT_TRUE(read.try_acquire_for(patience)) << "step " << step - 1 << " was not read during this one's computation";
    writer.write();
  }
  reading.join();
  writer->close(patience);
}

}  // namespace
}  // namespace penstock::pool
