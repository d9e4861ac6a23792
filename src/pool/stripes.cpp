#include "pool/stripes.hpp"

#include <algorithm>

#include "model/box.hpp"

namespace penstock::pool {
namespace {

using model::BlockDefinition;
using model::RankLayout;

// The dimensions of a block from the slowest to the fastest.
std::size_t dimension(const Dims& count, Order order, std::size_t i) {
  return order == Order::row ? i : count.size() - 1 - i;
}

// Fills stripes with chunks, in order.
class Packer {
 public:
  Packer(StripedLayout& out, std::uint64_t stripe_bytes) : out_(out), stripe_bytes_(stripe_bytes) {}

  // Gives the chunk its place and notes where its bytes come from.
  void place(BlockDefinition& chunk) {
    if (out_.stripes.empty()) out_.stripes.emplace_back();
    const StripeRange from{chunk.segment, chunk.offset, chunk.bytes};
    if (chunk.bytes > 0 && out_.stripes.back().bytes > 0 &&
        aligned(out_.stripes.back().bytes) + chunk.bytes > stripe_bytes_)
      out_.stripes.emplace_back();
    Stripe& stripe = out_.stripes.back();
    chunk.segment = static_cast<std::uint32_t>(out_.stripes.size() - 1);
    chunk.offset = aligned(stripe.bytes);
    if (chunk.bytes == 0) return;
    append(stripe, from);
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

  StripedLayout& out_;
  std::uint64_t stripe_bytes_;
};

// Calls place(box, first element, elements) for each chunk of the block, in the order of its bytes.
template <class Place>
void cut(const Dims& count, Order order, std::size_t elem_size, std::uint64_t stripe_bytes, Place place) {
  std::vector<std::uint64_t> row(count.size() + 1, elem_size);  // bytes of one index of the i-th slowest dimension
  for (std::size_t i = count.size(); i-- > 0;)
    row[i] = (i + 1 == count.size() ? elem_size : row[i + 1] * count[dimension(count, order, i + 1)]);
  std::size_t level = 0;
  while (level + 1 < count.size() && row[level] > stripe_bytes) ++level;
  const auto d = dimension(count, order, level);
  const auto rows = std::max<std::uint64_t>(1, stripe_bytes / row[level]);
  std::uint64_t outer = 1;
  for (std::size_t i = 0; i < level; ++i) outer *= count[dimension(count, order, i)];
  std::uint64_t element = 0;
  for (std::uint64_t o = 0; o < outer; ++o) {
    Box box{count, count};
    for (std::size_t i = 0; i < count.size(); ++i) box.start[i] = 0;
    auto rest = o;
    for (std::size_t i = level; i-- > 0;) {
      const auto slow = dimension(count, order, i);
      box.start[slow] = rest % count[slow];
      box.count[slow] = 1;
      rest /= count[slow];
    }
    for (std::uint64_t first = 0; first < count[d]; first += rows) {
      box.start[d] = first;
      box.count[d] = std::min(rows, count[d] - first);
      place(box, element);
      element += element_count(box.count);
    }
  }
}

}  // namespace

StripedLayout stripe_layout(const RankLayout& layout, std::uint64_t stripe_bytes, bool has_payload) {
  stripe_bytes = std::max(stripe_bytes, least_stripe_bytes);
  StripedLayout out;
  auto placed = std::make_shared<RankLayout>();
  placed->rank = layout.rank;
  placed->variables = layout.variables;
  placed->blocks.reserve(layout.blocks.size());
  out.placed.first.reserve(layout.blocks.size() + 1);
  Packer packer(out, stripe_bytes);
  for (const auto& block : layout.blocks) {
    out.placed.first.push_back(static_cast<std::uint32_t>(placed->blocks.size()));
    const auto& variable = layout.variables[block.variable];
    const bool array = variable.kind == Kind::global_array || variable.kind == Kind::local_array;
    if (!array || block.bytes <= stripe_bytes) {
      auto whole = block;
      packer.place(whole);
      placed->blocks.push_back(std::move(whole));
      continue;
    }
    const auto elem_size = size_of(variable.dtype);
    cut(block.box.count, variable.order, elem_size, stripe_bytes, [&](const Box& part, std::uint64_t first) {
      BlockDefinition chunk{block.variable, part, block.segment, block.offset + first * elem_size,
                            element_count(part.count) * elem_size};
      for (std::size_t i = 0; i < part.start.size(); ++i)
        chunk.box.start[i] = variable.kind == Kind::local_array ? 0 : block.box.start[i] + part.start[i];
      packer.place(chunk);
      placed->blocks.push_back(std::move(chunk));
    });
  }
  out.placed.first.push_back(static_cast<std::uint32_t>(placed->blocks.size()));
  if (out.stripes.empty() && has_payload) out.stripes.emplace_back();
  // Empty blocks and strings make a stripe of nothing, which need not be there.
  if (!has_payload && out.stripes.size() == 1 && out.stripes.front().bytes == 0) out.stripes.clear();
  out.placed.layout = std::move(placed);
  return out;
}

}  // namespace penstock::pool
