// Arrays on a device: what is fetched for them goes through the host's memory.
#include "transport/data_plane.hpp"

#include <algorithm>

#include "memory/kind.hpp"

namespace penstock::transport {

namespace {

// What is fetched for a device, in the host's memory: from the first to the last byte of one item, or of several whose extents
// overlap. These may fill each other's gaps, and are of the same array.
struct Stage {
  std::byte *first, *last;  // on the device
  bool whole;               // every byte is fetched
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size() const { return static_cast<std::size_t>(last - first); }
};

std::byte* first_byte(const DataPlane::Item& item) {
  return item.out + static_cast<std::ptrdiff_t>(model::destination_extent(*item.piece).first);
}

// By address, without overlaps. Empty where nothing is fetched for a device.
std::vector<Stage> stages_of(std::span<const DataPlane::Item> items) {
  std::vector<Stage> alone, merged;
  for (const auto& item : items) {
    if (item.piece->bytes() == 0 || !memory::on_device(item.out)) continue;
    const auto extent = model::destination_extent(*item.piece);
    auto* const first = first_byte(item);
    auto* const last = first + static_cast<std::ptrdiff_t>(extent.last - extent.first);
    alone.push_back({first, last, model::packed_is_contiguous_at_destination(*item.piece), nullptr});
  }
  std::ranges::sort(alone, {}, &Stage::first);
  for (auto& next : alone) {
    if (merged.empty() || next.first >= merged.back().last) {
      merged.push_back(std::move(next));
      continue;
    }
    merged.back().last = std::max(merged.back().last, next.last);
    merged.back().whole = false;  // as far as is known
  }
  return merged;
}

}  // namespace

void DataPlane::fetch_to_any(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                             base::Deadline deadline) {
  auto stages = stages_of(items);
  if (stages.empty()) return fetch(step, slot, items, ordered, deadline);
  for (auto& stage : stages) {
    stage.bytes = std::make_unique_for_overwrite<std::byte[]>(stage.size());
    if (!stage.whole) memory::copy_in(stage.bytes.get(), stage.first, stage.size());  // what is not fetched stays
  }
  std::vector<Item> staged(items.begin(), items.end());
  for (Item& item : staged) {
    if (item.piece->bytes() == 0) continue;
    auto* const first = first_byte(item);
    const auto after = std::ranges::upper_bound(stages, first, {}, &Stage::first);
    if (after == stages.begin() || first >= std::prev(after)->last) continue;  // in the host's memory
    const Stage& stage = *std::prev(after);
    item.out = stage.bytes.get() + (first - stage.first) - (first - item.out);
  }
  fetch(step, slot, staged, ordered, deadline);
  for (const Stage& stage : stages) memory::copy_out(stage.first, stage.bytes.get(), stage.size());
}

}  // namespace penstock::transport
