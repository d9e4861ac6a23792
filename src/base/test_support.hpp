// What tests of several rooms share.
#pragma once

#include <utility>

#include "penstock/error.hpp"

namespace penstock {

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
