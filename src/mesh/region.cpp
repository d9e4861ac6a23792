#include "mesh/checked_sink.hpp"
#include "mesh/database.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

DatabaseRequest request_of(const Context& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                           MeshOptions options) {
  options = context.mesh_options_for(name, std::move(options));
  auto path = options.path.empty() ? name : options.path;
  if (path.empty()) throw Error(Errc::invalid_argument, "a mesh region has a name");
  if (options.database.empty()) options.database = database_of(path);
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
  return database.open(request);
}

std::unique_ptr<Sink> create_region(const Context& context, const std::string& name, std::shared_ptr<Cohort> cohort,
                                    MeshOptions options) {
  const auto request = request_of(context, name, std::move(cohort), std::move(options));
  const auto& database = database_named(request.options.database);
  if (database.create == nullptr)
    throw Error(Errc::unsupported, request.name + ": database " + request.options.database + " cannot be written");
  return create_checked(database, request);
}

}  // namespace penstock::mesh
