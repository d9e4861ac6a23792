// Models of mesh regions as a stream's reader gets them, and the names that files have. The first byte chooses.
#include <cmath>

#include "fuzz.hpp"
#include "mesh/model_text.hpp"
#include "mesh/storage_names.hpp"
#include "penstock/region.hpp"

using namespace penstock;

namespace {

enum Kind : std::uint8_t { model, storage, topology, components, kinds };

void check_model(std::string_view text) {
  mesh::Model found;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { found = mesh::model_from_text(text); })) return;
  fuzz::check(mesh::model_from_text(mesh::to_text(found)) == found);
  for (const auto& entity : found.entities)
    for (const auto& field : entity.fields) fuzz::check(mesh::values_of(entity, field) >= mesh::rows_of(entity, field));
}

void check_components(std::string_view text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == '\n') names.emplace_back();
    else names.back() += c;
  }
  std::vector<std::string> again;
  for (const auto& field : mesh::join_components(names, DType::float64, mesh::Role::transient)) {
    const auto its = mesh::component_names(field);
    fuzz::check(its.size() == mesh::components_of(field));
    again.insert(again.end(), its.begin(), its.end());
  }
  fuzz::check(again == names);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  mesh::Model whole{.title = "blast", .dimensions = 3};
  whole.qa = {{"penstock", "1", "2026/11/27", "12:00"}};
  whole.properties = {
      {"seed", std::int64_t{7}}, {"scale", 1.5}, {"missing", std::nan("")}, {"sizes", std::vector<std::int64_t>{1, 2}}};
  whole.add({.type = mesh::EntityType::node_block,
             .name = "nodes",
             .id = 1,
             .count = 8,
             .fields = {{.name = "coordinates", .storage = "vector_3d", .role = mesh::Role::mesh}, {.name = "T"}}});
  whole.add({.type = mesh::EntityType::element_block,
             .name = "gas",
             .id = 1,
             .count = 1,
             .topology = "hex8",
             .fields = {{.name = "connectivity", .dtype = DType::int32, .storage = "[8]", .role = mesh::Role::mesh}}});
  whole.add({.type = mesh::EntityType::assembly, .name = "all", .id = 2, .count = 1, .members = {"gas"}});
  return {fuzz::choose(model, mesh::to_text(whole)), fuzz::choose(storage, "sym_tensor_33"),
          fuzz::choose(storage, "[12]"), fuzz::choose(topology, "HEX20"),
          fuzz::choose(components, "D_X\nD_Y\nD_Z\nT\na_01\na_02\na_03\na_04\na_05\na_06\na_07\na_08\na_09\na_10")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  switch (data[0] % kinds) {
    case model: check_model(text); break;
    case storage:
      fuzz::refuses_with({Errc::invalid_argument},
                         [&] { fuzz::check(mesh::storage_named(text).suffixes.size() <= 100'000); });
      break;
    case topology:
      if (const auto* found = mesh::find_topology(text)) fuzz::check(mesh::find_topology(found->name) == found);
      break;
    default: check_components(text);
  }
  return 0;
}
