// Names of the objects that an array in a pool is made of, beside its blocks (block_key.hpp). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/pool.hpp"

namespace penstock::space {

inline constexpr std::string_view namespace_name = "penstock.arrays";
const Namespace& arrays_namespace();

inline constexpr std::string_view array_row_prefix = "array/";
inline constexpr std::size_t max_array_name = 1000;  // bytes
// The record of an array. Throws Error(invalid_argument): an empty or too long name.
Key array_key(std::string_view name);

// Says that blocks of this version may be put. Arrays are known by their id here: a dropped one's versions are not those of
// another array of its name.
inline constexpr std::string_view versions_row_prefix = "version/";
std::string versions_row(std::uint64_t array);
std::string version_column(std::uint64_t version);  // 20 digits
inline constexpr std::string_view going = "going";  // its bytes while it is dropped; before, it has none
// In the row of versions: as long as it is there, versions may begin.
inline constexpr std::string_view open_column = "open";
// There too: the version up to which a group of programs has read, as version_column says it.
std::string reader_column(std::string_view reader);
std::optional<std::string> reader_of_column(std::string_view column);
inline constexpr std::size_t max_reader_name = 200;  // bytes
// Nothing: it is no version's.
std::optional<std::uint64_t> version_of_column(std::string_view column);
// What the rows of all blocks of a version begin with, and no other rows.
std::string blocks_prefix(std::uint64_t array, std::uint64_t version);

}  // namespace penstock::space
