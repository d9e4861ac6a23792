// XXH3 compiled for one instruction set: checksum.cpp chooses. Plain types only, so that nothing else is compiled for an
// instruction set that the processor may not have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::storage {

struct ChecksumKernel {
  std::uint64_t (*whole)(const void* data, std::size_t bytes);
  void (*add)(void* state, const void* data, std::size_t bytes);
};

extern const ChecksumKernel baseline_kernel;
extern const ChecksumKernel avx2_kernel;  // x86-64 only

}  // namespace penstock::storage
