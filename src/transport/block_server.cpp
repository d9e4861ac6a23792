#include "transport/block_server.hpp"

#include <unordered_map>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "transport/data_server.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

namespace {

void announce(fabric::Connection& connection, const memory::SegmentInfo& info) {
  base::fault_point("segment-send", base::FaultPhase::before);
  std::vector<std::byte> bytes;
  encode(wire::SegmentAnnounce{info.slot, info.segment, info.generation, info.bytes}, bytes);
  connection.send(static_cast<std::uint16_t>(wire::DataKind::segment_announce), "segment", bytes, info.fd);
  base::fault_point("segment-send", base::FaultPhase::after);
}

}  // namespace

struct BlockServer::Impl : std::enable_shared_from_this<BlockServer::Impl> {
  Impl(fabric::Progress& owner, std::shared_ptr<memory::Arena> memory) : progress(owner), arena(memory), data(memory) {}

  struct Mapper {
    std::shared_ptr<fabric::Connection> connection;
    std::uint64_t subscription = 0;
  };

  void adopt_segments(std::shared_ptr<fabric::Connection> connection);
  void drop(fabric::Connection* connection);

  fabric::Progress& progress;
  const std::shared_ptr<memory::Arena> arena;
  DataServer data;
  std::unordered_map<fabric::Connection*, Mapper> mappers;  // the engine thread's own
};

void BlockServer::Impl::adopt_segments(std::shared_ptr<fabric::Connection> connection) {
  fabric::Connection* key = connection.get();
  connection->start([](std::uint16_t, std::span<const std::byte>,
                       memory::UniqueFd) { throw Error(Errc::protocol, "a reader of segments has nothing to say"); },
                    [weak = weak_from_this(), key](const Error&) {
                      if (const auto self = weak.lock()) self->drop(key);
                    });
  const std::uint64_t subscription =
      arena->subscribe([connection](const memory::SegmentInfo& info) { announce(*connection, info); });
  mappers.emplace(key, Mapper{std::move(connection), subscription});
}

void BlockServer::Impl::drop(fabric::Connection* connection) {
  const auto found = mappers.find(connection);
  if (found == mappers.end()) return;
  arena->unsubscribe(found->second.subscription);
  mappers.erase(found);
}

BlockServer::BlockServer(fabric::Progress& progress, std::shared_ptr<memory::Arena> arena, std::string_view offered)
    : impl_(std::make_shared<Impl>(progress, std::move(arena))), offered_(offered) {}

BlockServer::~BlockServer() {
  impl_->progress.call([impl = impl_] {
    for (auto& [key, mapper] : impl->mappers) {
      impl->arena->unsubscribe(mapper.subscription);
      mapper.connection->close();
    }
    impl->mappers.clear();
  });
}

void BlockServer::adopt(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello) {
  try {
    if (hello.purpose == wire::Purpose::data) {
      const Plane& plane = offered_plane(hello.plane, offered_);
      if (plane.link == nullptr) throw Error(Errc::protocol, "the plane " + hello.plane + " has no data connections");
      impl_->data.adopt(plane, connection->release(), hello.name);
    } else if (!connection->local()) {
      throw Error(Errc::protocol, "memory segments can be shared on one node only");
    } else {
      impl_->adopt_segments(std::move(connection));
    }
  } catch (const Error& error) {
    base::log(base::Level::warn, "a reader was turned away", {{"peer", hello.name}, {"error", error.what()}});
  }
}

}  // namespace penstock::transport
