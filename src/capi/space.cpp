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

ArrayMemory memory_of(const penstock_array_memory* memory, std::size_t ndims) {
  ArrayMemory chosen;
  if (!memory) return chosen;
  chosen.dtype = dtype_of(memory->dtype);
  chosen.order = enum_of(memory->order, Order::column, "an order");
  if (memory->strides) chosen.strides.assign(memory->strides, memory->strides + ndims);
  return chosen;
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
                          penstock_error* error) {
  return guarded(error,
                 [&] { of(space).define(&need(name, "name"), dtype_of(dtype), dims_of(ndims, shape, "shape")); });
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
