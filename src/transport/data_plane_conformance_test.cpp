// What every data plane must do, run over each of them.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "fabric/connect.hpp"
#include "penstock/interrupt.hpp"
#include "transport/data_plane_fixture.hpp"
#include "wire/data.hpp"

namespace penstock::transport {
namespace {

TEST_P(DataPlaneTest, FetchesMapsAndReadsPayloads) {
  start(2);
  EXPECT_EQ(plane->name(), GetParam()->name);
  const Place place = write_ramp(1, 0, 5, 3'000'000);
  Arena& arena = *ranks[1]->arena;
  std::vector<std::byte> out;
  fetch_one(5, 0, model::byte_piece(1, place.segment, place.offset, 3'000'000), out);
  EXPECT_TRUE(is_ramp(out));
  auto mapped = plane->map(5, 0, 1, place.segment, place.offset, 3'000'000, soon());
  EXPECT_TRUE(is_ramp(mapped.bytes));
  EXPECT_TRUE(plane->map(5, 0, 1, place.segment, place.offset, 0, soon()).bytes.empty());
  EXPECT_EQ(plane->header(5, 0, 1, soon()).payload_bytes, 0u);
  std::vector<std::byte> payload;
  plane->read_payload(5, 0, 1, payload, soon());
  EXPECT_TRUE(payload.empty());

  arena.begin(1, 6, 0);
  const Place at = arena.allocate(1, 1000);
  std::memset(at.data, 9, 1000);
  arena.set_payload(1, at, 1000);
  arena.publish(1, 6);
  payload.assign(3, std::byte{1});
  plane->read_payload(6, 1, 1, payload, soon());
  ASSERT_EQ(payload.size(), 1003u);
  EXPECT_EQ(payload[2], std::byte{1});
  EXPECT_EQ(payload[1002], std::byte{9});
  EXPECT_GE(plane->bytes_moved(), 3'000'000u);
}

TEST_P(DataPlaneTest, FollowsAnArenaThatGrowsIsReplacedAndReleased) {
  start(1);
  Arena& arena = *ranks[0]->arena;
  std::vector<std::byte> out;
  std::vector<DataPlane::Mapped> kept;
  for (std::uint64_t step = 0; step < 12; ++step) {
    const auto slot = static_cast<std::uint32_t>(step % 3);
    arena.begin(slot, step, 0);
    std::vector<Place> places;
    const std::uint64_t bytes = 300'000 + step % 5 * 900'000;
    for (int block = 0; block < 4; ++block) {
      places.push_back(arena.allocate(slot, bytes));
      std::memset(places.back().data, static_cast<int>(step * 4 + static_cast<std::uint64_t>(block)), bytes);
    }
    arena.publish(slot, step);
    for (std::size_t block = 0; block < 4; ++block) {
      fetch_one(step, slot, model::byte_piece(0, places[block].segment, places[block].offset, bytes), out);
      const auto value = static_cast<std::byte>(step * 4 + block);
      EXPECT_EQ(out.front(), value);
      EXPECT_EQ(out.back(), value);
      EXPECT_EQ(std::count(out.begin(), out.end(), value), static_cast<std::ptrdiff_t>(bytes));
    }
    if (step < 3) kept.push_back(plane->map(step, slot, 0, places[3].segment, places[3].offset, bytes, soon()));
    arena.recycle(slot);
  }
  // Views outlive what they were views of (their bytes are the lease's business).
  for (const auto& view : kept) EXPECT_NE(view.bytes.front(), std::byte{255});
}

TEST_P(DataPlaneTest, AStepThatIsGoneIsNoticed) {
  start(1);
  const Place place = write_ramp(0, 0, 1, 5000);
  const auto piece = model::byte_piece(0, place.segment, place.offset, 5000);
  std::vector<std::byte> out;
  fetch_one(1, 0, piece, out);
  EXPECT_EQ(code_of([&] { fetch_one(2, 0, piece, out); }), Errc::step_gone);
  write_ramp(0, 0, 4, 5000);
  EXPECT_EQ(code_of([&] { fetch_one(1, 0, piece, out); }), Errc::step_gone);
  EXPECT_EQ(code_of([&] { plane->header(1, 0, 0, soon()); }), Errc::step_gone);
  EXPECT_EQ(code_of([&] { plane->map(1, 0, 0, 0, 128, 8, soon()); }), Errc::step_gone);
  fetch_one(4, 0, piece, out);
  EXPECT_TRUE(is_ramp(out));
  ranks[0]->arena->begin(0, 5, 0);  // being filled
  EXPECT_EQ(code_of([&] { fetch_one(4, 0, piece, out); }), Errc::step_gone);
  EXPECT_EQ(code_of([&] { fetch_one(5, 0, piece, out); }), Errc::step_gone);
}

// A writer that reuses the slot while it is read is found out, whatever was read until then.
TEST_P(DataPlaneTest, AStepReusedWhileItIsReadIsNoticed) {
  start(1);
  constexpr std::uint64_t bytes = 1 * mib;
  Arena& arena = *ranks[0]->arena;
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> stop{false};
  const auto write = [&](std::uint64_t step) {
    arena.begin(0, step, bytes);
    const Place place = arena.allocate(0, bytes);
    auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(place.data);
    for (std::uint64_t i = 0; i < bytes / 8; ++i) words[i].store(step, std::memory_order_relaxed);
    arena.publish(0, step);
    newest = step;
  };
  write(1);
  std::thread writer([&] {
    for (std::uint64_t step = 2; !stop; ++step) write(step);
  });
  const auto piece = model::byte_piece(0, 0, memory::slot_header_bytes, bytes);
  std::vector<std::byte> out;
  int good = 0, gone = 0;
  for (int i = 0; i < 2000 && (gone < 20 || good < 1); ++i) {
    const std::uint64_t step = newest;
    try {
      fetch_one(step, 0, piece, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::step_gone) << error.what();
      if (error.code() != Errc::step_gone) break;
      ++gone;
      if (gone >= 20) stop = true;  // so that some succeed, however slow this machine is
      continue;
    }
    ++good;
    std::vector<std::uint64_t> words(bytes / 8);
    std::memcpy(words.data(), out.data(), bytes);
    EXPECT_EQ(std::count(words.begin(), words.end(), step), static_cast<std::ptrdiff_t>(words.size()));
  }
  stop = true;
  writer.join();
  EXPECT_GT(good, 0);
}

TEST_P(DataPlaneTest, NonsenseIsAnErrorAndHarmsNobody) {
  start(1);
  const Place place = write_ramp(0, 0, 1, 5000);
  std::vector<std::byte> out(100);
  const std::uint64_t size = ranks[0]->arena->total_bytes();
  const auto check = [&](model::Piece piece) {
    const DataPlane::Item item{&piece, out.data()};
    EXPECT_EQ(code_of([&] { plane->fetch(1, 0, std::span(&item, 1), false, soon()); }), Errc::protocol);
  };
  check(model::byte_piece(0, 0, size - 99, 100));
  check(model::byte_piece(0, 0, 1ull << 62, 100));
  auto backwards = model::byte_piece(0, 0, 500, 100);
  backwards.copy.src_strides[0] = -20;
  check(backwards);
  check(model::byte_piece(7, 0, 0, 100));
  check(model::byte_piece(-1, 0, 0, 100));
  const model::PointMove moves[] = {{10, 0}, {size, 1}};
  model::Piece points;
  points.elem_size = 1;
  points.points = moves;
  check(points);
  EXPECT_EQ(code_of([&] { plane->map(1, 0, 0, 0, size, 1, soon()); }), Errc::protocol);
  EXPECT_EQ(code_of([&] { plane->map(1, 0, 0, 0, 8, ~0ull - 4, soon()); }), Errc::protocol);
  fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 5000), out);
  EXPECT_TRUE(is_ramp(out));
}

TEST_P(DataPlaneTest, AWriterThatDiesIsPeerLost) {
  start(2);
  const Place place = write_ramp(0, 0, 1, 5000);
  write_ramp(1, 0, 1, 5000);
  std::vector<std::byte> out;
  fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 5000), out);
  ranks[0]->die();
  // Not of a step that never came; nor over a new connection.
  EXPECT_EQ(code_of([&] { fetch_one(1, 2, model::byte_piece(0, place.segment, place.offset, 5000), out); }),
            Errc::peer_lost);
  const auto again = code_of([&] { fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 5000), out); });
  EXPECT_EQ(again, plane->maps_in_place() ? Errc::ok : Errc::peer_lost);  // a mapping outlives the writer
  plane = nullptr;
  {
    DataPlaneOptions options{.stream = "heat", .token = token};
    options.writers = {GetParam()->address({.unix_name = "penstock-gone", .tcp_hosts = {"127.0.0.1"}, .tcp_port = 1})};
    plane = GetParam()->make(progress, std::move(options));
  }
  EXPECT_EQ(code_of([&] { fetch_one(1, 0, model::byte_piece(0, 0, 128, 100), out); }), Errc::peer_lost);
}

TEST_P(DataPlaneTest, AWriterThatDiesWhileItIsReadNeverHangsTheReader) {
  for (int round = 0; round < 8; ++round) {
    ranks.clear();
    plane.reset();
    start(1);
    const std::uint64_t bytes = 30 * mib;
    const Place place = write_ramp(0, 0, 1, bytes);
    std::vector<std::byte> out;
    fetch_one(1, 0, model::byte_piece(0, 0, place.offset, 8), out);
    std::thread killer([&] {
      std::this_thread::yield();
      ranks[0]->die();
    });
    const Errc code = code_of([&] { fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, bytes), out); });
    EXPECT_TRUE(code == Errc::ok || code == Errc::peer_lost || code == Errc::step_gone) << static_cast<int>(code);
    EXPECT_TRUE(code != Errc::ok || is_ramp(out));
    killer.join();
  }
}

TEST_P(DataPlaneTest, AStalledWriterIsATimeoutThatNamesTheRank) {
  start(1);
  const Place place = write_ramp(0, 0, 1, 5000);
  ranks[0]->accept = false;  // lets peers in, and then says nothing
  std::vector<std::byte> out;
  try {
    fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 5000), out, Deadline{Timeout(50)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::timeout);
    EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos) << error.what();
  }
  {
    const InterruptHandler handler([](void*) { return true; }, nullptr);
    EXPECT_EQ(code_of([&] {
                fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 5000), out, Deadline::never());
              }),
              Errc::timeout);
  }
  server_progress->call([&] {
    for (auto& peer : ranks[0]->ignored) peer->close();
    ranks[0]->ignored.clear();
  });
  ranks[0]->accept = true;
  plane = make();
  fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 5000), out);
  EXPECT_TRUE(is_ramp(out));
}

TEST_P(DataPlaneTest, WrongTokensAreTurnedAway) {
  start(1);
  write_ramp(0, 0, 1, 5000);
  DataPlaneOptions options{.stream = "heat", .token = fabric::Token::random()};
  options.writers = {GetParam()->address(ranks[0]->listener->endpoint())};
  plane = GetParam()->make(progress, std::move(options));
  std::vector<std::byte> out;
  EXPECT_EQ(code_of([&] { fetch_one(1, 0, model::byte_piece(0, 0, 128, 100), out); }), Errc::authentication);
}

TEST_P(DataPlaneTest, OnlyWhatIsOfferedIsServed) {
  start(1);
  const Place place = write_ramp(0, 0, 1, 100'000);
  ranks[0]->server = std::make_unique<BlockServer>(*server_progress, ranks[0]->arena);
  std::vector<std::byte> out;
  EXPECT_EQ(code_of([&] { fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 100'000), out); }),
            GetParam()->automatic ? Errc::ok : Errc::peer_lost);
}

TEST_P(DataPlaneTest, GarbageFromOthersHarmsNobody) {
  start(1);
  const Place place = write_ramp(0, 0, 1, 100'000);
  std::vector<std::byte> out;
  const auto purpose = GetParam()->link == nullptr ? wire::Purpose::segments : wire::Purpose::data;
  const auto reach = purpose == wire::Purpose::data ? fabric::Reach::tcp_only : fabric::Reach::unix_only;
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i) {
    memory::UniqueFd bad = fabric::connect_blocking(
        ranks[0]->listener->endpoint(), token,
        {.purpose = purpose, .stream = "heat", .plane = std::string(GetParam()->name)}, reach, soon());
    std::vector<std::uint32_t> junk(64);
    for (auto& word : junk) word = i % 2 == 0 ? random() : 0;
    if (i % 3 == 0) junk[0] = 200, junk[1] = static_cast<std::uint32_t>(wire::DataKind::read_request);
    ::send(bad.get(), junk.data(), junk.size() * 4, MSG_NOSIGNAL);
    fetch_one(1, 0, model::byte_piece(0, place.segment, place.offset, 100'000), out);
    ASSERT_TRUE(is_ramp(out));
  }
}

TEST_P(DataPlaneTest, OverlappingBlocksTakeEffectInOrder) {
  start(2);
  // Rank 0 then rank 1 then rank 0 again, each over part of what came before; strided at the destination.
  std::vector<Place> places;
  for (int rank = 0; rank < 2; ++rank) {
    Arena& arena = *ranks[static_cast<std::size_t>(rank)]->arena;
    arena.begin(0, 1, 0);
    const Place place = arena.allocate(0, 40'000);
    for (int i = 0; i < 10'000; ++i)
      reinterpret_cast<std::uint32_t*>(place.data)[i] = static_cast<std::uint32_t>(rank * 100'000 + i);
    arena.publish(0, 1);
    places.push_back(place);
  }
  for (const std::int64_t dst_stride : {4, 12}) {
    std::vector<model::Piece> pieces;
    const auto add = [&](int rank, std::uint64_t first, std::uint64_t count) {
      const std::int64_t src_stride = 4;
      model::Piece piece;
      piece.writer_rank = rank;
      piece.elem_size = 4;
      piece.copy = model::normalise(&dst_stride, &src_stride, &count, 1, 4);
      piece.copy.src_offset += static_cast<std::int64_t>(places[static_cast<std::size_t>(rank)].offset + first * 4);
      piece.copy.dst_offset += static_cast<std::int64_t>(first) * dst_stride;
      pieces.push_back(piece);
    };
    add(0, 0, 10'000);
    add(1, 2'000, 5'000);
    add(0, 3'000, 100);
    add(0, 3'050, 1);
    add(1, 3'060, 20);
    std::vector<std::byte> out(static_cast<std::size_t>(10'000 * dst_stride));
    std::vector<DataPlane::Item> items;
    for (const auto& piece : pieces) items.push_back({&piece, out.data()});
    plane->fetch(1, 0, items, true, soon());
    for (std::uint32_t i = 0; i < 10'000; ++i) {
      std::uint32_t value = 0;
      std::memcpy(&value, out.data() + static_cast<std::size_t>(i * dst_stride), 4);
      const bool second = i >= 2'000 && i < 7'000 && !(i >= 3'000 && i < 3'100 && !(i >= 3'060 && i < 3'080));
      ASSERT_EQ(value, (second ? 100'000 : 0) + i) << i;
    }
  }
}

TEST_P(DataPlaneTest, ManySmallPiecesInOneFetch) {
  start(2);
  constexpr std::uint64_t count = 20'000;
  std::vector<Place> places;
  for (int rank = 0; rank < 2; ++rank) places.push_back(write_ramp(rank, 0, 1, count * 50));
  std::vector<model::Piece> pieces;
  for (std::uint64_t i = 0; i < count; ++i)
    pieces.push_back(model::byte_piece(static_cast<int>(i % 2), 0, places[i % 2].offset + i * 50, 50));
  std::vector<std::byte> out(count * 50);
  std::vector<DataPlane::Item> items;
  for (std::uint64_t i = 0; i < count; ++i) items.push_back({&pieces[i], out.data() + i * 50});
  plane->fetch(1, 0, items, false, soon());
  EXPECT_TRUE(is_ramp(out));
}

INSTANTIATE_TEST_SUITE_P(Planes, DataPlaneTest, ::testing::ValuesIn(planes_here()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace penstock::transport
