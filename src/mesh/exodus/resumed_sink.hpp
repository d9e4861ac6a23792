// Goes on with a part of a region in an Exodus file that is there: the model must be the same, states are added.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mesh/exodus/exodus_states.hpp"
#include "mesh/exodus/nemesis.hpp"

namespace penstock::mesh {

// The time in MeshOptions::resume, where there is one. Throws Error(invalid_argument).
std::optional<double> time_to_resume_after(const MeshOptions& options);

class ResumedSink final : public Sink {
 public:
  // path: this rank's file. last: states with a later time are dropped.
  ResumedSink(std::string path, std::optional<double> last, std::shared_ptr<Cohort> cohort);
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override { states_->begin(time); }
  void end_state() override { states_->end(); }
  void close() override { states_->close(); }

 private:
  void match(const Model& model, const Model& there, const std::vector<std::vector<Place>>& places);
  std::uint64_t states_to_keep(const std::vector<double>& times) const;
  std::uint64_t in_all_parts(std::uint64_t states) const;

  std::string path_;
  std::optional<double> last_;
  std::shared_ptr<Cohort> cohort_;
  Model model_;
  std::vector<std::vector<Place>> places_;  // as the model's fields
  std::vector<std::int64_t> shared_nodes_, shared_sides_;
  std::optional<ExodusStates> states_;
};

}  // namespace penstock::mesh
