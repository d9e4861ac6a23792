// The one function of libpenstock_exodus.so.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "mesh/exodus/classic_header.hpp"
#include "mesh/exodus/load_balance.hpp"
#include "mesh/exodus/nemesis.hpp"
#include "mesh/exodus/resumed_sink.hpp"
#include "mesh/exodus/shared_sink.hpp"
#include "mesh/exodus/writer_lock.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/file_series.hpp"
#include "penstock/error.hpp"
#include "penstock/version.hpp"
#include "storage/file.hpp"
#include "stream/api/open.hpp"

namespace penstock::mesh {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// How many files the region is in, of a part each; 0: one file. Looks through the folder. Throws Error(invalid_argument).
std::uint32_t parts_of(const std::string& path, bool parts) {
  if (!parts && !has_parts(path)) return 0;
  if (!parts && is_there(path))
    throw Error(Errc::invalid_argument, path + ": there is this file, and files of several parts (" + path +
                                            ".*.*): remove one of them, or say database: nemesis");
  return nemesis_parts(path);
}

std::unique_ptr<Source> open_one(const std::string& path, std::uint32_t parts) {
  if (parts == 0) return std::make_unique<ExodusSource>(path);
  return std::make_unique<NemesisSource>(path, parts);
}

// What this cohort would write. Throws Error(invalid_argument) where it was written by another number of ranks.
std::string file_to_resume(const Cohort& cohort, const std::string& path, std::uint32_t parts) {
  const std::uint32_t there = has_parts(path) ? nemesis_parts(path) : 0;
  if (there != parts || is_there(path) == (parts != 0))
    throw Error(Errc::invalid_argument,
                path + ": cannot resume: " +
                    (there == 0 ? "it is one file" : "there are files of " + std::to_string(there) + " parts") +
                    ", and this run has " + std::to_string(cohort.size()) + " ranks");
  return parts != 0 ? nemesis_path(path, parts, static_cast<std::uint32_t>(cohort.rank())) : path;
}

// Of this rank's file of the region; rank 0 looks at all other files that the region could be in.
std::shared_ptr<void> lock_for_writing(const DatabaseRequest& request, std::uint32_t parts, bool is_resumed) {
  const auto rank = static_cast<std::uint32_t>(request.cohort->rank());
  if (parts == 0 && rank != 0) return nullptr;  // rank 0 has that of a shared file
  const auto own = parts != 0 ? nemesis_path(request.name, parts, rank) : request.name;
  const auto format = request.options.format;
  const bool hdf5 =
      is_resumed ? !is_classic(own) : format == MeshFormat::netcdf4 || format == MeshFormat::netcdf4_classic;
  auto lock = std::make_shared<WriterLock>(own, is_resumed, hdf5);
  if (rank == 0)
    for (const auto& other : files_of_others(request.name, parts)) require_no_writer(other);
  return lock;
}

// What reading would take for the region in place of this one.
void remove_others(Cohort& cohort, const std::string& name, std::uint32_t parts) {
  stream::on_every_rank(cohort, [&] {
    if (cohort.rank() == 0)
      for (const auto& other : files_of_others(name, parts)) storage::remove_file(other);
  });
}

// parts: as parts_of. The region's first file may be of another number of parts where it is to be resumed, which is refused then; the other
// files are known by their names, without a look through the folder.
FileDatabase files_of(const DatabaseRequest& request, std::uint32_t parts) {
  const auto& name = request.name;
  const auto& options = request.options;
  const auto& cohort = request.cohort;
  FileDatabase files;
  files.exists = [name, parts](const std::string& path) {
    if (path == name) return is_there(path) || (has_parts(path) && !is_being_written(path));
    return parts == 0 ? is_there(path) : are_there(path, parts);
  };
  files.open = [parts](const std::string& path) { return open_one(path, parts); };
  files.create = [options, cohort, parts](const std::string& path, bool first,
                                          std::function<void()> before) -> std::unique_ptr<Sink> {
    if (first) remove_others(*cohort, path, parts);
    if (parts != 0) return std::make_unique<NemesisSink>(path, options, cohort, std::move(before));
    if (cohort->size() > 1) return std::make_unique<SharedSink>(path, options, cohort, std::move(before));
    return std::make_unique<ExodusSink>(path, options, std::move(before));
  };
  files.resume = [options, cohort, parts](const std::string& path, std::optional<double> time) {
    return std::make_unique<ResumedSink>(file_to_resume(*cohort, path, parts), time, cohort, options.sync);
  };
  files.takes_more_states = [cohort, parts](const std::string& path) {
    return classic_length(file_to_resume(*cohort, path, parts)).has_value();
  };
  files.lock = [request, parts](bool is_resumed) { return lock_for_writing(request, parts, is_resumed); };
  return files;
}

std::unique_ptr<Source> open_series(const DatabaseRequest& request, bool parts) {
  return std::make_unique<SeriesSource>(files_of(request, parts_of(request.name, parts)), request.name);
}
std::unique_ptr<Sink> create_series(DatabaseRequest request, bool parts) {
  check_exodus_options(request.options);
  if (!request.cohort) request.cohort = solo();
  const auto files = files_of(request, parts ? static_cast<std::uint32_t>(request.cohort->size()) : 0);
  return std::make_unique<SeriesSink>(files, request);
}

std::shared_ptr<void> hold_files(const std::string& name) {
  const auto locks = std::make_shared<std::vector<std::unique_ptr<WriterLock>>>();
  for (const auto& path : files_of_others(name, any_parts))
    if (path.ends_with(".writing")) require_no_writer(path);
    else locks->push_back(std::make_unique<WriterLock>(path, true, !is_classic(path)));
  return locks;
}

MeshOptions options_of_files(const std::string& name) {
  const auto parts = parts_of(name, false);
  const auto file = NetcdfFile::open(parts == 0 ? name : nemesis_path(name, parts, 0));
  MeshOptions options;
  options.database = parts == 0 ? "exodus" : "nemesis";
  options.format = static_cast<MeshFormat>(static_cast<int>(file.format()) + 1);
  options.compression = file.compression();
  options.states_per_file = SeriesSource(files_of({name, {}, solo()}, parts), name).states_per_file();
  return options;
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
  static constexpr ExodusPart part{{PENSTOCK_VERSION},      &open_file,  &create_file,      &open_parts,
                                   &create_parts,           &hold_files, &options_of_files, &read_load_balance_file,
                                   &write_load_balance_file};
  return &part;
}
