#include "mesh/exodus/shared_sink.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "mesh/join.hpp"
#include "mesh/model_text.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"
#include "stream/api/open.hpp"

namespace penstock::mesh {
namespace {

constexpr std::size_t not_in_file = SIZE_MAX;

std::string describe(const Entity& entity) { return std::string(name_of(entity.type)) + " '" + entity.name + "'"; }

bool is_of_whole(const Entity& entity, const Field& field) {
  return field.role == Role::reduction || entity.type == EntityType::region;
}

// Without what only a part needs: what it shares, and what spreading has noted for join.
Model for_file(Model model) {
  std::erase_if(model.entities, [](const Entity& entity) { return entity.type == EntityType::comm_set; });
  for (auto& entity : model.entities) std::erase_if(entity.fields, is_position);
  model.properties.erase(implicit_ids_property);
  return model;
}

// Merges a rank's part of the entity into that of the ranks before it. A part without members may lack fields. owners: by field, the
// lowest rank that has it.
void merge(Entity& into, const Entity& other, std::uint32_t rank, std::vector<std::uint32_t>& owners) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::invalid_argument, describe(into) + ": " + what + " in all parts");
  };
  if (into.type != other.type || into.name != other.name || into.id != other.id)
    throw Error(Errc::invalid_argument,
                "the parts of a region have the same blocks and sets in the same order, some of "
                "them maybe empty: not " +
                    describe(into) + " in one part and " + describe(other) + " in another");
  if (into.topology.empty()) into.topology = other.topology;
  if (!other.topology.empty() && into.topology != other.topology) refuse("the topology is not the same");
  for (const auto& field : other.fields) {
    const auto known = field_place(into, field.role, field.name);
    if (known == SIZE_MAX) {
      if (into.count > 0 || (into.type == EntityType::region && !is_in_state(field)))
        refuse("field '" + field.name + "' is not");
      into.fields.push_back(field);
      owners.push_back(rank);
    } else if (into.fields[known].dtype != field.dtype || into.fields[known].storage != field.storage) {
      refuse("field '" + field.name + "' is not the same");
    }
  }
  if (other.count > 0)
    for (const auto& field : into.fields)
      if (field_place(other, field.role, field.name) == SIZE_MAX) refuse("field '" + field.name + "' is not");
  into.properties.insert(other.properties.begin(), other.properties.end());
  if (into.members.empty()) into.member_type = other.member_type;
  for (const auto& member : other.members)
    if (std::find(into.members.begin(), into.members.end(), member) == into.members.end())
      into.members.push_back(member);
  if (into.type == EntityType::assembly) into.count = into.members.size();
  const bool counts = into.type != EntityType::region && into.type != EntityType::assembly;
  if (counts) into.count += other.count;
}

// Rows of `size` bytes.
std::vector<std::byte> gathered(const void* values, std::size_t size, const std::vector<std::uint64_t>& rows) {
  std::vector<std::byte> out(rows.size() * size);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(out.data() + i * size, static_cast<const std::byte*>(values) + rows[i] * size, size);
  return out;
}

std::vector<std::int64_t> as_int64(DType dtype, const void* values, std::size_t count) {
  if (dtype == DType::int32) {
    const auto* narrow = static_cast<const std::int32_t*>(values);
    return {narrow, narrow + count};
  }
  if (dtype != DType::int64) throw Error(Errc::invalid_argument, "numbers of nodes and the like are int32 or int64");
  const auto* wide = static_cast<const std::int64_t*>(values);
  return {wide, wide + count};
}

}  // namespace

class SharedSink::Held final : public Source {
 public:
  explicit Held(const Model& model) : model_(model) {}
  void keep(Slot slot, const void* values) {
    const auto& [entity, field] = at(model_, slot);
    const auto* bytes = static_cast<const std::byte*>(values);
    values_[{slot.entity, slot.field}].assign(bytes, bytes + values_of(entity, field) * size_of(field.dtype));
  }
  void each(const std::function<void(Slot, const void*)>& see) const {
    for (const auto& [slot, values] : values_) see({slot.first, slot.second}, values.data());
  }
  std::uint32_t parts() const override { return 1; }
  const Model& model(std::uint32_t) override { return model_; }
  StateOutcome next_state(Timeout) override { return {}; }
  std::vector<double> times() override { return {}; }
  void seek(std::uint64_t) override {}
  void read(std::uint32_t, Slot slot, Rows rows, void* out) override {
    const auto& [entity, field] = at(model_, slot);
    check_rows(entity, field, rows);
    const auto size = size_of(field.dtype) * components_of(field);
    const auto found = values_.find({slot.entity, slot.field});
    if (found == values_.end()) throw Error(Errc::wrong_state, "field '" + field.name + "' has no values");
    std::memcpy(out, found->second.data() + rows.first * size, rows.count * size);
  }

 private:
  const Model& model_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::byte>> values_;
};

void check_shared_options(const std::string& name, const MeshOptions& options) {
  if (options.format == MeshFormat::netcdf4 || options.format == MeshFormat::netcdf4_classic)
    throw Error(Errc::unsupported, name +
                                       ": a shared file has format: offset64 or cdf5; netCDF-4 files are written by "
                                       "each rank (shared: no)");
  if (options.resume != "no")
    throw Error(Errc::unsupported, name + ": several ranks cannot resume a shared file: give the region another path");
}

SharedSink::SharedSink(std::string path, const MeshOptions& options, std::shared_ptr<Cohort> cohort,
                       std::function<void()> before_named)
    : path_(std::move(path)), options_(options), cohort_(std::move(cohort)), before_named_(std::move(before_named)) {}
SharedSink::~SharedSink() = default;

void SharedSink::define(const Model& model) {
  model_ = model;
  held_ = std::make_unique<Held>(model_);
}

void SharedSink::write(Slot slot, const void* values) {
  if (held_) return held_->keep(slot, values);
  if (failure_) return;
  try {
    put(slot, values);
  } catch (const Error& error) {
    failure_ = error;
  }
}

void SharedSink::begin_state(double time) {
  require_agreed();
  if (held_) make_file();
  time_ = time;
  ++begun_;
}

// Times may repeat.
std::string SharedSink::present() const {
  return "state " + std::to_string(begun_) + " (time " + base::format_real(*time_) + ")";
}

// All ranks throw what one of them could not do, or that they end different states: a rank alone may have given one up.
void SharedSink::agree(const std::string& on) {
  const auto all = stream::gather_texts(*cohort_, [&] {
    if (failure_) throw Error(*failure_);
    if (options_.sync) file_->sync();
    return on;
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw Error(Errc::step_voided, path_ + ": rank 0 " + all.front() + ", and rank " + std::to_string(rank) + " " +
                                         all[rank] + ": all ranks end, or give up, the same states");
}

void SharedSink::require_agreed() const {
  if (broken_) throw Error(*broken_);
}

void SharedSink::end_state() {
  agree("ends " + present());
  stream::share_outcome(*cohort_, [&] {  // all values are there: the state counts
    file_->write(times_, DType::float64, states_, {0, 1}, &*time_, 1);
    file_->count_records(states_ + 1);
    if (options_.sync) file_->sync();
  });
  time_.reset();
  ++states_;
}

// The next state takes its place. What has led here is on its way to the caller: that the ranks differ is said by the next call.
void SharedSink::abandon_state() {
  failure_.reset();
  try {
    agree("gives up " + present());
  } catch (const Error& error) {
    broken_ = error;
  }
  time_.reset();
}

void SharedSink::close() {
  require_agreed();
  if (held_) make_file();
  agree("closes the region");
  file_.reset();
}

void SharedSink::make_file() {
  in_file_.clear();  // of an attempt that failed
  owners_.clear();
  entries_.clear();
  columns_.clear();
  numbers_ = {};
  shared_ = {};
  merge_models();
  number_blocks();
  number_sets();
  number_entries();
  take_columns(stream::share_text(*cohort_, [&] { return write_head(); }));
  stream::on_every_rank(*cohort_, [&] {
    file_.emplace(path_ + ".writing", path_);
    held_->each([&](Slot slot, const void* values) { put(slot, values); });
    if (options_.sync) file_->sync();
  });
  held_.reset();
  stream::share_outcome(*cohort_, [&] {
    if (before_named_) before_named_();
    std::error_code error;
    std::filesystem::rename(path_ + ".writing", path_, error);
    if (error) throw Error(Errc::system, path_ + ": cannot rename " + path_ + ".writing: " + error.message());
    if (options_.sync) storage::sync_folder(std::filesystem::absolute(path_).parent_path().string());
  });
}

// Rank 0 makes one model of all of them.
void SharedSink::merge_models() {
  const auto texts = cohort_->gather(to_text(for_file(model_)), 0);
  whole_ = unchecked_model_from_text(stream::share_text(*cohort_, [&] {
    auto whole = unchecked_model_from_text(texts.front());
    for (const auto& entity : whole.entities) owners_.emplace_back(entity.fields.size(), 0);
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
      const auto other = unchecked_model_from_text(texts[rank]);
      if (other.entities.size() != whole.entities.size())
        throw Error(Errc::invalid_argument, "part " + std::to_string(rank) + " has " +
                                                std::to_string(other.entities.size()) +
                                                " blocks, sets and the like, and part 0 has " +
                                                std::to_string(whole.entities.size()) + ": all parts have all of them");
      for (std::size_t e = 0; e < whole.entities.size(); ++e)
        merge(whole.entities[e], other.entities[e], static_cast<std::uint32_t>(rank), owners_[e]);
      whole.properties.insert(other.properties.begin(), other.properties.end());
    }
    return to_text(whole);
  }));
  share_owners();
  std::size_t next = 0;
  for (const auto& entity : model_.entities)
    in_file_.push_back(entity.type == EntityType::comm_set ? not_in_file : next++);
}

void SharedSink::share_owners() {
  const auto text = stream::share_text(*cohort_, [&] {
    std::string all;
    for (const auto& of_entity : owners_)
      for (const auto owner : of_entity) all += std::to_string(owner) + " ";
    return all;
  });
  const auto words = base::split(text, ' ');
  auto next = words.begin();
  owners_.clear();
  for (const auto& entity : whole_.entities)
    for (auto& owner : owners_.emplace_back(entity.fields.size()))
      owner = static_cast<std::uint32_t>(base::parse_integer(*next++, 0, INT32_MAX));
}

// What other parts may have too: the nodes of the comm set, if there are comm sets; else whatever has ids. An element is in one part.
RankRows SharedSink::rows_of_block(std::size_t e, bool by_comm_set) const {
  const auto& entity = model_.entities[e];
  RankRows rows{.count = entity.count};
  const auto ids = field_place(entity, Role::mesh, "ids");
  if (entity.count == 0 || entity.type == EntityType::element_block) return rows;
  if (ids == SIZE_MAX && entity.type != EntityType::node_block) return rows;
  if (ids == SIZE_MAX) throw Error(Errc::invalid_argument, "the nodes have no ids: parts with shared nodes need them");
  auto keys = read_integers(*held_, 0, {e, ids});
  if (!by_comm_set || entity.type != EntityType::node_block) {
    rows.maybe_shared.resize(entity.count);
    for (std::uint64_t row = 0; row < entity.count; ++row) rows.maybe_shared[row] = row;
    rows.keys = std::move(keys);
    return rows;
  }
  if (const auto set = entity_place(model_, EntityType::comm_set, "commset_node"); set != SIZE_MAX) {
    const auto pairs =
        read_integers(*held_, 0, slot_of(model_, EntityType::comm_set, "commset_node", "entity_processor"));
    for (std::size_t i = 0; i < pairs.size(); i += 2) rows.maybe_shared.push_back(static_cast<std::uint64_t>(pairs[i]));
    std::sort(rows.maybe_shared.begin(), rows.maybe_shared.end());
    const auto end = std::unique(rows.maybe_shared.begin(), rows.maybe_shared.end());
    rows.maybe_shared.erase(end, rows.maybe_shared.end());
  }
  for (const auto row : rows.maybe_shared) {
    if (row >= entity.count)
      throw Error(Errc::invalid_argument,
                  "the comm set names node " + std::to_string(row) + " of " + std::to_string(entity.count));
    rows.keys.push_back(keys[row]);
  }
  rows.are_shared = true;
  return rows;
}

void SharedSink::number_blocks() {
  const auto with_sets = stream::gather_texts(*cohort_, [&]() -> std::string {
    return entity_place(model_, EntityType::comm_set, "commset_node") == SIZE_MAX ? "" : "yes";
  });
  const bool by_comm_set = std::find(with_sets.begin(), with_sets.end(), "yes") != with_sets.end();
  std::vector<std::size_t> blocks;
  std::vector<RankRows> rows;
  stream::on_every_rank(*cohort_, [&] {
    for (std::size_t e = 0; e < model_.entities.size(); ++e) {
      if (place_among_numbered(model_.entities[e].type) == numbered_type_count) continue;
      blocks.push_back(e);
      rows.push_back(rows_of_block(e, by_comm_set));
    }
  });
  auto numbered = number_rows(*cohort_, rows);
  rows_.resize(model_.entities.size());
  std::array<std::uint64_t, numbered_type_count> before{};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto type = place_among_numbered(model_.entities[blocks[i]].type);
    for (auto& number : numbered[i].numbers) numbers_[type].push_back(before[type] + number);
    numbered[i].shared.resize(numbered[i].numbers.size());
    shared_[type].insert(shared_[type].end(), numbered[i].shared.begin(), numbered[i].shared.end());
    before[type] += numbered[i].total;
    rows_[blocks[i]] = std::move(numbered[i]);
  }
}

// Members that other parts may list too: those which they have. Sides belong to elements, which one part has.
RankRows SharedSink::rows_of_set(std::size_t e) const {
  const auto& entity = model_.entities[e];
  RankRows rows{.count = entity.count};
  const auto field = field_place(entity, Role::mesh, "members");
  if (field == SIZE_MAX || entity.count == 0 || entity.type == EntityType::assembly) return rows;
  const auto type = place_among_numbered(reference_of(entity, entity.fields[field]).type);
  const auto members = read_integers(*held_, 0, {e, field});
  for (std::uint64_t row = 0; row < entity.count; ++row) {
    const auto member = static_cast<std::uint64_t>(members[row]);
    if (member >= numbers_[type].size())
      throw Error(Errc::invalid_argument, describe(entity) + " names number " + std::to_string(members[row]) + " of " +
                                              std::to_string(numbers_[type].size()));
    if (!shared_[type][member]) continue;
    rows.maybe_shared.push_back(row);
    rows.keys.push_back(static_cast<std::int64_t>(numbers_[type][member]));
  }
  return rows;
}

void SharedSink::number_sets() {
  std::vector<std::size_t> sets;
  std::vector<RankRows> rows;
  stream::on_every_rank(*cohort_, [&] {
    for (std::size_t e = 0; e < model_.entities.size(); ++e) {
      if (in_file_[e] == not_in_file || place_among_numbered(model_.entities[e].type) < numbered_type_count) continue;
      sets.push_back(e);
      rows.push_back(rows_of_set(e));
    }
  });
  auto numbered = number_rows(*cohort_, rows);
  for (std::size_t i = 0; i < sets.size(); ++i) rows_[sets[i]] = std::move(numbered[i]);
  for (std::size_t e = 0; e < model_.entities.size(); ++e) {
    if (in_file_[e] == not_in_file) continue;
    auto& entity = whole_.entities[in_file_[e]];
    if (entity.type != EntityType::region && entity.type != EntityType::assembly) entity.count = rows_[e].total;
  }
}

// The entries of the rows that are this rank's own. Their place in the file is not known yet.
SharedRows SharedSink::own_entries(std::size_t e, std::size_t i) const {
  const auto& entity = model_.entities[e];
  const auto& field = entity.fields[i];
  const auto& rows = rows_[e];
  SharedRows entries{.all_own = rows.all_own, .own_count = rows_of(entity, field)};
  if (rows.all_own) return entries;
  const auto starts = is_ragged(entity, field) ? starts_of(*held_, 0, {e, i}) : std::vector<std::uint64_t>{};
  for (const auto row : rows.own) {
    if (starts.empty()) entries.own.push_back(row);
    else
      for (auto entry = starts[row]; entry < starts[row + 1]; ++entry) entries.own.push_back(entry);
  }
  entries.own_count = entries.own.size();
  return entries;
}

void SharedSink::number_entries() {
  std::vector<RankRows> counts;
  stream::on_every_rank(*cohort_, [&] {
    for (std::size_t e = 0; e < model_.entities.size(); ++e) {
      const auto& entity = model_.entities[e];
      if (in_file_[e] == not_in_file || entity.type == EntityType::region) continue;
      const auto& whole = whole_.entities[in_file_[e]];
      for (std::size_t i = 0; i < whole.fields.size(); ++i) {
        const auto& field = whole.fields[i];
        const bool polygons = field.name == "connectivity" && whole.find("entity_counts", Role::mesh) != nullptr;
        const auto its = field_place(entity, field.role, field.name);
        if (field.role != Role::mesh || !(polygons || field.name == "distribution_factors")) {
          if (its != SIZE_MAX && entity.fields[its].count != 0)
            throw Error(Errc::unsupported, describe(entity) + ": field '" + field.name +
                                               "' is not for a shared file: its entries belong to no rows");
          continue;
        }
        auto entries = its == SIZE_MAX ? SharedRows{} : own_entries(e, its);
        counts.push_back({.count = entries.own_count});
        entries_[{in_file_[e], i}] = std::move(entries);
      }
    }
  });
  const auto numbered = number_rows(*cohort_, counts);
  auto next = numbered.begin();
  for (auto& [place, entries] : entries_) {  // in the order in which they were counted
    entries.first = next->first;
    entries.total = (next++)->total;
    auto& entity = whole_.entities[place.first];
    entity.fields[place.second].count = entries.total == entity.count ? 0 : entries.total;
  }
}

// Rank 0 makes the file, and says where the fields are in it.
std::string SharedSink::write_head() {
  ExodusSink sink(path_, options_);
  auto file = sink.make_file(whole_);
  held_->each([&](Slot slot, const void* values) {  // variables of other programs, of any type
    const auto& entity = model_.entities[slot.entity];
    if (entity.type != EntityType::region) return;
    const auto& field = entity.fields[slot.field];
    const Slot there{in_file_[slot.entity],
                     field_place(whole_.entities[in_file_[slot.entity]], field.role, field.name)};
    if (!sink.place(there).columns.empty())
      write_place(file, sink.place(there), field.dtype, components_of(field), std::nullopt, {0, rows_of(entity, field)},
                  values);
  });
  const auto times = file.find("time_whole")->id;
  file.close();
  const auto header = read_classic_header(file.path()).value();
  Columns all{classic_column(header, {{{.variable = times}}, {}}, 0)};
  for (std::size_t e = 0; e < whole_.entities.size(); ++e)
    for (std::size_t i = 0; i < whole_.entities[e].fields.size(); ++i) {
      const auto& place = sink.place({e, i});
      all.push_back({.begin = place.columns.size()});
      for (std::size_t c = 0; c < place.columns.size(); ++c) all.push_back(classic_column(header, place, c));
    }
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(ClassicColumn)};
}

void SharedSink::take_columns(const std::string& text) {
  Columns all(text.size() / sizeof(ClassicColumn));
  std::memcpy(all.data(), text.data(), text.size());
  auto next = all.begin();
  times_ = *next++;
  for (const auto& entity : whole_.entities) {
    columns_.emplace_back();
    for (std::size_t i = 0; i < entity.fields.size(); ++i) {
      const auto count = static_cast<std::ptrdiff_t>(next->begin);
      columns_.back().emplace_back(next + 1, next + 1 + count);
      next += 1 + count;
    }
  }
}

// This rank's own rows of what it has.
void SharedSink::put(Slot slot, const void* values) {
  const auto& [entity, field] = at(model_, slot);
  const auto e = in_file_[slot.entity];
  const auto i = e == not_in_file ? SIZE_MAX : field_place(whole_.entities[e], field.role, field.name);
  if (i == SIZE_MAX) return;
  const auto& columns = columns_[e][i];
  if (columns.empty()) return;
  if (is_of_whole(entity, field)) {
    if (static_cast<std::uint32_t>(cohort_->rank()) == owners_[e][i] && is_in_state(field))
      put_rows(columns, entity, field, {0, rows_of(entity, field)}, values);
    return;
  }
  const auto entries = entries_.find({e, i});
  const auto& rows = entries == entries_.end() ? rows_[slot.entity] : entries->second;
  const Rows its{rows.first, rows.own_count};
  if (rows.all_own) return put_rows(columns, entity, field, its, values);
  put_rows(columns, entity, field, its, gathered(values, size_of(field.dtype) * components_of(field), rows.own).data());
}

void SharedSink::put_rows(const Columns& columns, const Entity& entity, const Field& field, Rows rows,
                          const void* values) {
  const std::size_t components = components_of(field);
  const auto reference = reference_of(entity, field);
  auto dtype = field.dtype;
  std::vector<std::int64_t> in_file;
  if (reference.type != EntityType::region) {
    in_file = as_int64(dtype, values, rows.count * components);
    translate(DType::int64, in_file.data(), reference.all ? in_file.size() : rows.count, reference.all ? 1 : components,
              numbers_[place_among_numbered(reference.type)]);
    dtype = DType::int64;
    values = in_file.data();
  }
  for (std::size_t c = 0; c < columns.size(); ++c)
    file_->write(columns[c], dtype, states_, rows, static_cast<const std::byte*>(values) + c * size_of(dtype),
                 components);
}

}  // namespace penstock::mesh
