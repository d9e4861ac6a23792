// The rows of all ranks of a cohort as one list, each once, rank by rank: how nodes, elements and members of sets are numbered in a file
// that the ranks write together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cohort.hpp"

namespace penstock::mesh {

// This rank's rows of an entity. Those that other ranks may have too are named, each with a key that is the same there.
struct RankRows {
  std::uint64_t count = 0;
  std::vector<std::uint64_t> maybe_shared;  // ascending
  std::vector<std::int64_t> keys;
  bool are_shared = false;  // each of them is, as comm sets say; one that no other rank names is an error of all ranks
};

// A row that several ranks have belongs to the lowest of them.
struct SharedRows {
  std::uint64_t total = 0;
  std::uint64_t first = 0;             // in the list, of those that belong to this rank
  std::vector<std::uint64_t> own;      // rows that belong to this rank; empty where `all_own`
  std::vector<std::uint64_t> numbers;  // by row: where it is in the list
  std::vector<bool> shared;            // by row: whether another rank has it too; empty: none is
  bool all_own = true;
  std::uint64_t own_count = 0;
};

// Collective. Rank 0 has all the keys in memory, 24 bytes for each.
std::vector<SharedRows> number_rows(Cohort& cohort, const std::vector<RankRows>& entities);

}  // namespace penstock::mesh
