// Resumes a part of a region in an Exodus file that is there: the model must be the same, states are added. The file is not changed before
// the model's fields were compared on all ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mesh/exodus/exodus_states.hpp"
#include "mesh/exodus/nemesis.hpp"

namespace penstock::mesh {

class ResumedSink final : public Sink {
 public:
  // path: this rank's file. last: states with a later time are dropped.
  ResumedSink(std::string path, std::optional<double> last, std::shared_ptr<Cohort> cohort, bool sync);
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override { states_->end(); }
  void abandon_state() override { states_->abandon(); }
  void close() override;

 private:
  void match(const Model& model, const Model& there, const std::vector<std::vector<Place>>& places);
  void open();
  void settle();
  std::uint64_t states_to_keep(const std::vector<double>& times) const;
  std::uint64_t in_all_parts(std::uint64_t states) const;

  std::string path_;
  std::optional<double> last_;
  std::shared_ptr<Cohort> cohort_;
  bool sync_;
  Model model_;
  std::vector<std::vector<Place>> places_;  // as the model's fields
  std::vector<std::int64_t> shared_nodes_, shared_sides_;
  std::optional<NetcdfFile> there_;  // for reading, until states are written
  std::uint64_t kept_ = 0;           // states
  std::uint64_t found_ = 0;
  std::string difference_;  // of the model's fields
  bool is_settled_ = false;
  std::optional<ExodusStates> states_;
};

}  // namespace penstock::mesh
