// A region in a series of files: name, name-s0002, name-s0003, ... A file begins where the topology has changed, as in IOSS, or after so
// many states (states_per_file). Over any database of files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mesh/database.hpp"

namespace penstock::mesh {

// "plate.e", "plate.e-s0002": the series counts from 0 here.
std::string series_path(const std::string& name, std::size_t file);

// A database that keeps one model in each of its files.
struct FileDatabase {
  std::function<std::unique_ptr<Source>(const std::string& path)> open;
  std::function<std::unique_ptr<Sink>(const std::string& path, bool resume)> create;
  std::function<bool(const std::string& path)> exists;
  // What an earlier run left of the series, from this file on.
  std::function<void(const std::string& name, std::size_t file)> remove_from;
};

class SeriesSource final : public Source {
 public:
  SeriesSource(FileDatabase files, std::string name);
  std::uint32_t parts() const override { return now_->parts(); }
  const Model& model(std::uint32_t part) override;
  StateOutcome next_state(Timeout deadline) override;
  std::vector<double> times() override;
  void seek(std::uint64_t state) override;
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) override { now_->read(part, slot, rows, out); }

 private:
  std::unique_ptr<Source> open(std::size_t file);
  bool change_to(std::size_t file, std::unique_ptr<Source> source);

  FileDatabase files_;
  std::string name_;
  std::size_t file_ = 0;
  std::unique_ptr<Source> now_;
  std::map<std::uint32_t, Model> models_;                                // by part
  std::vector<std::uint32_t> numbers_;                                   // of the model in each file that was opened
  std::vector<std::vector<double>> times_;                               // of each file but the last
  std::optional<std::pair<std::size_t, std::unique_ptr<Source>>> next_;  // where the next state is
};

class SeriesSink final : public Sink {
 public:
  // states_per_file: 0: as many as come.
  SeriesSink(FileDatabase files, std::string name, std::uint32_t states_per_file, bool resume);
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void close() override;

 private:
  struct Written {
    Slot slot;
    std::vector<std::byte> values;
  };
  void go_on();

  FileDatabase files_;
  std::string name_;
  std::size_t file_ = 0;
  std::uint32_t states_per_file_;
  bool resume_;
  std::unique_ptr<Sink> now_;  // null: the next state begins a file
  Model model_;
  std::vector<Written> written_;  // of the model, where files are to repeat it
  std::uint32_t states_ = 0;      // in the file
  bool begun_ = false;
  bool in_state_ = false;
};

}  // namespace penstock::mesh
