// A region in a series of files: name, name-s0002, name-s0003, ... A file begins where the topology has changed, as in IOSS, or after so
// many states (states_per_file). For databases that keep one model in a file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mesh/database.hpp"

namespace penstock::mesh {

// "plate.e", "plate.e-s0002": files count from 0 here.
std::string series_path(const std::string& name, std::size_t file);

// Of ".4.1" 4 and 1, if a part's file ends so: parts, and a part's number with as many digits; else nothing.
std::optional<std::pair<std::uint32_t, std::uint32_t>> parts_in_name(std::string_view ending);

struct SeriesFile {
  std::string path;
  std::size_t number = 1;  // in the series
};
// All files of a region that are there, of any number of parts, complete or not, in the order of their names.
std::vector<SeriesFile> files_of_series(const std::string& name);

// A database that keeps one model in a file, or in files of several parts with a name in common: what it does with one of these.
struct FileDatabase {
  std::function<std::unique_ptr<Source>(const std::string& path)> open;
  // before: called before the file takes the path, complete as far as a reader needs it.
  // first: of the series.
  std::function<std::unique_ptr<Sink>(const std::string& path, bool first, std::function<void()> before)> create;
  // Resumes what is there after its last state, or the last one up to the time. Model fields that differ are an error of all ranks when the
  // first state begins, or at the close; only then states are dropped.
  std::function<std::unique_ptr<Sink>(const std::string& path, std::optional<double> time)> resume;
  std::function<bool(const std::string& path)> exists;  // complete, and readable
  std::function<bool(const std::string& path)> takes_more_states;
  // Of the series' first file, for all of it: no other writer is accepted as long as what is returned is there. is_resumed: the file is
  // there. Throws Error(wrong_state) where there is another writer.
  std::function<std::shared_ptr<void>(bool is_resumed)> lock;
};

class SeriesSource final : public Source {
 public:
  SeriesSource(FileDatabase files, std::string name);
  std::uint32_t parts() const override { return now_->parts(); }
  const Model& model(std::uint32_t part) override;
  StateOutcome next_state(Timeout deadline) override;
  std::vector<double> times() override;
  void seek(std::uint64_t state) override;
  // How many the first file has that another one of its model follows; 0: there is none. Opens files.
  std::uint32_t states_per_file();
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) override { now_->read(part, slot, rows, out); }

 private:
  struct Next {
    std::size_t file;
    std::uint64_t first_state;  // of the file
    std::unique_ptr<Source> source;
  };
  std::unique_ptr<Source> open(std::size_t file);
  bool change_to(Next next);

  FileDatabase files_;
  std::string name_;
  std::size_t file_ = 0;
  std::uint64_t first_state_ = 0;
  std::unique_ptr<Source> now_;
  std::map<std::uint32_t, Model> models_;   // by part
  std::vector<std::uint32_t> numbers_;      // of the model in each file that was opened
  std::vector<std::vector<double>> times_;  // of each file but the last
  std::optional<Next> next_;                // where the next state is
};

class SeriesSink final : public Sink {
 public:
  SeriesSink(FileDatabase files, const DatabaseRequest& request);
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void abandon_state() override;
  void close() override;

 private:
  struct Written {
    Slot slot;
    std::vector<std::byte> values;
  };
  // A file, and the time of the last state in it that stays.
  std::pair<std::size_t, std::optional<double>> place_to_resume() const;
  void find_place();
  void lock();
  void remove_from(std::size_t file);
  void drop_later();
  void close_file();
  std::unique_ptr<Sink> create(std::size_t file);
  void go_on();

  FileDatabase files_;
  std::string name_;
  std::shared_ptr<Cohort> cohort_;
  std::size_t file_ = 0;
  std::uint32_t states_per_file_;
  std::string resume_;          // as the option
  std::optional<double> time_;  // to resume after
  bool keeps_model_ = false;    // in memory: another file repeats it
  bool is_full_ = false;
  bool begun_ = false;
  bool is_resumed_ = false;  // and what is later is still there
  bool is_alone_ = false;    // and what was later is gone
  std::optional<double> last_time_;
  std::shared_ptr<void> lock_;
  std::unique_ptr<Sink> now_;  // null: the next state begins a file
  Model model_;
  std::vector<Written> written_;
  std::uint32_t states_ = 0;  // in the file
  bool in_state_ = false;
};

}  // namespace penstock::mesh
