#include "pool/stripe_puller.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "fabric/reach.hpp"
#include "model/copy.hpp"
#include "pool/protocol.hpp"
#include "pool/stream_keys.hpp"
#include "pool/stripes.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {
namespace {

constexpr auto keep_idle = std::chrono::seconds(60);

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

model::Piece piece_of(const fb::PullStripeT& stripe, const fb::PullRangeT& range, std::uint64_t to) {
  model::Piece piece;
  piece.writer_rank = static_cast<int>(stripe.rank);
  piece.segment = range.segment;
  piece.elem_size = 1;
  const std::int64_t stride = 1;
  piece.copy = model::normalise(&stride, &stride, &range.bytes, 1, 1);
  piece.copy.src_offset += static_cast<std::int64_t>(range.offset);
  piece.copy.dst_offset += static_cast<std::int64_t>(to);
  return piece;
}

}  // namespace

// One pull: what the worker threads fill. Shared with them, so that it outlives a caller who has gone.
struct StripePuller::Work {
  fb::PullRequestT request;
  std::shared_ptr<fabric::DataPlane> plane;
  base::Deadline deadline = base::Deadline::never();
  struct Item {
    const fb::PullStripeT* stripe = nullptr;
    std::string row;
    std::vector<std::byte> payload;
    std::uint64_t block_bytes = 0;  // where the payload begins, if there is one
    std::shared_ptr<Blob> blob;
    std::uint64_t checksum = 0;
    std::uint64_t bytes() const { return payload.empty() ? block_bytes : aligned(block_bytes) + payload.size(); }
  };
  std::vector<Item> items;  // those that are not there yet

  void read_payloads() {
    for (auto& item : items)
      if (item.stripe->payload)
        plane->read_payload(request.step, request.slot, static_cast<int>(item.stripe->rank), item.payload, deadline);
  }

  void fetch() {
    std::vector<model::Piece> pieces;
    std::vector<std::byte*> bases;
    for (auto& item : items) {
      std::uint64_t at = 0;
      auto memory = item.blob->writable();
      for (std::uint32_t r = 0; r < item.stripe->ranges; ++r) {
        const auto& range = *request.ranges[item.stripe->first_range + r];
        std::memset(memory.data() + at, 0, aligned(at) - at);
        at = aligned(at);
        if (range.bytes > 0) {
          pieces.push_back(piece_of(*item.stripe, range, at));
          bases.push_back(memory.data());
        }
        at += range.bytes;
      }
      if (item.payload.empty()) continue;
      std::memset(memory.data() + at, 0, aligned(at) - at);
      std::memcpy(memory.data() + aligned(at), item.payload.data(), item.payload.size());
    }
    std::vector<fabric::DataPlane::Item> fetched;
    for (std::size_t i = 0; i < pieces.size(); ++i) fetched.push_back({&pieces[i], bases[i]});
    if (!fetched.empty()) plane->fetch(request.step, request.slot, fetched, false, deadline);
    for (auto& item : items) item.checksum = storage::checksum(item.blob->bytes());
  }
};

StripePuller::StripePuller(std::weak_ptr<ServerCore> core, std::shared_ptr<fabric::Progress> progress, unsigned threads)
    : core_(std::move(core)),
      progress_(std::move(progress)),
      workers_(std::make_unique<fabric::Workers>(*progress_, threads, "pull")) {}

StripePuller::~StripePuller() = default;

std::shared_ptr<fabric::DataPlane> StripePuller::take_plane(const fb::PullRequestT& request) {
  const std::string key(request.token.begin(), request.token.end());
  auto& idle = idle_[key];
  idle.used = base::Clock::now();
  if (!idle.planes.empty()) {
    auto plane = std::move(idle.planes.back());
    idle.planes.pop_back();
    return plane;
  }
  fabric::DataPlaneOptions options;
  options.stream = request.stream;
  if (request.token.size() != options.token.bytes.size()) throw Error(Errc::protocol, "a token of another size");
  std::copy(request.token.begin(), request.token.end(), options.token.bytes.begin());
  bool local = true, remote = true;
  for (const auto& text : request.endpoints) {
    options.writers.push_back(fabric::endpoint_from_text(text));
    local = local && fabric::reachable_locally(options.writers.back());
    remote = remote && !options.writers.back().tcp_hosts.empty();
  }
  if (options.writers.empty()) throw Error(Errc::protocol, "a writer of no ranks");
  if (!local && !remote)
    throw Error(Errc::peer_lost, "the writer of stream " + request.stream + " cannot be reached from this server");
  return local ? fabric::make_shm_plane(progress_, std::move(options)) : fabric::make_tcp_plane(std::move(options));
}

void StripePuller::give_plane(const fb::PullRequestT& request, std::shared_ptr<fabric::DataPlane> plane) {
  idle_[std::string(request.token.begin(), request.token.end())].planes.push_back(std::move(plane));
  std::erase_if(idle_, [](const auto& entry) { return base::Clock::now() - entry.second.used > keep_idle; });
}

Task<fb::PullReplyT> StripePuller::pull(fb::PullRequestT given, base::Deadline deadline) {
  auto self = shared_from_this();
  auto core = core_.lock();
  if (!core) throw Error(Errc::stale_view, "this server is stopping");
  check_pull(given);
  auto work = std::make_shared<Work>();
  work->request = std::move(given);
  work->deadline = deadline;
  const auto& request = work->request;
  const auto& ns = streams_namespace();
  const auto column = stripe_column(request.life);
  fb::PullReplyT reply;
  reply.checksums.resize(request.stripes.size());
  reply.payload_bytes.resize(request.stripes.size());
  std::vector<std::size_t> index;    // of each item among the stripes
  std::vector<std::uint64_t> fixed;  // bytes of blocks of each stripe
  for (std::size_t i = 0; i < request.stripes.size(); ++i) {
    const auto& stripe = *request.stripes[i];
    if (stripe.rank >= request.endpoints.size()) throw Error(Errc::protocol, "a stripe of a rank that is not there");
    std::uint64_t bytes = 0;
    for (std::uint32_t r = 0; r < stripe.ranges; ++r)
      bytes = aligned(bytes) + request.ranges[stripe.first_range + r]->bytes;
    Work::Item item;
    item.stripe = &stripe;
    item.row = stripe_row(request.stream, request.step, stripe.rank, stripe.stripe);
    item.block_bytes = bytes;
    if (const auto* there = core->store().table().find(ns, item.row, column)) {
      reply.checksums[i] = there->checksum;
      if (stripe.payload && there->bytes > aligned(bytes)) reply.payload_bytes[i] = there->bytes - aligned(bytes);
      continue;
    }
    work->items.push_back(std::move(item));
    index.push_back(i);
  }
  if (work->items.empty()) co_return reply;

  work->plane = take_plane(request);
  auto read_payloads = [work] { work->read_payloads(); };
  const bool any_payload =
      std::any_of(work->items.begin(), work->items.end(), [](const auto& item) { return item.stripe->payload; });
  if (any_payload) co_await workers_->run(read_payloads);
  std::vector<std::uint64_t> sizes;
  for (const auto& item : work->items) sizes.push_back(std::max<std::uint64_t>(1, item.bytes()));
  auto blobs = co_await core->store().reserve_all(sizes, deadline);
  for (std::size_t i = 0; i < blobs.size(); ++i) work->items[i].blob = std::move(blobs[i]);
  auto fetch = [work] { work->fetch(); };
  co_await workers_->run(fetch);  // a plane that failed is not used again
  give_plane(request, std::exchange(work->plane, nullptr));

  std::vector<ObjectStore::Write> writes;
  const auto now = now_us();
  for (std::size_t i = 0; i < work->items.size(); ++i) {
    auto& item = work->items[i];
    reply.checksums[index[i]] = item.checksum;
    reply.payload_bytes[index[i]] = item.payload.size();
    bytes_pulled_ += item.bytes();
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
  co_await core->store().put(std::move(writes), durable, durable, deadline);
  co_return reply;
}

}  // namespace penstock::pool
