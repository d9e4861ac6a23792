#include "storage/verified_read.hpp"

#include <algorithm>
#include <vector>

#include "penstock/error.hpp"
#include "storage/checksum.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint64_t chunk_bytes = 256 << 10;  // fits the second-level cache

[[noreturn]] void damaged(const File& file) {
  throw Error(Errc::protocol, "the data in " + file.path() + " does not match its checksum");
}

// `chunk_at(done, bytes)` says where the next bytes are to go.
template <class ChunkAt>
void read_chunks(const File& file, const DataPlace& place, ChunkAt chunk_at) {
  RunningChecksum running;
  for (std::uint64_t done = 0; done < place.bytes;) {
    const std::span<std::byte> part = chunk_at(done, std::min(chunk_bytes, place.bytes - done));
    if (file.read_at(place.offset + done, part) != part.size()) damaged(file);
    running.add(part);
    done += part.size();
  }
  if (running.value() != place.checksum) damaged(file);
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
