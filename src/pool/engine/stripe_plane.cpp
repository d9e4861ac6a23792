#include "pool/engine/stripe_plane.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "memory/segment.hpp"
#include "penstock/interrupt.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint64_t inline_bytes = 32 << 10;   // smaller stripes come with the answer
constexpr std::uint64_t direct_bytes = 256 << 10;  // larger pieces that are contiguous go straight to where they belong
constexpr std::uint64_t least_run = 512;           // shorter runs cost more than the bytes between them
constexpr std::size_t most_runs = 4096;            // of one piece
// Asked for in one request: what has come is copied while the server reads the rest from its disk.
constexpr std::uint64_t bytes_together = 16 << 20;
constexpr int max_tries = 20;
constexpr Timeout settle_within(5'000);  // a transfer whose deadline has passed ends within this

HeldStep::Key key_of(const model::Piece& p) { return {static_cast<std::uint32_t>(p.writer_rank), p.segment}; }

Error gone_meanwhile() { return Error(Errc::peer_lost, "a server went away while its memory was read"); }

}  // namespace

// What blocks are put together in. One that nobody uses any more is kept for the next of its size, so that its pages need not
// be made again for each step.
class StripePlane::JoinedMemory : public std::enable_shared_from_this<JoinedMemory> {
 public:
  std::shared_ptr<std::byte[]> take(std::uint64_t bytes) {
    std::unique_ptr<std::byte[]> memory;
    {
      const std::lock_guard lock(mutex_);
      memory = std::move(spare_);
      if (spare_bytes_ != bytes) memory.reset();
    }
    if (!memory) memory.reset(new std::byte[bytes]);
    return {memory.release(), [self = shared_from_this(), bytes](std::byte* given) { self->give(given, bytes); }};
  }

 private:
  void give(std::byte* memory, std::uint64_t bytes) {
    std::unique_ptr<std::byte[]> given(memory);
    const std::lock_guard lock(mutex_);
    spare_.swap(given);
    spare_bytes_ = bytes;
  }
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<std::byte[]> spare_;
  std::uint64_t spare_bytes_ = 0;
};

// Leases that nobody has taken from it are given back.
struct StripeAnswer {
  StripeAnswer(std::shared_ptr<rpc::Channel> from, fb::GetReplyT said)
      : channel(std::move(from)), reply(std::make_shared<fb::GetReplyT>(std::move(said))) {}
  StripeAnswer(const StripeAnswer&) = delete;
  ~StripeAnswer() {
    if (origin.leave(channel, reply)) return;
    std::vector<std::uint64_t> leases;
    for (const auto& got : reply->got)
      if (got && got->lease != 0) leases.push_back(got->lease);
    release_leases(channel, std::move(leases));
  }
  std::shared_ptr<rpc::Channel> channel;
  std::shared_ptr<fb::GetReplyT> reply;
  const base::Origin origin;
};

// Parts of one stripe that are asked for together.
struct StripePlane::Gather {
  HeldStep::Key key;
  std::vector<transport::BulkSpace::Range> ranges;
  std::uint64_t bytes = 0;
  std::byte* into = nullptr;  // null: the buffer
  std::vector<std::byte> buffer;
  std::byte* memory() { return into ? into : buffer.data(); }
};

namespace {

using AnswerPtr = std::shared_ptr<StripeAnswer>;

Task<AnswerPtr> get_stripes(std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                            std::shared_ptr<const std::vector<Key>> keys, std::uint64_t tag, base::Deadline deadline) {
  fb::ObjectsClient client(channel);
  fb::GetRequestT request;
  request.view = view;
  request.keys = pack_keys(streams_namespace(), *keys);
  request.tag = tag;
  request.tagged = true;
  request.bytes = ~std::uint64_t{0};
  request.inline_bytes = inline_bytes;
  rpc::CallOptions options;
  options.deadline = deadline;
  auto reply = co_await client.get(std::move(request), options);
  auto answer = std::make_shared<StripeAnswer>(std::move(channel), std::move(reply));
  for (const auto& got : answer->reply->got) {
    const auto code = static_cast<Errc>(got->code);
    if (code != Errc::ok && code != Errc::not_found) throw unpack_status(got->code, got->message);
    // Another replica may have it.
    if (code == Errc::not_found) throw Error(Errc::not_found, "a stripe is not there");
  }
  co_return answer;
}

Task<AnswerPtr> lease_at_owner(std::shared_ptr<PoolClient> client, std::vector<Key> keys, std::uint64_t tag,
                               base::Deadline deadline) {
  auto shared = std::make_shared<const std::vector<Key>>(std::move(keys));
  std::function<Task<AnswerPtr>(std::shared_ptr<rpc::Channel>, std::uint64_t, PoolClient::Attempt)> call =
      [shared, tag, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view, PoolClient::Attempt) {
        return get_stripes(std::move(channel), view, shared, tag, deadline);
      };
  co_return co_await client->at_owner<AnswerPtr>(streams_namespace(), shared->front().row, tag, deadline,
                                                 std::move(call));
}

Task<void> gather_at(std::shared_ptr<rpc::Channel> channel, transport::BulkDescriptor from,
                     std::vector<transport::BulkSpace::Range> ranges, std::span<std::byte> into,
                     base::Deadline deadline) {
  co_await channel->bulk().gather(from, std::move(ranges), into, deadline);
}

}  // namespace

StripeLease::~StripeLease() {
  if (!origin_.leave(channel_, owner_) && lease_ != 0) release_leases(channel_, {lease_});
}

void StripeLease::unmap_pages() const {
  if (mapped_) memory::unmap_pages(bytes_);
}

HeldStep::~HeldStep() {
  if (origin.leave(stripes, ended)) return;
  stripes.clear();
  if (ended) ended();
}

StripePlane::StripePlane(std::shared_ptr<PoolClient> client, bool in_place, std::uint64_t stripe_bytes,
                         std::uint64_t tag_base, std::string name)
    : client_(std::move(client)),
      in_place_(in_place),
      stripes_together_(std::max<std::uint64_t>(1, bytes_together / std::max(stripe_bytes, least_stripe_bytes))),
      tag_base_(tag_base),
      name_(std::move(name)),
      joined_(std::make_shared<JoinedMemory>()) {}

std::shared_ptr<HeldStep> StripePlane::held(std::uint64_t step) const {
  auto held = held_.lock();
  if (!held || held->step != step)
    throw Error(Errc::step_gone, "step " + std::to_string(step) + " is not being read any more");
  return held;
}

// ----------------------------------------------------------------------------------------------------------------- leases

void StripePlane::lease_all(HeldStep& held, const std::vector<HeldStep::Key>& keys, base::Deadline deadline,
                            const Came& came) {
  struct Batch {
    std::vector<HeldStep::Key> keys;
    std::vector<Key> objects;
    std::uint64_t tag = 0;
    fabric::Future<AnswerPtr> answer;
  };
  for (int attempt = 0;; ++attempt) {
    const auto placement = client_->members().placement();
    std::vector<Batch> batches;
    std::map<std::uint64_t, std::size_t> filling;  // the batch, by Placement::batch_of
    for (const auto& key : keys) {
      if (held.stripes.contains(key)) continue;
      const auto tag = stripe_tag(tag_base_, held.step, key.first, key.second);
      const auto [open, fresh] = filling.try_emplace(placement->batch_of(tag), batches.size());
      if (!fresh && batches[open->second].keys.size() == stripes_together_) open->second = batches.size();
      if (open->second == batches.size()) batches.emplace_back();
      auto& batch = batches[open->second];
      batch.tag = tag;
      batch.keys.push_back(key);
      batch.objects.push_back({stripe_row(held.stream, held.step, key.first, key.second), stripe_column(held.life)});
    }
    if (batches.empty()) return;
    for (auto& batch : batches)
      batch.answer =
          fabric::spawn(*client_->progress(), lease_at_owner(client_, std::move(batch.objects), batch.tag, deadline));
    std::optional<Error> failed;
    for (auto& batch : batches) {
      try {
        const auto answer =
            batch.answer.get(base::Deadline(deadline.is_never() ? forever : deadline.remaining() + settle_within));
        take(held, batch.keys, *answer, deadline);
        if (came) came(batch.keys);
      } catch (const Error& e) {
        failed = e;
      }
    }
    if (!failed) return;
    if (failed->code() == Errc::not_found && attempt >= 3)
      throw Error(Errc::step_gone, "step " + std::to_string(held.step) + " has gone from the pool: " + failed->what());
    const bool again = failed->code() == Errc::not_found || PoolClient::may_retry(*failed);
    if (!again || deadline.passed() || interrupted() || attempt >= max_tries) throw PoolClient::final_error(*failed);
  }
}

void StripePlane::take(HeldStep& held, const std::vector<HeldStep::Key>& keys, StripeAnswer& answer,
                       base::Deadline deadline) {
  auto& reply = *answer.reply;
  const auto add = [&](std::uint32_t index, const std::shared_ptr<StripeLease>& stripe) {
    if (index >= keys.size()) throw Error(Errc::protocol, "an answer of other stripes");
    held.stripes[keys[index]] = stripe;
  };
  std::uint64_t offset = 0;
  if (reply.simple.size() > keys.size() || reply.bytes.size() != reply.simple.size())
    throw Error(Errc::protocol, "an answer that does not fit together");
  for (std::size_t i = 0; i < reply.simple.size(); ++i) {
    auto stripe = std::make_shared<StripeLease>();
    stripe->size_ = reply.bytes[i];
    stripe->bytes_ = part_of(reply.data, offset, reply.bytes[i]);
    stripe->owner_ = answer.reply;
    offset += reply.bytes[i];
    add(reply.simple[i], stripe);
  }
  for (const auto& got : reply.got) {
    if (!got || !got->info) throw Error(Errc::protocol, "an answer without what it is about");
    auto stripe = std::make_shared<StripeLease>();
    stripe->channel_ = answer.channel;
    stripe->lease_ = std::exchange(got->lease, 0);
    stripe->bulk_ = got->bulk;
    stripe->size_ = got->info->bytes;
    if (got->inlined) {
      stripe->bytes_ = part_of(reply.data, got->offset, got->inline_size);
      stripe->owner_ = answer.reply;
    } else if (in_place_) {
      if (auto mapped = answer.channel->bulk().map(got->bulk, deadline)) {
        stripe->bytes_ = mapped->bytes;
        stripe->mapped_ = true;
        stripe->owner_ = std::move(mapped->owner);
      }
    }
    add(got->index, stripe);
  }
}

std::shared_ptr<StripeLease> StripePlane::lease(HeldStep& held, HeldStep::Key key, base::Deadline deadline) {
  if (const auto found = held.stripes.find(key); found != held.stripes.end()) return found->second;
  lease_all(held, {key}, deadline);
  const auto found = held.stripes.find(key);
  if (found == held.stripes.end()) throw Error(Errc::protocol, "a stripe that was not answered for");
  return found->second;
}

// --------------------------------------------------------------------------------------------------------------- requests

void StripePlane::copy_ranges(const StripeLease& stripe, Gather& gather) {
  std::uint64_t at = 0;
  for (const auto& r : gather.ranges) {
    if (r.offset + r.bytes > stripe.bytes().size()) throw Error(Errc::protocol, "a stripe shorter than its blocks");
    std::memcpy(gather.memory() + at, stripe.bytes().data() + r.offset, r.bytes);
    at += r.bytes;
  }
}

// All at once; those whose server has gone meanwhile again, at another.
void StripePlane::run(HeldStep& held, std::vector<Gather>& gathers, base::Deadline deadline) {
  std::vector<Gather*> left;
  for (auto& g : gathers) left.push_back(&g);
  for (int attempt = 0; !left.empty(); ++attempt) {
    struct Sent {
      Gather* gather;
      fabric::Future<void> done;
    };
    std::vector<Sent> sent;
    std::vector<Gather*> again;
    std::exception_ptr fatal;
    sent.reserve(left.size());
    for (auto* g : left) {
      try {
        const auto stripe = lease(held, g->key, deadline);
        if (!g->into && g->buffer.size() != g->bytes) g->buffer.resize(g->bytes);
        if (!stripe->bytes().empty()) {  // another replica's may be in place
          copy_ranges(*stripe, *g);
          if (stripe->there()) continue;
          held.stripes.erase(g->key);
          again.push_back(g);
          if (deadline.passed() || attempt >= max_tries) throw gone_meanwhile();
          continue;
        }
        auto task = gather_at(stripe->channel_, stripe->bulk_, g->ranges, std::span(g->memory(), g->bytes), deadline);
        sent.push_back({g, fabric::spawn(*client_->progress(), std::move(task))});
      } catch (...) {  // told when those that were sent leave the caller's memory alone
        fatal = std::current_exception();
        break;
      }
    }
    for (auto& s : sent) {
      try {
        const Uninterrupted whole;
        s.done.get(base::Deadline::never());  // ends by its own deadline, and only then leaves the memory alone
        bytes_moved_ += s.gather->bytes;
      } catch (const Error& e) {
        held.stripes.erase(s.gather->key);
        again.push_back(s.gather);
        if (!PoolClient::may_retry(e) || deadline.passed() || attempt >= max_tries)
          fatal = std::make_exception_ptr(PoolClient::final_error(e));
      } catch (...) {
        fatal = std::current_exception();
      }
    }
    if (fatal) std::rethrow_exception(fatal);
    left = std::move(again);
  }
}

const StripeMap& StripePlane::map_of(int writer_rank) const {
  const auto rank = static_cast<std::size_t>(writer_rank);
  if (rank >= maps_.size()) throw Error(Errc::internal, "a step whose layout was not said");
  return *maps_[rank];
}

void StripePlane::fetch(std::uint64_t step, std::uint32_t, std::span<const Item> items, bool ordered,
                        base::Deadline deadline) {
  const auto held = this->held(step);
  std::vector<model::Piece> pieces;
  std::deque<std::vector<model::PointMove>> moves;
  std::vector<std::byte*> out;
  pieces.reserve(items.size());
  out.reserve(items.size());
  for (const auto& item : items) {
    map_of(item.piece->writer_rank).place(*item.piece, pieces, moves);
    out.resize(pieces.size(), item.out);
  }
  std::vector<Item> placed(pieces.size());
  for (std::size_t i = 0; i < placed.size(); ++i) placed[i] = {&pieces[i], out[i]};
  fetch_placed(*held, placed, ordered, deadline);
}

// Until all of it was read from servers that are still there.
void StripePlane::fetch_placed(HeldStep& held, std::span<const Item> items, bool ordered, base::Deadline deadline) {
  for (int attempt = 0;; ++attempt) {
    fetch_once(held, items, ordered, deadline);
    bool again = false;
    for (const auto& item : items) {
      const auto found = held.stripes.find(key_of(*item.piece));
      if (found == held.stripes.end() || found->second->there()) continue;
      held.stripes.erase(found);
      again = true;
    }
    if (!again) return;
    if (deadline.passed() || attempt >= max_tries) throw gone_meanwhile();
  }
}

void StripePlane::copy_in_place(const StripeLease& stripe, const model::Piece& piece, std::byte* out) {
  const auto extent = model::source_extent(piece);
  if (extent.first < 0 || extent.last > static_cast<__int128>(stripe.bytes().size()))
    throw Error(Errc::protocol, "a stripe shorter than its blocks");
  model::execute(piece, stripe.bytes().data(), out);
}

// Copies the pieces of stripes that have come and can be read in place, and notes which.
StripePlane::Came StripePlane::copier(const HeldStep& held, std::span<const Item> items, std::vector<bool>& done) {
  std::multimap<HeldStep::Key, std::size_t> by_stripe;
  for (std::size_t i = 0; i < items.size(); ++i) by_stripe.emplace(key_of(*items[i].piece), i);
  return [&held, items, &done, by_stripe = std::move(by_stripe)](const std::vector<HeldStep::Key>& came) {
    for (const auto& key : came) {
      const auto stripe = held.stripes.find(key);
      if (stripe == held.stripes.end() || stripe->second->bytes().empty()) continue;
      for (auto [at, end] = by_stripe.equal_range(key); at != end; ++at) {
        const auto& [piece, out] = items[at->second];
        if (piece->bytes() != 0) copy_in_place(*stripe->second, *piece, out);
        done[at->second] = true;
      }
    }
  };
}

void StripePlane::fetch_once(HeldStep& held, std::span<const Item> items, bool ordered, base::Deadline deadline) {
  std::vector<HeldStep::Key> keys;
  for (const auto& item : items) {
    const auto key = key_of(*item.piece);
    if (!held.stripes.contains(key)) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<bool> done(items.size());
  if (ordered) lease_all(held, keys, deadline);
  else lease_all(held, keys, deadline, copier(held, items, done));

  // Where each item's bytes are: in place, or in a gather, packed or as they lie.
  struct Source {
    std::size_t gather = ~std::size_t{0};
    std::uint64_t at = 0;     // in its memory
    std::uint64_t first = 0;  // as they lie: of the stripe
    bool packed = false, direct = false;
  };
  std::vector<Source> sources(items.size());
  std::vector<Gather> gathers;
  std::map<HeldStep::Key, std::size_t> shared;  // gathers of small pieces
  std::vector<model::SourceRun> runs;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& piece = *items[i].piece;
    const auto key = key_of(piece);
    if (done[i] || piece.bytes() == 0 || !held.stripes.at(key)->bytes().empty()) continue;
    auto& source = sources[i];
    runs.clear();
    source.packed = model::contiguous_runs(piece, least_run, most_runs, runs);
    source.direct =
        source.packed && !ordered && piece.bytes() >= direct_bytes && model::packed_is_contiguous_at_destination(piece);
    const auto [entry, fresh] = source.direct ? std::pair(shared.end(), true) : shared.try_emplace(key, gathers.size());
    source.gather = fresh ? gathers.size() : entry->second;
    if (fresh) {
      gathers.emplace_back();
      gathers.back().key = key;
      if (source.direct) gathers.back().into = items[i].out + piece.copy.dst_offset;
    }
    auto& gather = gathers[source.gather];
    source.at = gather.bytes;
    if (!source.packed) {
      const auto extent = model::source_extent(piece);
      source.first = static_cast<std::uint64_t>(extent.first);
      runs.push_back({source.first, static_cast<std::uint64_t>(extent.last - extent.first)});
    }
    for (const auto& r : runs) {
      gather.ranges.push_back({r.offset, r.bytes});
      gather.bytes += r.bytes;
    }
  }
  run(held, gathers, deadline);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [piece, out] = items[i];
    const auto& source = sources[i];
    if (done[i] || source.direct || piece->bytes() == 0) continue;
    if (source.gather == ~std::size_t{0}) {
      copy_in_place(*held.stripes.at(key_of(*piece)), *piece, out);
    } else if (source.packed) {
      model::unpack(*piece, gathers[source.gather].memory() + source.at, out);
    } else {
      model::execute(*piece, gathers[source.gather].memory() + source.at - source.first, out);
    }
  }
}

void StripePlane::read_part(HeldStep& held, HeldStep::Key key, std::uint64_t offset, std::span<std::byte> out,
                            base::Deadline deadline) {
  std::vector<Gather> gathers(1);
  gathers[0].key = key;
  gathers[0].ranges.push_back({offset, out.size()});
  gathers[0].bytes = out.size();
  gathers[0].into = out.data();
  run(held, gathers, deadline);
}

transport::DataPlane::Mapped StripePlane::map(std::uint64_t step, std::uint32_t, int writer_rank, std::uint32_t segment,
                                              std::uint64_t offset, std::uint64_t bytes, base::Deadline deadline) {
  const auto held = this->held(step);
  std::vector<model::Piece> pieces;
  std::deque<std::vector<model::PointMove>> moves;
  map_of(writer_rank).place(model::byte_piece(writer_rank, segment, offset, bytes), pieces, moves);
  return pieces.size() == 1 ? map_one(*held, pieces.front(), bytes, deadline) : join(*held, pieces, bytes, deadline);
}

transport::DataPlane::Mapped StripePlane::map_one(HeldStep& held, const model::Piece& piece, std::uint64_t bytes,
                                                  base::Deadline deadline) {
  const auto key = key_of(piece);
  const auto offset = static_cast<std::uint64_t>(piece.copy.src_offset);
  auto stripe = lease(held, key, deadline);
  if (!stripe->there()) {
    held.stripes.erase(key);
    stripe = lease(held, key, deadline);
  }
  if (offset > stripe->size() || bytes > stripe->size() - offset)
    throw Error(Errc::protocol, "a stripe shorter than its blocks");
  if (!stripe->bytes().empty()) return {stripe->bytes().subspan(offset, bytes), stripe};
  std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  read_part(held, key, offset, std::span(memory.get(), bytes), deadline);
  return {{memory.get(), bytes}, memory};
}

// The memory is used again for the next of its size. The stripes do not count as this process's memory beside it.
transport::DataPlane::Mapped StripePlane::join(HeldStep& held, std::span<const model::Piece> pieces,
                                               std::uint64_t bytes, base::Deadline deadline) {
  auto memory = joined_->take(bytes);
  std::vector<Item> items;
  items.reserve(pieces.size());
  for (const auto& piece : pieces) items.push_back({&piece, memory.get()});
  fetch_placed(held, items, false, deadline);
  for (const auto& piece : pieces)
    if (const auto found = held.stripes.find(key_of(piece)); found != held.stripes.end()) found->second->unmap_pages();
  return {{memory.get(), bytes}, memory, static_cast<std::uint32_t>(pieces.size())};
}

memory::SlotInfo StripePlane::header(std::uint64_t, std::uint32_t, int, base::Deadline) {
  throw Error(Errc::unsupported, "steps in a pool lie in no slot");
}

void StripePlane::read_payload(std::uint64_t step, std::uint32_t, int writer_rank, std::vector<std::byte>& out,
                               base::Deadline deadline) {
  const auto held = this->held(step);
  const auto rank = static_cast<std::uint32_t>(writer_rank);
  if (rank >= held->payload_bytes.size() || held->payload_bytes[rank] == 0) return;
  const auto bytes = held->payload_bytes[rank];
  const auto stripe = lease(*held, {rank, 0}, deadline);
  if (bytes > stripe->size()) throw Error(Errc::protocol, "a stripe shorter than its payload");
  const auto at = out.size();
  out.resize(at + bytes);
  read_part(*held, {rank, 0}, stripe->size() - bytes, std::span(out).subspan(at), deadline);
}

}  // namespace penstock::pool
