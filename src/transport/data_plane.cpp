// Arrays on a device: what is fetched for them goes through the host's memory.
#include "transport/data_plane.hpp"

#include <algorithm>
#include <map>

#include "memory/kind.hpp"

namespace penstock::transport {

namespace {

// What lies between the first and the last byte that are fetched into an array, in the host's memory.
struct Stage {
  __int128 first = 0, last = 0;  // from the array's base
  std::uint64_t fetched = 0;
  std::unique_ptr<std::byte[]> bytes;
  std::uint64_t size() const { return static_cast<std::uint64_t>(last - first); }
  // Where the base would be if all of the array were here. Of no use as a pointer by itself.
  std::byte* base() const { return bytes.get() - static_cast<std::ptrdiff_t>(first); }
};

}  // namespace

void DataPlane::fetch_to_any(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                             base::Deadline deadline) {
  std::map<std::byte*, Stage> stages;  // by base
  for (const Item& item : items) {
    if (item.piece->bytes() == 0 || !memory::on_device(item.out)) continue;
    const auto extent = model::destination_extent(*item.piece);
    auto [entry, fresh] = stages.try_emplace(item.out);
    Stage& stage = entry->second;
    stage.first = fresh ? extent.first : std::min(stage.first, extent.first);
    stage.last = fresh ? extent.last : std::max(stage.last, extent.last);
    stage.fetched += item.piece->bytes();
  }
  for (auto& [out, stage] : stages) {
    stage.bytes = std::make_unique_for_overwrite<std::byte[]>(stage.size());
    // What is not fetched stays as it is. Pieces that overlap may leave gaps however many bytes they have.
    if (stage.fetched != stage.size() || ordered)
      memory::copy_in(stage.bytes.get(), out + static_cast<std::ptrdiff_t>(stage.first), stage.size());
  }
  if (stages.empty()) return fetch(step, slot, items, ordered, deadline);
  std::vector<Item> staged(items.begin(), items.end());
  for (Item& item : staged)
    if (const auto found = stages.find(item.out); found != stages.end()) item.out = found->second.base();
  fetch(step, slot, staged, ordered, deadline);
  for (const auto& [out, stage] : stages)
    memory::copy_out(out + static_cast<std::ptrdiff_t>(stage.first), stage.bytes.get(), stage.size());
}

}  // namespace penstock::transport
