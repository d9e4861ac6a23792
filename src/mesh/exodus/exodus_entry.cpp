// The one function of libpenstock_exodus.so.
#include <filesystem>

#include "mesh/exodus/classic_header.hpp"
#include "mesh/exodus/nemesis.hpp"
#include "mesh/exodus/resumed_sink.hpp"
#include "mesh/exodus/shared_sink.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/file_series.hpp"
#include "penstock/error.hpp"
#include "penstock/version.hpp"

namespace penstock::mesh {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A file, or those that the ranks of a cohort wrote.
std::unique_ptr<Source> open_one(const std::string& path) {
  if (!has_parts(path)) return std::make_unique<ExodusSource>(path);
  if (is_there(path))
    throw Error(Errc::invalid_argument, path + ": there is this file, and files of several parts (" + path +
                                            ".*.*): remove one of them, or say database: nemesis");
  return std::make_unique<NemesisSource>(path);
}

// What this cohort would write. Throws Error(invalid_argument) where it was written by another number of ranks.
std::string file_to_resume(const Cohort& cohort, const std::string& path, bool parts) {
  const std::uint32_t there = has_parts(path) ? nemesis_parts(path) : 0;
  const auto ranks = static_cast<std::uint32_t>(cohort.size());
  if (there != (parts ? ranks : 0) || is_there(path) == parts)
    throw Error(Errc::invalid_argument,
                path + ": cannot resume: " +
                    (there == 0 ? "it is one file" : "there are files of " + std::to_string(there) + " parts") +
                    ", and this run has " + std::to_string(ranks) + " ranks");
  return parts ? nemesis_path(path, ranks, static_cast<std::uint32_t>(cohort.rank())) : path;
}

FileDatabase files_of(DatabaseRequest request, bool parts) {
  if (!request.cohort) request.cohort = solo();
  const auto& options = request.options;
  const auto& cohort = request.cohort;
  FileDatabase files;
  files.exists = [](const std::string& path) { return is_there(path) || (has_parts(path) && !is_being_written(path)); };
  files.open = [parts](const std::string& path) -> std::unique_ptr<Source> {
    if (parts) return std::make_unique<NemesisSource>(path);
    return open_one(path);
  };
  files.create = [options, cohort, parts](const std::string& path,
                                          std::function<void()> before) -> std::unique_ptr<Sink> {
    if (parts) return std::make_unique<NemesisSink>(path, options, cohort, std::move(before));
    if (cohort->size() > 1) return std::make_unique<SharedSink>(path, options, cohort, std::move(before));
    remove_parts(path, 0, false);
    return std::make_unique<ExodusSink>(path, options, std::move(before));
  };
  files.resume = [cohort, parts](const std::string& path, std::optional<double> time) {
    return std::make_unique<ResumedSink>(file_to_resume(*cohort, path, parts), time, cohort);
  };
  files.takes_more_states = [cohort, parts](const std::string& path) {
    return classic_length(file_to_resume(*cohort, path, parts)).has_value();
  };
  return files;
}

std::unique_ptr<Source> open_series(const DatabaseRequest& request, bool parts) {
  return std::make_unique<SeriesSource>(files_of(request, parts), request.name);
}
std::unique_ptr<Sink> create_series(const DatabaseRequest& request, bool parts) {
  check_exodus_options(request.options);
  return std::make_unique<SeriesSink>(files_of(request, parts), request);
}

std::unique_ptr<Source> open_parts(const DatabaseRequest& request) { return open_series(request, true); }
std::unique_ptr<Sink> create_parts(const DatabaseRequest& request) {
  if (request.options.shared)
    throw Error(Errc::invalid_argument, request.name +
                                            ": database nemesis writes a file for each rank; shared is an "
                                            "option of database exodus");
  return create_series(request, true);
}
std::unique_ptr<Source> open_file(const DatabaseRequest& request) { return open_series(request, false); }
std::unique_ptr<Sink> create_file(const DatabaseRequest& request) {
  const bool several = request.cohort && request.cohort->size() > 1;
  if (several && request.options.shared) check_shared_options(request.name, request.options);
  return create_series(request, several && !request.options.shared);
}

}  // namespace
}  // namespace penstock::mesh

const penstock::base::PartHead* penstock_exodus_part() {
  using namespace penstock::mesh;
  static constexpr ExodusPart part{{PENSTOCK_VERSION}, &open_file, &create_file, &open_parts, &create_parts};
  return &part;
}
