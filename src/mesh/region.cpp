#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.hpp"
#include "mesh/checked_sink.hpp"
#include "mesh/database.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::array<std::string_view, 6> exodus_endings{".e", ".exo", ".ex2", ".exoII", ".g", ".gen"};

bool is_exodus_path(const std::string& name) {
  const auto ending = std::filesystem::path(name).extension().string();
  return std::find(exodus_endings.begin(), exodus_endings.end(), ending) != exodus_endings.end();
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

DatabaseRequest request_of(const Context& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                           MeshOptions options) {
  options = context.mesh_options_for(name, std::move(options));
  auto path = options.path.empty() ? name : options.path;
  if (path.empty()) throw Error(Errc::invalid_argument, "a mesh region has a name");
  if (options.database.empty()) options.database = is_exodus_path(path) ? "exodus" : "stream";
  return {std::move(path), std::move(options), std::move(cohort), &context};
}

}  // namespace

Slot slot_of(const Model& model, EntityType type, std::string_view entity, std::string_view field) {
  const auto& found = model.at(type, entity);
  const auto& its = found.at(field);
  return {static_cast<std::size_t>(&found - model.entities.data()),
          static_cast<std::size_t>(&its - found.fields.data())};
}

std::unique_ptr<Source> open_region(const Context& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                                    MeshOptions options) {
  const auto request = request_of(context, name, std::move(cohort), std::move(options));
  const auto& database = database_named(request.options.database);
  if (database.open == nullptr)
    throw Error(Errc::unsupported,
                request.name + ": database " + request.options.database + " keeps nothing that could be read");
  // A file that a cohort wrote is several.
  if (database.name == "exodus" && !is_there(request.name)) {
    try {
      return database_named("nemesis").open(request);
    } catch (const Error& e) {
      if (e.code() != Errc::not_found) throw;
    }
  }
  return database.open(request);
}

std::unique_ptr<Sink> create_region(const Context& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                                    MeshOptions options) {
  const auto request = request_of(context, name, std::move(cohort), std::move(options));
  const auto& database = database_named(request.options.database);
  if (database.create == nullptr)
    throw Error(Errc::unsupported, request.name + ": database " + request.options.database + " cannot be written");
  return checked(database.create(request), request.name);
}

}  // namespace penstock::mesh
