// The C API: co-processing.
#include "penstock/coprocessor.h"

#include "base/config.hpp"
#include "capi/capi.hpp"
#include "penstock/coprocessor.hpp"

using namespace penstock;
using namespace penstock::capi;

struct penstock_coprocessor {
  Coprocessor coprocessor;
  std::map<std::string, std::string, std::less<>> strings;  // handed out
  std::optional<CoprocessStep> step;                        // after coprocessor: destroyed before it
};

namespace penstock::capi {
namespace {

static_assert(static_cast<int>(PENSTOCK_ELEMENT) == static_cast<int>(Association::element));

Coprocessor& of(penstock_coprocessor* handle) { return need(handle, "coprocessor").coprocessor; }
CoprocessStep& step_of(penstock_coprocessor* handle) { return open_step(handle, "coprocessor"); }

// Each option goes where its name stands; one that is in neither is reported with the names of streams'.
void set_option(CoprocessorOptions& options, StreamOptions& stream, const std::string& key, const std::string& value) {
  try {
    penstock::set_option(options, key, value);
  } catch (const Error& error) {
    if (error.code() != Errc::unknown_option) throw;
    base::set_option(stream, key.empty() ? "engine" : key, value, base::Side::writer);
  }
}

MeshShape shape_of(const penstock_mesh& from) {
  const auto shape = dims_of(from.ndims, from.shape, "shape");
  const auto axes = text_of(from.axes);
  const Vector3 origin{from.origin[0], from.origin[1], from.origin[2]};
  const Vector3 spacing{from.spacing[0], from.spacing[1], from.spacing[2]};
  auto names = texts_of(from.coordinates_count, from.coordinates, "a name of coordinates");
  switch (enum_of(from.type, PENSTOCK_MESH_MULTIBLOCK, "a mesh's type")) {
    case PENSTOCK_MESH_UNIFORM: return UniformMesh{shape, axes, origin, spacing};
    case PENSTOCK_MESH_RECTILINEAR: return RectilinearMesh{shape, axes, std::move(names)};
    case PENSTOCK_MESH_CURVILINEAR: return CurvilinearMesh{shape, axes, std::move(names)};
    case PENSTOCK_MESH_PARTICLES: return ParticleMesh{std::move(names)};
    case PENSTOCK_MESH_AMR:
      return AmrMesh{shape,
                     axes,
                     from.ghost_layers,
                     origin,
                     spacing,
                     from.refinement,
                     text_of(from.levels),
                     text_of(from.indices),
                     text_of(from.splits),
                     from.depth};
    case PENSTOCK_MESH_MULTIBLOCK: return MultiblockMesh{std::move(names)};
    case PENSTOCK_MESH_UNSTRUCTURED: break;
  }
  UnstructuredMesh mesh{std::move(names), {}};
  for (std::size_t i = 0; i < from.blocks_count; ++i) {
    const auto& block = (&need(from.blocks, "blocks"))[i];
    mesh.blocks.push_back({text_of(block.name), block.id, text_of(block.topology), text_of(block.connectivity),
                           text_of(block.offsets), text_of(block.topologies)});
  }
  return mesh;
}

std::span<const std::int64_t> strides_of(std::size_t ndims, const std::int64_t* strides) {
  return strides ? std::span(strides, ndims) : std::span<const std::int64_t>();
}

// The step is over whether or not it ended well.
template <class Finish>
void finish(penstock_coprocessor* handle, Finish how) {
  auto& step = step_of(handle);
  struct Reset {
    penstock_coprocessor* handle;
    ~Reset() { handle->step.reset(); }
  } reset{handle};
  how(step);
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

int penstock_coprocessor_create(penstock_context* context, const char* channel, const penstock_cohort* cohort,
                                const char* options, penstock_coprocessor** coprocessor, penstock_error* error) {
  return guarded(error, [&] {
    auto owned = cohort_of(cohort);
    need(coprocessor, "coprocessor");
    CoprocessorOptions chosen;
    StreamOptions stream;
    for_each_option(options, [&](const std::string& key, const std::string& value) {
      capi::set_option(chosen, stream, key, value);
    });
    *coprocessor = new penstock_coprocessor{
        Coprocessor(need(context, "context").context, &need(channel, "channel"), std::move(owned), chosen, stream),
        {},
        {}};
  });
}

void penstock_coprocessor_destroy(penstock_coprocessor* coprocessor) { delete coprocessor; }

int penstock_coprocessor_finalize(penstock_coprocessor* coprocessor, int64_t timeout_ms, int* status,
                                  penstock_error* error) {
  return guarded(error, [&] {
    need(coprocessor, "coprocessor").step.reset();
    const auto code = of(coprocessor).finalize(timeout_of(timeout_ms));
    if (status) *status = code;
  });
}

int penstock_coprocessor_lose(penstock_coprocessor* coprocessor, penstock_error* error) {
  return guarded(error, [&] {
    need(coprocessor, "coprocessor").step.reset();
    of(coprocessor).lose();
  });
}

int penstock_coprocessor_add_pipeline(penstock_coprocessor* coprocessor, const char* path, penstock_error* error) {
  return guarded(error, [&] { of(coprocessor).add_pipeline(&need(path, "path")); });
}

int penstock_coprocessor_set_mesh(penstock_coprocessor* coprocessor, const char* name, const penstock_mesh* mesh,
                                  penstock_error* error) {
  return guarded(error, [&] {
    penstock_mesh known = penstock_mesh_of(PENSTOCK_MESH_UNIFORM);
    copy_grown(need(mesh, "mesh"), &known, std::min(mesh->struct_size, sizeof known));
    of(coprocessor)
        .set_mesh(&need(name, "name"),
                  {shape_of(known), text_of(known.ghosts), text_of(known.node_ids), text_of(known.element_ids)});
  });
}

int penstock_coprocessor_field(penstock_coprocessor* coprocessor, const char* mesh, const char* name, int dtype,
                               const penstock_field_options* options, uint32_t* field, penstock_error* error) {
  return guarded(error, [&] {
    FieldOptions chosen;
    if (options) {
      chosen.association = enum_of(options->association, Association::element, "an association");
      chosen.components = options->components == 0 ? 1 : options->components;
      chosen.units = text_of(options->units);
      chosen.variable = text_of(options->variable);
      chosen.order = enum_of(options->order, Order::column, "an order");
      chosen.min_max = options->min_max != 0;
    }
    need(field, "field") =
        of(coprocessor).field(&need(mesh, "mesh"), &need(name, "name"), capi::dtype_of(dtype), chosen);
  });
}

int penstock_coprocessor_structure(penstock_coprocessor* coprocessor, const char* mesh, const char* variable, int dtype,
                                   int order, uint32_t* field, penstock_error* error) {
  return guarded(error, [&] {
    need(field, "field") = of(coprocessor)
                               .structure(&need(mesh, "mesh"), &need(variable, "variable"), capi::dtype_of(dtype),
                                          enum_of(order, Order::column, "an order"));
  });
}

int penstock_coprocessor_declare_double(penstock_coprocessor* coprocessor, const char* name, double value, double least,
                                        double greatest, penstock_error* error) {
  return guarded(error, [&] { of(coprocessor).declare(&need(name, "name"), value, least, greatest); });
}
int penstock_coprocessor_declare_int(penstock_coprocessor* coprocessor, const char* name, int64_t value, int64_t least,
                                     int64_t greatest, penstock_error* error) {
  return guarded(error, [&] { of(coprocessor).declare(&need(name, "name"), value, least, greatest); });
}
int penstock_coprocessor_declare_bool(penstock_coprocessor* coprocessor, const char* name, int value,
                                      penstock_error* error) {
  return guarded(error, [&] { of(coprocessor).declare(&need(name, "name"), value != 0); });
}
int penstock_coprocessor_declare_string(penstock_coprocessor* coprocessor, const char* name, const char* value,
                                        penstock_error* error) {
  return guarded(error, [&] { of(coprocessor).declare(&need(name, "name"), std::string(&need(value, "value"))); });
}

int penstock_coprocessor_double(penstock_coprocessor* coprocessor, const char* name, double* value,
                                penstock_error* error) {
  return guarded(error, [&] { need(value, "value") = of(coprocessor).value<double>(&need(name, "name")); });
}
int penstock_coprocessor_int(penstock_coprocessor* coprocessor, const char* name, int64_t* value,
                             penstock_error* error) {
  return guarded(error, [&] { need(value, "value") = of(coprocessor).value<std::int64_t>(&need(name, "name")); });
}
int penstock_coprocessor_bool(penstock_coprocessor* coprocessor, const char* name, int* value, penstock_error* error) {
  return guarded(error, [&] { need(value, "value") = of(coprocessor).value<bool>(&need(name, "name")); });
}
int penstock_coprocessor_string(penstock_coprocessor* coprocessor, const char* name, const char** value,
                                penstock_error* error) {
  return guarded(error, [&] {
    need(value, "value");
    auto text = of(coprocessor).value<std::string>(&need(name, "name"));
    *value = (coprocessor->strings[name] = std::move(text)).c_str();
  });
}

int penstock_coprocessor_request(penstock_coprocessor* coprocessor, int64_t cycle, double time, int* wanted,
                                 penstock_error* error) {
  return guarded(error, [&] {
    need(wanted, "wanted");
    auto step = of(coprocessor).request(cycle, time);
    *wanted = step.has_value();
    if (step) coprocessor->step.emplace(std::move(*step));
  });
}

int penstock_coprocessor_wants(penstock_coprocessor* coprocessor, uint32_t field, int* wanted, penstock_error* error) {
  return guarded(error, [&] { need(wanted, "wanted") = step_of(coprocessor).wants(field); });
}

int penstock_coprocessor_put(penstock_coprocessor* coprocessor, uint32_t field, size_t ndims, const uint64_t* start,
                             const uint64_t* count, const void* data, const int64_t* strides, penstock_error* error) {
  return guarded(
      error, [&] { step_of(coprocessor).put(field, box_of(ndims, start, count), data, strides_of(ndims, strides)); });
}

int penstock_coprocessor_lend(penstock_coprocessor* coprocessor, uint32_t field, size_t ndims, const uint64_t* start,
                              const uint64_t* count, const void* data, const int64_t* strides, penstock_error* error) {
  return guarded(
      error, [&] { step_of(coprocessor).lend(field, box_of(ndims, start, count), data, strides_of(ndims, strides)); });
}

int penstock_coprocessor_put_span(penstock_coprocessor* coprocessor, uint32_t field, size_t ndims,
                                  const uint64_t* start, const uint64_t* count, void** data, size_t* size,
                                  penstock_error* error) {
  return guarded(error, [&] {
    need(data, "data");
    const auto span = step_of(coprocessor).put_span(field, box_of(ndims, start, count));
    *data = span.data();
    if (size) *size = span.size();
  });
}

int penstock_coprocessor_coprocess(penstock_coprocessor* coprocessor, penstock_error* error) {
  return guarded(error, [&] { finish(coprocessor, [](CoprocessStep& step) { step.coprocess(); }); });
}

int penstock_coprocessor_abandon(penstock_coprocessor* coprocessor, penstock_error* error) {
  return guarded(error, [&] { finish(coprocessor, [](CoprocessStep&) {}); });
}

int penstock_coprocessor_get_statistics(const penstock_coprocessor* coprocessor,
                                        penstock_coprocessor_statistics* statistics, penstock_error* error) {
  return guarded(error, [&] {
    const auto from = need(coprocessor, "coprocessor").coprocessor.statistics();
    const penstock_coprocessor_statistics out{0,
                                              from.requests,
                                              from.steps,
                                              from.skipped_every,
                                              from.skipped_trigger,
                                              from.skipped_not_ready,
                                              from.skipped_dropped,
                                              from.replaced,
                                              from.demands,
                                              from.demands_refused,
                                              from.demand_number,
                                              from.request_s,
                                              from.put_s,
                                              from.end_s};
    copy_grown(out, statistics, need(statistics, "statistics").struct_size);
  });
}

}  // extern "C"
