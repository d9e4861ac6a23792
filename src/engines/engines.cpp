// The one place that knows which engines there are. It stands above the modules that make them.
#include "pool/engine/pool_engine.hpp"
#include "space/engine/space_engine.hpp"
#include "stream/api/engine.hpp"
#include "stream/direct/direct_engine.hpp"
#include "stream/file/file_engine.hpp"
#include "stream/insitu/insitu_engine.hpp"

namespace penstock::stream {

std::span<const EngineEntry> engines() {
  static constexpr EngineEntry all[] = {
      {.name = "insitu", .create = &create_insitu, .open = &open_insitu, .finder = &find_insitu},
      {.name = "direct", .create = &create_direct, .open = &open_direct, .finder = &find_direct},
      {"pool", &pool::create_in_pool, &pool::open_in_pool, &pool::inspect_in_pool, nullptr, &pool::find_in_pools},
      {"file", &create_file, &open_file, &inspect_files, &locate_files, &find_files},
      {"space", &space::create_in_space, &space::open_in_space, &space::inspect_in_space, nullptr,
       &space::find_in_spaces}};
  return all;
}

}  // namespace penstock::stream
