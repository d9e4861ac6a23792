// What is behind a Context of the public API.
#pragma once

#include "penstock/stream.hpp"
#include "stream/api/engine.hpp"

namespace penstock {

struct Context::Impl {
  ContextOptions options;
  stream::EngineContext engines;
  std::vector<OptionValue> settings;  // as they were when this was made
};

}  // namespace penstock
