#include "mesh/stream/stream_database.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "mesh/copy.hpp"
#include "mesh/model_text.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr const char* model_variable = "mesh_model";
constexpr const char* time_attribute = "time";
constexpr const char* model_attribute = "mesh_model_step";  // of a state: the step with its model
constexpr const char* state_attribute = "mesh_state";       // its number

// "element_block/bricks/transient/stress"
std::string variable_name(const Entity& entity, const Field& field) {
  return std::string(name_of(entity.type)) + "/" + entity.name + "/" + std::string(name_of(field.role)) + "/" +
         field.name;
}

Dims shape_of(const Entity& entity, const Field& field) {
  const auto components = components_of(field);
  if (components == 1) return {rows_of(entity, field)};
  return {rows_of(entity, field), components};
}

class StreamSink final : public Sink {
 public:
  explicit StreamSink(const DatabaseRequest& request) : request_(request) {}
  void define(const Model& model) override;
  void write(Slot slot, const void* values) override;
  void begin_state(double time) override;
  void end_state() override;
  void abandon_state() override;
  void close() override;

 private:
  void end_model();
  std::uint32_t variable(const std::string& name, DType dtype);
  DatabaseRequest request_;
  Model model_;
  std::uint64_t models_ = 0;      // written by this run
  std::uint64_t abandoned_ = 0;   // states that this rank gave up
  std::int64_t model_step_ = -1;  // of the present one
  std::optional<Variable<std::string>> model_text_;
  std::optional<Writer> writer_;
  std::optional<WriteStep> step_;
  std::map<std::string, std::pair<std::uint32_t, DType>> defined_;  // for all models
  std::vector<std::vector<std::uint32_t>> variables_;
  bool model_written_ = false;
};

// Of the model or of a state of this rank's part, whichever is more; with what a step says about its variables.
std::uint64_t largest_step(const Model& model) {
  constexpr std::uint64_t about = 65'536;
  std::uint64_t of_model = 0, of_state = 0;
  for (const auto& entity : model.entities)
    for (const auto& field : entity.fields)
      (is_in_state(field) ? of_state : of_model) += values_of(entity, field) * size_of(field.dtype);
  return std::max(of_model, of_state) + about;
}

// Readers that come later need the model.
StreamOptions writer_options(const DatabaseRequest& request, const Model& model) {
  StreamOptions options;
  const auto engine = base::writers_engine(request.context->options_for(request.name).engine);
  if (engine == "direct") options.keep_first_step = true;
  if (engine != "space") options.step_bytes = largest_step(model);
  const auto& resume = request.options.resume;
  if (resume != "no" && resume != "append")
    throw Error(Errc::unsupported, request.name + ": a stream is not resumed after a time (" + resume +
                                       "), but with append, or at a step by the stream's own option");
  if (resume != "no") options.resume = resume;
  return options;
}

void StreamSink::define(const Model& model) {
  if (writer_) end_model();
  else
    writer_.emplace(request_.context->create_stream(request_.name, request_.cohort, writer_options(request_, model)));
  model_ = model;
  variables_.clear();
  for (const auto& entity : model_.entities) {
    auto& variables = variables_.emplace_back();
    for (const auto& field : entity.fields) variables.push_back(variable(variable_name(entity, field), field.dtype));
  }
  if (models_++ == 0) model_text_ = writer_->define_value<std::string>(model_variable, Kind::local_value);
  model_written_ = false;
  step_.emplace(writer_->begin_step());
  model_step_ = static_cast<std::int64_t>(step_->number());
  step_->put(*model_text_, to_text(model_));
}

std::uint32_t StreamSink::variable(const std::string& name, DType dtype) {
  if (const auto found = defined_.find(name); found != defined_.end()) {
    if (found->second.second != dtype)
      throw Error(Errc::unsupported, request_.name + ": variable " + name + " was of type " +
                                         std::string(name_of(found->second.second)) + " in an earlier model, and is " +
                                         std::string(name_of(dtype)) + " now");
    return found->second.first;
  }
  const auto number = writer_->define(name, dtype, {}, {.kind = Kind::local_array});
  defined_.emplace(name, std::pair(number, dtype));
  return number;
}

void StreamSink::write(Slot slot, const void* values) {
  const auto& entity = model_.entities.at(slot.entity);
  step_->put(variables_.at(slot.entity).at(slot.field), whole(shape_of(entity, entity.fields.at(slot.field))), values);
}

void StreamSink::end_model() {
  if (std::exchange(model_written_, true)) return;
  std::exchange(step_, std::nullopt)->end();
}

void StreamSink::begin_state(double time) {
  end_model();
  step_.emplace(writer_->begin_step());
  step_->put_attribute(model_attribute, model_step_);
  step_->put_attribute(state_attribute, static_cast<std::int64_t>(step_->number() - models_ - abandoned_));
  step_->put_attribute(time_attribute, time);
}

void StreamSink::end_state() { std::exchange(step_, std::nullopt)->end(); }

void StreamSink::abandon_state() {
  std::exchange(step_, std::nullopt)->abandon();
  ++abandoned_;
}

void StreamSink::close() {
  end_model();
  writer_->close();
}

class StreamSource final : public Source {
 public:
  explicit StreamSource(const DatabaseRequest& request);
  std::uint32_t parts() const override { return static_cast<std::uint32_t>(texts_.size()); }
  const Model& model(std::uint32_t part) override;
  StateOutcome next_state(Timeout deadline) override;
  std::vector<double> times() override;
  void seek(std::uint64_t state) override;
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) override;

 private:
  View view_of(std::uint32_t part, const Entity& entity, const Field& field);
  bool take_model();
  std::int64_t number(const char* attribute) const;
  void keep_model();

  std::string name_;
  Reader reader_;
  std::optional<ReadStep> step_;
  bool in_model_ = true;  // the step is that of the model
  std::int64_t model_step_ = 0;
  std::vector<std::string> texts_;
  std::map<std::uint32_t, Model> models_;
  std::map<std::tuple<std::uint32_t, std::size_t, std::size_t>, View> kept_;  // of the model, once its step has ended
};

StreamSource::StreamSource(const DatabaseRequest& request)
    : name_(request.name), reader_(request.context->open_stream(request.name, request.cohort)) {
  step_.emplace(reader_.begin_step());
  if (!take_model())
    throw Error(Errc::not_found, name_ + ": the first step that is there (" + std::to_string(step_->number()) +
                                     ") holds no model: either this is no mesh region, or its first step is gone");
}

// False: the present step has none.
bool StreamSource::take_model() {
  const auto* text = step_->find(model_variable);
  if (text == nullptr) return false;
  models_.clear();
  kept_.clear();
  texts_ = step_->read_strings(text->id);
  model_step_ = static_cast<std::int64_t>(step_->number());
  return in_model_ = true;
}

std::int64_t StreamSource::number(const char* attribute) const {
  const auto number = step_->attribute(attribute);
  if (!number || number->dtype != DType::int64)
    throw Error(Errc::protocol, name_ + ": a state has no attribute " + attribute);
  return number->as<std::int64_t>();
}

const Model& StreamSource::model(std::uint32_t part) {
  if (part >= texts_.size()) throw Error(Errc::invalid_argument, name_ + " has " + std::to_string(parts()) + " parts");
  const auto found = models_.find(part);
  if (found != models_.end()) return found->second;
  if (!in_model_) throw Error(Errc::wrong_state, name_ + ": a part is asked for before the first state");
  return models_.emplace(part, model_from_text(texts_[part])).first->second;
}

// Of the present step. Blocks are in the order of ranks; a rank without the variable has none.
View StreamSource::view_of(std::uint32_t part, const Entity& entity, const Field& field) {
  const auto& variable = step_->variable(variable_name(entity, field));
  const auto blocks = step_->blocks(variable.id);
  for (std::uint64_t i = 0; i < blocks.size(); ++i) {
    if (static_cast<std::uint32_t>(blocks[i].writer_rank) != part) continue;
    if (variable.dtype != field.dtype || blocks[i].box.count != shape_of(entity, field))
      throw Error(Errc::protocol, name_ + ": variable " + variable.name + " is not as the model says");
    return step_->view(variable.id, Selection::block(i)).front();
  }
  throw Error(Errc::not_found, name_ + ": part " + std::to_string(part) + " has no values of " + variable.name);
}

// Views hold the step's memory.
void StreamSource::keep_model() {
  for (const auto& [part, model] : models_)
    each_model_field(model, [&, part = part, &model = model](Slot slot) {
      const auto& entity = model.entities[slot.entity];
      const auto& field = entity.fields[slot.field];
      if (values_of(entity, field) != 0)
        kept_.emplace(std::tuple(part, slot.entity, slot.field), view_of(part, entity, field));
    });
}

StateOutcome StreamSource::next_state(Timeout deadline) {
  if (in_model_) {
    keep_model();
    in_model_ = false;
  }
  if (step_) std::exchange(step_, std::nullopt)->end();
  auto outcome = reader_.try_begin_step(deadline);
  if (outcome.outcome == Outcome::end_of_stream) return {};
  if (outcome.outcome == Outcome::not_ready) return {StateOutcome::Kind::not_ready, 0, 0};
  if (!outcome.step) throw Error(Errc::writer_lost, name_ + ": the writer is lost");
  step_.emplace(std::move(*outcome.step));
  if (take_model()) return {StateOutcome::Kind::model, 0, 0};
  if (number(model_attribute) != model_step_)
    throw Error(Errc::step_gone, name_ +
                                     ": the topology has changed, and the step with the new model was skipped: open "
                                     "the region before that, or stage it in a pool");
  const auto time = step_->attribute(time_attribute);
  if (!time || time->dtype != DType::float64) throw Error(Errc::protocol, name_ + ": a state has no time");
  return {StateOutcome::Kind::state, time->as<double>(), static_cast<std::uint64_t>(number(state_attribute))};
}

std::vector<double> StreamSource::times() {
  throw Error(Errc::unsupported, name_ + ": the states of a stream are read in order");
}
void StreamSource::seek(std::uint64_t) { static_cast<void>(times()); }

void StreamSource::read(std::uint32_t part, Slot slot, Rows rows, void* out) {
  const auto found = models_.find(part);
  const auto& [entity, field] = at(found != models_.end() ? found->second : model(part), slot);
  check_rows(entity, field, rows);
  if (rows.count == 0) return;
  const bool state = is_in_state(field);
  if (state && (in_model_ || !step_))
    throw Error(Errc::wrong_state, "field '" + field.name + "' has values in states, and none is there");
  const auto kept = kept_.find({part, slot.entity, slot.field});
  const auto view = state || in_model_ ? view_of(part, entity, field) : kept->second;
  const auto size = size_of(field.dtype) * components_of(field);
  std::memcpy(out, view.bytes().data() + rows.first * size, rows.count * size);
}

}  // namespace

std::unique_ptr<Source> open_stream_database(const DatabaseRequest& request) {
  return std::make_unique<StreamSource>(request);
}
std::unique_ptr<Sink> create_stream_database(const DatabaseRequest& request) {
  return std::make_unique<StreamSink>(request);
}

}  // namespace penstock::mesh
