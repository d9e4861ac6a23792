#include "space/engine/space_plane.hpp"

#include <algorithm>

#include "model/copy.hpp"

namespace penstock::space {

void SpacePlane::describe(std::span<const std::shared_ptr<const model::RankLayout>> layouts) {
  described_.clear();
  for (const auto& layout : layouts) {
    Rank rank{layout, {}};
    std::uint64_t in_record = 0;
    for (std::uint32_t number = 0; number < layout->blocks.size(); ++number) {
      const auto& block = layout->blocks[number];
      const auto& variable = layout->variables[block.variable];
      if (block.bytes == 0 || variable.dtype == DType::string) continue;
      rank.places.push_back({block.offset, in_record, number});
      if (variable.kind != Kind::global_array) in_record += block.bytes;
    }
    std::sort(rank.places.begin(), rank.places.end(),
              [](const Place& a, const Place& b) { return a.offset < b.offset; });
    described_.push_back(std::move(rank));
  }
}

// The array is bound to the stream's writer: what a later one puts under the same name is not read as if it were this one's.
SpacePlane::ArrayPointer SpacePlane::array_of(const std::string& variable, base::Deadline deadline) {
  if (const auto found = arrays_.find(variable); found != arrays_.end()) return found->second;
  auto array = Space::Impl::of(*clients_.arrays).read(array_name(stream_, variable), deadline);
  if (array->record.stream != incarnation_)
    throw Error(Errc::writer_lost, "stream " + stream_ + " has another writer now: array '" + array->name +
                                       "' is no longer that of the writer whose steps are read");
  return arrays_.emplace(variable, std::move(array)).first->second;
}

const RankRecord& SpacePlane::record(int writer_rank) const { return ranks_.at(static_cast<std::size_t>(writer_rank)); }

// What the writer has put and is not there any more was dropped.
void SpacePlane::throw_named(const Error& error) const {
  if (stream_.empty() || error.code() != Errc::not_found) throw;
  throw Error(Errc::not_found, "stream " + stream_ + ": step " + std::to_string(step_) +
                                   " is no longer in the space: its writer keeps retain_steps steps (retain_for names "
                                   "the groups of readers that it waits for), and any program may drop its arrays");
}

void SpacePlane::get(const Key& key, std::uint64_t offset, std::span<std::byte> out, base::Deadline deadline) {
  if (out.empty()) return;
  GetOptions options;
  options.offset = offset;
  options.bytes = out.size();
  options.timeout = left(deadline);
  try {
    clients_.records.get_into(key, out, options);
  } catch (const Error& error) {
    throw_named(error);
  }
  bytes_moved_ += out.size();
}

// The bytes of one block from `first` to `end`. is_box: only elements of the box between the first and the last one are wanted,
// and others are not set.
SpacePlane::Loaded SpacePlane::load(int writer_rank, std::uint64_t first, std::uint64_t end, bool is_box,
                                    base::Deadline deadline) {
  const auto& rank = described_.at(static_cast<std::size_t>(writer_rank));
  auto found = std::upper_bound(rank.places.begin(), rank.places.end(), first,
                                [](std::uint64_t offset, const Place& place) { return offset < place.offset; });
  if (found == rank.places.begin()) throw Error(Errc::protocol, "the step has no such block");
  const auto& place = *--found;
  const auto& block = rank.layout->blocks[place.block];
  const auto& variable = rank.layout->variables[block.variable];
  if (end > block.offset + block.bytes || first >= end) throw Error(Errc::protocol, "the step has no such block");
  if (variable.kind != Kind::global_array) {
    const auto& of = record(writer_rank);
    Loaded loaded{std::make_shared_for_overwrite<std::byte[]>(end - first), first};
    get(of.key, of.mark.layout_bytes + of.mark.payload_bytes + place.in_record + (first - block.offset),
        {loaded.memory.get(), end - first}, deadline);
    return loaded;
  }
  const auto size = size_of(variable.dtype);
  const auto dimensions = block.box.count.size();
  const auto strides = model::packed_strides(block.box.count, size, variable.order);
  const auto at = [&](std::uint64_t offset, std::size_t d) {
    return (offset - block.offset) / static_cast<std::uint64_t>(strides[d]) % block.box.count[d];
  };
  const std::size_t slowest = variable.order == Order::row ? 0 : dimensions - 1;
  Box box = block.box;
  Loaded loaded{nullptr, block.offset};
  std::uint64_t span = size;
  for (std::size_t d = 0; d < dimensions; ++d) {
    if (is_box || d == slowest) {
      const auto low = at(first, d), high = at(end - 1, d);
      if (high < low) throw Error(Errc::protocol, "what is wanted of a block is no box of it");
      box.start[d] += low;
      box.count[d] = high - low + 1;
      loaded.first += low * static_cast<std::uint64_t>(strides[d]);
    }
    span += (box.count[d] - 1) * static_cast<std::uint64_t>(strides[d]);
  }
  loaded.memory = std::make_shared_for_overwrite<std::byte[]>(span);
  ArrayMemory memory;
  memory.dtype = variable.dtype;
  memory.strides.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(dimensions));
  auto& space = Space::Impl::of(*clients_.arrays);
  for (bool again = false;; again = true) {
    const auto array = array_of(variable.name, deadline);
    try {
      Space::Impl::require_within(*array, box);
      space.get(array, step_, box, loaded.memory.get(), memory, deadline);
      break;
    } catch (const Space::Impl::Replaced&) {
      if (stream_.empty() || again)
        throw Error(Errc::not_found, "array '" + array->name + "' was dropped, and defined anew");
      arrays_.erase(variable.name);
    } catch (const Error& error) {
      throw_named(error);
    }
  }
  bytes_moved_ += element_count(box.count) * size;
  return loaded;
}

void SpacePlane::fetch(std::uint64_t, std::uint32_t, std::span<const Item> items, bool, base::Deadline deadline) {
  for (const auto& item : items) {
    const auto& piece = *item.piece;
    if (piece.bytes() == 0) continue;
    const auto extent = model::source_extent(piece);
    const auto loaded = load(piece.writer_rank, static_cast<std::uint64_t>(extent.first),
                             static_cast<std::uint64_t>(extent.last), piece.points.empty(), deadline);
    model::execute(piece, loaded.memory.get() - loaded.first, item.out);
  }
}

transport::DataPlane::Mapped SpacePlane::map(std::uint64_t, std::uint32_t, int writer_rank, std::uint32_t,
                                             std::uint64_t offset, std::uint64_t bytes, base::Deadline deadline) {
  const auto loaded = load(writer_rank, offset, offset + bytes, false, deadline);
  return {{loaded.memory.get() + (offset - loaded.first), bytes}, loaded.memory, 0};
}

memory::SlotInfo SpacePlane::header(std::uint64_t step, std::uint32_t, int writer_rank, base::Deadline) {
  if (ranks_.empty()) return {step, 0, 0, 0};
  const auto& mark = record(writer_rank).mark;
  return {step, 0, mark.layout_bytes, mark.payload_bytes};
}

void SpacePlane::read_payload(std::uint64_t, std::uint32_t, int writer_rank, std::vector<std::byte>& out,
                              base::Deadline deadline) {
  if (ranks_.empty()) return;
  const auto& of = record(writer_rank);
  const auto before = out.size();
  out.resize(before + of.mark.payload_bytes);
  get(of.key, of.mark.layout_bytes, std::span(out).subspan(before), deadline);
}

}  // namespace penstock::space
