// What two processes must agree on before they understand each other, each with a number. It is raised with every change of what
// is said or of what it means; a process of another number is refused when it connects, with an error that names both
// (fabric/handshake). scripts/tidy notices changes of the schemas, not of what they mean, nor of what has no schema.
#pragma once

#include <cstdint>
#include <string_view>

#include "wire/handshake.hpp"

namespace penstock::wire {

// Streams: control, data, and what lies in shared memory (rings, slots, segments).
// schemas: wire/control.fbs wire/data.fbs = 167d00ce9380
inline constexpr std::uint32_t stream_protocol = 8;

// Services: calls, bulk memory, the directory, and pools, with the records that a pool's servers keep.
// schemas: wire/data.fbs transport/bulk.fbs directory/directory.fbs pool/keys/pool.fbs = bf144dbf98c3
inline constexpr std::uint32_t service_protocol = 13;

struct Protocol {
  std::string_view name;
  std::uint32_t version = 0;
};
constexpr Protocol protocol_of(Purpose purpose) {
  const bool service = purpose == Purpose::rpc || purpose == Purpose::bulk;
  return service ? Protocol{"service protocol", service_protocol} : Protocol{"stream protocol", stream_protocol};
}

}  // namespace penstock::wire
