// Penstock's version: the one place it is written. CMake and the Python package read it from here.
#pragma once

#define PENSTOCK_VERSION "0.1.0"

namespace penstock {

// The version of these headers.
inline constexpr const char* version = PENSTOCK_VERSION;

}  // namespace penstock
