// What tests of several rooms share.
#pragma once

#include <utility>

#include "penstock/error.hpp"

namespace penstock {

// Whether a sanitizer was built in: it takes memory and time of its own, and ends a process that crashes in its own way.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// The code of the Error that a call throws; ok when it throws none.
template <class F>
Errc code_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::ok;
}

}  // namespace penstock
