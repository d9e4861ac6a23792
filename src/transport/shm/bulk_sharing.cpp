#include "transport/shm/bulk_sharing.hpp"

#include "base/log.hpp"
#include "memory/segment.hpp"

namespace penstock::transport {

namespace {

constexpr std::uint64_t inline_copy_bytes = std::uint64_t{64} << 10;  // on the engine: shorter than waking a thread
constexpr std::size_t most_segments = 65'536;                         // of a peer

Leases::Slot slot_of(const WireBulk& bulk) {
  return {static_cast<std::uint32_t>(bulk.id & 0xffff), static_cast<std::uint32_t>(bulk.id >> 16 & 0xffff)};
}

}  // namespace

std::shared_ptr<Leases> BulkSharing::give(BulkBuffer::State& buffer, bool writable) {
  const std::lock_guard lock(given_mutex_);
  try {
    if (!leases_) {
      auto leases = std::make_shared<Leases>();
      carrier_.pass("bulk-leases", encode({.kind = BulkMessageKind::leases, .a = Leases::bytes}), leases->fd());
      leases_ = std::move(leases);
    }
    const auto number = buffer.segment->number();
    const auto given = given_.find(number);
    if (given != given_.end() && (given->second || !writable)) return leases_;
    const BulkMessage segment{BulkMessageKind::segment, writable ? 1u : 0u, number, buffer.segment->span().size()};
    carrier_.pass("bulk-segment", encode(segment), buffer.segment->descriptor(writable));
    if (given == given_.end()) {
      const auto weak = carrier_.weak();
      buffer.segment->on_gone(weak, [weak](std::uint32_t gone) {
        const auto alive = weak.lock();
        if (alive) alive->pass("bulk", encode({.kind = BulkMessageKind::forget, .id = gone}), -1);
      });
    }
    given_[number] = writable;
  } catch (const Error& error) {
    base::log(base::Level::warn, "bulk memory cannot be shared; it goes by the socket", {{"error", error.what()}});
    return nullptr;
  }
  return leases_;
}

void BulkSharing::on_leases(const BulkMessage& message, const memory::UniqueFd& fd) {
  if (!fd) throw Error(Errc::protocol, "leases without a descriptor");
  auto leases = std::make_shared<Leases>(fd, message.a);
  const std::lock_guard lock(peer_mutex_);
  peer_leases_ = std::move(leases);
}

void BulkSharing::on_segment(const BulkMessage& message, const memory::UniqueFd& fd) {
  if (!fd) throw Error(Errc::protocol, "memory without a descriptor");
  auto segment = std::make_shared<Segment>();
  segment->writable = message.code == 1;
  segment->mapping = memory::map_shared(fd.get(), message.a, segment->writable);
  const std::lock_guard lock(peer_mutex_);
  if (segments_.size() >= most_segments) throw Error(Errc::protocol, "too many segments");
  segments_[static_cast<std::uint32_t>(message.id)] = std::move(segment);
}

void BulkSharing::on_forget(const BulkMessage& message) {
  const std::lock_guard lock(peer_mutex_);
  segments_.erase(static_cast<std::uint32_t>(message.id));
}

std::optional<PeerMemory> BulkSharing::find(const WireBulk& bulk, bool writable) {
  if (bulk.segment == 0) return std::nullopt;
  std::shared_ptr<Segment> segment;
  std::shared_ptr<Leases> leases;
  {
    const std::lock_guard lock(peer_mutex_);
    const auto found = segments_.find(bulk.segment);
    if (found != segments_.end()) segment = found->second;
    leases = peer_leases_;
  }
  if (!segment || !leases) throw Error(Errc::invalid_argument, "a descriptor of memory that the peer has not given");
  if (bulk.offset > segment->mapping.size() || bulk.bytes > segment->mapping.size() - bulk.offset)
    throw Error(Errc::invalid_argument, "a descriptor that does not fit its memory");
  if (writable && !segment->writable) throw Error(Errc::invalid_argument, "bulk memory that is not exposed for this");
  std::byte* const data = segment->mapping.data() + bulk.offset;
  return PeerMemory{data, std::move(segment), std::move(leases), slot_of(bulk)};
}

Task<void> BulkSharing::copy(PeerMemory memory, std::vector<CopyJob::Piece> pieces, std::uint64_t bytes,
                             base::Deadline deadline) {
  const auto job = std::make_shared<CopyJob>(carrier_.engine(), std::move(pieces), deadline, std::move(memory));
  if (bytes <= inline_copy_bytes) {
    job->run_inline();
    co_return;
  }
  if (!copies_) copies_ = CopyThreads::shared();
  struct DropAtEnd {
    CopyJob& job;
    ~DropAtEnd() { job.drop(); }
  };
  const DropAtEnd end{*job};
  auto future = job->done();
  copies_->submit(job);
  co_await std::move(future);
}

}  // namespace penstock::transport
