// How the bytes of a read are cut up on their way through a socket, at both of its ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::transport {

inline constexpr std::uint64_t batch_bytes = std::uint64_t{1} << 20;  // of one system call
inline constexpr std::uint64_t chunk_bytes = 256 << 10;               // packed at a time: stays in the cache
inline constexpr std::uint64_t least_run_bytes = 4096;                // shorter runs are cheaper packed
inline constexpr std::size_t request_points = 1u << 17;               // of one request
inline constexpr std::size_t most_runs = 1u << 16;                    // of one piece

}  // namespace penstock::transport
