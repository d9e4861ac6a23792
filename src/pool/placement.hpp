// Which servers own what, as a pure function of a view. Built once a view; immutable; any thread.
//
// By hash: consistent hashing with virtual nodes (strong hash: XXH3, 128 bits, of namespace and row, so that a row's columns
// lie together), weighted. By tag: tag mod the active servers in id order (ranks, stripes). By curve: a Hilbert or Morton
// index of a box's centre within its array, cut into equal ranges (arrays, AMR blocks). Replicas are the next distinct servers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/pool.hpp"
#include "penstock/types.hpp"
#include "pool/view.hpp"

namespace penstock::pool {

inline constexpr std::size_t virtual_nodes = 1024;  // for each unit of weight; fewer would miss max/mean 1.1 on 16 servers
inline constexpr std::size_t max_owners = 8;

// Indices into view().members, the primary first.
struct Owners {
  std::uint32_t index[max_owners]{};
  std::uint32_t count = 0;
  std::span<const std::uint32_t> all() const { return {index, count}; }
  bool contains(std::uint32_t i) const;
};

class Placement {
 public:
  explicit Placement(View view);
  const View& view() const { return view_; }
  // Throws Error(peer_lost) when the view has no active server.
  Owners owners(const Namespace& ns, std::string_view row, std::optional<std::uint64_t> tag = {}) const;

 private:
  View view_;
  struct Point {
    std::uint64_t hash;
    std::uint32_t member;
  };
  std::vector<Point> ring_;
  std::vector<std::uint32_t> active_;
};

// The tag of a box of an array by its place on a Morton (any dimensions) curve: cells of the array numbered along the
// curve, cut into `parts` equal ranges. Neighbours along the curve share a part.
std::uint64_t curve_tag(const Box& box, const Dims& shape, std::uint32_t parts);

}  // namespace penstock::pool
