// The seam of mesh databases: where a region comes from and where it goes. Adding one is a folder and a line in databases.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "penstock/mesh_database.hpp"

namespace penstock::mesh {

struct DatabaseRequest {
  std::string name;  // a path, the name of a stream, or what is to be generated
  MeshOptions options;
  std::shared_ptr<Cohort> cohort;
  const Context* context = nullptr;  // database stream
};

struct DatabaseEntry {
  std::string_view name;
  std::unique_ptr<Source> (*open)(const DatabaseRequest&);  // null: cannot be read
  std::unique_ptr<Sink> (*create)(const DatabaseRequest&);  // null: cannot be written
  bool (*takes)(std::string_view name) = nullptr;           // whether a name alone means this database
  bool keeps_structured = false;                            // structured blocks
};

std::span<const DatabaseEntry> databases();
// Throws Error(invalid_argument) with the nearest name.
const DatabaseEntry& database_named(std::string_view name);
// What a name alone means: exodus for a file that is there, what a database takes, else stream.
std::string_view database_of(const std::string& name);

}  // namespace penstock::mesh
