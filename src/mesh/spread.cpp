#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "mesh/join.hpp"
#include "mesh/numbering.hpp"
#include "mesh/spread.hpp"
#include "mesh/stored_source.hpp"
#include "mesh/structured.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using Numbers = std::vector<std::uint64_t>;

// What a part has of the whole, by number, ascending.
using Owned = std::array<Numbers, numbered_type_count>;

constexpr std::size_t node_type = 0, edge_type = 1, face_type = 2, element_type = 3;

[[noreturn]] void refuse_number(const Entity& entity, const Field& field, std::int64_t value) {
  throw Error(Errc::invalid_argument, std::string(name_of(entity.type)) + " '" + entity.name + "': field '" +
                                          field.name + "' names number " + std::to_string(value) +
                                          ", which is not there");
}

class SpreadSource final : public Source {
 public:
  SpreadSource(std::shared_ptr<Source> source, Assign assign, std::uint32_t parts);
  std::uint32_t parts() const override { return static_cast<std::uint32_t>(parts_.size()); }
  const Model& model(std::uint32_t part) override {
    check_part(part, parts_.size());
    return parts_[part].model;
  }
  StateOutcome next_state(Timeout deadline) override {
    const auto outcome = source_->next_state(deadline);
    if (outcome.kind == StateOutcome::Kind::model) spread_model();
    return outcome;
  }
  std::vector<double> times() override { return source_->times(); }
  void seek(std::uint64_t state) override { source_->seek(state); }
  void read(std::uint32_t part, Slot slot, Rows rows, void* out) override;
  Share share(std::uint32_t part) const;

 private:
  struct Entry {
    Slot slot;        // in the whole; SIZE_MAX: made here
    Numbers entries;  // of a ragged field
    std::vector<std::int64_t> made;
  };
  struct Part {
    Model model;
    Owned owned;
    std::vector<Numbers> rows;  // by entity: of the entity in the whole
    std::vector<std::vector<Entry>> fields;
  };
  void spread_model();
  DType type_of_numbers() const;
  void own_elements(const Assignment& assignment);
  // What the elements and faces that a part has refer to.
  void own_referenced(EntityType from);
  void own_rest();
  void count_ids();
  void make_part(std::uint32_t part);
  void add_entity(Part& part, std::size_t number);
  void add_field(Part& part, std::size_t number, std::size_t field, const Numbers& rows);
  void add_made(Part& part, Field field, std::vector<std::int64_t> values);
  void add_order(Part& part, std::size_t number, const Numbers& rows);
  void add_shared();
  Numbers rows_of_set(Part& part, std::size_t number);
  std::uint64_t before(std::size_t number) const;  // of the entity's type, in the entities before it

  std::shared_ptr<Source> source_;
  Assign assign_;
  Model whole_;
  std::vector<Part> parts_;
  bool complete_ = true;              // no element was left out
  DType number_type_ = DType::int64;  // of ids and positions that are added
  std::array<bool, numbered_type_count> adds_ids_{};
  std::array<bool, numbered_type_count> adds_order_{};
};

SpreadSource::SpreadSource(std::shared_ptr<Source> source, Assign assign, std::uint32_t parts)
    : source_(std::move(source)), assign_(std::move(assign)), parts_(parts) {
  if (source_->parts() != 1) throw Error(Errc::invalid_argument, "only a region of one part is spread; join it first");
  spread_model();
}

void SpreadSource::spread_model() {
  const auto parts = this->parts();
  whole_ = source_->model(0);
  refuse_structured(whole_,
                    "a region with structured blocks is not spread over parts, nor reduced to some of its blocks");
  parts_.assign(parts, {});
  complete_ = true;
  const auto assignment = assign_(whole_);
  const auto elements = whole_.count_of(EntityType::element_block);
  if (assignment.size() != elements)
    throw Error(Errc::invalid_argument, "there are " + std::to_string(elements) + " elements, and parts of " +
                                            std::to_string(assignment.size()));
  for (const auto part : assignment) {
    if (part == no_part) complete_ = false;
    else if (part >= parts)
      throw Error(Errc::invalid_argument,
                  "an element goes to part " + std::to_string(part) + " of " + std::to_string(parts));
  }
  number_type_ = type_of_numbers();
  own_elements(assignment);
  own_referenced(EntityType::element_block);
  own_referenced(EntityType::face_block);
  own_referenced(EntityType::edge_block);
  if (complete_) own_rest();
  count_ids();
  for (std::uint32_t part = 0; part < parts; ++part) make_part(part);
  if (parts > 1) add_shared();
}

std::uint64_t SpreadSource::before(std::size_t number) const {
  std::uint64_t count = 0;
  for (std::size_t e = 0; e < number; ++e)
    if (whole_.entities[e].type == whole_.entities[number].type) count += whole_.entities[e].count;
  return count;
}

// 32 bits suffice, and no field has 64: files stay as narrow as they were.
DType SpreadSource::type_of_numbers() const {
  for (const auto type : numbered_types)
    if (whole_.count_of(type) >= INT32_MAX) return DType::int64;
  for (const auto& entity : whole_.entities)
    for (const auto& field : entity.fields)
      if (field.dtype == DType::int64 && field.role != Role::communication) return DType::int64;
  return DType::int32;
}

void SpreadSource::own_elements(const Assignment& assignment) {
  for (std::uint64_t element = 0; element < assignment.size(); ++element)
    if (assignment[element] != no_part) parts_[assignment[element]].owned[element_type].push_back(element);
}

void SpreadSource::own_referenced(EntityType from) {
  for (std::size_t e = 0; e < whole_.entities.size(); ++e) {
    const auto& entity = whole_.entities[e];
    if (entity.type != from) continue;
    const auto first = before(e);
    for (std::size_t i = 0; i < entity.fields.size(); ++i) {
      const auto reference = reference_of(entity, entity.fields[i]);
      if (reference.type == EntityType::region) continue;
      const auto values = read_integers(*source_, 0, {e, i});
      const bool ragged = is_ragged(entity, entity.fields[i]);
      const auto starts = ragged ? starts_of(*source_, 0, {e, i}) : Numbers{};
      const std::uint64_t width = components_of(entity.fields[i]);
      const auto limit = whole_.count_of(reference.type);
      for (auto& part : parts_) {
        auto& wanted = part.owned[place_among_numbered(reference.type)];
        for (const auto number : part.owned[place_among_numbered(from)]) {
          if (number < first || number >= first + entity.count) continue;
          const auto row = number - first;
          const auto begin = ragged ? starts[row] : row * width, end = ragged ? starts[row + 1] : begin + width;
          for (auto entry = begin; entry < end; ++entry) {
            const auto value = static_cast<std::uint64_t>(values[entry]);
            if (value >= limit) refuse_number(entity, entity.fields[i], values[entry]);
            wanted.push_back(value);
          }
        }
      }
    }
  }
  for (auto& part : parts_)
    for (auto& numbers : part.owned) {
      std::sort(numbers.begin(), numbers.end());
      numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    }
}

// What no element refers to goes to part 0: edges and faces with their nodes, nodes.
void SpreadSource::own_rest() {
  for (const auto type : {edge_type, face_type, node_type}) {
    std::vector<bool> has(whole_.count_of(numbered_types[type]), false);
    for (const auto& part : parts_)
      for (const auto number : part.owned[type])
        if (number < has.size()) has[number] = true;
    auto& first = parts_[0].owned[type];
    const auto size = first.size();
    for (std::uint64_t number = 0; number < has.size(); ++number)
      if (!has[number]) first.push_back(number);
    std::inplace_merge(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(size), first.end());
    if (type == edge_type && first.size() > size) own_referenced(EntityType::edge_block);
    if (type == face_type && first.size() > size) own_referenced(EntityType::face_block);
  }
}

// Whether a type needs ids, or its order kept: ids must be there, and ascend within each block.
void SpreadSource::count_ids() {
  for (std::size_t type = 0; type < numbered_type_count; ++type) {
    bool any = false, all = true, ascending = true;
    for (std::size_t e = 0; e < whole_.entities.size(); ++e) {
      const auto& entity = whole_.entities[e];
      if (entity.type != numbered_types[type] || entity.count == 0) continue;
      const auto ids = field_place(entity, Role::mesh, "ids");
      any = true;
      all = all && ids != SIZE_MAX;
      if (ids == SIZE_MAX) continue;
      const auto values = read_integers(*source_, 0, {e, ids});
      ascending = ascending && std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
    }
    adds_ids_[type] = any && !all;
    adds_order_[type] = any && all && !ascending;
  }
}

void SpreadSource::make_part(std::uint32_t number) {
  auto& part = parts_[number];
  part.model.title = whole_.title;
  part.model.dimensions = whole_.dimensions;
  part.model.qa = whole_.qa;
  part.model.information = whole_.information;
  part.model.properties = whole_.properties;
  std::string implicit;
  for (std::size_t type = 0; type < numbered_type_count; ++type)
    if (adds_ids_[type]) implicit.append(implicit.empty() ? "" : " ").append(name_of(numbered_types[type]));
  if (!implicit.empty() && parts_.size() > 1) part.model.properties[implicit_ids_property] = implicit;
  for (std::size_t e = 0; e < whole_.entities.size(); ++e) add_entity(part, e);
}

void SpreadSource::add_entity(Part& part, std::size_t number) {
  const auto& entity = whole_.entities[number];
  if (entity.type == EntityType::comm_set) return;
  const auto type = place_among_numbered(entity.type);
  Numbers rows;
  if (type < numbered_type_count) {
    const auto first = before(number);
    const auto& owned = part.owned[type];
    const auto begin = std::lower_bound(owned.begin(), owned.end(), first);
    const auto end = std::lower_bound(begin, owned.end(), first + entity.count);
    for (auto each = begin; each != end; ++each) rows.push_back(*each - first);
  } else if (entity.type == EntityType::blob) {
    if (&part == &parts_[0])
      for (std::uint64_t row = 0; row < entity.count; ++row) rows.push_back(row);
  } else if (entity.type != EntityType::assembly && entity.type != EntityType::region) {
    rows = rows_of_set(part, number);
  }
  Entity its = entity;
  its.fields.clear();
  if (entity.type != EntityType::assembly && entity.type != EntityType::region) its.count = rows.size();
  part.model.add(std::move(its));
  part.fields.emplace_back();
  for (std::size_t i = 0; i < entity.fields.size(); ++i)
    if (!is_position(entity.fields[i]))
      add_field(part, number, i, rows);  // of an earlier spread: this one makes its own
  if (type < numbered_type_count || entity.type != EntityType::blob) add_order(part, number, rows);
  part.rows.push_back(std::move(rows));
}

// A member of a set belongs to the parts that have it; a side to the part of its element.
Numbers SpreadSource::rows_of_set(Part& part, std::size_t number) {
  const auto& entity = whole_.entities[number];
  const auto field = field_place(entity, Role::mesh, entity.type == EntityType::side_set ? "element_side" : "members");
  Numbers rows;
  if (field == SIZE_MAX || entity.count == 0) return rows;
  const auto members = read_integers(*source_, 0, {number, field});
  const auto width = members.size() / entity.count;
  const auto reference = reference_of(entity, entity.fields[field]);
  const auto& owned = part.owned[place_among_numbered(reference.type)];
  const auto limit = whole_.count_of(reference.type);
  for (std::uint64_t row = 0; row < entity.count; ++row)
    if (static_cast<std::uint64_t>(members[row * width]) >= limit)
      refuse_number(entity, entity.fields[field], members[row * width]);
  for (std::uint64_t row = 0; row < entity.count; ++row)
    if (std::binary_search(owned.begin(), owned.end(), static_cast<std::uint64_t>(members[row * width])))
      rows.push_back(row);
  return rows;
}

void SpreadSource::add_field(Part& part, std::size_t number, std::size_t field, const Numbers& rows) {
  const auto& entity = whole_.entities[number];
  Field its = entity.fields[field];
  Entry entry{{number, field}, {}, {}};
  if (is_ragged(entity, its)) {
    const auto starts = starts_of(*source_, 0, {number, field});
    for (const auto row : rows)
      for (auto each = starts[row]; each < starts[row + 1]; ++each) entry.entries.push_back(each);
    its.count = entry.entries.size();
  } else if (its.count != 0 && entity.type != EntityType::region) {
    throw Error(Errc::unsupported, std::string(name_of(entity.type)) + " '" + entity.name + "': field '" + its.name +
                                       "' cannot be spread: its entries belong to no rows");
  }
  part.model.entities.back().fields.push_back(std::move(its));
  part.fields.back().push_back(std::move(entry));
}

void SpreadSource::add_made(Part& part, Field field, std::vector<std::int64_t> values) {
  if (values.empty()) return;
  part.model.entities.back().fields.push_back(std::move(field));
  part.fields.back().push_back({{SIZE_MAX, SIZE_MAX}, {}, std::move(values)});
}

void SpreadSource::add_order(Part& part, std::size_t number, const Numbers& rows) {
  if (parts_.size() == 1) return;
  const auto& entity = whole_.entities[number];
  const auto type = place_among_numbered(entity.type);
  std::vector<std::int64_t> values(rows.begin(), rows.end());
  if (type < numbered_type_count) {
    const auto first = static_cast<std::int64_t>(before(number));
    if (adds_ids_[type]) {
      for (auto& value : values) value += first + 1;
      if (entity.find("ids", Role::mesh) == nullptr)
        add_made(part, {.name = "ids", .dtype = number_type_, .role = Role::mesh}, std::move(values));
    } else if (adds_order_[type]) {
      for (auto& value : values) value += first;
      add_made(part, {.name = position_field, .dtype = number_type_, .role = Role::map}, std::move(values));
    }
    return;
  }
  const auto field = field_place(entity, Role::mesh, entity.type == EntityType::side_set ? "element_side" : "members");
  if (field == SIZE_MAX || entity.count == 0) return;
  const auto members = read_integers(*source_, 0, {number, field});
  const std::uint64_t width = members.size() / entity.count;
  const auto key = [&](std::uint64_t row) {
    return width == 2 ? members[2 * row] * 64 + members[2 * row + 1] : members[row];
  };
  bool ascending = true;
  for (std::uint64_t row = 1; row < entity.count; ++row) ascending = ascending && key(row - 1) < key(row);
  if (!ascending)
    add_made(part, {.name = position_field, .dtype = DType::float64, .role = Role::attribute}, std::move(values));
}

// Nodes that several parts have, in the comm set of each.
void SpreadSource::add_shared() {
  std::vector<std::uint32_t> owners(whole_.count_of(EntityType::node_block), 0);
  for (const auto& part : parts_)
    for (const auto node : part.owned[node_type]) ++owners[node];
  struct Shared {
    std::uint64_t node;
    std::uint32_t part;
    std::int64_t number;  // in the part
  };
  std::vector<Shared> shared;
  for (std::uint32_t part = 0; part < parts_.size(); ++part) {
    const auto& owned = parts_[part].owned[node_type];
    for (std::uint64_t i = 0; i < owned.size(); ++i)
      if (owners[owned[i]] > 1) shared.push_back({owned[i], part, static_cast<std::int64_t>(i)});
  }
  std::stable_sort(shared.begin(), shared.end(), [](const Shared& a, const Shared& b) { return a.node < b.node; });
  std::vector<std::vector<std::pair<std::uint32_t, std::int64_t>>> lists(parts_.size());  // other part, own number
  for (auto begin = shared.begin(); begin != shared.end();) {
    const auto end = std::find_if(begin, shared.end(), [&](const Shared& each) { return each.node != begin->node; });
    for (auto ours = begin; ours != end; ++ours)
      for (auto theirs = begin; theirs != end; ++theirs)
        if (ours != theirs) lists[ours->part].emplace_back(theirs->part, ours->number);
    begin = end;
  }
  for (std::uint32_t number = 0; number < parts_.size(); ++number) {
    auto& list = lists[number];
    if (list.empty()) continue;
    std::sort(list.begin(), list.end());
    std::vector<std::int64_t> pairs;
    for (const auto& [other, own] : list) pairs.insert(pairs.end(), {own, static_cast<std::int64_t>(other)});
    auto& part = parts_[number];
    part.model.add({.type = EntityType::comm_set, .name = "commset_node", .id = 1, .count = list.size()});
    part.rows.emplace_back();
    part.fields.emplace_back();
    add_made(part, {.name = "entity_processor", .dtype = DType::int64, .storage = "[2]", .role = Role::communication},
             std::move(pairs));
  }
}

void SpreadSource::read(std::uint32_t number, Slot slot, Rows rows, void* out) {
  check_part(number, parts_.size());
  auto& part = parts_[number];
  const auto& [entity, field] = at(part.model, slot);
  check_rows(entity, field, rows);
  const auto& entry = part.fields.at(slot.entity).at(slot.field);
  const auto components = components_of(field);
  if (entry.slot.entity == SIZE_MAX) {
    const auto* made = entry.made.data() + rows.first * components;
    if (field.dtype == DType::float64) std::copy_n(made, rows.count * components, static_cast<double*>(out));
    else if (field.dtype == DType::int32) std::copy_n(made, rows.count * components, static_cast<std::int32_t*>(out));
    else std::copy_n(made, rows.count * components, static_cast<std::int64_t*>(out));
    return;
  }
  if (field.role == Role::reduction || entity.type == EntityType::region)
    return source_->read(0, entry.slot, rows, out);
  const auto& all =
      is_ragged(whole_.entities[entry.slot.entity], whole_.entities[entry.slot.entity].fields[entry.slot.field])
          ? entry.entries
          : part.rows[slot.entity];
  read_rows(*source_, 0, entry.slot, std::span(all).subspan(rows.first, rows.count), out);
  const auto reference = reference_of(entity, field);
  if (reference.type == EntityType::region) return;
  find_in(field.dtype, out, reference.all ? rows.count * components : rows.count, reference.all ? 1 : components,
          part.owned[place_among_numbered(reference.type)]);
}

Share SpreadSource::share(std::uint32_t number) const {
  const auto& part = parts_[number];
  Share out{part.owned[node_type], part.owned[element_type], {}};
  for (std::size_t e = 0; e < part.model.entities.size(); ++e) {
    if (part.model.entities[e].type != EntityType::comm_set) continue;
    const auto& pairs = part.fields[e].back().made;
    for (std::size_t i = 0; i < pairs.size(); i += 2)
      out.shared.emplace_back(out.nodes[static_cast<std::size_t>(pairs[i])], static_cast<std::uint32_t>(pairs[i + 1]));
  }
  return out;
}

}  // namespace

Assignment assign_linear(const Model& model, std::uint32_t parts) {
  const auto elements = model.count_of(EntityType::element_block);
  Assignment assignment(elements);
  for (std::uint64_t element = 0; element < elements; ++element)
    assignment[element] = static_cast<std::uint32_t>(static_cast<unsigned __int128>(element) * parts / elements);
  return assignment;
}

Assignment assign_blocks(const Model& model, const std::vector<std::string>& blocks) {
  for (const auto& block : blocks) static_cast<void>(model.at(EntityType::element_block, block));
  Assignment assignment;
  for (const auto& entity : model.entities)
    if (entity.type == EntityType::element_block)
      assignment.resize(assignment.size() + entity.count,
                        std::find(blocks.begin(), blocks.end(), entity.name) == blocks.end() ? no_part : 0);
  return assignment;
}

std::unique_ptr<Source> spread(std::shared_ptr<Source> source, Assign assign, std::uint32_t parts) {
  if (parts == 0) throw Error(Errc::invalid_argument, "a region has at least one part");
  return std::make_unique<SpreadSource>(std::move(source), std::move(assign), parts);
}

std::unique_ptr<Source> spread(std::shared_ptr<Source> source, Assignment assignment, std::uint32_t parts) {
  const auto assign = [assignment = std::move(assignment), used = false](const Model&) mutable {
    if (std::exchange(used, true))
      throw Error(Errc::wrong_state,
                  "the topology has changed, and the parts of its elements were given for the old one");
    return assignment;
  };
  return spread(std::move(source), Assign(assign), parts);
}

std::unique_ptr<Source> spread(std::shared_ptr<Source> source, LoadBalance balance) {
  const auto nodes = source->model(0).count_of(EntityType::node_block);
  if (balance.nodes != 0 && balance.nodes != nodes)
    throw Error(Errc::invalid_argument, "the balance is for a mesh with " + std::to_string(balance.nodes) +
                                            " nodes, and there are " + std::to_string(nodes));
  return spread(std::move(source), std::move(balance.assignment), balance.parts);
}

std::vector<Share> shares_of(std::shared_ptr<Source> whole, const LoadBalance& balance) {
  const SpreadSource source(
      std::move(whole), [&](const Model&) { return balance.assignment; }, balance.parts);
  std::vector<Share> out;
  for (std::uint32_t part = 0; part < balance.parts; ++part) out.push_back(source.share(part));
  return out;
}

}  // namespace penstock::mesh
