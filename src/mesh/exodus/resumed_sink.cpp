#include "mesh/exodus/resumed_sink.hpp"

#include <algorithm>
#include <cstring>

#include "base/text.hpp"
#include "mesh/exodus/classic_header.hpp"
#include "penstock/error.hpp"
#include "stream/api/open.hpp"

namespace penstock::mesh {
namespace {

bool is_integer(DType dtype) { return dtype == DType::int32 || dtype == DType::int64; }

bool is_alike(const Entity& entity, const Field& field, const Entity& there, const Field& its) {
  return components_of(field) == components_of(its) && rows_of(entity, field) == rows_of(there, its) &&
         (field.dtype == its.dtype || (is_integer(field.dtype) && is_integer(its.dtype)));
}

// Pairs, which a file keeps by part.
std::vector<std::pair<std::int64_t, std::int64_t>> in_order(const std::int64_t* values, std::size_t count) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::size_t i = 0; i < count; ++i) pairs.emplace_back(values[2 * i], values[2 * i + 1]);
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::string describe(const Entity& entity) { return std::string(name_of(entity.type)) + " '" + entity.name + "'"; }

}  // namespace

ResumedSink::ResumedSink(std::string path, std::optional<double> last, std::shared_ptr<Cohort> cohort, bool sync)
    : path_(std::move(path)), last_(last), cohort_(std::move(cohort)), sync_(sync) {}

void ResumedSink::define(const Model& model) {
  model_ = model;
  stream::on_every_rank(*cohort_, [&] {
    ExodusSource source(path_);
    shared_nodes_ = read_shared(source.file(), true);
    shared_sides_ = read_shared(source.file(), false);
    match(model, source.model(0), source.places());
    const auto times = source.times();
    found_ = times.size();
    kept_ = states_to_keep(times);
  });
  kept_ = in_all_parts(kept_);
  stream::on_every_rank(*cohort_, [&] {
    there_.emplace(NetcdfFile::open(path_));
    if (kept_ < found_ && !there_->is_classic())
      throw Error(Errc::unsupported, path_ + ": a netCDF-4 file cannot drop states; copy those that are to stay");
  });
}

// For writing, with the states that stay.
void ResumedSink::open() {
  there_.reset();
  if (kept_ < found_) keep_records(path_, kept_);
  states_.emplace(NetcdfFile::open(path_, true), kept_, path_, nullptr, sync_);
}

// All ranks know whether one of them has other values: none changes its file then.
void ResumedSink::settle() {
  if (is_settled_) return;
  stream::on_every_rank(*cohort_, [&] {
    if (!difference_.empty()) throw Error(Errc::invalid_argument, path_ + ": cannot resume: " + difference_);
  });
  is_settled_ = true;
}

void ResumedSink::begin_state(double time) {
  settle();
  if (!states_) stream::on_every_rank(*cohort_, [&] { open(); });
  states_->begin(time);
}

void ResumedSink::close() {
  settle();
  if (!states_ && kept_ < found_) stream::on_every_rank(*cohort_, [&] { open(); });
  there_.reset();
  if (states_) states_->close();
}

std::uint64_t ResumedSink::states_to_keep(const std::vector<double>& times) const {
  if (!last_) return times.size();
  const auto later = std::find_if(times.begin(), times.end(), [&](double time) { return time > *last_; });
  if (!times.empty() && later == times.begin())
    throw Error(Errc::invalid_argument, path_ + ": all of its states are later than " + base::format_real(*last_));
  return static_cast<std::uint64_t>(later - times.begin());
}

// A crash may have left a state in some parts only.
std::uint64_t ResumedSink::in_all_parts(std::uint64_t states) const {
  for (const auto& text : stream::gather_texts(*cohort_, [&] { return std::to_string(states); }))
    states = std::min(states, static_cast<std::uint64_t>(base::parse_integer(text, 0, INT64_MAX)));
  return states;
}

// Throws Error(invalid_argument), which names what differs.
void ResumedSink::match(const Model& model, const Model& there, const std::vector<std::vector<Place>>& places) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::invalid_argument, path_ + ": cannot resume: " + what);
  };
  for (const auto& its : there.entities) {
    const auto* entity = model.find(its.type, its.name);
    if (entity == nullptr) refuse("it has " + describe(its) + ", and the model has not");
    for (const auto& field : its.fields)
      if (values_of(its, field) != 0 && entity->find(field.name, field.role) == nullptr)
        refuse(describe(its) + " has field '" + field.name + "' there, and not in the model");
  }
  for (const auto& entity : model.entities) {
    auto& found = places_.emplace_back();
    if (entity.type == EntityType::comm_set) continue;
    const auto* its = there.find(entity.type, entity.name);
    if (its == nullptr) refuse("it has no " + describe(entity));
    if (entity.type != EntityType::region && (its->count != entity.count || its->id != entity.id))
      refuse(describe(entity) + " has id " + std::to_string(its->id) + " and " + std::to_string(its->count) +
             " members there, and " + std::to_string(entity.id) + " and " + std::to_string(entity.count) +
             " in the model");
    for (const auto& field : entity.fields) {
      found.emplace_back();
      if (values_of(entity, field) == 0) continue;
      const auto* same = its->find(field.name, field.role);
      if (same == nullptr || !is_alike(entity, field, *its, *same))
        refuse(describe(entity) + ": field '" + field.name + "' is not there, or has another type");
      const auto number = static_cast<std::size_t>(its - there.entities.data());
      found.back() = places[number][static_cast<std::size_t>(same - its->fields.data())];
    }
  }
}

// Model fields are there already, and must be the same.
void ResumedSink::write(Slot slot, const void* values) {
  const auto& [entity, field] = at(model_, slot);
  if (is_in_state(field)) return states_->write(entity, field, places_[slot.entity][slot.field], values);
  const auto rows = rows_of(entity, field);
  std::vector<std::byte> there(values_of(entity, field) * size_of(field.dtype));
  bool same = true;
  if (entity.type == EntityType::comm_set) {
    const auto* given = static_cast<const std::int64_t*>(values);
    const auto& shared = entity.name == "commset_node" ? shared_nodes_ : shared_sides_;
    same = in_order(given, entity.count) == in_order(shared.data(), shared.size() / 2);
  } else if (!there.empty()) {
    read_place(*there_, places_[slot.entity][slot.field], field.dtype, components_of(field), std::nullopt, {0, rows},
               there.data());
    same = std::memcmp(there.data(), values, there.size()) == 0;
  }
  if (!same && difference_.empty())
    difference_ = "field '" + field.name + "' of " + describe(entity) + " has other values there";
}

}  // namespace penstock::mesh
