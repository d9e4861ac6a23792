// For the tests of data planes: writer ranks with arenas in this process, and each plane to read them with.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "fabric/listener.hpp"
#include "memory/arena.hpp"
#include "model/plan.hpp"
#include "transport/block_server.hpp"
#include "transport/planes.hpp"

namespace penstock::transport {
using base::Deadline;
using memory::Arena;
using memory::Place;

inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// Those that this build has.
inline std::vector<const Plane*> planes_here() {
  std::vector<const Plane*> here;
  for (const auto* plane : planes())
    if (code_of([&] { plane_named(plane->name); }) == Errc::ok) here.push_back(plane);
  return here;
}

// A writer rank: an arena and who serves it.
struct WriterRank {
  WriterRank(fabric::Progress& progress, const fabric::Token& token)
      : arena(std::make_shared<Arena>(3, 512 * mib)), server(std::make_unique<BlockServer>(progress, arena, "ucx")) {
    listener =
        std::make_unique<fabric::Listener>(progress, token, "heat", "127.0.0.1",
                                           [this](std::shared_ptr<fabric::Connection> peer, const wire::Hello& hello) {
                                             if (accept) server->adopt(std::move(peer), hello);
                                             else ignored.push_back(std::move(peer));
                                           });
  }
  // As when the process dies: sockets close, memory that was passed on stays.
  void die() {
    listener.reset();
    server.reset();
    arena.reset();
  }
  std::shared_ptr<Arena> arena;
  std::unique_ptr<BlockServer> server;
  std::atomic<bool> accept{true};
  std::vector<std::shared_ptr<fabric::Connection>> ignored;
  std::unique_ptr<fabric::Listener> listener;
};

class DataPlaneTest : public ::testing::TestWithParam<const Plane*> {
 protected:
  ~DataPlaneTest() override {
    plane.reset();
    for (auto& rank : ranks) rank->die();
    ranks.clear();
  }
  void start(int writers) {
    for (int i = 0; i < writers; ++i) ranks.push_back(std::make_unique<WriterRank>(*server_progress, token));
    plane = make();
  }
  std::unique_ptr<DataPlane> make() {
    DataPlaneOptions options;
    options.stream = "heat";
    options.token = token;
    for (auto& rank : ranks) options.writers.push_back(GetParam()->address(rank->listener->endpoint()));
    options.in_flight_bytes = 3 * mib;
    return GetParam()->make(progress, std::move(options));
  }
  // One block of bytes 0, 1, 2 ... in a slot.
  Place write_ramp(int rank, std::uint32_t slot, std::uint64_t step, std::uint64_t bytes) {
    Arena& arena = *ranks[static_cast<std::size_t>(rank)]->arena;
    arena.begin(slot, step, bytes);
    const Place place = arena.allocate(slot, bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) place.data[i] = static_cast<std::byte>(i * 7 + i / 251);
    arena.publish(slot, step);
    return place;
  }
  static bool is_ramp(std::span<const std::byte> bytes) {
    for (std::uint64_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != static_cast<std::byte>(i * 7 + i / 251)) return false;
    return true;
  }
  void fetch_one(std::uint64_t step, std::uint32_t slot, const model::Piece& piece, std::vector<std::byte>& out,
                 Deadline deadline = soon()) {
    out.assign(piece.bytes(), std::byte{0});
    const DataPlane::Item item{&piece, out.data()};
    plane->fetch(step, slot, std::span(&item, 1), false, deadline);
  }

  const fabric::Token token = fabric::Token::random();
  SilentLog silent;
  std::shared_ptr<fabric::Progress> server_progress = fabric::Progress::create();
  std::shared_ptr<fabric::Progress> progress = fabric::Progress::create();
  std::vector<std::unique_ptr<WriterRank>> ranks;
  std::unique_ptr<DataPlane> plane;
};

}  // namespace penstock::transport
