// The C API: array spaces.
#include "penstock/space.h"

#include <algorithm>

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

Space& of(penstock_space* space) { return need(space, "space").space; }

Order order_of(int value) { return enum_of(value, Order::column, "an order"); }

// Of an empty box there may be none.
template <class Bytes>
Bytes* elements_of(const Box& box, Bytes* data) {
  if (!data && std::ranges::count(box.count, 0U) == 0) throw Error(Errc::invalid_argument, "data is NULL");
  return data;
}

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
  if (known.layout) chosen.layout = known.layout;
  chosen.layout_bytes = known.layout_bytes;
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
  chosen.keep_bytes = known.keep_bytes;
  chosen.keep_ms = known.keep_ms;
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
    auto chosen = pool_options(options);
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
    found.keep = info.options.keep;
    found.keep_ms = info.options.keep_ms;
    found.num_fields = info.fields.size();
    copy_grown(found, array, need(array, "array").struct_size);
  });
}

int penstock_space_fields(penstock_space* space, const char* name, size_t capacity, penstock_named_field* fields,
                          size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    const auto found = of(space).info(&need(name, "name")).fields;
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i) {
      auto& one = (&need(fields, "fields"))[i];
      copy_text(one.name, found[i].name);
      one.dtype = static_cast<int>(found[i].dtype);
    }
    need(count, "count") = found.size();
  });
}

int penstock_space_list(penstock_space* space, penstock_array_entry** entries, size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    need(entries, "entries");
    need(count, "count");
    auto arrays = of(space).list();
    const auto size = arrays.size();
    *entries = array_for_c<penstock_array_entry>(std::move(arrays), [](const ArrayInfo& array) {
      penstock_array_entry entry{array.name.c_str(), static_cast<int>(array.dtype), array.shape.size(), {}};
      copy_dims(entry.shape, array.shape);
      return entry;
    });
    *count = size;
  });
}

void penstock_array_entries_free(penstock_array_entry* entries) { free_array<ArrayInfo>(entries); }

int penstock_load_layouts(const char* path, penstock_error* error) {
  return guarded(error, [&] { load_layouts(&need(path, "path")); });
}

int penstock_layout_bytes(const char* layout, size_t ndims, const uint64_t* count, uint64_t element_bytes,
                          uint64_t* bytes, penstock_error* error) {
  return guarded(error, [&] {
    need(bytes, "bytes") = layout_bytes(&need(layout, "layout"), dims_of(ndims, count, "count"), element_bytes);
  });
}

int penstock_space_put(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, const void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error) {
  return guarded(error, [&] {
    const auto box = box_of(ndims, start, count);
    of(space).put(&need(name, "name"), version, box, elements_of(box, data), memory_of(memory, ndims),
                  timeout_of(timeout_ms));
  });
}

int penstock_space_get(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error) {
  return guarded(error, [&] {
    const auto box = box_of(ndims, start, count);
    of(space).get(&need(name, "name"), version, box, elements_of(box, data), memory_of(memory, ndims),
                  timeout_of(timeout_ms));
  });
}

int penstock_space_start_put(penstock_space* space, const char* name, uint64_t version, size_t ndims,
                             const uint64_t* start, const uint64_t* count, const void* data,
                             const penstock_array_memory* memory, int64_t timeout_ms, penstock_pending_put** put,
                             penstock_error* error) {
  return guarded(error, [&] {
    need(put, "put");
    const auto box = box_of(ndims, start, count);
    *put = new penstock_pending_put{of(space).start_put(&need(name, "name"), version, box, elements_of(box, data),
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

int penstock_space_blocks(penstock_space* space, const char* name, uint64_t version, size_t capacity,
                          penstock_array_block* blocks, size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    const auto found = of(space).blocks(&need(name, "name"), version);
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i) {
      auto& one = (&need(blocks, "blocks"))[i];
      copy_dims(one.start, found[i].box.start);
      copy_dims(one.count, found[i].box.count);
      copy_text(one.writer, found[i].writer);
      one.put_us = found[i].put_us;
    }
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
                             const uint64_t* count, uint64_t first, uint64_t step, uint64_t stop, int64_t timeout_ms,
                             penstock_version_subscription** subscription, penstock_error* error) {
  return guarded(error, [&] {
    need(subscription, "subscription");
    *subscription = new penstock_version_subscription{of(space).subscribe(
        &need(name, "name"), box_of(ndims, start, count),
        {first, step, stop > 0 ? std::optional(std::uint64_t{stop}) : std::nullopt}, timeout_of(timeout_ms))};
  });
}

int penstock_version_subscription_next(penstock_version_subscription* subscription, int64_t timeout_ms,
                                       uint64_t* version, int* found, penstock_error* error) {
  return guarded(error, [&] {
    need(version, "version");
    need(found, "found");
    const auto next = need(subscription, "subscription").versions.next(timeout_of(timeout_ms));
    *found = next.has_value();
    if (next) *version = *next;
  });
}

int penstock_version_subscription_skipped(penstock_version_subscription* subscription, uint64_t* skipped,
                                          penstock_error* error) {
  return guarded(error, [&] { need(skipped, "skipped") = need(subscription, "subscription").versions.skipped(); });
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
