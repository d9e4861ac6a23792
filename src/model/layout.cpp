#include "model/layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "model/box.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

namespace {

constexpr std::uint64_t max_bytes = std::numeric_limits<std::int64_t>::max();  // so that offsets fit in signed sums

[[noreturn]] void refuse_layout(const RankLayout& layout, const std::string& what) {
  throw Error(Errc::protocol, "rank " + std::to_string(layout.rank) + ": " + what);
}

[[noreturn]] void refuse_layout(const RankLayout& layout, const VariableDefinition& variable, const std::string& what) {
  refuse_layout(layout, "variable '" + variable.name + "': " + what);
}

void validate_definition(const RankLayout& layout, const VariableDefinition& variable) {
  if (variable.name.empty() || variable.name.size() > max_name_bytes)
    refuse_layout(layout, "a variable's name has " + std::to_string(variable.name.size()) + " bytes");
  if (variable.dtype == DType::none || static_cast<std::size_t>(variable.dtype) >= dtype_count)
    refuse_layout(layout, variable, "unknown element type");
  if (variable.kind > Kind::local_value) refuse_layout(layout, variable, "unknown kind");
  if (variable.order > Order::column) refuse_layout(layout, variable, "unknown order");
  if (variable.kind != Kind::global_array && !variable.shape.empty())
    refuse_layout(layout, variable, "only global arrays have a shape");
  if (variable.dtype == DType::string && (variable.kind == Kind::global_array || variable.kind == Kind::local_array))
    refuse_layout(layout, variable, "strings are values, not arrays");
  if (!packed_bytes(variable.shape, size_of(variable.dtype)))
    refuse_layout(layout, variable, "the shape " + to_string(variable.shape) + " is too large");
}

void validate_block(const RankLayout& layout, const BlockDefinition& block, std::uint32_t segments) {
  if (block.variable >= layout.variables.size())
    refuse_layout(layout, "a block names variable " + std::to_string(block.variable) + " of " +
                              std::to_string(layout.variables.size()));
  const VariableDefinition& variable = layout.variables[block.variable];
  if (!is_valid(block.box)) refuse_layout(layout, variable, "a block's box is malformed");
  switch (variable.kind) {
    case Kind::global_array:
      if (!is_within(block.box, variable.shape))
        refuse_layout(layout, variable,
                      "the block " + to_string(block.box) + " is outside " + to_string(variable.shape));
      break;
    case Kind::local_array:
      if (std::any_of(block.box.start.begin(), block.box.start.end(), [](auto start) { return start != 0; }))
        refuse_layout(layout, variable, "a local block does not start at zero");
      break;
    case Kind::global_value:
    case Kind::local_value:
      if (!block.box.count.empty()) refuse_layout(layout, variable, "a value has dimensions");
      break;
  }
  const std::size_t elem_size = size_of(variable.dtype);
  const auto bytes = packed_bytes(block.box.count, elem_size);
  if (!bytes) refuse_layout(layout, variable, "a block is too large");
  if (variable.dtype != DType::string && *bytes != block.bytes)
    refuse_layout(layout, variable,
                  "a block of " + std::to_string(*bytes) + " bytes says that it has " + std::to_string(block.bytes));
  if (block.segment >= segments) refuse_layout(layout, variable, "segment " + std::to_string(block.segment));
  if (!block.strides.empty() && (block.strides.size() != block.box.count.size() || elem_size == 0))
    refuse_layout(layout, variable, "a block has strides of " + std::to_string(block.strides.size()) + " dimensions");
  const auto extent = block.strides.empty() ? block.bytes : extent_bytes(block.box.count, block.strides, elem_size);
  std::uint64_t end = 0;
  if (!extent || __builtin_add_overflow(block.offset, *extent, &end) || end > max_bytes)
    refuse_layout(layout, variable, "a block's offset is out of bounds");
  if (elem_size > 1 && block.offset % elem_size != 0) refuse_layout(layout, variable, "a block is not aligned");
}

std::string describe(const VariableDefinition& variable) {
  constexpr std::string_view kinds[] = {"global array", "local array", "global value", "local value"};
  std::string text = std::string(name_of(variable.dtype)) + ' ' +
                     std::string(kinds[static_cast<std::size_t>(variable.kind)]) +
                     (variable.order == Order::row ? ", row-major" : ", column-major");
  if (variable.kind == Kind::global_array) text += ", shape " + to_string(variable.shape);
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string disagreement(const VariableDefinition& one, int rank_of_one, const VariableDefinition& other,
                         int rank_of_other) {
  if (one.dtype == other.dtype && one.kind == other.kind && one.order == other.order && one.shape == other.shape)
    return "";
  return "variable '" + one.name + "': rank " + std::to_string(rank_of_one) + " has " + describe(one) + ", rank " +
         std::to_string(rank_of_other) + " has " + describe(other);
}

std::optional<std::uint64_t> packed_bytes(const Dims& count, std::size_t elem_size) {
  std::uint64_t bytes = elem_size;
  if (std::find(count.begin(), count.end(), 0u) != count.end()) return 0;
  for (const auto size : count)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  if (bytes > max_bytes) return std::nullopt;
  return bytes;
}

std::optional<std::uint64_t> extent_bytes(const Dims& count, std::span<const std::uint64_t> strides,
                                          std::size_t elem_size) {
  if (strides.empty()) return packed_bytes(count, elem_size);
  std::uint64_t bytes = elem_size;
  for (std::size_t d = 0; d < count.size(); ++d) {
    if (count[d] == 0) return 0;
    std::uint64_t along = 0;
    if (__builtin_mul_overflow(count[d] - 1, strides[d], &along) || __builtin_add_overflow(bytes, along, &bytes))
      return std::nullopt;
  }
  if (bytes > max_bytes) return std::nullopt;
  return bytes;
}

void validate(const RankLayout& layout, std::uint32_t segments) {
  if (layout.rank < 0) refuse_layout(layout, "a negative rank");
  if (layout.variables.size() > max_variables)
    refuse_layout(layout, std::to_string(layout.variables.size()) + " variables are too many");
  std::unordered_set<std::string_view> names;
  for (const auto& variable : layout.variables) {
    validate_definition(layout, variable);
    if (!names.insert(variable.name).second) refuse_layout(layout, variable, "is defined twice");
  }
  for (const auto& block : layout.blocks) validate_block(layout, block, segments);
}

std::shared_ptr<const Epoch> Epoch::build(std::uint64_t number, std::vector<std::shared_ptr<const RankLayout>> layouts,
                                          std::uint32_t segments) {
  std::size_t blocks = 0;
  for (std::size_t r = 0; r < layouts.size(); ++r) {
    if (!layouts[r] || layouts[r]->rank != static_cast<int>(r))
      throw Error(Errc::protocol, "the description of rank " + std::to_string(r) + " is missing");
    validate(*layouts[r], segments);
    blocks += layouts[r]->blocks.size();
  }
  if (blocks > max_blocks) throw Error(Errc::protocol, std::to_string(blocks) + " blocks are too many");
  std::shared_ptr<Epoch> epoch(new Epoch);
  epoch->number_ = number;
  epoch->layouts_ = std::move(layouts);
  std::vector<std::vector<std::uint32_t>> ids;
  epoch->merge_definitions(ids);
  epoch->add_blocks(ids);
  epoch->finish();
  return epoch;
}

// ids[rank][index of a rank's definition] becomes the variable's id.
void Epoch::merge_definitions(std::vector<std::vector<std::uint32_t>>& ids) {
  struct First {  // to put it, or, while none has, to define it
    int rank;
    const VariableDefinition* definition;
    bool put;
  };
  std::vector<First> first;
  std::vector<bool> put;  // by a rank's definitions
  ids.resize(layouts_.size());
  for (std::size_t r = 0; r < layouts_.size(); ++r) {
    const auto rank = static_cast<int>(r);
    put.assign(layouts_[r]->variables.size(), false);
    for (const auto& block : layouts_[r]->blocks) put[block.variable] = true;
    for (std::size_t i = 0; i < put.size(); ++i) {
      const auto& definition = layouts_[r]->variables[i];
      const auto [entry, is_new] = by_name_.try_emplace(definition.name, static_cast<std::uint32_t>(first.size()));
      ids[r].push_back(entry->second);
      if (is_new) {
        if (first.size() == max_variables) throw Error(Errc::protocol, "there are too many variables");
        first.push_back({rank, &definition, put[i]});
        continue;
      }
      auto& known = first[entry->second];
      if (!put[i]) continue;
      if (!known.put) known = {rank, &definition, true};
      if (const auto why = disagreement(*known.definition, known.rank, definition, rank); !why.empty())
        throw Error(Errc::protocol, why);
    }
  }
  variables_.resize(first.size());
  for (std::size_t id = 0; id < first.size(); ++id) {
    const auto& definition = *first[id].definition;
    variables_[id].info = {static_cast<std::uint32_t>(id),
                           definition.name,
                           definition.dtype,
                           definition.kind,
                           definition.order,
                           definition.shape,
                           0};
    variables_[id].elem_size = size_of(definition.dtype);
  }
}

void Epoch::add_blocks(const std::vector<std::vector<std::uint32_t>>& ids) {
  for (std::size_t r = 0; r < layouts_.size(); ++r) {
    const auto& layout = *layouts_[r];
    for (std::size_t i = 0; i < layout.blocks.size(); ++i) {
      const auto& definition = layout.blocks[i];
      auto& variable = variables_[ids[r][definition.variable]];
      Block block{definition.box,
                  static_cast<int>(r),
                  definition.segment,
                  definition.offset,
                  definition.bytes,
                  definition.strides,
                  static_cast<std::uint32_t>(i),
                  layout.variables[definition.variable].min_max};
      if (variable.info.kind == Kind::local_value) block.box = {{variable.blocks.size()}, {1}};
      variable.blocks.push_back(block);
    }
  }
}

void Epoch::finish() {
  infos_.reserve(variables_.size());
  for (auto& variable : variables_) {
    variable.info.blocks = variable.blocks.size();
    const Kind kind = variable.info.kind;
    if (kind == Kind::local_value) variable.info.shape = Dims{variable.info.blocks};
    if (kind == Kind::global_array || kind == Kind::local_value) {
      std::vector<Box> boxes;
      boxes.reserve(variable.blocks.size());
      for (const auto& block : variable.blocks) boxes.push_back(block.box);
      variable.index = BoxIndex(boxes);
    }
    if (kind == Kind::global_array) variable.overlapping = variable.index.any_overlap();
    if (!variable.blocks.empty()) infos_.push_back(variable.info);
  }
}

const VariableLayout* Epoch::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : find(found->second);
}

const VariableLayout* Epoch::find(std::uint32_t id) const {
  return id >= variables_.size() || variables_[id].blocks.empty() ? nullptr : &variables_[id];
}

const VariableLayout& Epoch::variable(std::uint32_t id) const {
  if (const auto* found = find(id)) return *found;
  throw Error(Errc::not_found, "there is no variable " + std::to_string(id));
}

const VariableLayout& Epoch::variable(std::string_view name) const {
  if (const auto* found = find(name)) return *found;
  throw Error(Errc::not_found, "there is no variable '" + std::string(name) + "'");
}

std::string Epoch::nearest(std::string_view name) const {
  const VariableInfo* nearest = nullptr;
  std::size_t distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const auto& info : infos_) {
    const std::size_t d = edit_distance(name, info.name);
    if (d < distance) nearest = &info, distance = d;
  }
  return nearest ? nearest->name : "";
}

}  // namespace penstock::model
