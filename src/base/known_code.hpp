// Error codes that another process has sent.
#pragma once

#include <cstdint>

#include "penstock/error.hpp"

namespace penstock::base {

// Codes that this side does not know become internal; ok is no failure.
inline Errc known_code(std::int64_t code) {
  const auto known = static_cast<Errc>(code);
  const bool fits = code > 0 && code <= INT16_MAX;
  return fits && name_of(known) != "unknown" ? known : Errc::internal;
}

}  // namespace penstock::base
