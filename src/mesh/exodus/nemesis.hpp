// Nemesis: a region of several parts in Exodus files of their own, name.PARTS.PART, with what each part shares with the others.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mesh/exodus/exodus_sink.hpp"
#include "mesh/exodus/exodus_source.hpp"

namespace penstock::mesh {

// "mesh.e.16.03": part 3 of 16.
std::string nemesis_path(const std::string& name, std::uint32_t parts, std::uint32_t part);
// How many parts there are files of: the folder is looked through. Throws Error: not_found, invalid_argument (files of several numbers of
// parts).
std::uint32_t nemesis_parts(const std::string& name);

bool has_parts(const std::string& name);
// Whether a part has not got its name yet.
bool is_being_written(const std::string& name);
// Whether the files of a region of so many parts are there, all of them, or not being made.
bool are_there(const std::string& name, std::uint32_t parts);
// What reading would take for the region in place of one of so many parts, complete or not: files of other numbers of parts, and the
// file of one part. parts: 0 for that one, any_parts for none of them.
inline constexpr std::uint32_t any_parts = UINT32_MAX;
std::vector<std::string> files_of_others(const std::string& name, std::uint32_t parts);

// What a part's file lists as shared, nodes or sides of elements: pairs, as a comm set has them.
std::vector<std::int64_t> read_shared(const NetcdfFile& file, bool nodes);

class NemesisSource final : public StoredSource {
 public:
  NemesisSource(std::string name, std::uint32_t parts);
  std::uint32_t parts() const override { return static_cast<std::uint32_t>(files_.size()); }
  const Model& model(std::uint32_t part) override { return part_at(part).model; }
  std::vector<double> times() override;  // of the states that all parts have that were asked for
  void read_stored(std::uint32_t part, Slot slot, StateNumber state, Rows rows, void* out) override;

 private:
  struct Part {
    std::unique_ptr<ExodusSource> file;
    Model model;  // of the file, then comm sets
  };
  Part& part_at(std::uint32_t number);
  std::string name_;
  std::vector<Part> files_;  // opened when first asked for
};

// A rank's file is made once its communication fields are written, which come first: the file begins with them.
class NemesisSink final : public Sink {
 public:
  NemesisSink(std::string name, const MeshOptions& options, std::shared_ptr<Cohort> cohort,
              std::function<void()> before_named = {});
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void abandon_state() override;
  void close() override;

 private:
  struct Shared {  // a comm set's pairs of what is shared and with whom
    std::vector<std::int64_t> pairs;
    bool written = false;
  };
  void make_file();
  void check_pairs() const;
  std::string counts() const;
  static std::vector<std::int64_t> totals_of(const std::vector<std::string>& texts);
  void add_global_sizes(NetcdfFile& file, const std::vector<std::int64_t>& totals);
  void add_kinds(bool nodes, const std::set<std::int64_t>& border);
  void add_shared(bool nodes);
  ExodusSink& file();

  std::string name_;
  std::shared_ptr<Cohort> cohort_;
  ExodusSink file_;
  bool made_ = false;
  Model model_;
  std::vector<std::size_t> in_file_;  // by entity of the model: its number in the file's
  Shared nodes_, sides_;
};

}  // namespace penstock::mesh
