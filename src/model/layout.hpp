// What a step holds and where: the decoded, immutable description of one epoch.
//
// Each writer rank describes its own variables and blocks in a RankLayout; a reader merges all ranks' into an Epoch.
// Epoch::build trusts nothing (its input was decoded from messages) and throws Error(protocol) naming the variable and
// the ranks concerned. Built epochs are immutable and safe to use from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/box_index.hpp"
#include "penstock/stream.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

inline constexpr std::uint32_t max_segments = 64;       // memory segments in a rank's arena
inline constexpr std::size_t max_variables = 1u << 16;  // in an epoch
inline constexpr std::size_t max_name_bytes = 4096;
inline constexpr std::size_t max_blocks = std::size_t{1} << 31;  // of all ranks, so that numbers fit in 32 bits

// A variable as one writer rank defines it.
struct VariableDefinition {
  std::string name;
  DType dtype = DType::none;
  Kind kind = Kind::global_array;
  Order order = Order::row;
  Dims shape;            // global arrays only
  bool min_max = false;  // the rank computes min and max of its blocks
  friend bool operator==(const VariableDefinition&, const VariableDefinition&) = default;
};

// A block as its writer rank put it. Global and local values have a box of no dimensions; a local array's box starts at
// zero. Where strings are concerned `bytes` is whatever the writer says; otherwise it is that of the box's elements, packed.
// strides: none where the elements are packed in the variable's order; else bytes between neighbours, for each dimension (an
// array that is lent where it lies).
struct BlockDefinition {
  std::uint32_t variable = 0;  // index into RankLayout::variables
  Box box;
  std::uint32_t segment = 0;  // of the rank's arena
  std::uint64_t offset = 0;   // within the step's slot in that segment; a multiple of the element size
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> strides = {};
  friend bool operator==(const BlockDefinition&, const BlockDefinition&) = default;
};

// What one writer rank describes: everything of a step but its payload.
struct RankLayout {
  int rank = 0;
  std::vector<VariableDefinition> variables;
  std::vector<BlockDefinition> blocks;  // in the order of puts, all variables
  friend bool operator==(const RankLayout&, const RankLayout&) = default;
};

// Bytes of so many packed elements; empty when that is more than a description may say (2^63 - 1).
std::optional<std::uint64_t> packed_bytes(const Dims& count, std::size_t elem_size);

// What two ranks say of one variable, when one epoch cannot hold both; empty when it can.
std::string disagreement(const VariableDefinition& one, int rank_of_one, const VariableDefinition& other,
                         int rank_of_other);

// Throws Error(protocol) when anything in it is out of bounds or contradicts itself.
void validate(const RankLayout& layout, std::uint32_t segments = max_segments);
// Bytes from the first element to the end of the last one of a box with those strides (none: packed). Empty when that is more
// than a description may say.
std::optional<std::uint64_t> extent_bytes(const Dims& count, std::span<const std::uint64_t> strides,
                                          std::size_t elem_size);

struct Block {
  Box box;  // local values: {i}, {1} of the array that readers see
  int writer_rank = 0;
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> strides = {};  // as in the BlockDefinition
  std::uint32_t rank_block = 0;             // index into the RankLayout's blocks, all variables
  bool min_max = false;                     // the writer computes min and max of it
};

struct VariableLayout {
  VariableInfo info;          // info.blocks == blocks.size()
  std::size_t elem_size = 0;  // 0 for strings
  // By block number: by rank, then by order of put, blocks without elements too. None: no rank put the variable.
  std::vector<Block> blocks;
  // Two blocks may share elements: pieces of a plan must then reach the destination in order.
  bool overlapping = false;

  // Numbers of the blocks that share an element with the box, ascending; global arrays and local values. A block without
  // elements shares none.
  void query(const Box& box, std::vector<std::uint32_t>& out) const { index.query(box, out); }
  BoxIndex index;  // global arrays and local values; empty for other kinds
};

class Epoch {
 public:
  // layouts[r] is rank r's. Throws Error(protocol).
  static std::shared_ptr<const Epoch> build(std::uint64_t number,
                                            std::vector<std::shared_ptr<const RankLayout>> layouts,
                                            std::uint32_t segments = max_segments);

  std::uint64_t number() const { return number_; }
  int ranks() const { return static_cast<int>(layouts_.size()); }
  const RankLayout& rank(int r) const { return *layouts_[static_cast<std::size_t>(r)]; }

  // The variables that a rank put in this epoch's steps, ascending by id. Definitions of ranks that put nothing of a
  // variable do not count: they may still have the shape of an earlier step.
  const std::vector<VariableInfo>& variables() const { return infos_; }
  const VariableLayout* find(std::string_view name) const;  // null when no rank put it
  const VariableLayout* find(std::uint32_t id) const;       // the same
  // Throw Error(not_found) when no rank put it.
  const VariableLayout& variable(std::uint32_t id) const;
  const VariableLayout& variable(std::string_view name) const;
  // The name among variables() that is most like this one; empty when none is.
  std::string nearest(std::string_view name) const;
  // Every variable that a rank defines. Ids are indices of it, in the order in which names first appear by rank.
  const std::vector<VariableLayout>& defined() const { return variables_; }

 private:
  Epoch() = default;
  void merge_definitions(std::vector<std::vector<std::uint32_t>>& ids);
  void add_blocks(const std::vector<std::vector<std::uint32_t>>& ids);
  void finish();

  std::uint64_t number_ = 0;
  std::vector<std::shared_ptr<const RankLayout>> layouts_;
  std::vector<VariableLayout> variables_;
  std::vector<VariableInfo> infos_;
  std::unordered_map<std::string_view, std::uint32_t> by_name_;  // keys live in layouts_
};

}  // namespace penstock::model
