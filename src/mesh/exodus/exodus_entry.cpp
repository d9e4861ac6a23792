// The one function of libpenstock_exodus.so.
#include <filesystem>

#include "mesh/exodus/nemesis.hpp"
#include "mesh/exodus_part.hpp"
#include "penstock/error.hpp"
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
// A file, or those that the ranks of a cohort wrote.
std::unique_ptr<Source> open_file(const DatabaseRequest& request) {
  std::error_code ignored;
  const bool single = std::filesystem::exists(request.name, ignored);
  if (has_parts(request.name)) {
    if (single)
      throw Error(Errc::invalid_argument, request.name + ": there is this file, and files of several parts (" +
                                              request.name + ".*.*): remove one of them, or say database: nemesis");
    return open_parts(request);
  }
  return std::make_unique<ExodusSource>(request.name);
}
std::unique_ptr<Sink> create_file(const DatabaseRequest& request) {
  if (is_parallel(request)) return create_parts(request);
  check_exodus_options(request.options);
  remove_parts(request.name, 0, false);
  return std::make_unique<ExodusSink>(request.name, request.options);
}

}  // namespace
}  // namespace penstock::mesh

const penstock::base::PartHead* penstock_exodus_part() {
  using namespace penstock::mesh;
  static constexpr ExodusPart part{{PENSTOCK_VERSION}, &open_file, &create_file, &open_parts, &create_parts};
  return &part;
}
