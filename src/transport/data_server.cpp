#include "transport/data_server.hpp"

#include <mutex>
#include <set>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "transport/served_link.hpp"
#include "transport/socket_loop.hpp"

namespace penstock::transport {

namespace {

// The step that a slot holds.
class SlotRegion final : public Region {
 public:
  SlotRegion(const memory::Arena& arena, std::uint32_t slot, std::uint64_t step)
      : arena_(arena), lent_(arena.lent(slot)), lends_(!lent_.empty()), slot_(slot), step_(step) {}
  std::byte* segment(std::uint32_t number, wire::Reach reach) override {
    const auto view = arena_.read(slot_, step_, number, reach.first, reach.last - reach.first);
    if (view.owner && (owners_.empty() || owners_.back() != view.owner)) owners_.push_back(view.owner);
    return const_cast<std::byte*>(view.bytes.data()) - reach.first;
  }
  // Arrays of the application are taken back while this rank's engine reads them for a peer: never in the middle.
  std::mutex* mutex() override { return lends_ ? &lent_.mutex() : nullptr; }
  Errc state() const override {
    return arena_.holds(slot_, step_) && !(lends_ && lent_.empty_locked()) ? Errc::ok : Errc::step_gone;
  }
  // Segments are held by owners_. The application's own arrays may be taken back at any time.
  bool hold() override { return !lends_; }
  void release() override {}

 private:
  const memory::Arena& arena_;
  const memory::LentMemory& lent_;
  const bool lends_;  // some of the step lies in the application's own arrays
  const std::uint32_t slot_;
  const std::uint64_t step_;
  std::vector<std::shared_ptr<const memory::Segment>> owners_;
};

}  // namespace

struct DataServer::Impl : Source {
  explicit Impl(std::shared_ptr<memory::Arena> source) : arena(std::move(source)) {}

  std::unique_ptr<Region> open(const wire::DataRequest& request, bool for_writing) override {
    if (for_writing) throw Error(Errc::invalid_argument, "the memory of a stream's writer is for reading");
    return std::make_unique<SlotRegion>(*arena, request.slot, request.region);
  }

  const base::Origin origin;
  const std::shared_ptr<memory::Arena> arena;
  std::once_flag needed;
  std::shared_ptr<SocketLoop> loop;             // since the first connection
  std::set<std::shared_ptr<ServedLink>> links;  // the loop's own
};

DataServer::DataServer(std::shared_ptr<memory::Arena> arena) : impl_(std::make_shared<Impl>(std::move(arena))) {}

DataServer::~DataServer() {
  if (!impl_->loop || impl_->origin.leave(impl_)) return;
  impl_->loop->call([this] {
    for (const auto& link : std::set(impl_->links)) link->end(Error(Errc::stream_closed, "the writer is closed"));
  });
}

void DataServer::adopt(const Plane& plane, memory::UniqueFd socket, const std::string& peer_name) {
  std::call_once(impl_->needed, [this] { impl_->loop = SocketLoop::shared(); });
  const auto key = std::make_shared<std::weak_ptr<ServedLink>>();
  const auto on_end = [impl = impl_.get(), key](const Error& why) {
    const bool left = why.code() == Errc::peer_lost || why.code() == Errc::stream_closed;
    base::log(left ? base::Level::debug : base::Level::warn, "a data connection ended", {{"why", why.what()}});
    impl->links.erase(key->lock());
  };
  const auto link = plane.link({std::move(socket), impl_, peer_name, on_end, /*accepted=*/true});
  *key = link;
  impl_->loop->post([impl = impl_, link] {
    try {
      impl->links.insert(link);
      link->start();
    } catch (const std::exception& error) {
      link->end(Error(Errc::memory, error.what()));
    }
  });
}

}  // namespace penstock::transport
