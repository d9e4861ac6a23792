#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.hpp"
#include "mesh/database.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/generated_database.hpp"
#include "mesh/null_database.hpp"
#include "mesh/stream/stream_database.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {

std::span<const DatabaseEntry> databases() {
  static constexpr DatabaseEntry all[] = {{"exodus", &open_exodus, &create_exodus, &is_exodus_name},
                                          {"nemesis", &open_nemesis, &create_nemesis},
                                          {"stream", &open_stream_database, &create_stream_database, nullptr, true},
                                          {"generated", &open_generated, nullptr, &is_generated_name},
                                          {"null", nullptr, &create_null, nullptr, true}};
  return all;
}

const DatabaseEntry& database_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& each : databases()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw Error(Errc::invalid_argument, base::unknown_name("database", name, names));
}

std::string_view database_of(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name, ignored)) return "exodus";
  for (const auto& each : databases())
    if (each.takes != nullptr && each.takes(name)) return each.name;
  return "stream";
}

}  // namespace penstock::mesh
