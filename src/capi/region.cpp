// The C API: mesh regions.
#include "capi/region.hpp"

#include "base/config.hpp"
#include "mesh/stored_source.hpp"

using namespace penstock;
using namespace penstock::capi;

struct penstock_region_sink {
  std::unique_ptr<mesh::Sink> sink;
};

struct penstock_region_source {
  std::shared_ptr<mesh::Source> source;
};

namespace penstock::capi {
namespace {

mesh::Sink& of(penstock_region_sink* handle) { return *need(handle, "sink").sink; }
mesh::Source& of(penstock_region_source* handle) { return *need(handle, "source").source; }

MeshOptions mesh_options(const char* text) {
  MeshOptions options;
  if (text) base::apply_text(options, text);
  return options;
}

penstock_state_outcome to_c(mesh::StateOutcome::Kind kind) {
  switch (kind) {
    case mesh::StateOutcome::Kind::state: return PENSTOCK_STATE_READY;
    case mesh::StateOutcome::Kind::model: return PENSTOCK_STATE_NEW_MODEL;
    case mesh::StateOutcome::Kind::not_ready: return PENSTOCK_STATE_NOT_READY;
    case mesh::StateOutcome::Kind::end: break;
  }
  return PENSTOCK_STATE_END;
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

int penstock_context_create_region(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                   const char* options, penstock_region_sink** sink, penstock_error* error) {
  return guarded(error, [&] {
    auto owned = cohort_of(cohort);
    need(sink, "sink");
    *sink = new penstock_region_sink{mesh::create_region(need(context, "context").context, &need(name, "name"),
                                                         std::move(owned), mesh_options(options))};
  });
}

void penstock_region_sink_destroy(penstock_region_sink* sink) { delete sink; }

int penstock_region_sink_define(penstock_region_sink* sink, const penstock_model* model, penstock_error* error) {
  return guarded(error, [&] { of(sink).define(need(model, "model").model); });
}

int penstock_region_sink_write(penstock_region_sink* sink, size_t entity, size_t field, const void* values,
                               penstock_error* error) {
  return guarded(error, [&] { of(sink).write({entity, field}, values); });
}

int penstock_region_sink_begin_state(penstock_region_sink* sink, double time, penstock_error* error) {
  return guarded(error, [&] { of(sink).begin_state(time); });
}

int penstock_region_sink_end_state(penstock_region_sink* sink, penstock_error* error) {
  return guarded(error, [&] { of(sink).end_state(); });
}

int penstock_region_sink_abandon_state(penstock_region_sink* sink, penstock_error* error) {
  return guarded(error, [&] { of(sink).abandon_state(); });
}

int penstock_region_sink_close(penstock_region_sink* sink, penstock_error* error) {
  return guarded(error, [&] { of(sink).close(); });
}

int penstock_context_open_region(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                 const char* options, penstock_region_source** source, penstock_error* error) {
  return guarded(error, [&] {
    auto owned = cohort_of(cohort);
    need(source, "source");
    *source = new penstock_region_source{mesh::open_region(need(context, "context").context, &need(name, "name"),
                                                           std::move(owned), mesh_options(options))};
  });
}

void penstock_region_source_destroy(penstock_region_source* source) { delete source; }

int penstock_region_source_parts(penstock_region_source* source, uint32_t* parts, penstock_error* error) {
  return guarded(error, [&] { need(parts, "parts") = of(source).parts(); });
}

int penstock_region_source_model(penstock_region_source* source, uint32_t part, penstock_model** model,
                                 penstock_error* error) {
  return guarded(error, [&] {
    need(model, "model");
    *model = new penstock_model(of(source).model(part));
  });
}

int penstock_region_source_next_state(penstock_region_source* source, int64_t timeout_ms,
                                      penstock_state_outcome* outcome, double* time, penstock_error* error) {
  return guarded(error, [&] {
    need(outcome, "outcome");
    need(time, "time");
    const auto next = of(source).next_state(timeout_of(timeout_ms));
    *outcome = to_c(next.kind);
    if (*outcome == PENSTOCK_STATE_READY) *time = next.time;
  });
}

int penstock_region_source_times(penstock_region_source* source, size_t capacity, double* times, size_t* count,
                                 penstock_error* error) {
  return guarded(error, [&] {
    need(count, "count");
    const auto all = of(source).times();
    if (const auto some = std::min(capacity, all.size()); some > 0)
      std::copy_n(all.begin(), some, &need(times, "times"));
    *count = all.size();
  });
}

int penstock_region_source_seek(penstock_region_source* source, uint64_t state, penstock_error* error) {
  return guarded(error, [&] { of(source).seek(state); });
}

int penstock_region_source_read(penstock_region_source* source, uint32_t part, size_t entity, size_t field,
                                uint64_t first, uint64_t count, void* out, penstock_error* error) {
  return guarded(error, [&] {
    const auto& [its, asked] = mesh::at(of(source).model(part), {entity, field});
    if (!out && count > 0)
      throw Error(Errc::invalid_argument, "out is NULL, for field '" + asked.name + "' of " +
                                              std::string(mesh::name_of(its.type)) + " '" + its.name + "'");
    of(source).read(part, {entity, field}, {first, count}, out);
  });
}

int penstock_region_source_join(penstock_region_source* source, penstock_region_source** joined,
                                penstock_error* error) {
  return guarded(error, [&] {
    need(joined, "joined");
    *joined = new penstock_region_source{mesh::join(need(source, "source").source)};
  });
}

}  // extern "C"
