#include "pool/coordinator/stripe_puller.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "model/copy.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/stream_keys.hpp"
#include "pool/keys/stripes.hpp"
#include "storage/checksum.hpp"
#include "transport/planes.hpp"

namespace penstock::pool {
namespace {

constexpr auto keep_idle = std::chrono::seconds(60);
constexpr std::size_t copy_bytes = 128 << 10;  // copied, and summed while they are in the cache
// A thread waits so long, at most, for the writer's own copies to end: in all that it copies of one pull.
constexpr std::chrono::microseconds give_way_at_most{5000}, give_way_nap{20};

model::Piece piece_of(const fb::PullStripeT& stripe, const fb::PullRangeT& range, std::uint64_t to) {
  auto piece = model::byte_piece(static_cast<int>(stripe.rank), range.segment, range.offset, range.bytes);
  piece.copy.dst_offset += static_cast<std::int64_t>(to);
  return piece;
}

// What no waiting mends.
Error too_large(std::uint64_t bytes, std::uint64_t limit, bool one_stripe) {
  const auto sizes = base::format_size(bytes) + " do not fit into the server's memory of " + base::format_size(limit);
  return Error(Errc::invalid_argument, one_stripe
                                           ? "a stripe's " + sizes + ": lower stripe_bytes, or give servers more"
                                           : "a step's " + sizes +
                                                 ", and it has no tier: give servers more, or a tier, or use more "
                                                 "servers");
}

// A server that has passed on what it had, when the view changed, does not look again: what came later would reach no new owner,
// and go from here when the view settles. So a pull counts only if it has ended in the view in which it was ordered.
void require_view(const ServerCore& core, const fb::PullRequestT& request) {
  if (request.view != 0 && core.placement()->view().number != request.view)
    throw Error(Errc::stale_view, "the pool's membership changed during a pull");
}

}  // namespace

// A way to a writer's memory. Planes are for one thread at a time; what they map may be read by all.
struct StripePuller::Plane {
  std::shared_ptr<transport::DataPlane> plane;
  bool in_place = false;
  std::mutex mutex;  // guards the plane's calls
};

// One pull, or a part of it: what the worker threads fill. Shared with them, so that it outlives a caller who has gone.
struct StripePuller::Work {
  struct Item {
    const fb::PullStripeT* stripe = nullptr;
    std::size_t index = 0;  // among the request's stripes
    std::string row;
    std::vector<std::byte> payload;
    std::uint64_t block_bytes = 0;                      // where the payload begins, if there is one
    std::vector<transport::DataPlane::Mapped> sources;  // in place: of its ranges
    transport::DataPlane::Mapped header;                // in place: of the rank's slot
    std::shared_ptr<Blob> blob;
    std::uint64_t checksum = 0;
    std::uint64_t bytes() const { return payload.empty() ? block_bytes : aligned(block_bytes) + payload.size(); }
  };
  Work(std::shared_ptr<const fb::PullRequestT> given, base::Deadline until)
      : owner(std::move(given)), request(*owner), deadline(until) {}
  const std::shared_ptr<const fb::PullRequestT> owner;
  const fb::PullRequestT& request;
  std::shared_ptr<Plane> plane;
  const base::Deadline deadline;
  std::vector<Item> items;  // those that are not there yet, or a part of them

  const fb::PullRangeT& range(const Item& item, std::uint32_t r) const {
    return *request.ranges[item.stripe->first_range + r];
  }
  bool to_prepare() const {
    return plane->in_place ||
           std::any_of(items.begin(), items.end(), [](const auto& item) { return item.stripe->payload; });
  }

  // What must be known before there is memory for it: how long the payloads are, and (in place) where the blocks lie.
  void prepare() {
    const std::lock_guard lock(plane->mutex);
    auto& from = *plane->plane;
    for (auto& item : items) {
      const auto rank = static_cast<int>(item.stripe->rank);
      if (item.stripe->payload) from.read_payload(request.writer_step, request.slot, rank, item.payload, deadline);
      if (!plane->in_place) continue;
      item.header = from.map(request.writer_step, request.slot, rank, 0, 0, sizeof(memory::SlotHeader), deadline);
      for (std::uint32_t r = 0; r < item.stripe->ranges; ++r) {
        const auto& part = range(item, r);
        item.sources.push_back(
            from.map(request.writer_step, request.slot, rank, part.segment, part.offset, part.bytes, deadline));
      }
    }
  }

  // In place: items `from` to `to`.
  void copy(std::size_t from, std::size_t to) {
    base::Clock::duration patience = give_way_at_most;
    for (auto i = from; i < to; ++i) {
      auto& item = items[i];
      const auto memory = item.blob->writable();
      storage::RunningChecksum sum;
      std::uint64_t at = 0;
      for (const auto& source : item.sources) {
        pad(memory, at, sum);
        for (std::size_t done = 0; done < source.bytes.size(); done += copy_bytes) {
          give_way(item, patience);
          put(source.bytes.subspan(done, std::min(copy_bytes, source.bytes.size() - done)), memory, at, sum);
        }
      }
      if (!item.payload.empty()) {
        pad(memory, at, sum);
        put(item.payload, memory, at, sum);
      }
      if (at < memory.size()) put(std::vector<std::byte>(memory.size() - at), memory, at, sum);
      item.checksum = sum.value();
    }
  }

  // In place, after the copies: that the writer did not take its memory back meanwhile.
  void still_there() {
    const std::lock_guard lock(plane->mutex);
    int last = -1;
    for (const auto& item : items) {
      const auto rank = static_cast<int>(item.stripe->rank);
      if (rank != last) (void)plane->plane->header(request.writer_step, request.slot, rank, deadline);
      last = rank;
    }
  }

  // By requests.
  void fetch() {
    std::vector<model::Piece> pieces;
    std::vector<std::byte*> bases;
    for (auto& item : items) {
      std::uint64_t at = 0;
      auto memory = item.blob->writable();
      for (std::uint32_t r = 0; r < item.stripe->ranges; ++r) {
        const auto& part = range(item, r);
        std::memset(memory.data() + at, 0, aligned(at) - at);
        at = aligned(at);
        if (part.bytes > 0) {
          pieces.push_back(piece_of(*item.stripe, part, at));
          bases.push_back(memory.data());
        }
        at += part.bytes;
      }
      if (!item.payload.empty()) {
        std::memset(memory.data() + at, 0, aligned(at) - at);
        std::memcpy(memory.data() + aligned(at), item.payload.data(), item.payload.size());
        at = aligned(at) + item.payload.size();
      }
      std::memset(memory.data() + at, 0, memory.size() - at);
    }
    std::vector<transport::DataPlane::Item> fetched;
    for (std::size_t i = 0; i < pieces.size(); ++i) fetched.push_back({&pieces[i], bases[i]});
    if (!fetched.empty()) plane->plane->fetch(request.writer_step, request.slot, fetched, false, deadline);
    for (auto& item : items) item.checksum = storage::checksum(item.blob->bytes());
  }

 private:
  // Not inlined: g++ 12 takes the zeros' array for what is copied, and warns of its end.
  [[gnu::noinline]] static void put(std::span<const std::byte> bytes, std::span<std::byte> memory, std::uint64_t& at,
                                    storage::RunningChecksum& sum) {
    for (std::size_t done = 0; done < bytes.size();) {
      const auto part = std::min(copy_bytes, bytes.size() - done);
      std::memcpy(memory.data() + at, bytes.data() + done, part);
      sum.add(memory.subspan(at, part));
      done += part;
      at += part;
    }
  }
  // A simulation stands still while its step is copied, and the memory's bandwidth is one for all: the pull of the last
  // step waits. patience: what is left of it.
  static void give_way(const Item& item, base::Clock::duration& patience) {
    const auto& header = *reinterpret_cast<const memory::SlotHeader*>(item.header.bytes.data());
    while (patience.count() > 0 && header.copying.load(std::memory_order_relaxed) != 0) {
      const auto start = base::Clock::now();
      std::this_thread::sleep_for(give_way_nap);
      patience -= base::Clock::now() - start;
    }
  }
  static void pad(std::span<std::byte> memory, std::uint64_t& at, storage::RunningChecksum& sum) {
    static constexpr std::byte zeros[stripe_alignment]{};
    put(std::span(zeros).first(aligned(at) - at), memory, at, sum);
  }
};

StripePuller::StripePuller(std::weak_ptr<ServerCore> core, std::shared_ptr<fabric::Progress> progress)
    : core_(std::move(core)),
      progress_(std::move(progress)),
      threads_(std::clamp(std::thread::hardware_concurrency() / 2, 2u, 4u)),
      workers_(std::make_unique<fabric::Workers>(*progress_, threads_, "pull")) {}

StripePuller::~StripePuller() = default;

std::shared_ptr<StripePuller::Plane> StripePuller::take_plane(const fb::PullRequestT& request) {
  auto& writer = writers_[std::string(request.token.begin(), request.token.end())];
  writer.used = base::Clock::now();
  if (writer.shared) return writer.shared;
  if (!writer.idle.empty()) {
    auto plane = std::move(writer.idle.back());
    writer.idle.pop_back();
    return plane;
  }
  auto plane = make_plane(request);
  if (plane->in_place) writer.shared = plane;
  return plane;
}

std::shared_ptr<StripePuller::Plane> StripePuller::make_plane(const fb::PullRequestT& request) {
  transport::DataPlaneOptions options;
  options.stream = request.stream;
  if (request.token.size() != options.token.bytes.size())
    throw Error(Errc::protocol, "a writer's token has " + std::to_string(request.token.size()) + " bytes, expected " +
                                    std::to_string(options.token.bytes.size()));
  std::copy(request.token.begin(), request.token.end(), options.token.bytes.begin());
  if (request.addresses.empty()) throw Error(Errc::protocol, "a writer of no ranks");
  auto choice = transport::choose_plane(request.addresses);
  const auto core = core_.lock();
  const auto offered = core ? core->options().data_plane : std::string();
  if (choice.plane == nullptr && !offered.empty()) choice = transport::choose_plane(request.addresses, offered);
  if (choice.plane == nullptr)
    throw Error(Errc::peer_lost,
                "the writer of stream " + request.stream +
                    " cannot be reached from this server on a data plane that both offer (data_plane)");
  auto plane = std::make_shared<Plane>();
  options.writers = std::move(choice.addresses);
  plane->plane = choice.plane->make(progress_, std::move(options));
  plane->in_place = plane->plane->maps_in_place();
  return plane;
}

// One that failed (null) is not used again.
void StripePuller::give_plane(const fb::PullRequestT& request, std::shared_ptr<Plane> plane) {
  auto& writer = writers_[std::string(request.token.begin(), request.token.end())];
  if (!plane) writer.shared.reset();
  else if (!plane->in_place) writer.idle.push_back(std::move(plane));
  std::erase_if(writers_, [](const auto& entry) { return base::Clock::now() - entry.second.used > keep_idle; });
}

// The bytes of all items into their blobs.
Task<void> StripePuller::fetch(std::shared_ptr<Work> work) {
  auto self = shared_from_this();
  if (!work->plane->in_place) {
    auto whole = [work] { work->fetch(); };
    co_await workers_->run(whole);
    co_return;
  }
  std::uint64_t left = 0;
  for (const auto& item : work->items) left += item.bytes();
  std::vector<fabric::Future<void>> parts;
  const auto count = work->items.size();
  for (std::size_t from = 0, to = 0; from < count; from = to) {
    const auto share = left / (threads_ - std::min<std::size_t>(threads_ - 1, parts.size()));
    std::uint64_t bytes = 0;
    do bytes += work->items[to++].bytes();
    while (to < count && bytes + work->items[to].bytes() / 2 <= share);
    left -= bytes;
    auto part = [work, from, to] { work->copy(from, to); };
    parts.push_back(fabric::spawn(*progress_, workers_->run(part)));
  }
  std::exception_ptr failed;
  for (auto& part : parts) {
    try {
      co_await std::move(part);
    } catch (...) {
      failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
  // Not on this thread: the plane may be another pull's, which waits for an answer that only this thread takes in.
  auto check = [work] { work->still_there(); };
  co_await workers_->run(check);
}

Task<fb::PullReplyT> StripePuller::pull(fb::PullRequestT given, base::Deadline deadline) {
  auto self = shared_from_this();
  auto core = core_.lock();
  if (!core) throw Error(Errc::stale_view, "this server is stopping");
  check_pull(given);
  const auto owner = std::make_shared<const fb::PullRequestT>(std::move(given));
  const auto& request = *owner;
  const auto& ns = streams_namespace();
  const auto column = stripe_column(request.life);
  const auto limit = core->store().memory_limit();
  const bool memory_only = core->store().memory_only();
  // Without a tier all or nothing: two steps that have a half each would wait for each other.
  const auto part_limit = memory_only ? ~std::uint64_t{0} : limit / 2;
  fb::PullReplyT reply;
  reply.checksums.resize(request.stripes.size());
  reply.payload_bytes.resize(request.stripes.size());
  std::vector<std::shared_ptr<Work>> parts;
  std::uint64_t part_bytes = 0, all_bytes = 0;
  for (std::size_t i = 0; i < request.stripes.size(); ++i) {
    const auto& stripe = *request.stripes[i];
    if (stripe.rank >= request.addresses.size()) throw Error(Errc::protocol, "a stripe of a rank that is not there");
    std::uint64_t bytes = 0;
    for (std::uint32_t r = 0; r < stripe.ranges; ++r)
      bytes = aligned(bytes) + request.ranges[stripe.first_range + r]->bytes;
    all_bytes += bytes;
    if (bytes > limit || (all_bytes > limit && memory_only))
      throw too_large(bytes > limit ? bytes : all_bytes, limit, bytes > limit);
    Work::Item item;
    item.stripe = &stripe;
    item.index = i;
    item.row = stripe_row(request.stream, request.step, stripe.rank, stripe.stripe);
    item.block_bytes = bytes;
    if (const auto* there = core->store().table().find(ns, item.row, column)) {
      reply.checksums[i] = there->checksum;
      if (stripe.payload && there->bytes > aligned(bytes)) reply.payload_bytes[i] = there->bytes - aligned(bytes);
      continue;
    }
    if (parts.empty() || part_bytes + bytes > part_limit) {
      parts.push_back(std::make_shared<Work>(owner, deadline));
      part_bytes = 0;
    }
    part_bytes += bytes;
    parts.back()->items.push_back(std::move(item));
  }
  for (auto& part : parts) co_await pull_part(core, std::move(part), reply);
  require_view(*core, request);
  co_return reply;
}

Task<void> StripePuller::pull_part(std::shared_ptr<ServerCore> core, std::shared_ptr<Work> work,
                                   fb::PullReplyT& reply) {
  auto self = shared_from_this();
  const auto& request = work->request;
  const auto& ns = streams_namespace();
  const auto column = stripe_column(request.life);
  work->plane = take_plane(request);
  try {
    auto prepare = [work] { work->prepare(); };
    if (work->to_prepare()) co_await workers_->run(prepare);
    std::vector<std::uint64_t> sizes;
    for (const auto& item : work->items) sizes.push_back(std::max<std::uint64_t>(1, item.bytes()));
    auto blobs = co_await core->store().reserve_all(std::move(sizes), work->deadline);
    for (std::size_t i = 0; i < blobs.size(); ++i) work->items[i].blob = std::move(blobs[i]);
    co_await fetch(work);
  } catch (...) {
    give_plane(request, nullptr);
    throw;
  }
  give_plane(request, std::exchange(work->plane, nullptr));
  require_view(*core, request);

  std::vector<ObjectStore::Write> writes;
  const auto now = base::unix_time_us();
  for (auto& item : work->items) {
    reply.checksums[item.index] = item.checksum;
    reply.payload_bytes[item.index] = item.payload.size();
    ObjectStore::Write write;
    write.ns = ns;
    write.row = std::move(item.row);
    write.column = column;
    write.object.version = std::max<std::uint64_t>(1, request.version);
    write.object.bytes = item.blob->size();
    write.object.checksum = item.checksum;
    write.object.put_us = now;
    write.object.tag = item.stripe->tag;
    write.object.blob = std::move(item.blob);
    writes.push_back(std::move(write));
  }
  const bool durable = checked_enum(request.acknowledge, Acknowledge::durable) == Acknowledge::durable;
  core->counters().puts += writes.size();
  for (const auto& w : writes) core->counters().bytes_in += w.object.bytes;
  co_await core->store().put(std::move(writes), durable, durable, work->deadline);
}

}  // namespace penstock::pool
