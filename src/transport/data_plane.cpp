// Arrays on a device: what is fetched for them goes through the host's memory.
#include "transport/data_plane.hpp"

#include <algorithm>
#include <functional>

#include "memory/kind.hpp"
#include "transport/piece_chunks.hpp"

namespace penstock::transport {

namespace {

// What is fetched for a device, in the host's memory: from the first to the last byte of one item, or of several whose extents
// overlap. These may fill each other's gaps, and are of the same array.
struct Stage {
  std::byte *first, *last;      // on the device
  const DataPlane::Item* item;  // which alone fills every byte; null: several, or with gaps
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

// Of the memory that items pass through which fill all their bytes. Small enough to stay in a cache.
constexpr std::uint64_t passage_bytes = 4 << 20;

// Parts of pieces, fetched together into the passage, then copied to where they belong.
class Passage {
 public:
  using Fetch = std::function<void(std::span<const DataPlane::Item>)>;
  Passage(std::uint64_t bytes, Fetch fetch)
      : bytes_(bytes), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)), fetch_(std::move(fetch)) {}

  void add(const DataPlane::Item& item) {
    for (PieceChunks chunks(*item.piece, bytes_); !chunks.done();) {
      const model::Piece part = chunks.next();
      if (used_ + part.bytes() > bytes_) carry();
      parts_.push_back({part, used_, first_byte({&part, item.out})});
      used_ += part.bytes();
    }
  }
  void carry() {
    std::vector<DataPlane::Item> items;
    for (const Part& part : parts_)
      items.push_back({&part.piece, memory_.get() + part.at -
                                        static_cast<std::ptrdiff_t>(model::destination_extent(part.piece).first)});
    if (!items.empty()) fetch_(items);
    for (const Part& part : parts_) memory::copy_out(part.to, memory_.get() + part.at, part.piece.bytes());
    parts_.clear();
    used_ = 0;
  }

 private:
  struct Part {
    model::Piece piece;
    std::uint64_t at;
    std::byte* to;
  };
  const std::uint64_t bytes_;
  const std::unique_ptr<std::byte[]> memory_;
  const Fetch fetch_;
  std::vector<Part> parts_;
  std::uint64_t used_ = 0;
};

}  // namespace

void DataPlane::fetch_to_any(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                             base::Deadline deadline) {
  auto stages = stages_of(items);
  if (stages.empty()) return fetch(step, slot, items, ordered, deadline);
  std::uint64_t passing = 0, largest = 0;  // bytes, and of an element
  for (auto& stage : stages) {
    if (stage.item != nullptr) {
      passing += stage.size();
      largest = std::max<std::uint64_t>(largest, stage.item->piece->elem_size);
      continue;
    }
    stage.bytes = std::make_unique_for_overwrite<std::byte[]>(stage.size());
    memory::copy_in(stage.bytes.get(), stage.first, stage.size());  // what is not fetched stays
  }
  std::vector<Item> staged;
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
  Passage passage(std::max(std::min(passing, passage_bytes), largest),
                  [&](std::span<const Item> parts) { fetch(step, slot, parts, false, deadline); });
  for (const Stage& stage : stages) {
    if (stage.item != nullptr) passage.add(*stage.item);
    else memory::copy_out(stage.first, stage.bytes.get(), stage.size());
  }
  passage.carry();
}

}  // namespace penstock::transport
