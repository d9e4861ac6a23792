// Memory that the peer of a link may read, and perhaps write. This module's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "penstock/error.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

// What one request of a peer is about, until it is answered.
class Region {
 public:
  virtual ~Region() = default;
  // Where a segment begins, of which the request touches [reach.first, reach.last). Stays mapped while this lives.
  // Throws Error(protocol, invalid_argument, step_gone).
  virtual std::byte* segment(std::uint32_t number, wire::Reach reach) = 0;
  // Held while bytes are touched, when there is one: then they are good as long as it is held and state() is ok. Without
  // one they were good if state() is ok afterwards.
  virtual std::mutex* mutex() { return nullptr; }
  virtual Errc state() const = 0;
  // For a network that reads or writes by itself, and without the mutex: until release, the owner keeps the memory mapped and,
  // where there is a mutex, does not touch it. False: the owner cannot promise that, so copy under the mutex. Throws
  // Error(invalid_argument) when it was taken back. Any thread.
  virtual bool hold() = 0;
  virtual void release() = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  // Throws Error.
  virtual std::unique_ptr<Region> open(const wire::DataRequest& request, bool for_writing) = 0;
  virtual void served(std::uint64_t) {}  // so many bytes went out; tests count them
};

inline std::unique_lock<std::mutex> lock_of(std::mutex* mutex) {
  return mutex == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*mutex);
}

}  // namespace penstock::transport
