// The data plane that a benchmark is told to use.
#pragma once

#include <stdexcept>
#include <string>

#include "penstock/options.hpp"

namespace penstock::bench {

inline DataPlane plane_of(const std::string& name) {
  if (name.empty()) return DataPlane::automatic;
  if (name == "shm") return DataPlane::shm;
  if (name == "tcp") return DataPlane::tcp;
  if (name == "ucx") return DataPlane::ucx;
  throw std::runtime_error("no data plane " + name);
}

}  // namespace penstock::bench
