// What ranks and batches know about fragments, as the rank that joins them gets it.
#include <cmath>

#include "analysis/fragments/merge.hpp"
#include "fuzz.hpp"

using namespace penstock;

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<fuzz::Bytes> out;
  for (const std::uint32_t averages : {0u, 2u}) {
    analysis::Part part;
    part.common.averages = averages;
    part.above = part.below = analysis::RegionSums(averages);
    for (std::int32_t i = 0; i < 3; ++i) {
      analysis::RegionSums sums(averages);
      for (auto& sum : sums.sums) sum.add(1 + i), sum.add(1e-30);
      part.components.push_back({static_cast<analysis::CellId>(8 * i), sums});
      part.aliases.push_back({static_cast<analysis::CellId>(8 * i), i});
      part.extremes.push_back({i, 5, {1, 2, 3}});
    }
    part.foreign = {8, 16};
    part.pairs = {{0, 3}, {1, 4}};
    const std::string bytes = analysis::encode(part);
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    out.emplace_back(first, first + bytes.size());
  }
  return out;
}

// What was accepted can be encoded and joined, and all of its components are fragments.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  std::vector<analysis::Part> parts(1);
  if (!fuzz::refuses_with({Errc::protocol},
                          [&] { parts[0] = analysis::decode(std::as_bytes(std::span(data, bytes))); }))
    return 0;
  const std::string again = analysis::encode(parts[0]);
  fuzz::check(analysis::decode(std::as_bytes(std::span(again))).size() == parts[0].size());
  analysis::Merged merged;
  if (!fuzz::refuses_with({Errc::invalid_argument}, [&] { merged = analysis::merge(parts); })) return 0;
  fuzz::check(merged.fragment_of[0].size() == parts[0].size());
  for (const auto fragment : merged.fragment_of[0]) fuzz::check(std::size_t(fragment) < merged.fragments);
  for (const auto& point : merged.extremes) fuzz::check(std::size_t(point.component) < merged.fragments);
  return 0;
}
