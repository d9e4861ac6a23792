#include "transport/bulk.hpp"

#include <algorithm>
#include <random>

#include "memory/device_fixture.hpp"
#include "rpc/rpc_test_support.hpp"

namespace penstock::rpc::test {
namespace {

using fabric::Reach;
using Bytes = std::vector<std::byte>;

// Where memory lies and how it moves.
struct Way {
  const char* name;
  Reach reach;
  bool buffer;              // a BulkBuffer, which is shared where the peer is local
  const char* chosen = "";  // the plane, as the side that connects asks for it
};

class BulkTest : public RpcTest, public ::testing::WithParamInterface<Way> {
 protected:
  std::shared_ptr<Channel> open() {
    serve({.plane = transport::bulk_plane(GetParam().chosen)});
    return connect(GetParam().reach, GetParam().chosen);
  }
  // Memory of the client, exposed to the server.
  struct Mine {
    BulkBuffer buffer;
    Bytes plain;
    std::span<std::byte> memory;
    Exposure exposure;
  };
  Mine expose(Channel& channel, std::uint64_t bytes, Access access) {
    Mine mine;
    if (GetParam().buffer) {
      mine.buffer = BulkBuffer::allocate(bytes);
      mine.memory = mine.buffer.span();
    } else {
      mine.plain.resize(bytes);
      mine.memory = mine.plain;
    }
    for (std::size_t i = 0; i < bytes; ++i) mine.memory[i] = static_cast<std::byte>(i * 5 + (i >> 11));
    mine.exposure = channel.bulk().expose(mine.memory, access);
    return mine;
  }
  // The server's memory, in `access` mode.
  BulkReplyT offer(const std::shared_ptr<Channel>& channel, std::uint64_t bytes, Access access) {
    BulkRequestT request;
    request.bytes = bytes;
    request.value = (static_cast<std::uint64_t>(access) << 1) | (GetParam().buffer ? 1 : 0);
    return TesterClient(channel).start_offer(request, patient()).get(soon());
  }
  void pull(const std::shared_ptr<Channel>& channel, BulkDescriptor from, std::uint64_t offset,
            std::span<std::byte> into, base::Deadline deadline = soon()) {
    run(channel->bulk().pull(from, offset, into, deadline));
  }
};

std::vector<Way> ways() {
  std::vector<Way> all{{"shared", Reach::unix_only, true},
                       {"unix", Reach::unix_only, false},
                       {"tcp", Reach::tcp_only, false},
                       {"tcp_buffer", Reach::tcp_only, true},
                       {"by_name", Reach::unix_only, true, "tcp"}};
  if (code_of([] { transport::bulk_plane("ucx"); }) == Errc::ok) {
    all.push_back({"ucx", Reach::unix_only, false, "ucx"});
    all.push_back({"ucx_buffer", Reach::tcp_only, true, "ucx"});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, BulkTest, ::testing::ValuesIn(ways()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BulkTest, APlaneThatIsNotOfferedIsAnErrorThatSaysSo) {
  serve();
  const std::string chosen = GetParam().chosen;
  auto channel = connect(GetParam().reach, chosen);
  EchoRequestT request;
  try {
    TesterClient(channel).start_echo(request, patient()).get(soon());
    EXPECT_NE(chosen, "ucx");
  } catch (const Error& error) {
    EXPECT_EQ(chosen, "ucx");
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_NE(std::string(error.what()).find("does not offer the data plane ucx"), std::string::npos) << error.what();
  }
}

TEST_P(BulkTest, MovesBothWaysFromBothSidesAtRandomOffsets) {
  auto channel = open();
  const std::string best = GetParam().reach == Reach::tcp_only ? "tcp" : "shm", chosen = GetParam().chosen;
  EXPECT_EQ(channel->bulk().plane(), chosen.empty() ? best : chosen);
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr std::uint64_t size = 11 << 20;
  const auto any_range = [&] {
    const std::uint64_t limit = random() % 3 == 0 ? size : random() % 3 == 1 ? 200'000 : 300;
    const std::uint64_t bytes = random() % limit;
    return std::pair(random() % (size - bytes), bytes);
  };
  TesterClient client(channel);
  Mine mine = expose(*channel, size, Access::read_write);
  const BulkReplyT theirs = offer(channel, size, Access::read_write);
  Bytes model(tester->offered.begin(), tester->offered.end());
  for (int i = 0; i < 40; ++i) {
    const auto [offset, bytes] = any_range();
    BulkRequestT request;
    request.memory = mine.exposure.descriptor();
    request.offset = offset;
    request.bytes = bytes;
    request.value = random() % 256;
    switch (i % 4) {
      case 0:  // the server pulls ours
        EXPECT_EQ(client.start_pull(request, patient()).get(soon()).sum, sum_of(mine.memory.subspan(offset, bytes)));
        break;
      case 1: {  // the server pushes to ours
        const Bytes before(mine.memory.begin(), mine.memory.end());
        const auto pushed = client.start_push(request, patient()).get(soon()).sum;
        EXPECT_EQ(pushed, sum_of(mine.memory.subspan(offset, bytes)));
        EXPECT_TRUE(
            std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(offset), mine.memory.begin()));
        EXPECT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(offset + bytes), before.end(),
                               mine.memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes)));
        break;
      }
      case 2: {  // we pull the server's
        Bytes into(bytes);
        pull(channel, theirs.memory, offset, into);
        EXPECT_TRUE(std::equal(into.begin(), into.end(), model.begin() + static_cast<std::ptrdiff_t>(offset)));
        break;
      }
      case 3: {  // we push to the server's
        Bytes from(bytes);
        for (auto& b : from) b = static_cast<std::byte>(random());
        run(channel->bulk().push(theirs.memory, offset, from, soon()));
        std::copy(from.begin(), from.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
        break;
      }
    }
  }
  EXPECT_TRUE(std::equal(model.begin(), model.end(), tester->offered.begin()));
}

TEST_P(BulkTest, MovesWhatLiesOnADevice) {
  auto channel = open();
  constexpr std::uint64_t size = 3 << 20;
  const BulkReplyT theirs = offer(channel, size, Access::read_write);
  for (const char* kind : {"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged", "cuMemHostAlloc"}) {
    for (const std::uint64_t bytes : {std::uint64_t{100}, std::uint64_t{2} << 20}) {
      const memory::DeviceMemory here(bytes, kind);
      Bytes values(bytes);
      for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 3 + (i >> 10));
      here.write(values);
      run(channel->bulk().push(theirs.memory, 1000, here.span(), soon()));
      EXPECT_TRUE(std::equal(values.begin(), values.end(), tester->offered.begin() + 1000)) << kind;
      pull(channel, theirs.memory, 999, here.span());
      EXPECT_TRUE(std::ranges::equal(here.read(), std::span(tester->offered).subspan(999, bytes))) << kind;
    }
  }
  const memory::DeviceMemory memory(100);
  EXPECT_EQ(code_of([&] { channel->bulk().expose(memory.span(), Access::read); }), Errc::unsupported);
}

TEST_P(BulkTest, GathersManyRanges) {
  auto channel = open();
  const BulkReplyT theirs = offer(channel, 8 << 20, Access::read);
  std::mt19937_64 random(7);
  std::vector<BulkSpace::Range> ranges;
  Bytes expected;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t bytes = i == 1500 ? 6 << 20 : random() % 3000;
    const std::uint64_t offset = random() % ((8 << 20) - bytes);
    ranges.push_back({offset, bytes});
    const auto part = tester->offered.subspan(offset, bytes);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  Bytes into(expected.size());
  run(channel->bulk().gather(theirs.memory, ranges, into, soon()));
  EXPECT_TRUE(into == expected);
}

TEST_P(BulkTest, MapsWhatIsShared) {
  auto channel = open();
  const BulkReplyT theirs = offer(channel, 1 << 20, Access::read);
  const auto mapped = channel->bulk().map(theirs.memory, soon());
  ASSERT_EQ(mapped.has_value(), std::string(GetParam().name) == "shared");
  if (!mapped) return;
  EXPECT_EQ(sum_of(mapped->bytes), theirs.sum);
}

TEST_P(BulkTest, BoundsAndRightsAreChecked) {
  auto channel = open();
  const BulkReplyT theirs = offer(channel, 100'000, Access::read);
  Bytes bytes(1000);
  const auto refused = [&](BulkDescriptor d, std::uint64_t offset, bool push) {
    return code_of([&] {
      if (push) run(channel->bulk().push(d, offset, bytes, soon()));
      else pull(channel, d, offset, bytes);
    });
  };
  const auto& d = theirs.memory;
  EXPECT_EQ(refused(d, 0, false), Errc::ok);
  EXPECT_EQ(refused(d, 99'001, false), Errc::invalid_argument);
  EXPECT_EQ(refused(d, ~std::uint64_t{0}, false), Errc::invalid_argument);
  EXPECT_EQ(refused(d, 0, true), Errc::invalid_argument);
  // Descriptors that somebody has tampered with: the owner of the memory checks too, or the mapping has no room.
  const BulkDescriptor longer(d.id(), std::uint64_t{1} << 40, d.offset(), d.segment(), d.access());
  EXPECT_EQ(refused(longer, 200'000, false), Errc::invalid_argument);
  const BulkDescriptor writable(d.id(), d.bytes(), d.offset(), d.segment(), 3);
  EXPECT_EQ(refused(writable, 0, true), Errc::invalid_argument);
  const BulkDescriptor unknown(d.id() + 77, d.bytes(), d.offset(), 0, d.access());
  EXPECT_EQ(refused(unknown, 0, false), Errc::invalid_argument);
  const BulkDescriptor elsewhere(d.id(), d.bytes(), d.offset(), 12'345, d.access());
  EXPECT_EQ(refused(elsewhere, 0, false), Errc::invalid_argument);
  // Nobody has lost the channel over it.
  EXPECT_EQ(refused(d, 99'000, false), Errc::ok);
}

TEST_P(BulkTest, WhatIsWithdrawnIsGone) {
  auto channel = open();
  const BulkReplyT theirs = offer(channel, 1 << 20, Access::read);
  Bytes bytes(1 << 20);
  pull(channel, theirs.memory, 0, bytes);
  EXPECT_EQ(sum_of(bytes), theirs.sum);
  TesterClient(channel).start_withdraw(NothingT{}, patient()).get(soon());
  EXPECT_EQ(code_of([&] { pull(channel, theirs.memory, 0, bytes); }), Errc::invalid_argument);
}

// Pulls that race with the withdrawal give the bytes as they were, or fail: the server overwrites the memory once the
// exposure is gone.
TEST_P(BulkTest, WithdrawalRacesWithPulls) {
  auto channel = open();
  TesterClient client(channel);
  int failures = 0;
  for (int round = 0; round < 20; ++round) {
    const BulkReplyT theirs = offer(channel, 4 << 20, Access::read);
    std::vector<Bytes> into(6, Bytes(4 << 20));
    std::vector<Future<void>> pulls;
    for (auto& bytes : into) {
      const std::span<std::byte> span(bytes);
      pulls.push_back(fabric::spawn(*progress, channel->bulk().pull(theirs.memory, 0, span, soon())));
    }
    if (round % 2 == 0) pulls[0].get(soon());
    client.start_withdraw(NothingT{}, patient()).get(soon());
    for (std::size_t i = round % 2 == 0 ? 1 : 0; i < pulls.size(); ++i) {
      if (code_of([&] { pulls[i].get(soon()); }) == Errc::ok) EXPECT_EQ(sum_of(into[i]), theirs.sum);
      else ++failures;
    }
  }
  RecordProperty("failures", failures);
}

TEST_P(BulkTest, LateTransfersEndAndTouchNothing) {
  auto channel = open();
  const BulkReplyT theirs = offer(channel, 64 << 20, Access::read);
  Bytes small(100);
  pull(channel, theirs.memory, 0, small);
  for (int i = 0; i < 5; ++i) {
    Bytes into(64 << 20);
    const auto code = code_of([&] { pull(channel, theirs.memory, 0, into, base::Deadline(Timeout(i))); });
    EXPECT_TRUE(code == Errc::timeout || code == Errc::ok);
    std::fill(into.begin(), into.end(), std::byte{0x11});
    pull(channel, theirs.memory, 0, small);
    EXPECT_EQ(std::count(into.begin(), into.end(), std::byte{0x11}), 64 << 20);
  }
}

TEST_P(BulkTest, APeerThatGoesEndsTransfers) {
  auto channel = open();
  const BulkReplyT theirs = offer(channel, 32 << 20, Access::read);
  Bytes into(32 << 20);
  const std::span<std::byte> span(into);
  auto last = fabric::spawn(*progress, channel->bulk().pull(theirs.memory, 0, span, soon()));
  server.reset();
  const auto code = code_of([&] { last.get(soon()); });
  EXPECT_TRUE(code == Errc::ok || code == Errc::peer_lost || code == Errc::invalid_argument) << name_of(code);
  progress->wait_for([&] { return !channel->open(); }, soon());
  EXPECT_EQ(code_of([&] { pull(channel, theirs.memory, 0, into); }), Errc::peer_lost);
}

Task<void> add_often(std::shared_ptr<Channel> channel, BulkDescriptor on, int times) {
  for (int i = 0; i < times; ++i) {
    co_await channel->bulk().fetch_add(on, 8, 1, soon());
    for (;;) {  // by compare-and-swap
      const auto now = co_await channel->bulk().fetch_add(on, 16, 0, soon());
      if (co_await channel->bulk().compare_swap(on, 16, now, now + 1, soon()) == now) break;
    }
  }
}

TEST_P(BulkTest, AtomicsOfSeveralPeersAddUp) {
  serve({.plane = transport::bulk_plane(GetParam().chosen)});
  std::vector<std::shared_ptr<Channel>> channels;
  std::vector<Exposure> exposures;
  tester->buffer = BulkBuffer::allocate(4096);
  tester->plain.resize(4096);
  const std::span<std::byte> memory = GetParam().buffer ? tester->buffer.span() : std::span(tester->plain);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  for (int i = 0; i < 3; ++i) channels.push_back(connect(GetParam().reach, GetParam().chosen));
  ASSERT_TRUE(server_progress->wait_for([&] { return server->channels().size() == 3; }, soon()));
  for (auto& channel : server->channels()) exposures.push_back(channel->bulk().expose(memory, Access::read_write));
  // Whose descriptor is whose: each channel's are its own, so match them by trying.
  std::vector<Future<void>> adders;
  auto served = server->channels();
  for (std::size_t i = 0; i < channels.size(); ++i) {
    // A call tells the server which channel is which: the roles are equal, the order is not known.
    std::optional<BulkDescriptor> mine;
    for (std::size_t j = 0; j < served.size() && !mine; ++j) {
      const auto before = served[j]->statistics().calls_served;
      TesterClient(channels[i]).start_who_am_i(NothingT{}, patient()).get(soon());
      if (served[j]->statistics().calls_served > before) mine = exposures[j].descriptor();
    }
    ASSERT_TRUE(mine);
    adders.push_back(fabric::spawn(*progress, add_often(channels[i], *mine, 200)));
  }
  for (auto& adder : adders) adder.get(soon());
  std::uint64_t words[3];
  std::memcpy(words, memory.data(), sizeof words);
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], 600u);
  EXPECT_EQ(words[2], 600u);
  EXPECT_EQ(code_of([&] { run(channels[0]->bulk().fetch_add(exposures[0].descriptor(), 4, 1, soon())); }),
            Errc::invalid_argument);
  server_progress->call([&] { exposures.clear(); });
}

TEST_P(BulkTest, LongRequestsAndRepliesArePulled) {
  auto channel = open();
  EchoRequestT request;
  request.bytes.resize(9 << 20);
  for (std::size_t i = 0; i < request.bytes.size(); ++i) request.bytes[i] = static_cast<std::uint8_t>(i >> 7);
  auto reply = TesterClient(channel).start_echo(request, patient()).get(soon());
  EXPECT_TRUE(reply.bytes == request.bytes);
  // The other way: the server calls us, with the same.
  reply = TesterClient(channel).start_call_back(request, patient()).get(soon());
  EXPECT_TRUE(reply.bytes == request.bytes);
}

TEST_P(BulkTest, CallbacksEndWithTheirMethod) {
  auto channel = open();
  BulkRequestT request;
  request.bytes = 3 << 20;
  EXPECT_EQ(TesterClient(channel).start_long_reply(request, patient()).get(soon()).bytes.size(), request.bytes);
  TesterClient(channel).start_release(NothingT{}, patient()).get(soon());  // the reply has been released by now
  EXPECT_EQ(tester->late_callbacks, 0);
}

class Flood : public RpcTest {};

TEST_F(Flood, LongBodiesWaitForMemory) {
  serve({.memory_bytes = 8 << 20});
  auto channel = connect();
  EchoRequestT request;
  request.bytes.resize(3 << 20, 7);
  std::vector<Future<EchoReplyT>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(TesterClient(channel).start_echo(request, patient()));
  for (auto& call : calls) EXPECT_EQ(call.get(soon()).bytes.size(), request.bytes.size());
  EXPECT_EQ(server->budget()->free_bytes(), 8u << 20);
  request.bytes.resize(9 << 20);
  EXPECT_EQ(code_of([&] { TesterClient(channel).start_echo(request, patient()).get(soon()); }), Errc::invalid_argument);
}

TEST_F(Flood, ManyMediumRepliesDoNotBreakTheConnection) {
  serve();
  auto channel = connect();
  EchoRequestT request;
  request.bytes.resize(500'000, 7);
  std::vector<Future<EchoReplyT>> calls;
  for (int i = 0; i < 300; ++i) calls.push_back(TesterClient(channel).start_echo(request, patient()));
  for (auto& call : calls) EXPECT_EQ(call.get(soon()).bytes.size(), request.bytes.size());
}

TEST(BulkBufferTest, BuffersAreUsedAgain) {
  auto first = BulkBuffer::allocate(100'000);
  EXPECT_EQ(first.size(), 100'000u);
  const auto* address = first.span().data();
  first = {};
  auto second = BulkBuffer::allocate(99'999);
  EXPECT_EQ(second.span().data(), address);
}

Task<void> take(Budget& budget, std::uint64_t bytes, std::vector<int>& order, int me, fabric::Signal& go) {
  const auto credit = co_await budget.acquire(bytes, soon());
  order.push_back(me);
  if (me != 0) co_return;
  co_await go.wait(soon());
}

TEST(BudgetTest, SmallOnesOvertakeButNotForEver) {
  Progress progress;
  Budget budget(progress, 100);
  fabric::Signal go(progress);
  std::vector<int> order;
  std::vector<Future<void>> all;
  all.push_back(fabric::spawn(progress, take(budget, 50, order, 0, go)));
  all.push_back(fabric::spawn(progress, take(budget, 80, order, 1, go)));
  for (int i = 0; i < 100; ++i) all.push_back(fabric::spawn(progress, take(budget, 50, order, 2 + i, go)));
  EXPECT_TRUE(progress.wait_for([&] { return budget.waiting() == 1 + 100 - Budget::max_overtakes; }, soon()));
  progress.call([&] {
    EXPECT_EQ(order.size(), 1u + Budget::max_overtakes);
    go.notify_all();
  });
  for (auto& each : all) each.get(soon());
  EXPECT_EQ(order[1 + Budget::max_overtakes], 1);
  EXPECT_EQ(budget.free_bytes(), 100u);
  EXPECT_EQ(code_of([&] { fabric::run_task(progress, budget.acquire(101, soon()), soon()); }), Errc::invalid_argument);
}

TEST(BudgetTest, DeadlinesAndDroppedTasksGiveBack) {
  Progress progress;
  Budget budget(progress, 100);
  auto credit = budget.try_acquire(60);
  ASSERT_TRUE(credit);
  EXPECT_FALSE(budget.try_acquire(41));
  EXPECT_EQ(code_of([&] { fabric::run_task(progress, budget.acquire(50, base::Deadline(Timeout(20))), soon()); }),
            Errc::timeout);
  EXPECT_EQ(budget.waiting(), 0u);
  credit.reset();
  EXPECT_EQ(budget.free_bytes(), 100u);
}

}  // namespace
}  // namespace penstock::rpc::test
