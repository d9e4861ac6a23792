// Arrays on a device: what is fetched for them goes through the host's memory.
#include "transport/data_plane.hpp"

#include <algorithm>

#include "memory/kind.hpp"
#include "transport/piece_chunks.hpp"

namespace penstock::transport {

namespace {

// What is fetched for a device, in the host's memory: from the first to the last byte of one item, or of several whose extents
// overlap. These may fill each other's gaps, and are of the same array.
struct Stage {
  std::byte *first, *last;      // on the device
  const DataPlane::Item* item;  // the only one here, if it fills every byte; else null
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size() const { return static_cast<std::size_t>(last - first); }
};

std::byte* first_byte(const DataPlane::Item& item) {
  return item.out + static_cast<std::ptrdiff_t>(model::destination_extent(*item.piece).first);
}

// By address, without overlaps. Empty where nothing is fetched for a device.
std::vector<Stage> stages_of(std::span<const DataPlane::Item> items) {
  std::vector<Stage> each, merged;
  for (const auto& item : items) {
    if (item.piece->bytes() == 0 || !memory::on_device(item.out)) continue;
    const auto extent = model::destination_extent(*item.piece);
    auto* const first = first_byte(item);
    auto* const last = first + static_cast<std::ptrdiff_t>(extent.last - extent.first);
    each.push_back({first, last, model::packed_is_contiguous_at_destination(*item.piece) ? &item : nullptr, nullptr});
  }
  std::ranges::sort(each, {}, &Stage::first);
  for (auto& next : each) {
    if (merged.empty() || next.first >= merged.back().last) {
      merged.push_back(std::move(next));
      continue;
    }
    merged.back().last = std::max(merged.back().last, next.last);
    merged.back().item = nullptr;
  }
  return merged;
}

// Of the host's memory that items pass through which fill all their bytes; and the least part of an item that is worth a copy.
constexpr std::uint64_t passage_bytes = 16 << 20, least_part = 256 << 10;

// Where a part of an item is while it passes, and where it belongs.
struct Part {
  model::Piece piece;
  std::byte *here, *there;
};

// The host's memory for that, which a thread keeps.
std::byte* passage_of(std::uint64_t bytes) {
  thread_local std::unique_ptr<std::byte[]> memory;
  thread_local std::uint64_t size = 0;
  if (size < bytes) {
    memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size = bytes;
  }
  return memory.get();
}

// Items whose bytes lie together, apart from others'. Parts of all of them in turn make up a fetch, so that it asks many ranks.
template <class Fetch>
void pass(std::span<const DataPlane::Item> items, const Fetch& fetch) {
  if (items.empty()) return;
  std::uint64_t all = 0, element = 1;
  for (const auto& item : items) {
    all += item.piece->bytes();
    element = std::max<std::uint64_t>(element, item.piece->elem_size);
  }
  const auto room = std::max(std::min(all, passage_bytes), element);
  auto* const memory = passage_of(room);
  const auto limit = std::min(room, std::max({passage_bytes / items.size(), least_part, element}));
  std::vector<PieceChunks> left;
  for (const auto& item : items) left.emplace_back(*item.piece, limit);

  std::vector<Part> parts;
  std::uint64_t used = 0;
  const auto carry = [&] {
    std::vector<DataPlane::Item> fetched;
    for (const Part& part : parts)
      fetched.push_back(
          {&part.piece, part.here - static_cast<std::ptrdiff_t>(model::destination_extent(part.piece).first)});
    fetch(fetched);
    for (const Part& part : parts) memory::copy_out(part.there, part.here, part.piece.bytes());
    parts.clear();
    used = 0;
  };
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (left[i].done()) continue;
      const model::Piece part = left[i].next();
      if (used + part.bytes() > room) carry();
      parts.push_back({part, memory + used, first_byte({&part, items[i].out})});
      used += part.bytes();
      more = true;
    }
  }
  if (!parts.empty()) carry();
}

}  // namespace

void DataPlane::fetch_to_any(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                             base::Deadline deadline) {
  auto stages = stages_of(items);
  if (stages.empty()) return fetch(step, slot, items, ordered, deadline);
  std::vector<Item> passing, staged;
  for (auto& stage : stages) {
    if (stage.item != nullptr) {
      passing.push_back(*stage.item);
      continue;
    }
    stage.bytes = std::make_unique_for_overwrite<std::byte[]>(stage.size());
    memory::copy_in(stage.bytes.get(), stage.first, stage.size());  // what is not fetched stays
  }
  for (Item item : items) {
    if (item.piece->bytes() == 0) continue;
    auto* const first = first_byte(item);
    const auto after = std::ranges::upper_bound(stages, first, {}, &Stage::first);
    if (after != stages.begin() && first < std::prev(after)->last) {
      const Stage& stage = *std::prev(after);
      if (stage.item != nullptr) continue;
      item.out = stage.bytes.get() + (first - stage.first) - (first - item.out);
    }
    staged.push_back(item);
  }
  if (!staged.empty()) fetch(step, slot, staged, ordered, deadline);
  for (const Stage& stage : stages)
    if (stage.bytes) memory::copy_out(stage.first, stage.bytes.get(), stage.size());
  pass(passing, [&](std::span<const Item> parts) { fetch(step, slot, parts, false, deadline); });
}

}  // namespace penstock::transport
