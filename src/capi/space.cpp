// The C API: array spaces.
#include "penstock/space.h"

#include "base/config.hpp"
#include "base/text.hpp"
#include "capi/capi.hpp"
#include "penstock/space.hpp"

using namespace penstock;
using namespace penstock::capi;

struct penstock_space {
  Space space;
};

struct penstock_pending_put {
  PendingPut put;
};

struct penstock_version_subscription {
  VersionSubscription versions;
};

namespace penstock::capi {
namespace {

void set_pool_option(PoolOptions& options, const std::string& key, const std::string& value) {
  StreamOptions stream;
  if (key == "pool") options.pool = value;
  else if (key == "directory") options.directory = value;
  else if (key == "role") options.role = value;
  else if (key == "token") options.token = value;
  else if (key == "timeout_ms")
    options.timeout_ms = static_cast<std::uint32_t>(base::parse_integer(value, 0, UINT32_MAX));
  else if (key == "data_plane") set_option(stream, key, value), options.data_plane = stream.data_plane;
  else
    throw Error(Errc::unknown_option, "a space has no option '" + (key.empty() ? value : key) +
                                          "'; it has pool, directory, role, token, timeout_ms and data_plane");
}

Space& of(penstock_space* space) { return need(space, "space").space; }

Order order_of(int value) { return enum_of(value, Order::column, "an order"); }

ArrayMemory memory_of(const penstock_array_memory* memory, std::size_t ndims) {
  ArrayMemory chosen;
  if (!memory) return chosen;
  penstock_array_memory known{};
  copy_grown(*memory, &known, std::min(memory->struct_size, sizeof known));
  chosen.dtype = dtype_of(known.dtype);
  chosen.order = order_of(known.order);
  chosen.check = enum_of(known.check, ConversionCheck::exact, "a check");
  if (known.strides) chosen.strides.assign(known.strides, known.strides + ndims);
  for (std::size_t i = 0; i < known.num_fields; ++i) {
    const auto& field = (&need(known.fields, "fields of the memory"))[i];
    auto& one = chosen.fields.emplace_back(FieldMemory{&need(field.name, "a field's name"), dtype_of(field.dtype)});
    one.offset = field.offset;
    if (field.strides) one.strides.assign(field.strides, field.strides + ndims);
  }
  chosen.structure_bytes = known.structure_bytes;
  return chosen;
}

struct Definition {
  ArrayOptions options;
  std::vector<ArrayField> fields;
};

Definition definition_of(const penstock_array_options* options) {
  constexpr ConvertAt places[] = {ConvertAt::automatic, ConvertAt::at_reader, ConvertAt::on_request,
                                  ConvertAt::in_advance};
  Definition definition;
  auto& chosen = definition.options;
  if (!options) return definition;
  penstock_array_options known{};
  copy_grown(*options, &known, std::min(options->struct_size, sizeof known));
  if (known.convert < 0 || static_cast<std::size_t>(known.convert) >= std::size(places))
    throw Error(Errc::invalid_argument, "convert cannot be " + std::to_string(known.convert));
  chosen.convert = places[known.convert];
  for (std::size_t i = 0; i < known.num_layouts; ++i) {
    const auto& form = (&need(known.layouts, "layouts of the options"))[i];
    chosen.layouts.push_back({dtype_of(form.dtype), order_of(form.order)});
  }
  chosen.keep = known.keep;
  for (std::size_t i = 0; i < known.num_readers; ++i)
    chosen.readers.emplace_back(&need((&need(known.readers, "readers of the options"))[i], "a reader's name"));
  for (std::size_t i = 0; i < known.num_fields; ++i) {
    const auto& field = (&need(known.fields, "fields of the options"))[i];
    definition.fields.push_back({&need(field.name, "a field's name"), dtype_of(field.dtype)});
  }
  return definition;
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

int penstock_space_create(penstock_context* context, const char* options, penstock_space** space,
                          penstock_error* error) {
  return guarded(error, [&] {
    need(space, "space");
    PoolOptions chosen;
    for_each_option(options,
                    [&](const std::string& key, const std::string& value) { set_pool_option(chosen, key, value); });
    *space = new penstock_space{Space(need(context, "context").context, std::move(chosen))};
  });
}

void penstock_space_destroy(penstock_space* space) { delete space; }

int penstock_space_define(penstock_space* space, const char* name, int dtype, size_t ndims, const uint64_t* shape,
                          const penstock_array_options* options, penstock_error* error) {
  return guarded(error, [&] {
    const auto definition = definition_of(options);
    const auto dims = dims_of(ndims, shape, "shape");
    if (definition.fields.empty()) of(space).define(&need(name, "name"), dtype_of(dtype), dims, definition.options);
    else if (dtype == PENSTOCK_NONE) of(space).define(&need(name, "name"), definition.fields, dims, definition.options);
    else throw Error(Errc::invalid_argument, "an array of structures has the dtype PENSTOCK_NONE");
  });
}

int penstock_space_array(penstock_space* space, const char* name, int64_t timeout_ms, penstock_array* array,
                         penstock_error* error) {
  return guarded(error, [&] {
    const auto info = of(space).wait(&need(name, "name"), timeout_of(timeout_ms));
    penstock_array found{};
    found.dtype = static_cast<int>(info.dtype);
    found.ndims = info.shape.size();
    copy_dims(found.shape, info.shape);
    found.parts = info.parts;
    copy_grown(found, array, need(array, "array").struct_size);
  });
}

int penstock_space_put(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, const void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error) {
  return guarded(error, [&] {
    of(space).put(&need(name, "name"), version, box_of(ndims, start, count),
                  &need(static_cast<const char*>(data), "data"), memory_of(memory, ndims), timeout_of(timeout_ms));
  });
}

int penstock_space_get(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error) {
  return guarded(error, [&] {
    of(space).get(&need(name, "name"), version, box_of(ndims, start, count), &need(static_cast<char*>(data), "data"),
                  memory_of(memory, ndims), timeout_of(timeout_ms));
  });
}

int penstock_space_start_put(penstock_space* space, const char* name, uint64_t version, size_t ndims,
                             const uint64_t* start, const uint64_t* count, const void* data,
                             const penstock_array_memory* memory, int64_t timeout_ms, penstock_pending_put** put,
                             penstock_error* error) {
  return guarded(error, [&] {
    need(put, "put");
    *put = new penstock_pending_put{of(space).start_put(&need(name, "name"), version, box_of(ndims, start, count),
                                                        &need(static_cast<const char*>(data), "data"),
                                                        memory_of(memory, ndims), timeout_of(timeout_ms))};
  });
}

int penstock_pending_put_wait(penstock_pending_put* put, penstock_error* error) {
  return guarded(error, [&] { need(put, "put").put.wait(); });
}

void penstock_pending_put_destroy(penstock_pending_put* put) { delete put; }

int penstock_space_wait(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                        const uint64_t* count, int64_t timeout_ms, penstock_error* error) {
  return guarded(error, [&] {
    of(space).wait(&need(name, "name"), version, box_of(ndims, start, count), timeout_of(timeout_ms));
  });
}

int penstock_space_versions(penstock_space* space, const char* name, size_t capacity, uint64_t* versions, size_t* count,
                            penstock_error* error) {
  return guarded(error, [&] {
    const auto found = of(space).versions(&need(name, "name"));
    const auto given = std::min(capacity, found.size());
    if (given > 0) std::copy_n(found.begin(), given, &need(versions, "versions"));
    need(count, "count") = found.size();
  });
}

int penstock_space_latest(penstock_space* space, const char* name, uint64_t* version, int* found,
                          penstock_error* error) {
  return guarded(error, [&] {
    need(version, "version");
    need(found, "found");
    const auto latest = of(space).latest(&need(name, "name"));
    *found = latest.has_value();
    if (latest) *version = *latest;
  });
}

int penstock_space_done(penstock_space* space, const char* name, uint64_t version, const char* reader,
                        int64_t timeout_ms, penstock_error* error) {
  return guarded(
      error, [&] { of(space).done(&need(name, "name"), version, &need(reader, "reader"), timeout_of(timeout_ms)); });
}

int penstock_space_explain(penstock_space* space, const char* name, uint64_t version, size_t ndims,
                           const uint64_t* start, const uint64_t* count, const penstock_array_memory* memory,
                           size_t capacity, char* text, penstock_error* error) {
  return guarded(error, [&] {
    if (capacity == 0) throw Error(Errc::invalid_argument, "capacity is 0");
    std::string all;
    for (const auto& line :
         of(space).explain(&need(name, "name"), version, box_of(ndims, start, count), memory_of(memory, ndims)))
      all += (all.empty() ? "" : "\n") + line;
    (&need(text, "text"))[all.copy(text, capacity - 1)] = '\0';
  });
}

int penstock_space_subscribe(penstock_space* space, const char* name, size_t ndims, const uint64_t* start,
                             const uint64_t* count, uint64_t first, uint64_t step, int64_t timeout_ms,
                             penstock_version_subscription** subscription, penstock_error* error) {
  return guarded(error, [&] {
    need(subscription, "subscription");
    *subscription = new penstock_version_subscription{of(space).subscribe(
        &need(name, "name"), box_of(ndims, start, count), {first, step, std::nullopt}, timeout_of(timeout_ms))};
  });
}

int penstock_version_subscription_next(penstock_version_subscription* subscription, int64_t timeout_ms,
                                       uint64_t* version, penstock_error* error) {
  return guarded(error, [&] {
    need(version, "version");
    const auto found = need(subscription, "subscription").versions.next(timeout_of(timeout_ms));
    if (!found) throw Error(Errc::not_found, "no number is left for a version");
    *version = *found;
  });
}

void penstock_version_subscription_destroy(penstock_version_subscription* subscription) { delete subscription; }

int penstock_space_drop(penstock_space* space, const char* name, uint64_t version, int* dropped,
                        penstock_error* error) {
  return guarded(error, [&] {
    const bool there = of(space).drop(&need(name, "name"), version);
    if (dropped) *dropped = there;
  });
}

int penstock_space_drop_array(penstock_space* space, const char* name, int* dropped, penstock_error* error) {
  return guarded(error, [&] {
    const bool there = of(space).drop(&need(name, "name"));
    if (dropped) *dropped = there;
  });
}

}  // extern "C"
