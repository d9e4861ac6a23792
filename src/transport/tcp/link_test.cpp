// Two links over a pair of sockets with little room, driven by hand in one thread.
#include "transport/tcp/link.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "model/copy.hpp"

namespace penstock::transport {
namespace {

// Memory by number; `pinned`: with a mutex, as exposures have one.
struct TestSource : Source {
  struct Memory {
    std::vector<std::byte> bytes;
    bool pinned = true;
    std::mutex mutex;
    Errc state = Errc::ok;
  };
  struct TestRegion : Region {
    explicit TestRegion(Memory& m) : memory(m) {}
    std::byte* segment(std::uint32_t number, wire::Reach reach) override {
      if (number != 0 || reach.last > memory.bytes.size()) throw Error(Errc::invalid_argument, "out of bounds");
      return memory.bytes.data();
    }
    std::mutex* mutex() override { return memory.pinned ? &memory.mutex : nullptr; }
    Errc state() const override { return memory.state; }
    bool hold() override { return true; }
    void release() override {}
    Memory& memory;
  };
  std::unique_ptr<Region> open(const wire::DataRequest& request, bool for_writing) override {
    const auto found = all.find(request.region);
    if (found == all.end()) throw Error(Errc::invalid_argument, "no such region");
    if (for_writing && !found->second.pinned) throw Error(Errc::invalid_argument, "for reading only");
    return std::make_unique<TestRegion>(found->second);
  }
  void served(std::uint64_t bytes) override { served_bytes += bytes; }
  std::map<std::uint64_t, Memory> all;
  std::uint64_t served_bytes = 0;
};

std::vector<std::byte> noise(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  std::minstd_rand random(seed);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

class LinkTest : public testing::Test {
 protected:
  LinkTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; ++i) {
      sources[i] = std::make_shared<TestSource>();
      links[i] = std::make_unique<Link>(memory::UniqueFd(fds[i]), sources[i]);
      const int room = 16 << 10;
      ::setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
  }

  std::vector<std::byte>& memory(int side, std::uint64_t region, std::vector<std::byte> bytes, bool pinned = true) {
    auto& made = sources[side]->all[region];
    made.bytes = std::move(bytes);
    made.pinned = pinned;
    return made.bytes;
  }
  static TransferPtr range(bool write, std::uint64_t region, std::uint64_t offset, std::span<std::byte> here) {
    auto transfer = std::make_shared<Transfer>();
    transfer->write = write;
    transfer->region = region;
    transfer->parts.push_back({model::byte_piece(0, 0, offset, here.size()), here.data()});
    return transfer;
  }
  void turn() {
    links[0]->advance(true);
    links[1]->advance(true);
  }
  void finish(const TransferPtr& transfer) {
    for (int i = 0; i < 100'000 && !transfer->done; ++i) turn();
    ASSERT_TRUE(transfer->done);
  }
  static Errc error_of(const TransferPtr& transfer) { return transfer->error ? transfer->error->code() : Errc::ok; }
  // What a peer that says this is told.
  Errc answer_to(wire::DataKind kind, std::span<const std::byte> message) {
    fabric::FrameHeader header{static_cast<std::uint32_t>(message.size()), static_cast<std::uint16_t>(kind), 0};
    EXPECT_EQ(::send(links[1]->socket(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
    EXPECT_EQ(::send(links[1]->socket(), message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
    try {
      links[0]->advance(true);
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::ok;
  }

  std::shared_ptr<TestSource> sources[2];
  std::unique_ptr<Link> links[2];
};

// Both sides ask and answer at once, more than the sockets hold.
TEST_F(LinkTest, ReadsAndWritesOfBothSidesAtOnce) {
  constexpr std::size_t size = 5 << 20;
  std::minstd_rand random(1);
  for (int side = 0; side < 2; ++side) {
    memory(side, 1, noise(size, 10 + static_cast<unsigned>(side)), false);
    memory(side, 2, noise(size, 20 + static_cast<unsigned>(side)));
  }
  struct Case {
    int side = 0;
    bool write = false;
    std::uint64_t offset = 0;
    std::vector<std::byte> here;
    TransferPtr transfer;
  };
  std::vector<Case> cases(60);
  std::uint64_t next[2] = {0, 0};  // writes do not overlap
  for (Case& one : cases) {
    one.side = static_cast<int>(random() % 2);
    one.write = random() % 2 == 0;
    const std::size_t bytes = random() % 4 == 0 ? random() % 400'000 : random() % 5000;
    one.offset = one.write ? next[one.side] : random() % (size - bytes);
    if (one.write && one.offset + bytes > size) continue;
    if (one.write) next[one.side] += bytes;
    one.here = one.write ? noise(bytes, static_cast<unsigned>(random())) : std::vector<std::byte>(bytes);
    one.transfer = range(one.write, one.write ? 2 : 1, one.offset, one.here);
    if (bytes == 0) one.transfer->parts.clear();
    links[one.side]->submit(one.transfer);
    turn();
  }
  for (const Case& one : cases) {
    if (!one.transfer) continue;
    finish(one.transfer);
    EXPECT_EQ(error_of(one.transfer), Errc::ok);
    const auto& there = sources[1 - one.side]->all[one.write ? 2 : 1].bytes;
    EXPECT_TRUE(std::equal(one.here.begin(), one.here.end(), there.begin() + static_cast<std::ptrdiff_t>(one.offset)));
  }
}

TEST_F(LinkTest, BoxesAndPointsComeWhereTheyBelong) {
  const auto& there = memory(1, 1, noise(600 * 600 * 8, 3), false);
  std::vector<std::byte> here(600 * 600 * 8, std::byte{0x11});
  auto transfer = std::make_shared<Transfer>();
  transfer->region = 1;
  // Every second row of the source, every second element: into the first quarter here.
  const std::int64_t from[] = {2 * 600 * 8, 2 * 8}, to[] = {600 * 8, 8};
  const std::uint64_t count[] = {300, 300};
  model::Piece box;
  box.elem_size = 8;
  box.copy = model::normalise(to, from, count, 2, 8);
  std::vector<model::PointMove> moves;
  for (std::uint64_t i = 0; i < 1000; ++i) moves.push_back({i * 80, static_cast<std::int64_t>(400 * 600 * 8 + i * 16)});
  model::Piece points;
  points.elem_size = 8;
  points.points = moves;
  transfer->parts = {{box, here.data()}, {points, here.data()}};
  links[0]->submit(transfer);
  finish(transfer);
  ASSERT_EQ(error_of(transfer), Errc::ok);
  std::vector<std::byte> expected(here.size(), std::byte{0x11});
  for (std::size_t row = 0; row < 300; ++row)
    for (std::size_t column = 0; column < 300; ++column)
      std::memcpy(&expected[(row * 600 + column) * 8], &there[(2 * row * 600 + 2 * column) * 8], 8);
  for (const auto& move : moves) std::memcpy(&expected[static_cast<std::size_t>(move.dst)], &there[move.src], 8);
  EXPECT_TRUE(here == expected);
  EXPECT_EQ(sources[1]->served_bytes, 300u * 300 * 8 + 8000);
}

TEST_F(LinkTest, ASmallReadDoesNotWaitForALargeOne) {
  memory(1, 1, noise(16 << 20, 4), false);
  std::vector<std::byte> large(16 << 20), small(100);
  auto first = std::make_shared<Transfer>();
  first->region = 1;
  for (std::uint64_t at = 0; at < large.size(); at += 1 << 20)
    first->parts.push_back({model::byte_piece(0, 0, at, 1 << 20), large.data() + at});
  const auto second = range(false, 1, 7, small);
  links[0]->submit(first);
  for (int i = 0; i < 50; ++i) turn();
  links[0]->submit(second);
  finish(second);
  EXPECT_FALSE(first->done);
  finish(first);
  EXPECT_TRUE(large == sources[1]->all[1].bytes);
}

// After drop() the memory is the caller's, whatever still comes or goes; the link serves on.
TEST_F(LinkTest, WhatIsDroppedIsNotTouched) {
  memory(1, 1, noise(4 << 20, 5), false);
  memory(1, 2, std::vector<std::byte>(4 << 20));
  for (int turns = 0; turns < 40; ++turns) {
    for (const bool write : {false, true}) {
      std::vector<std::byte> here(1 << 20, std::byte{7});
      const auto transfer = range(write, write ? 2 : 1, 0, here);
      links[0]->submit(transfer);
      for (int i = 0; i < turns; ++i) turn();
      transfer->drop();
      const auto before = here;
      finish(transfer);
      EXPECT_TRUE(here == before);
    }
  }
  std::vector<std::byte> here(1000);
  const auto again = range(false, 1, 50, here);
  links[0]->submit(again);
  finish(again);
  EXPECT_EQ(error_of(again), Errc::ok);
  EXPECT_EQ(std::memcmp(here.data(), sources[1]->all[1].bytes.data() + 50, 1000), 0);
}

// Memory that is taken back in the middle makes one transfer fail, at its end.
TEST_F(LinkTest, WhatIsTakenBackIsNotTouched) {
  for (const bool pinned : {true, false}) {
    for (const bool write : {false, true}) {
      if (write && !pinned) continue;
      memory(1, 1, noise(1 << 20, 6), pinned);
      auto& there = sources[1]->all[1];
      there.state = Errc::ok;
      std::vector<std::byte> here(1 << 20, std::byte{7});
      const auto transfer = range(write, 1, 0, here);
      links[0]->submit(transfer);
      for (int i = 0; i < 3; ++i) turn();
      ASSERT_FALSE(transfer->done);
      there.state = Errc::step_gone;
      const auto before = there.bytes;
      finish(transfer);
      EXPECT_EQ(error_of(transfer), Errc::step_gone);
      EXPECT_TRUE(there.bytes == before);
    }
  }
}

TEST_F(LinkTest, WhatIsRefusedFailsAlone) {
  memory(1, 1, noise(1000, 7), false);
  std::vector<std::byte> here(100);
  for (const auto& wrong :
       {range(false, 9, 0, here), range(false, 1, 950, here), range(true, 1, 0, here), range(true, 9, 0, here)}) {
    links[0]->submit(wrong);
    finish(wrong);
    EXPECT_EQ(error_of(wrong), Errc::invalid_argument);
  }
  const auto right = range(false, 1, 900, here);
  links[0]->submit(right);
  finish(right);
  EXPECT_EQ(error_of(right), Errc::ok);
}

TEST_F(LinkTest, TheEndFailsWhatIsUnderWay) {
  memory(1, 1, noise(4 << 20, 8), false);
  std::vector<std::byte> here(4 << 20);
  const auto transfer = range(false, 1, 0, here);
  int told = 0;
  transfer->on_done = [&](const Error* why) { told += why != nullptr ? 1 : 100; };
  links[0]->submit(transfer);
  turn();
  links[1]->end(Error(Errc::cancelled, "closed"));
  EXPECT_THROW(
      {
        for (int i = 0; i < 100'000; ++i) links[0]->advance(true);
      },
      Error);
  links[0]->end(Error(Errc::peer_lost, "gone"));
  EXPECT_EQ(error_of(transfer), Errc::peer_lost);
  EXPECT_EQ(told, 1);
}

TEST_F(LinkTest, WhatIsNoMessageEndsTheLink) {
  const std::vector<std::byte> junk(100, std::byte{0xa5});
  EXPECT_EQ(answer_to(wire::DataKind::reply, junk), Errc::protocol);
}

TEST_F(LinkTest, AnAnswerToNothingEndsTheLink) {
  std::vector<std::byte> message;
  encode(wire::DataReply{.id = 3}, message);
  EXPECT_EQ(answer_to(wire::DataKind::reply, message), Errc::protocol);
}

TEST_F(LinkTest, AKindThatIsNoneEndsTheLink) {
  EXPECT_EQ(answer_to(static_cast<wire::DataKind>(7), {}), Errc::protocol);
}

TEST_F(LinkTest, AWriteOfPointsEndsTheLink) {
  memory(0, 1, noise(1000, 9));
  wire::DataRequest request{.id = 1, .region = 1, .slot = 0, .pieces = {}, .points = {8, 16}};
  request.pieces.push_back({.elem_size = 8, .is_points = true, .point_count = 2});
  std::vector<std::byte> message;
  encode(request, message);
  EXPECT_EQ(answer_to(wire::DataKind::write_request, message), Errc::protocol);
}

// A peer that asks and does not read takes no more memory than that.
TEST_F(LinkTest, TooManyRequestsAtOnceEndTheLink) {
  memory(0, 1, noise(1 << 20, 9));
  wire::DataRequest request{.id = 1, .region = 1, .slot = 0, .pieces = {}, .points = {}};
  wire::DataPiece all{.elem_size = 1, .ndims = 1};
  all.count[0] = 1 << 20;
  all.strides[0] = 1;
  request.pieces.push_back(all);
  std::vector<std::byte> message;
  encode(request, message);
  Errc code = Errc::ok;
  for (int i = 0; i < 200 && code == Errc::ok; ++i) code = answer_to(wire::DataKind::read_request, message);
  EXPECT_EQ(code, Errc::protocol);
}

// The same with writes, whose answers are small.
TEST_F(LinkTest, TooManyWritesAtOnceEndTheLink) {
  wire::DataRequest request{.id = 1, .region = 99, .slot = 0, .pieces = {}, .points = {}};
  request.pieces.push_back({.elem_size = 1});
  std::vector<std::byte> message;
  encode(request, message);
  const std::vector<std::byte> body(1 + sizeof(std::uint64_t));
  Errc code = Errc::ok;
  for (int i = 0; i < 2000 && code == Errc::ok; ++i) {
    code = answer_to(wire::DataKind::write_request, message);
    ::send(links[1]->socket(), body.data(), body.size(), MSG_NOSIGNAL);
  }
  EXPECT_EQ(code, Errc::protocol);
}

TEST_F(LinkTest, APeerThatAsksWithoutEndDoesNotKeepThisSideFromAsking) {
  memory(0, 1, noise(1 << 20, 1), false);
  memory(1, 1, noise(1000, 2), false);
  std::vector<std::byte> large(1 << 20), small(100);
  std::vector<TransferPtr> theirs;
  for (int i = 0; i < 64; ++i) theirs.push_back(range(false, 1, 0, large));
  for (const auto& one : theirs) links[1]->submit(one);
  for (int i = 0; i < 20; ++i) turn();
  const auto ours = range(false, 1, 0, small);
  links[0]->submit(ours);
  finish(ours);
  EXPECT_FALSE(theirs.back()->done);
  EXPECT_LT(std::ranges::count_if(theirs, [](const auto& one) { return one->done; }), 8);
}

TEST_F(LinkTest, TransfersTakeTurnsFromTheOldestOn) {
  memory(1, 1, noise(1000, 2), false);
  std::vector<std::byte> here(100);
  std::vector<int> order;
  std::vector<TransferPtr> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(range(false, 1, 0, here));
    all.back()->on_done = [&order, i](const Error*) { order.push_back(i); };
    links[0]->submit(all.back());
  }
  finish(all.back());
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(order.size(), all.size());
}

// Nothing is lent: a peer may not even ask.
TEST_F(LinkTest, WithoutASourceRequestsEndTheLink) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  Link asks(memory::UniqueFd(fds[0]), nullptr);
  links[1] = std::make_unique<Link>(memory::UniqueFd(fds[1]), sources[1]);
  std::vector<std::byte> here(10);
  links[1]->submit(range(false, 1, 0, here));
  links[1]->advance(false);
  EXPECT_THROW(asks.advance(true), Error);
}

}  // namespace
}  // namespace penstock::transport
