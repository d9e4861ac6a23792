// The checksum of everything that a pool keeps, end to end: XXH3, 64 bits (libxxhash), in one go or part by part with the same
// result. Any thread; a RunningChecksum is used by one at a time.
//
// Long inputs are taken with the widest vectors that the processor has: at 128 bits the sum of a step takes about as long as
// copying it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::storage {

std::uint64_t checksum(std::span<const std::byte> data);

class RunningChecksum {
 public:
  RunningChecksum();
  void add(std::span<const std::byte> part);
  std::uint64_t value() const;  // of all parts so far, as if they were one

 private:
  alignas(64) std::array<std::byte, 640> state_;  // libxxhash's own
};

}  // namespace penstock::storage
