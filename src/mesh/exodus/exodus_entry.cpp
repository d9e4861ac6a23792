// The one function of libpenstock_exodus.so.
#include <filesystem>

#include "mesh/exodus/file_series.hpp"
#include "mesh/exodus/nemesis.hpp"
#include "mesh/exodus/resumed_sink.hpp"
#include "mesh/exodus_part.hpp"
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

std::unique_ptr<Sink> create_one(const DatabaseRequest& request, const std::string& path, bool resume) {
  if (resume && is_there(path))
    return std::make_unique<ResumedSink>(path, time_to_resume_after(request.options), solo());
  remove_parts(path, 0, false);
  return std::make_unique<ExodusSink>(path, request.options);
}

std::unique_ptr<Sink> create_part(const DatabaseRequest& request, const std::string& path, bool resume) {
  const auto ranks = static_cast<std::uint32_t>(request.cohort->size());
  if (!resume || !has_parts(path)) return std::make_unique<NemesisSink>(path, request.options, request.cohort);
  if (const auto parts = nemesis_parts(path); parts != ranks)
    throw Error(Errc::invalid_argument, path + ": there are files of " + std::to_string(parts) +
                                            " parts, and only as many ranks can go on with them, not " +
                                            std::to_string(ranks));
  const auto rank = static_cast<std::uint32_t>(request.cohort->rank());
  return std::make_unique<ResumedSink>(nemesis_path(path, ranks, rank), time_to_resume_after(request.options),
                                       request.cohort);
}

FileDatabase files_of(DatabaseRequest request, bool parts) {
  if (!request.cohort) request.cohort = solo();
  FileDatabase files;
  files.exists = [](const std::string& path) { return is_there(path) || has_parts(path); };
  files.open = [parts](const std::string& path) -> std::unique_ptr<Source> {
    if (parts) return std::make_unique<NemesisSource>(path);
    return open_one(path);
  };
  files.create = [request, parts](const std::string& path, bool resume) {
    return parts ? create_part(request, path, resume) : create_one(request, path, resume);
  };
  files.remove_from = [request, exists = files.exists](const std::string& name, std::size_t file) {
    if (request.cohort->rank() != 0) return;
    for (auto path = series_path(name, file); exists(path); path = series_path(name, ++file))
      remove_parts(path, 0, true);
  };
  return files;
}

std::unique_ptr<Source> open_series(const DatabaseRequest& request, bool parts) {
  return std::make_unique<SeriesSource>(files_of(request, parts), request.name);
}
std::unique_ptr<Sink> create_series(const DatabaseRequest& request, bool parts) {
  check_exodus_options(request.options);
  return std::make_unique<SeriesSink>(files_of(request, parts), request.name, request.options.states_per_file,
                                      request.options.resume != "no");
}

std::unique_ptr<Source> open_parts(const DatabaseRequest& request) { return open_series(request, true); }
std::unique_ptr<Sink> create_parts(const DatabaseRequest& request) { return create_series(request, true); }
std::unique_ptr<Source> open_file(const DatabaseRequest& request) { return open_series(request, false); }
std::unique_ptr<Sink> create_file(const DatabaseRequest& request) {
  return create_series(request, request.cohort && request.cohort->size() > 1);
}

}  // namespace
}  // namespace penstock::mesh

const penstock::base::PartHead* penstock_exodus_part() {
  using namespace penstock::mesh;
  static constexpr ExodusPart part{{PENSTOCK_VERSION}, &open_file, &create_file, &open_parts, &create_parts};
  return &part;
}
