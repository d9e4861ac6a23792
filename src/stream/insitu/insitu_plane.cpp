#include "stream/insitu/insitu_plane.hpp"

#include <algorithm>

#include "penstock/error.hpp"
#include "stream/api/recycling_allocator.hpp"

namespace penstock::stream {
namespace {

// One pool for the process: views may outlive every reader.
const std::shared_ptr<RecyclingPool>& token_pool() {
  static const auto pool = std::make_shared<RecyclingPool>();
  return pool;
}

[[noreturn]] void refuse_gone(std::uint64_t step, int rank) {
  throw Error(Errc::step_gone,
              "writer rank " + std::to_string(rank) + " does not hold step " + std::to_string(step) + " any more");
}

}  // namespace

memory::Arena* InsituPlane::arena_of(int rank) const {
  if (rank < 0 || static_cast<std::size_t>(rank) >= local_.size())
    throw Error(Errc::protocol, "there is no writer rank " + std::to_string(rank));
  const auto& writer = local_[static_cast<std::size_t>(rank)];
  return writer ? writer->arena().get() : nullptr;
}

void InsituPlane::copy(memory::Arena& arena, std::uint64_t step, std::uint32_t slot, const Item& item) {
  const auto& piece = *item.piece;
  const auto extent = model::source_extent(piece);
  constexpr __int128 most = INT64_MAX;
  if (extent.first < 0 || extent.last > most)
    throw Error(Errc::protocol,
                "writer rank " + std::to_string(piece.writer_rank) + " described blocks outside its memory");
  const auto first = static_cast<std::uint64_t>(extent.first);
  const auto bytes = static_cast<std::uint64_t>(extent.last - extent.first);
  if (bytes == 0) return;
  const auto execute = [&](const std::byte* data) { model::execute(piece, data - first, item.out); };
  if (piece.segment == memory::lent_segment) {
    arena.lent(slot).touch(first, bytes, [&](const std::byte* data) {
      if (!arena.holds(slot, step)) refuse_gone(step, piece.writer_rank);
      execute(data);
    });
  } else {
    execute(arena.read(slot, step, piece.segment, first, bytes).bytes.data());
    if (!arena.holds(slot, step)) refuse_gone(step, piece.writer_rank);
  }
  bytes_moved_ += piece.bytes();
}

void InsituPlane::fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                        base::Deadline deadline) {
  remote_items_.clear();
  const auto fetch_remote = [&] {
    if (remote_items_.empty()) return;
    const auto before = remote_->bytes_moved();
    remote_->fetch(step, slot, remote_items_, ordered, deadline);
    bytes_moved_ += remote_->bytes_moved() - before;
    remote_items_.clear();
  };
  for (const auto& item : items) {
    auto* const arena = arena_of(item.piece->writer_rank);
    if (arena == nullptr) {
      remote_items_.push_back(item);
      continue;
    }
    if (ordered) fetch_remote();
    copy(*arena, step, slot, item);
  }
  fetch_remote();
}

transport::DataPlane::Mapped InsituPlane::map(std::uint64_t step, std::uint32_t slot, int writer_rank,
                                              std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes,
                                              base::Deadline deadline) {
  auto* const arena = arena_of(writer_rank);
  if (arena == nullptr) return remote_->map(step, slot, writer_rank, segment, offset, bytes, deadline);
  auto view = arena->read(slot, step, segment, offset, bytes);
  if (view.owner) return {view.bytes, std::move(view.owner)};
  std::shared_ptr<const void> token = std::allocate_shared<char>(RecyclingAllocator<char>(token_pool()), '\0');
  views_.emplace_back(token, KeptView{writer_rank, offset});
  return {view.bytes, std::move(token)};
}

memory::SlotInfo InsituPlane::header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) {
  auto* const arena = arena_of(writer_rank);
  if (arena == nullptr) return remote_->header(step, slot, writer_rank, deadline);
  const auto view = arena->read(slot, step, 0, 0, sizeof(memory::SlotHeader));
  const auto info = memory::load(*reinterpret_cast<const memory::SlotHeader*>(view.bytes.data()));
  if (info.step != step || !arena->holds(slot, step)) refuse_gone(step, writer_rank);
  return info;
}

void InsituPlane::read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                               base::Deadline deadline) {
  auto* const arena = arena_of(writer_rank);
  if (arena == nullptr) return remote_->read_payload(step, slot, writer_rank, out, deadline);
  const auto info = header(step, slot, writer_rank, deadline);
  if (info.payload_bytes == 0) return;
  const auto view = arena->read(slot, step, static_cast<std::uint32_t>(info.payload_segment), info.payload_offset,
                                info.payload_bytes);
  out.insert(out.end(), view.bytes.begin(), view.bytes.end());
  if (!arena->holds(slot, step)) refuse_gone(step, writer_rank);
  bytes_moved_ += info.payload_bytes;
}

std::optional<InsituPlane::KeptView> InsituPlane::kept_view() const {
  const auto kept = std::ranges::find_if(views_, [](const auto& view) { return !view.first.expired(); });
  return kept == views_.end() ? std::nullopt : std::optional(kept->second);
}

std::unique_ptr<InsituPlane> make_insitu_plane(
    std::vector<std::shared_ptr<LocalWriter>> local,
    const std::function<std::unique_ptr<transport::DataPlane>()>& make_remote) {
  const bool all = std::ranges::all_of(local, [](const auto& writer) { return writer != nullptr; });
  return std::make_unique<InsituPlane>(std::move(local), all ? nullptr : make_remote());
}

}  // namespace penstock::stream
