// What is behind a Context of the public API.
#pragma once

#include "penstock/stream.hpp"
#include "stream/api/engine.hpp"

namespace penstock {

struct Context::Impl {
  ContextOptions options;
  stream::EngineContext engines;
};

}  // namespace penstock
