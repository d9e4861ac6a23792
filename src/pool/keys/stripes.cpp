#include "pool/keys/stripes.hpp"

#include <algorithm>

#include "model/box.hpp"
#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

using model::RankLayout;

// The dimensions of a block from the slowest to the fastest.
std::size_t dimension(const Dims& count, Order order, std::size_t i) {
  return order == Order::row ? i : count.size() - 1 - i;
}

// Fills stripes with chunks, in order.
class Packer {
 public:
  Packer(std::vector<Stripe>& stripes, std::uint64_t stripe_bytes) : stripes_(stripes), stripe_bytes_(stripe_bytes) {}

  void add(const StripeRange& chunk) {
    if (stripes_.empty()) stripes_.emplace_back();
    if (chunk.bytes == 0) return;
    if (stripes_.back().bytes > 0 && aligned(stripes_.back().bytes) + chunk.bytes > stripe_bytes_)
      stripes_.emplace_back();
    append(stripes_.back(), chunk);
  }

 private:
  // Blocks lie in the slot as in the stripe, one after the other at multiples of 64: mostly one range takes them all.
  static void append(Stripe& stripe, const StripeRange& from) {
    const auto at = aligned(stripe.bytes);
    if (!stripe.ranges.empty()) {
      auto& last = stripe.ranges.back();
      const auto begin = stripe.bytes - last.bytes;  // of the last range in the stripe
      if (last.segment == from.segment && from.offset >= last.offset && from.offset - last.offset == at - begin) {
        last.bytes = at - begin + from.bytes;
        stripe.bytes = at + from.bytes;
        return;
      }
    }
    stripe.ranges.push_back(from);
    stripe.bytes = at + from.bytes;
  }

  std::vector<Stripe>& stripes_;
  const std::uint64_t stripe_bytes_;
};

// Calls add(offset, bytes) for each chunk of the block, in the order of its bytes.
template <class Add>
void cut(const Dims& count, Order order, std::size_t elem_size, std::uint64_t stripe_bytes, Add add) {
  std::vector<std::uint64_t> row(count.size() + 1, elem_size);  // bytes of one index of the i-th slowest dimension
  for (std::size_t i = count.size() - 1; i-- > 0;) row[i] = row[i + 1] * count[dimension(count, order, i + 1)];
  std::size_t level = 0;
  while (level + 1 < count.size() && row[level] > stripe_bytes) ++level;
  const auto whole = row[level] * count[dimension(count, order, level)];  // what is cut each time
  const auto chunk = std::max<std::uint64_t>(1, stripe_bytes / row[level]) * row[level];
  const auto bytes = row[0] * count[dimension(count, order, 0)];
  for (std::uint64_t outer = 0; outer < bytes; outer += whole)
    for (std::uint64_t at = 0; at < whole; at += chunk) add(outer + at, std::min(chunk, whole - at));
}

}  // namespace

std::vector<Stripe> stripes_of(const RankLayout& layout, std::uint64_t stripe_bytes, bool has_payload) {
  stripe_bytes = std::max(stripe_bytes, least_stripe_bytes);
  std::vector<Stripe> stripes;
  Packer packer(stripes, stripe_bytes);
  for (const auto& block : layout.blocks) {
    const auto& variable = layout.variables[block.variable];
    const bool array = variable.kind == Kind::global_array || variable.kind == Kind::local_array;
    if (!array || block.bytes <= stripe_bytes) {
      packer.add({block.segment, block.offset, block.bytes});
      continue;
    }
    cut(block.box.count, variable.order, size_of(variable.dtype), stripe_bytes,
        [&](std::uint64_t offset, std::uint64_t bytes) {
          packer.add({block.segment, block.offset + offset, bytes});
        });
  }
  if (stripes.empty() && has_payload) stripes.emplace_back();
  // Empty blocks and strings make a stripe of nothing, which need not be there.
  if (!has_payload && stripes.size() == 1 && stripes.front().bytes == 0) stripes.clear();
  return stripes;
}

StripeMap::StripeMap(const std::vector<Stripe>& stripes) {
  for (std::uint32_t number = 0; number < stripes.size(); ++number) {
    std::uint64_t at = 0;
    for (const auto& range : stripes[number].ranges) {
      at = aligned(at);
      runs_.push_back({range, number, at});
      at += range.bytes;
    }
  }
  std::ranges::sort(runs_, {}, [](const Run& run) { return std::pair(run.slot.segment, run.slot.offset); });
}

void StripeMap::place(const model::Piece& piece, std::vector<model::Piece>& placed,
                      std::deque<std::vector<model::PointMove>>& moves) const {
  if (piece.bytes() == 0) return;
  const auto run_of = [this, segment = piece.segment](__int128 offset) {
    const auto after = std::ranges::partition_point(runs_, [&](const Run& run) {
      return run.slot.segment < segment || (run.slot.segment == segment && run.slot.offset <= offset);
    });
    if (after == runs_.begin() || std::prev(after)->slot.segment != segment)
      throw Error(Errc::protocol, "a block that lies in no stripe");
    return std::prev(after);
  };
  const auto extent = model::source_extent(piece);
  const auto end = [](const Run& run) { return run.slot.offset + run.slot.bytes; };
  const auto first = placed.size();
  const auto begins = run_of(extent.first);
  if (extent.last <= end(*begins)) {
    placed.push_back(piece);
  } else {
    std::vector<std::uint64_t> cuts;
    for (auto run = begins + 1; run != runs_.end() && run->slot.segment == piece.segment; ++run)
      if (run->slot.offset < extent.last) cuts.push_back(run->slot.offset);
    model::cut_at_source(piece, cuts, placed);
  }
  for (auto part = placed.begin() + static_cast<std::ptrdiff_t>(first); part != placed.end(); ++part) {
    const auto within = model::source_extent(*part);
    const auto& run = *run_of(within.first);
    if (within.last > end(run)) throw Error(Errc::protocol, "a block that lies in no stripe");
    part->segment = run.stripe;
    part->copy.src_offset += static_cast<std::int64_t>(run.at) - static_cast<std::int64_t>(run.slot.offset);
    if (part->points.empty()) continue;
    auto& moved = moves.emplace_back(part->points.begin(), part->points.end());
    for (auto& move : moved) move.src = move.src - run.slot.offset + run.at;
    part->points = moved;
  }
}

}  // namespace penstock::pool
