// How the protocol's state machines name their neighbours and speak to them. They do no I/O and know no threads: the
// engines feed them messages from sockets and rings, and the simulated fabric feeds thousands of them in one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/control.hpp"

namespace penstock::stream {

// parent_link, a child's rank in the control tree, or first_reader_link + n for a reader cohort at the writer's root.
using LinkId = std::uint32_t;
inline constexpr LinkId parent_link = 0;
inline constexpr LinkId first_reader_link = wire::max_ranks;
inline constexpr LinkId no_link = ~LinkId{0};

// Layouts in one message; what is larger goes in several (a single layout may be larger, up to the message's own bound).
inline constexpr std::size_t max_layout_bytes = std::size_t{8} << 20;

// Calls send(first, last, more) for runs of layouts that fit a message; once for none.
template <class Send>
void split_layouts(const std::vector<wire::RankBlob>& layouts, Send send) {
  std::size_t first = 0, bytes = 0;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::size_t size = layouts[i].layout->size();
    if (i > first && bytes + size > max_layout_bytes) {
      send(layouts.begin() + static_cast<std::ptrdiff_t>(first), layouts.begin() + static_cast<std::ptrdiff_t>(i),
           true);
      first = i;
      bytes = 0;
    }
    bytes += size;
  }
  send(layouts.begin() + static_cast<std::ptrdiff_t>(first), layouts.end(), false);
}

class Sink {
 public:
  virtual ~Sink() = default;
  // Must not call back into the protocol.
  virtual void send(LinkId link, const wire::Message& message) = 0;
};

// The control tree of a cohort.
inline constexpr std::uint32_t default_fan_out = 32;
inline std::uint32_t parent_of(std::uint32_t rank, std::uint32_t fan_out) { return (rank - 1) / fan_out; }
inline std::uint32_t first_child(std::uint32_t rank, std::uint32_t fan_out) { return rank * fan_out + 1; }
inline std::uint32_t child_count(std::uint32_t rank, std::uint32_t ranks, std::uint32_t fan_out) {
  const std::uint64_t first = std::uint64_t{rank} * fan_out + 1;
  return first >= ranks ? 0 : static_cast<std::uint32_t>(ranks - first < fan_out ? ranks - first : fan_out);
}

}  // namespace penstock::stream
