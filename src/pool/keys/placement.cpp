#include "pool/keys/placement.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "penstock/error.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {

namespace {

// Little-endian, so that placement is the same on every machine.
std::byte* append(std::byte* to, std::uint64_t number) {
  for (std::size_t i = 0; i < 8; ++i) *to++ = static_cast<std::byte>(number >> (8 * i));
  return to;
}

std::uint64_t point_hash(std::uint64_t member, std::uint64_t node) {
  std::array<std::byte, 16> bytes;
  append(append(bytes.data(), member), node);
  return storage::checksum(bytes);
}

std::uint64_t key_hash(const Namespace& ns, std::string_view row) {
  std::array<std::byte, 24> bytes;
  std::ranges::copy(std::as_bytes(std::span(ns.bytes)), bytes.begin());
  append(bytes.data() + ns.bytes.size(), storage::checksum(std::as_bytes(std::span(row))));
  return storage::checksum(bytes);
}

}  // namespace

bool Owners::contains(std::uint32_t i) const { return std::ranges::find(all(), i) != all().end(); }

Placement::Placement(View view) : view_(std::move(view)) {
  std::size_t weight = 0;
  for (std::size_t i = 0; i < view_.members.size(); ++i) {
    if (view_.members[i].state != ServerState::active) continue;
    active_.push_back(static_cast<std::uint32_t>(i));
    weight += view_.members[i].weight;
  }
  std::size_t nodes = virtual_nodes;
  while (nodes > 1 && nodes * weight > max_points) nodes /= 2;
  ring_.reserve(nodes * weight);
  // A server's points follow from its id alone, and more weight only adds points: others' keys stay where they are.
  for (const std::uint32_t i : active_)
    for (std::size_t node = 0; node < nodes * view_.members[i].weight; ++node)
      ring_.push_back({point_hash(view_.members[i].id, node), i});
  std::ranges::sort(
      ring_, [](const Point& a, const Point& b) { return a.hash != b.hash ? a.hash < b.hash : a.member < b.member; });
}

Owners Placement::owners(const Namespace& ns, std::string_view row, std::optional<std::uint64_t> tag) const {
  if (active_.empty()) throw Error(Errc::peer_lost, "the pool has no active server");
  Owners owners;
  const std::size_t wanted = std::min<std::size_t>({view_.replication, active_.size(), max_owners});
  if (tag) {
    const std::size_t first = *tag % active_.size();
    while (owners.count < wanted)
      owners.index[owners.count] = active_[(first + owners.count) % active_.size()], ++owners.count;
    return owners;
  }
  auto point = std::ranges::upper_bound(ring_, key_hash(ns, row), {}, &Point::hash);
  for (; owners.count < wanted; ++point) {
    if (point == ring_.end()) point = ring_.begin();
    if (!owners.contains(point->member)) owners.index[owners.count++] = point->member;
  }
  return owners;
}

std::uint64_t Placement::batch_of(std::uint64_t tag) const {
  return view_.settled ? owners({}, "", tag).index[0] : tag;
}

}  // namespace penstock::pool
