// Compiled for AVX2 (see CMakeLists.txt): no header with inline functions that others compile too.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "storage/checksum_kernels.hpp"

namespace penstock::storage {

const ChecksumKernel avx2_kernel{
    [](const void* data, std::size_t bytes) -> std::uint64_t { return XXH3_64bits(data, bytes); },
    [](void* state, const void* data, std::size_t bytes) {
      XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
    }};

}  // namespace penstock::storage
