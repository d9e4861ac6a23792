// The one place that knows which engines there are. It stands above the modules that make them, so that the public API, far
// below, need not know any; the table is filled when the library is loaded.
#include "pool/pool_engine.hpp"
#include "stream/engine.hpp"

namespace penstock {
namespace {

[[maybe_unused]] const bool added = [] {
  stream::add_engine({"direct", &stream::create_direct_writer, &stream::open_direct_reader});
  stream::add_engine({"pool", &pool::create_pool_writer, &pool::open_pool_reader});
  return true;
}();

}  // namespace
}  // namespace penstock
