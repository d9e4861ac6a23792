#define XXH_INLINE_ALL
#include "storage/verified_read.hpp"

#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "storage/tier.hpp"

namespace penstock::storage {

std::uint64_t checksum(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

namespace {

constexpr std::uint64_t chunk_bytes = 256 << 10;  // fits the second-level cache

[[noreturn]] void damaged(const File& file) {
  throw Error(Errc::protocol, "the data in " + file.path() + " does not match its checksum");
}

// `chunk_at(done, bytes)` says where the next bytes are to go.
template <class ChunkAt>
void read_chunks(const File& file, const DataPlace& place, ChunkAt chunk_at) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::uint64_t done = 0; done < place.bytes;) {
    const std::span<std::byte> part = chunk_at(done, std::min(chunk_bytes, place.bytes - done));
    if (file.read_at(place.offset + done, part) != part.size()) damaged(file);
    XXH3_64bits_update(&state, part.data(), part.size());
    done += part.size();
  }
  if (XXH3_64bits_digest(&state) != place.checksum) damaged(file);
}

}  // namespace

void read_verified(const File& file, const DataPlace& place, std::span<std::byte> out) {
  read_chunks(file, place, [&](std::uint64_t done, std::uint64_t bytes) { return out.subspan(done, bytes); });
}

void verify_only(const File& file, const DataPlace& place) {
  std::vector<std::byte> chunk(std::min(chunk_bytes, place.bytes));
  read_chunks(file, place, [&](std::uint64_t, std::uint64_t bytes) { return std::span(chunk).first(bytes); });
}

}  // namespace penstock::storage
