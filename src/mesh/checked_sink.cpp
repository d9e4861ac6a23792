#include "mesh/checked_sink.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "mesh/numbering.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"
#include "stream/api/open.hpp"

namespace penstock::mesh {
namespace {

class CheckedSink final : public Sink {
 public:
  CheckedSink(const DatabaseEntry& database, const DatabaseRequest& request)
      : database_(database), sink_(database.create(request)), name_(request.name), cohort_(request.cohort) {}
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void abandon_state() override;
  void close() override;

 private:
  enum class Phase { begun, model, between, state, broken, closed };
  [[noreturn]] void refuse(const std::string& why) const { throw Error(Errc::wrong_state, name_ + ": " + why); }
  std::string describe(std::size_t entity, std::size_t field) const;
  void require(std::initializer_list<Phase> phases, const char* call) const;
  void require_all_written() const;
  void check_kept(const Model& model) const;
  void check_numbers(Slot slot, const void* values) const;
  template <class Body>
  void pass_on(Phase then, Body body, bool repeatable = true);

  const DatabaseEntry& database_;
  std::unique_ptr<Sink> sink_;
  std::string name_;
  std::shared_ptr<Cohort> cohort_;
  Phase phase_ = Phase::begun;
  Model model_;
  std::vector<std::vector<bool>> written_;  // model fields; those of the state
};

std::string CheckedSink::describe(std::size_t e, std::size_t i) const {
  const auto& entity = model_.entities[e];
  return "field '" + entity.fields[i].name + "' of " + std::string(name_of(entity.type)) + " '" + entity.name + "'";
}

void CheckedSink::require(std::initializer_list<Phase> phases, const char* call) const {
  for (const auto phase : phases)
    if (phase_ == phase) return;
  static constexpr const char* names[] = {"before define",  "while the model is written",
                                          "between states", "inside of a state",
                                          "after an error", "after close"};
  refuse(std::string(call) + " " + names[static_cast<std::size_t>(phase_)]);
}

void CheckedSink::require_all_written() const {
  const bool state = phase_ == Phase::state;
  for (std::size_t e = 0; e < written_.size(); ++e)
    for (std::size_t i = 0; i < written_[e].size(); ++i) {
      const auto& entity = model_.entities[e];
      if (is_in_state(entity.fields[i]) == state && !written_[e][i] && values_of(entity, entity.fields[i]) != 0)
        refuse(std::string(state ? "the state" : "the model") + " has no values of " + describe(e, i));
    }
}

// Whether the database has a place for all of the model's entities.
void CheckedSink::check_kept(const Model& model) const {
  if (database_.keeps_structured) return;
  for (const auto& entity : model.entities) {
    if (entity.type != EntityType::structured_block) continue;
    std::string others;
    for (const auto& each : databases())
      if (each.keeps_structured) others.append(others.empty() ? "" : ", ").append(each.name);
    throw Error(Errc::unsupported, name_ + ": database " + std::string(database_.name) +
                                       " has no place for structured_block '" + entity.name +
                                       "'; these have: " + others);
  }
}

// Connectivity names nodes, edges or faces that there are. Members of sets are left alone: old files name some that there are not.
void CheckedSink::check_numbers(Slot slot, const void* values) const {
  const auto& entity = model_.entities[slot.entity];
  const auto& field = entity.fields[slot.field];
  if (!field.name.starts_with("connectivity") || field.role != Role::mesh || values == nullptr) return;
  const auto type = reference_of(entity, field).type;
  const auto limit = static_cast<std::int64_t>(model_.count_of(type));
  const auto check = [&]<class T>(const T* numbers) {
    for (std::uint64_t i = 0; i < values_of(entity, field); ++i)
      if (numbers[i] < 0 || numbers[i] >= limit)
        throw Error(Errc::invalid_argument, name_ + ": " + describe(slot.entity, slot.field) + " names number " +
                                                std::to_string(numbers[i]) + " of " + std::to_string(limit) +
                                                " in the " + std::string(name_of(type)) +
                                                "s: numbers count from 0 through all of them");
  };
  if (type == EntityType::region) return;
  if (field.dtype == DType::int32) check(static_cast<const std::int32_t*>(values));
  else if (field.dtype == DType::int64) check(static_cast<const std::int64_t*>(values));
}

// After an error of the database it is only closed. repeatable: a wrong call changes nothing.
template <class Body>
void CheckedSink::pass_on(Phase then, Body body, bool repeatable) {
  const auto before = std::exchange(phase_, Phase::broken);
  try {
    body();
  } catch (const Error& e) {
    const bool unchanged = e.code() == Errc::invalid_argument || e.code() == Errc::wrong_state;
    if (unchanged && repeatable) phase_ = before;
    throw;
  }
  phase_ = then;
}

void CheckedSink::define(const Model& model) {
  require({Phase::begun, Phase::model, Phase::between}, "define");
  if (phase_ == Phase::model) require_all_written();
  const auto define_it = [&] {
    stream::on_every_rank(*cohort_, [&] {
      check(model);
      check_kept(model);
    });
    sink_->define(model);
  };
  pass_on(Phase::model, define_it, false);
  model_ = model;
  written_.clear();
  for (const auto& entity : model_.entities) written_.emplace_back(entity.fields.size(), false);
}

void CheckedSink::write(Slot slot, const void* values) {
  require({Phase::model, Phase::between, Phase::state}, "write");
  if (slot.entity >= written_.size() || slot.field >= written_[slot.entity].size())
    throw Error(Errc::invalid_argument, name_ + ": the model has no such field");
  const bool state = phase_ == Phase::state;
  if (is_in_state(model_.entities[slot.entity].fields[slot.field]) != state)
    refuse((state ? "inside of a state: " : "outside of a state: ") + describe(slot.entity, slot.field));
  if (phase_ == Phase::between) refuse("the model is complete: " + describe(slot.entity, slot.field));
  if (written_[slot.entity][slot.field]) refuse("there are values already of " + describe(slot.entity, slot.field));
  check_numbers(slot, values);
  const auto& entity = model_.entities[slot.entity];
  if (values == nullptr && values_of(entity, entity.fields[slot.field]) != 0)
    throw Error(Errc::invalid_argument, name_ + ": no values are given of " + describe(slot.entity, slot.field));
  pass_on(phase_, [&] { sink_->write(slot, values); });
  written_[slot.entity][slot.field] = true;
}

void CheckedSink::begin_state(double time) {
  require({Phase::model, Phase::between}, "begin_state");
  if (phase_ == Phase::model) require_all_written();
  pass_on(Phase::state, [&] { sink_->begin_state(time); });
  for (auto& entity : written_) entity.assign(entity.size(), false);
}

void CheckedSink::end_state() {
  require({Phase::state}, "end_state");
  require_all_written();
  pass_on(Phase::between, [&] { sink_->end_state(); });
}

void CheckedSink::abandon_state() {
  if (phase_ == Phase::broken) return;  // readers do not see the state
  require({Phase::state}, "abandon_state");
  pass_on(Phase::between, [&] { sink_->abandon_state(); });
}

void CheckedSink::close() {
  require({Phase::model, Phase::between, Phase::broken}, "close");
  if (phase_ == Phase::model) require_all_written();
  if (phase_ == Phase::broken) {  // what is incomplete stays so
    sink_.reset();
    phase_ = Phase::closed;
    return;
  }
  pass_on(Phase::closed, [&] { sink_->close(); });
}

}  // namespace

std::unique_ptr<Sink> create_checked(const DatabaseEntry& database, const DatabaseRequest& request) {
  return std::make_unique<CheckedSink>(database, request);
}

}  // namespace penstock::mesh
