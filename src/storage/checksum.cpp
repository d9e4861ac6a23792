#define XXH_INLINE_ALL
#include "storage/checksum.hpp"

#include <xxhash.h>

#include "storage/checksum_kernels.hpp"

namespace penstock::storage {

const ChecksumKernel baseline_kernel{
    [](const void* data, std::size_t bytes) -> std::uint64_t { return XXH3_64bits(data, bytes); },
    [](void* state, const void* data, std::size_t bytes) {
      XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
    }};

namespace {

constexpr std::size_t long_bytes = 1024;  // below, vectors gain nothing

const ChecksumKernel& kernel() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return avx2_kernel;
#endif
  return baseline_kernel;
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> data) {
  if (data.size() < long_bytes) return XXH3_64bits(data.data(), data.size());
  return kernel().whole(data.data(), data.size());
}

RunningChecksum::RunningChecksum() {
  static_assert(sizeof(XXH3_state_t) <= sizeof state_ && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(reinterpret_cast<XXH3_state_t*>(state_.data()));
}

void RunningChecksum::add(std::span<const std::byte> part) { kernel().add(state_.data(), part.data(), part.size()); }

std::uint64_t RunningChecksum::value() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
}

}  // namespace penstock::storage
