// Where a caller's memory is, and copies between the host's and a device's.
//
// A device's library (CUDA's driver) is used when the process has loaded it, and is never loaded for this. Work that is queued on
// the device is not waited for: the caller synchronizes before memory is read. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace penstock::memory {

enum class Kind : std::uint8_t {
  host,    // also what a device's library manages for both
  pinned,  // the host's, which a device reaches: taken wherever the host's is
  device,  // out of the processor's reach
};

// Whether any memory may be on a device: to be asked before addresses are looked at, which it can save. now: the time. A device's
// library that was loaded less than 100 us before may be overlooked; nothing can be on its device yet.
bool devices_here(base::Clock::time_point now);
// Whether memory has been looked at since a device's library was loaded. Costs nothing.
bool devices_seen();
Kind kind_of(const void* address);
inline bool on_device(const void* address) { return kind_of(address) == Kind::device; }

// Between the host's memory and a caller's of any kind. Returns when the bytes are copied. Throws Error(system): what the device
// said.
void copy_in(void* to, const void* callers, std::size_t bytes);
void copy_out(void* callers, const void* from, std::size_t bytes);

// Until what was queued in a stream of the device that has this memory is done. Throws Error: system, invalid_argument (no device has it).
void wait_for_stream(const void* memory, void* stream);

}  // namespace penstock::memory
