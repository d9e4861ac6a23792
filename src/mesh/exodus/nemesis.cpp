#include "mesh/exodus/nemesis.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/text.hpp"
#include "mesh/file_series.hpp"
#include "penstock/error.hpp"
#include "stream/api/open.hpp"

namespace penstock::mesh {
namespace {

constexpr std::uint32_t max_parts = 10'000'000;
constexpr std::int64_t sides_per_element = 10;

const char* kind_of(bool nodes) { return nodes ? "n" : "e"; }

std::vector<std::int64_t> read_integers(const NetcdfFile& file, const std::string& name) {
  const auto* variable = file.find(name);
  if (variable == nullptr) return {};
  std::vector<std::int64_t> values(file.rows_of(*variable));
  file.read(variable->id, DType::int64, {0}, {values.size()}, values.data());
  return values;
}

Entity comm_set(bool nodes, std::uint64_t count) {
  Entity set{.type = EntityType::comm_set,
             .name = nodes ? "commset_node" : "commset_side",
             .id = nodes ? 1 : 2,
             .count = count};
  set.fields = {{.name = "entity_processor", .dtype = DType::int64, .storage = "[2]", .role = Role::communication}};
  return set;
}

}  // namespace

std::vector<std::int64_t> read_shared(const NetcdfFile& file, bool nodes) {
  const std::string kind = kind_of(nodes);
  const auto entities = read_integers(file, nodes ? "n_comm_nids" : "e_comm_eids");
  const auto sides = nodes ? std::vector<std::int64_t>{} : read_integers(file, "e_comm_sids");
  const auto parts = read_integers(file, kind + "_comm_proc");
  if (entities.size() != parts.size() || (!nodes && sides.size() != parts.size()))
    throw Error(Errc::invalid_argument, file.path() + ": its communication maps contradict themselves");
  std::vector<std::int64_t> pairs;
  for (std::size_t i = 0; i < entities.size(); ++i) {
    pairs.push_back(nodes ? entities[i] - 1 : (entities[i] - 1) * sides_per_element + sides[i]);
    pairs.push_back(parts[i]);
  }
  return pairs;
}

std::string nemesis_path(const std::string& name, std::uint32_t parts, std::uint32_t part) {
  const auto count = std::to_string(parts);
  const auto number = std::to_string(part);
  return name + "." + count + "." + std::string(count.size() - number.size(), '0') + number;
}

namespace {

using PartFiles = std::map<std::uint32_t, std::set<std::uint32_t>>;  // by number of parts: which there are

PartFiles part_files(const std::string& name, std::string_view ending_too = {}) {
  namespace fs = std::filesystem;
  const fs::path path(name);
  const auto stem = path.filename().string();
  PartFiles found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path.has_parent_path() ? path.parent_path() : fs::path("."), error)) {
    const auto file = entry.path().filename().string();
    if (!file.starts_with(stem) || !file.ends_with(ending_too)) continue;
    const auto numbers = std::string_view(file).substr(0, file.size() - ending_too.size());
    if (numbers.size() < stem.size()) continue;
    if (const auto ending = parts_in_name(numbers.substr(stem.size()))) found[ending->first].insert(ending->second);
  }
  return found;
}

}  // namespace

bool has_parts(const std::string& name) { return !part_files(name).empty(); }

bool is_being_written(const std::string& name) {
  const auto found = part_files(name);
  const bool lacks_some =
      std::any_of(found.begin(), found.end(), [](const auto& parts) { return parts.second.size() < parts.first; });
  return lacks_some && !part_files(name, ".writing").empty();
}

bool are_there(const std::string& name, std::uint32_t parts) {
  std::error_code ignored;
  bool all = true, some = false, unfinished = false;
  for (std::uint32_t part = 0; part < parts; ++part) {
    const auto path = nemesis_path(name, parts, part);
    const bool is_there = std::filesystem::exists(path, ignored);
    all = all && is_there;
    some = some || is_there;
    unfinished = unfinished || std::filesystem::exists(path + ".writing", ignored);
  }
  return all || (some && !unfinished);
}

std::vector<std::string> files_of_others(const std::string& name, std::uint32_t parts) {
  std::vector<std::string> files;
  for (const auto* ending : {"", ".writing"}) {
    for (const auto& [number, found] : part_files(name, ending))
      if (number != parts)
        for (const auto part : found) files.push_back(nemesis_path(name, number, part) + ending);
    std::error_code ignored;
    if (parts != 0 && std::filesystem::exists(name + ending, ignored)) files.push_back(name + ending);
  }
  return files;
}

std::uint32_t nemesis_parts(const std::string& name) {
  const auto found = part_files(name);
  if (found.empty())
    throw Error(Errc::not_found, name + ": there are no files " + nemesis_path(name, 2, 0) + " or the like");
  if (found.size() > 1)
    throw Error(Errc::invalid_argument, name + ": there are files of " + std::to_string(found.begin()->first) +
                                            " parts and of " + std::to_string(found.rbegin()->first) +
                                            "; remove those of one run");
  const auto& [parts, numbers] = *found.begin();
  if (parts > max_parts)
    throw Error(Errc::invalid_argument, name + ": there are more than " + std::to_string(max_parts) + " parts");
  for (std::uint32_t part = 0; part < parts; ++part)
    if (!numbers.contains(part))
      throw Error(Errc::not_found, nemesis_path(name, parts, part) + ": there is no such file");
  return parts;
}

NemesisSource::NemesisSource(std::string name, std::uint32_t parts) : name_(std::move(name)), files_(parts) {}

NemesisSource::Part& NemesisSource::part_at(std::uint32_t number) {
  check_part(number, files_.size());
  auto& part = files_[number];
  if (part.file) return part;
  auto file = std::make_unique<ExodusSource>(nemesis_path(name_, parts(), number));
  part.model = file->model(0);
  for (const bool nodes : {true, false})
    if (const auto pairs = read_shared(file->file(), nodes); !pairs.empty())
      part.model.add(comm_set(nodes, pairs.size() / 2));
  part.file = std::move(file);
  return part;
}

// Of the states that all parts have; these are the same ones, or a rank has given up one that others have ended.
std::vector<double> NemesisSource::times() {
  auto times = part_at(0).file->times();
  for (std::uint32_t i = 1; i < parts(); ++i) {
    const auto its = part_at(i).file->times();
    times.resize(std::min(times.size(), its.size()));
    for (std::size_t state = 0; state < times.size(); ++state)
      if (times[state] != its[state] && !(std::isnan(times[state]) && std::isnan(its[state])))
        throw Error(Errc::invalid_argument, name_ + ": state " + std::to_string(state) + " has time " +
                                                base::format_real(times[state]) + " in part 0, and " +
                                                base::format_real(its[state]) + " in part " + std::to_string(i) +
                                                ": all ranks write the same states, and give up the same ones");
  }
  return times;
}

void NemesisSource::read_stored(std::uint32_t number, Slot slot, StateNumber state, Rows rows, void* out) {
  auto& part = part_at(number);
  if (slot.entity < part.file->model(0).entities.size()) return part.file->read_stored(0, slot, state, rows, out);
  const auto pairs = read_shared(part.file->file(), part.model.entities.at(slot.entity).name == "commset_node");
  std::copy_n(pairs.begin() + static_cast<std::ptrdiff_t>(2 * rows.first), 2 * rows.count,
              static_cast<std::int64_t*>(out));
}

NemesisSink::NemesisSink(std::string name, const MeshOptions& options, std::shared_ptr<Cohort> cohort,
                         std::function<void()> before_named)
    : name_(std::move(name)),
      cohort_(std::move(cohort)),
      file_(
          nemesis_path(name_, static_cast<std::uint32_t>(cohort_->size()), static_cast<std::uint32_t>(cohort_->rank())),
          options, std::move(before_named)) {}

void NemesisSink::define(const Model& model) {
  model_ = model;
  nodes_.written = sides_.written = true;
  std::size_t next = 0;
  for (const auto& entity : model_.entities) {
    in_file_.push_back(next);
    if (entity.type != EntityType::comm_set) {
      ++next;
      continue;
    }
    const bool nodes = entity.name == "commset_node";
    if (!nodes && entity.name != "commset_side")
      throw Error(Errc::unsupported,
                  "Nemesis has the comm sets commset_node and commset_side, not '" + entity.name + "'");
    if (entity.fields.size() != 1 || entity.fields[0].name != "entity_processor" ||
        entity.fields[0].dtype != DType::int64)
      throw Error(Errc::invalid_argument, "comm set '" + entity.name + "' has one field, entity_processor, of int64");
    (nodes ? nodes_ : sides_).written = entity.count == 0;
  }
  if (nodes_.written && sides_.written) make_file();
}

// Where it is not an error of one rank alone, which would leave the others waiting.
void NemesisSink::check_pairs() const {
  for (const auto* shared : {&nodes_, &sides_})
    for (std::size_t i = 1; i < shared->pairs.size(); i += 2)
      if (shared->pairs[i] < 0 || shared->pairs[i] >= cohort_->size() || shared->pairs[i] == cohort_->rank())
        throw Error(Errc::invalid_argument, "a comm set names part " + std::to_string(shared->pairs[i]) +
                                                ", which is not another one of " + std::to_string(cohort_->size()));
}

void NemesisSink::write(Slot slot, const void* values) {
  const auto& entity = model_.entities.at(slot.entity);
  if (entity.type != EntityType::comm_set) return file().write({in_file_[slot.entity], slot.field}, values);
  auto& shared = entity.name == "commset_node" ? nodes_ : sides_;
  const auto* pairs = static_cast<const std::int64_t*>(values);
  shared = {std::vector<std::int64_t>(pairs, pairs + 2 * entity.count), true};
  if (nodes_.written && sides_.written) make_file();
}

ExodusSink& NemesisSink::file() {
  if (!made_) throw Error(Errc::wrong_state, "communication fields are written first");
  return file_;
}
void NemesisSink::begin_state(double time) { file().begin_state(time); }
void NemesisSink::end_state() { file().end_state(); }
void NemesisSink::abandon_state() { file().abandon_state(); }
void NemesisSink::close() { file().close(); }

// Collective: where one rank fails, all do.
void NemesisSink::make_file() {
  const auto totals = totals_of(stream::gather_texts(*cohort_, [&] {
    check_pairs();
    return counts();
  }));
  stream::on_every_rank(*cohort_, [&] {
    Model without = model_;
    std::erase_if(without.entities, [](const Entity& entity) { return entity.type == EntityType::comm_set; });
    file_.define(without, [&](NetcdfFile& file) {
      const auto global = NetcdfFile::global_attribute;
      file.put_real(global, "nemesis_api_version", 4.11F);
      file.put_real(global, "nemesis_file_version", 2.6F);
      file.define_dimension("num_processors", static_cast<std::size_t>(cohort_->size()));
      file_.add_integers("nem_ftype", "", std::vector<std::int64_t>(1, 0));  // parallel
      add_global_sizes(file, totals);
      add_shared(true);
      add_shared(false);
    });
  });
  made_ = true;
}

namespace {

constexpr std::array counted_types{EntityType::element_block, EntityType::node_set, EntityType::side_set};

}  // namespace

// This part's sizes, with blanks between them: nodes that are its own, elements, then of each block and set: members, factors.
std::string NemesisSink::counts() const {
  std::set<std::int64_t> not_owned;
  for (std::size_t i = 0; i < nodes_.pairs.size(); i += 2)
    if (nodes_.pairs[i + 1] < cohort_->rank()) not_owned.insert(nodes_.pairs[i]);
  std::string text = std::to_string(model_.count_of(EntityType::node_block) - not_owned.size()) + " " +
                     std::to_string(model_.count_of(EntityType::element_block));
  for (const auto type : counted_types)
    for (const auto& entity : model_.entities) {
      if (entity.type != type) continue;
      const auto* factors = entity.find("distribution_factors");
      text +=
          " " + std::to_string(entity.count) + " " + std::to_string(factors != nullptr ? rows_of(entity, *factors) : 0);
    }
  return text;
}

std::vector<std::int64_t> NemesisSink::totals_of(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> totals;
  for (const auto& text : texts) {
    const auto numbers = base::split(text, ' ');
    if (totals.empty()) totals.resize(numbers.size());
    if (numbers.size() != totals.size())
      throw Error(Errc::invalid_argument,
                  "the parts of a region have the same blocks and sets, some of them maybe empty");
    for (std::size_t i = 0; i < totals.size(); ++i)
      totals[i] += static_cast<std::int64_t>(base::parse_integer(numbers[i], 0, INT64_MAX));
  }
  return totals;
}

void NemesisSink::add_global_sizes(NetcdfFile& file, const std::vector<std::int64_t>& totals) {
  for (const auto& [name, total] : {std::pair{"num_nodes_global", totals[0]}, std::pair{"num_elems_global", totals[1]}})
    if (total > 0) file.define_dimension(name, static_cast<std::size_t>(total));
  struct Names {
    const char *dimension, *ids, *counts, *factors;
  };
  static constexpr std::array<Names, 3> names{
      {{"num_el_blk_global", "el_blk_ids_global", "el_blk_cnt_global", nullptr},
       {"num_ns_global", "ns_ids_global", "ns_node_cnt_global", "ns_df_cnt_global"},
       {"num_ss_global", "ss_ids_global", "ss_side_cnt_global", "ss_df_cnt_global"}}};
  std::size_t next = 2;
  for (std::size_t t = 0; t < counted_types.size(); ++t) {
    std::vector<std::int64_t> ids, sizes, factors;
    for (const auto& entity : model_.entities) {
      if (entity.type != counted_types[t]) continue;
      ids.push_back(entity.id);
      sizes.push_back(totals[next++]);
      factors.push_back(totals[next++]);
    }
    file_.add_integers(names[t].ids, names[t].dimension, ids);
    file_.add_integers(names[t].counts, names[t].dimension, sizes);
    if (names[t].factors != nullptr) file_.add_integers(names[t].factors, names[t].dimension, factors);
  }
}

// The nodes or elements of this part alone, and those that others have too.
void NemesisSink::add_kinds(bool nodes, const std::set<std::int64_t>& border) {
  const auto count = model_.count_of(nodes ? EntityType::node_block : EntityType::element_block);
  std::vector<std::int64_t> inside, shared;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::int64_t>(i);
    (border.contains(number) ? shared : inside).push_back(number + 1);
  }
  const std::string kind = nodes ? "node" : "elem";
  const std::string letter = kind_of(nodes);
  file_.add_integers("int_" + letter + "_stat", "num_procs_file", std::vector<std::int64_t>(1, inside.empty() ? 0 : 1));
  file_.add_integers("bor_" + letter + "_stat", "num_procs_file", std::vector<std::int64_t>(1, shared.empty() ? 0 : 1));
  if (nodes) file_.add_integers("ext_n_stat", "num_procs_file", std::vector<std::int64_t>(1, 0));
  file_.add_integers(kind + "_mapi", "num_int_" + kind, std::move(inside));
  file_.add_integers(kind + "_mapb", "num_bor_" + kind, std::move(shared));
}

void NemesisSink::add_shared(bool nodes) {
  const auto& pairs = (nodes ? nodes_ : sides_).pairs;
  std::map<std::int64_t, std::vector<std::int64_t>> by_part;
  std::set<std::int64_t> border;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    by_part[pairs[i + 1]].push_back(pairs[i]);
    border.insert(nodes ? pairs[i] : pairs[i] / sides_per_element);
  }
  add_kinds(nodes, border);
  std::vector<std::int64_t> parts, ends, entities, sides, owners;
  for (const auto& [part, shared] : by_part) {
    parts.push_back(part);
    for (const auto each : shared) {
      entities.push_back((nodes ? each : each / sides_per_element) + 1);
      sides.push_back(each % sides_per_element);
      owners.push_back(part);
    }
    ends.push_back(static_cast<std::int64_t>(entities.size()));
  }
  const std::string kind = kind_of(nodes);
  const std::string maps = "num_" + kind + "_cmaps", total = kind + "cnt_cmap";
  file_.add_integers(kind + "_comm_ids", maps, parts);
  file_.add_integers(kind + "_comm_stat", maps, std::vector<std::int64_t>(parts.size(), 1));
  file_.add_integers(kind + "_comm_data_idx", maps, ends);
  file_.add_integers(nodes ? "n_comm_nids" : "e_comm_eids", total, entities);
  if (!nodes) file_.add_integers("e_comm_sids", total, sides);
  file_.add_integers(kind + "_comm_proc", total, owners);
}

}  // namespace penstock::mesh
