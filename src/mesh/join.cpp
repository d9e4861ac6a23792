#include "mesh/join.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "mesh/numbering.hpp"
#include "mesh/stored_source.hpp"
#include "mesh/structured.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

struct Origin {
  std::uint32_t part = 0;
  std::uint64_t row = 0;
};

// A row of a part with what it is sorted by.
struct Keyed {
  std::int64_t key;
  Origin origin;
};

class JoinedSource final : public Source {
 public:
  explicit JoinedSource(std::shared_ptr<Source> source);
  std::uint32_t parts() const override { return 1; }
  const Model& model(std::uint32_t part) override {
    check_part(part, 1);
    return model_;
  }
  StateOutcome next_state(Timeout deadline) override {
    const auto outcome = source_->next_state(deadline);
    if (outcome.kind == StateOutcome::Kind::model) join_model();
    return outcome;
  }
  std::vector<double> times() override { return source_->times(); }
  void seek(std::uint64_t state) override { source_->seek(state); }
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) override;

 private:
  // A field in each part; SIZE_MAX where a part lacks it.
  struct Place {
    std::vector<Slot> slots;
    bool ragged = false;
    std::vector<Origin> entries;  // of a ragged field
  };
  void join_model();
  void add_entity(EntityType type, const std::string& name);
  void add_rows(std::size_t entity);
  void add_rows_of_block(std::size_t entity);
  void add_rows_of_set(std::size_t entity);
  void add_fields(std::size_t entity);
  void add_entries(std::size_t entity, Place& place);
  std::size_t place_in(std::uint32_t part, const Entity& entity) const;
  std::vector<std::int64_t> keys_of(std::uint32_t part, std::size_t place, std::vector<std::int64_t> fallback) const;
  std::vector<std::uint64_t>& numbers(std::uint32_t part, EntityType type) {
    return to_joined_[part][place_among_numbered(type)];
  }
  void settle(std::size_t entity, std::vector<Keyed> keyed, bool unique);

  std::shared_ptr<Source> source_;
  Model model_;
  std::vector<std::vector<Origin>> rows_;   // by entity: where each row comes from
  std::vector<std::vector<Place>> places_;  // by entity and field
  std::vector<std::array<std::vector<std::uint64_t>, numbered_type_count>>
      to_joined_;  // by part: its numbers in the whole
  std::vector<std::string_view> implicit_;
};

JoinedSource::JoinedSource(std::shared_ptr<Source> source) : source_(std::move(source)) { join_model(); }

void JoinedSource::join_model() {
  for (std::uint32_t part = 0; part < source_->parts(); ++part)
    refuse_structured(source_->model(part),
                      "the parts of a region with structured blocks are not joined: open them by number");
  const auto& first = source_->model(0);
  model_ = {};
  rows_.clear();
  places_.clear();
  to_joined_.clear();
  model_.title = first.title;
  model_.dimensions = first.dimensions;
  model_.qa = first.qa;
  model_.information = first.information;
  model_.properties = first.properties;
  if (const auto found = first.properties.find(implicit_ids_property); found != first.properties.end()) {
    if (const auto* text = std::get_if<std::string>(&found->second)) implicit_ = base::split(*text, ' ');
    model_.properties.erase(implicit_ids_property);
  }
  to_joined_.resize(source_->parts());
  for (std::size_t type = 0; type < entity_type_count; ++type) {
    if (static_cast<EntityType>(type) == EntityType::comm_set) continue;
    for (std::uint32_t part = 0; part < source_->parts(); ++part)
      for (const auto& entity : source_->model(part).entities)
        if (entity.type == static_cast<EntityType>(type) && model_.find(entity.type, entity.name) == nullptr)
          add_entity(entity.type, entity.name);
  }
  implicit_.clear();
  check(model_);
}

std::size_t JoinedSource::place_in(std::uint32_t part, const Entity& entity) const {
  return entity_place(source_->model(part), entity.type, entity.name);
}

void JoinedSource::add_entity(EntityType type, const std::string& name) {
  Entity entity{.type = type, .name = name};
  bool seen = false;
  for (std::uint32_t part = 0; part < source_->parts(); ++part) {
    const auto* each = source_->model(part).find(type, name);
    if (each == nullptr) continue;
    if (seen && each->id != entity.id)
      throw Error(Errc::invalid_argument, std::string(name_of(type)) + " '" + name + "' has id " +
                                              std::to_string(entity.id) + " in one part and " +
                                              std::to_string(each->id) + " in part " + std::to_string(part));
    if (!seen) entity.id = each->id;
    seen = true;
    if (entity.topology.empty()) entity.topology = each->topology;
    entity.properties.insert(each->properties.begin(), each->properties.end());
    entity.member_type = each->members.empty() ? entity.member_type : each->member_type;
    for (const auto& member : each->members)
      if (std::find(entity.members.begin(), entity.members.end(), member) == entity.members.end())
        entity.members.push_back(member);
  }
  model_.add(std::move(entity));
  rows_.emplace_back();
  places_.emplace_back();
  const auto number = model_.entities.size() - 1;
  add_rows(number);
  add_fields(number);
}

void JoinedSource::add_rows(std::size_t number) {
  auto& entity = model_.entities[number];
  if (entity.type == EntityType::region) {
    entity.count = 1;
  } else if (entity.type == EntityType::assembly) {
    entity.count = entity.members.size();
  } else if (place_among_numbered(entity.type) < numbered_type_count) {
    add_rows_of_block(number);
  } else if (entity.type == EntityType::blob) {
    std::vector<Keyed> keyed;
    for (std::uint32_t part = 0; part < source_->parts(); ++part)
      if (const auto place = place_in(part, entity); place != SIZE_MAX)
        for (std::uint64_t row = 0; row < source_->model(part).entities[place].count; ++row)
          keyed.push_back({0, {part, row}});
    settle(number, std::move(keyed), false);
  } else {
    add_rows_of_set(number);
  }
}

// By position where that is kept, else by the fallback.
std::vector<std::int64_t> JoinedSource::keys_of(std::uint32_t part, std::size_t place,
                                                std::vector<std::int64_t> fallback) const {
  const auto& entity = source_->model(part).entities[place];
  for (const auto role : {Role::map, Role::attribute})
    if (const auto field = field_place(entity, role, position_field); field != SIZE_MAX)
      return read_integers(*source_, part, {place, field});
  return fallback;
}

void JoinedSource::settle(std::size_t number, std::vector<Keyed> keyed, bool unique) {
  std::stable_sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
  auto& rows = rows_[number];
  for (std::size_t i = 0; i < keyed.size(); ++i)
    if (!unique || i == 0 || keyed[i].key != keyed[i - 1].key) rows.push_back(keyed[i].origin);
  model_.entities[number].count = rows.size();
}

void JoinedSource::add_rows_of_block(std::size_t number) {
  const auto& entity = model_.entities[number];
  std::uint64_t before = 0;  // of the type, in the whole
  for (std::size_t e = 0; e < number; ++e)
    if (model_.entities[e].type == entity.type) before += model_.entities[e].count;
  std::vector<Keyed> keyed;
  bool with_keys = true;
  for (std::uint32_t part = 0; part < source_->parts(); ++part) {
    const auto place = place_in(part, entity);
    if (place == SIZE_MAX) continue;
    const auto& its = source_->model(part).entities[place];
    const auto ids = field_place(its, Role::mesh, "ids");
    auto keys = keys_of(part, place,
                        ids == SIZE_MAX ? std::vector<std::int64_t>{} : read_integers(*source_, part, {place, ids}));
    if (keys.empty() && its.count > 0) {
      with_keys = false;
      if (entity.type == EntityType::node_block && source_->parts() > 1)
        throw Error(Errc::invalid_argument,
                    "part " + std::to_string(part) + " has no ids of nodes: parts with shared nodes need them");
      keys.assign(its.count, 0);
    }
    for (std::uint64_t row = 0; row < its.count; ++row) keyed.push_back({keys[row], {part, row}});
  }
  if (!with_keys)
    for (auto& each : keyed) each.key = 0;
  // Also rows that another part has too get their number in the whole.
  std::stable_sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
  std::uint64_t next = before;
  std::vector<std::uint64_t> base(source_->parts());
  for (std::uint32_t part = 0; part < source_->parts(); ++part) {
    auto& to = numbers(part, entity.type);
    base[part] = to.size();
    const auto place = place_in(part, entity);
    to.resize(to.size() + (place == SIZE_MAX ? 0 : source_->model(part).entities[place].count));
  }
  for (std::size_t i = 0; i < keyed.size(); ++i) {
    const bool again = with_keys && i > 0 && keyed[i].key == keyed[i - 1].key;
    if (!again) ++next;
    numbers(keyed[i].origin.part, entity.type)[base[keyed[i].origin.part] + keyed[i].origin.row] = next - 1;
  }
  settle(number, std::move(keyed), with_keys);
}

void JoinedSource::add_rows_of_set(std::size_t number) {
  const auto& entity = model_.entities[number];
  const bool sides = entity.type == EntityType::side_set;
  std::vector<Keyed> keyed;
  for (std::uint32_t part = 0; part < source_->parts(); ++part) {
    const auto place = place_in(part, entity);
    if (place == SIZE_MAX || source_->model(part).entities[place].count == 0) continue;
    const auto& its = source_->model(part).entities[place];
    const auto field = field_place(its, Role::mesh, sides ? "element_side" : "members");
    if (field == SIZE_MAX)
      throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "' of part " +
                                              std::to_string(part) + " lists no members");
    auto members = read_integers(*source_, part, {place, field});
    const auto reference = reference_of(its, its.fields[field]);
    const std::size_t width = sides ? 2 : 1;
    translate(DType::int64, members.data(), its.count, width, numbers(part, reference.type));
    std::vector<std::int64_t> fallback(its.count);
    for (std::size_t i = 0; i < its.count; ++i)
      fallback[i] = sides ? members[2 * i] * 64 + members[2 * i + 1] : members[i];
    const auto keys = keys_of(part, place, std::move(fallback));
    for (std::uint64_t row = 0; row < its.count; ++row) keyed.push_back({keys.at(row), {part, row}});
  }
  settle(number, std::move(keyed), true);
}

void JoinedSource::add_fields(std::size_t number) {
  auto& entity = model_.entities[number];
  const bool no_ids = std::find(implicit_.begin(), implicit_.end(), name_of(entity.type)) != implicit_.end();
  for (std::uint32_t part = 0; part < source_->parts(); ++part) {
    const auto place = place_in(part, entity);
    if (place == SIZE_MAX) continue;
    const auto& its = source_->model(part).entities[place];
    if (its.count == 0 && entity.count > 0 && entity.type != EntityType::region) continue;
    for (std::size_t i = 0; i < its.fields.size(); ++i) {
      const auto& field = its.fields[i];
      if (is_position(field) || (no_ids && field.role == Role::mesh && field.name == "ids")) continue;
      auto known = field_place(entity, field.role, field.name);
      if (known == SIZE_MAX) {
        known = entity.fields.size();
        entity.fields.push_back(field);
        places_[number].push_back(
            {std::vector<Slot>(source_->parts(), Slot{SIZE_MAX, SIZE_MAX}), is_ragged(its, field), {}});
      }
      const auto& first = entity.fields[known];
      if (first.dtype != field.dtype || first.storage != field.storage)
        throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "': field '" +
                                                field.name + "' is not the same in all parts");
      places_[number][known].slots[part] = {place, i};
    }
  }
  for (std::size_t i = 0; i < entity.fields.size(); ++i) {
    auto& place = places_[number][i];
    if (entity.type == EntityType::region) continue;
    if (!place.ragged && entity.fields[i].count != 0)
      throw Error(Errc::unsupported, std::string(name_of(entity.type)) + " '" + entity.name + "': parts with field '" +
                                         entity.fields[i].name + "' cannot be joined: its entries belong to no rows");
    if (!place.ragged) continue;
    add_entries(number, place);
    entity.fields[i].count = place.entries.size() == entity.count ? 0 : place.entries.size();
  }
}

void JoinedSource::add_entries(std::size_t number, Place& place) {
  std::vector<std::vector<std::uint64_t>> starts(source_->parts());
  for (const auto& row : rows_[number]) {
    auto& its = starts[row.part];
    if (its.empty()) its = starts_of(*source_, row.part, place.slots[row.part]);
    for (auto entry = its[row.row]; entry < its[row.row + 1]; ++entry) place.entries.push_back({row.part, entry});
  }
}

void JoinedSource::read(std::uint32_t, Slot slot, Rows rows, void* out) {
  const auto& [entity, field] = at(model_, slot);
  check_rows(entity, field, rows);
  const auto& place = places_[slot.entity][slot.field];
  if (field.role == Role::reduction || entity.type == EntityType::region) {
    for (std::uint32_t part = 0; part < source_->parts(); ++part)
      if (place.slots[part].entity != SIZE_MAX) return source_->read(part, place.slots[part], rows, out);
    return;
  }
  const auto& origins = place.ragged ? place.entries : rows_[slot.entity];
  const auto components = components_of(field);
  const auto size = size_of(field.dtype) * components;
  std::map<std::uint32_t, std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>>
      by_part;  // rows there, rows here
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    const auto& origin = origins.at(rows.first + i);
    auto& [there, here] = by_part[origin.part];
    there.push_back(origin.row);
    here.push_back(i);
  }
  const auto reference = reference_of(entity, field);
  for (const auto& [part, its] : by_part) {
    const auto& [there, here] = its;
    if (place.slots[part].entity == SIZE_MAX)
      throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "': part " +
                                              std::to_string(part) + " has no field '" + field.name + "'");
    std::vector<std::byte> values(there.size() * size);
    read_rows(*source_, part, place.slots[part], there, values.data());
    if (reference.type != EntityType::region)
      translate(field.dtype, values.data(), reference.all ? there.size() * components : there.size(),
                reference.all ? 1 : components, numbers(part, reference.type));
    for (std::size_t i = 0; i < here.size(); ++i)
      std::memcpy(static_cast<std::byte*>(out) + here[i] * size, values.data() + i * size, size);
  }
}

}  // namespace

std::unique_ptr<Source> join(std::shared_ptr<Source> source) {
  return std::make_unique<JoinedSource>(std::move(source));
}

}  // namespace penstock::mesh
