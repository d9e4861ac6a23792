#pragma once

#include <string>

#include "penstock/error.hpp"

namespace penstock::analysis {

// What a caller or a request gives is wrong.
[[noreturn]] inline void refuse(const std::string& what) { throw Error(Errc::invalid_argument, what); }

}  // namespace penstock::analysis
