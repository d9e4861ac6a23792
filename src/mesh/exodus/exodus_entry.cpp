// The one function of libpenstock_exodus.so.
#include "mesh/exodus/nemesis.hpp"
#include "mesh/exodus_part.hpp"
#include "penstock/version.hpp"

namespace penstock::mesh {
namespace {

bool is_parallel(const DatabaseRequest& request) { return request.cohort && request.cohort->size() > 1; }

std::unique_ptr<Source> open_parts(const DatabaseRequest& request) {
  return std::make_unique<NemesisSource>(request.name);
}
std::unique_ptr<Sink> create_parts(const DatabaseRequest& request) {
  check_exodus_options(request.options);
  return std::make_unique<NemesisSink>(request.name, request.options, request.cohort ? request.cohort : solo());
}
std::unique_ptr<Source> open_file(const DatabaseRequest& request) {
  return std::make_unique<ExodusSource>(request.name);
}
std::unique_ptr<Sink> create_file(const DatabaseRequest& request) {
  if (is_parallel(request)) return create_parts(request);
  check_exodus_options(request.options);
  return std::make_unique<ExodusSink>(request.name, request.options);
}

}  // namespace
}  // namespace penstock::mesh

const penstock::base::PartHead* penstock_exodus_part() {
  using namespace penstock::mesh;
  static constexpr ExodusPart part{{PENSTOCK_VERSION}, &open_file, &create_file, &open_parts, &create_parts};
  return &part;
}
