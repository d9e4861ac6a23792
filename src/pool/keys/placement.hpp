// Which servers own what, as a pure function of a view. Built once a view; immutable; any thread.
//
// By hash: consistent hashing with virtual nodes (strong hash: XXH3 of namespace and row, so that a row's columns lie
// together), weighted: one server more or less moves only the keys that it gets or had. By tag: tag mod the active servers
// in id order (ranks, stripes, parts of arrays), whatever their weights. Replicas are the next distinct servers, on the ring or
// in id order.
// Source: D. Karger et al., Consistent hashing and random trees, STOC 1997.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/pool.hpp"
#include "pool/keys/view.hpp"

namespace penstock::pool {

// For each unit of weight. The spread of the servers' shares is 1/sqrt(virtual_nodes), 2.2 %: max/mean 1.1 on 16 servers is
// then four spreads away; with 1024 it would be three, and one pool in seventy would miss it.
inline constexpr std::size_t virtual_nodes = 2048;
inline constexpr std::size_t max_points = std::size_t{1} << 21;  // of a ring, 32 MiB; beyond, virtual nodes are halved
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
  // Objects whose tags have the same number here can be asked for in one request, with any of these tags. In a settled view: those
  // with the same primary; else only those with the same tag, for their former owners may differ.
  std::uint64_t batch_of(std::uint64_t tag) const;

 private:
  View view_;
  struct Point {
    std::uint64_t hash;
    std::uint32_t member;
  };
  std::vector<Point> ring_;
  std::vector<std::uint32_t> active_;
};

}  // namespace penstock::pool
