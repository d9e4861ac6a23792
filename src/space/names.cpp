#include "space/names.hpp"

#include <fmt/format.h>

#include <charconv>

#include "penstock/error.hpp"
#include "space/block_key.hpp"

namespace penstock::space {
namespace {

constexpr std::size_t version_digits = 20;
constexpr std::string_view reader_prefix = "read/";

}  // namespace

const Namespace& arrays_namespace() {
  static const Namespace ns = Namespace::named(namespace_name);
  return ns;
}

Key array_key(std::string_view name) {
  if (name.empty() || name.size() > max_array_name)
    throw Error(Errc::invalid_argument, "the name of an array has 1 to " + std::to_string(max_array_name) + " bytes");
  return {std::string(array_row_prefix) + std::string(name), "array"};
}

std::string versions_row(std::uint64_t array) { return fmt::format("{}{:016x}", versions_row_prefix, array); }

std::string version_column(std::uint64_t version) { return fmt::format("{:0{}}", version, version_digits); }

std::optional<std::uint64_t> version_of_column(std::string_view column) {
  std::uint64_t version = 0;
  const auto* end = column.data() + column.size();
  const auto parsed = std::from_chars(column.data(), end, version);
  if (column.size() != version_digits || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return version;
}

std::string reader_column(std::string_view reader) {
  if (reader.empty() || reader.size() > max_reader_name)
    throw Error(Errc::invalid_argument, "the name of a reader has 1 to " + std::to_string(max_reader_name) + " bytes");
  return std::string(reader_prefix) + std::string(reader);
}

std::optional<std::string> reader_of_column(std::string_view column) {
  if (!column.starts_with(reader_prefix)) return std::nullopt;
  const auto reader = column.substr(reader_prefix.size());
  if (reader.empty() || reader.size() > max_reader_name) return std::nullopt;
  return std::string(reader);
}

std::string blocks_prefix(std::uint64_t array, std::uint64_t version) {
  auto row = block_row({array, version, 0});
  row.resize(row.size() - sizeof(std::uint32_t));
  return row;
}

}  // namespace penstock::space
