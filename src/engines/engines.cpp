// The one place that knows which engines there are. It stands above the modules that make them.
#include "pool/engine/pool_engine.hpp"
#include "stream/engine.hpp"

namespace penstock::stream {

std::span<const EngineEntry> engines() {
  static constexpr EngineEntry all[] = {{"direct", &create_direct, &open_direct},
                                        {"pool", &pool::create_in_pool, &pool::open_in_pool}};
  return all;
}

}  // namespace penstock::stream
