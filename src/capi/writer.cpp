// The C API: writing.
#include "capi/capi.hpp"

using namespace penstock;
using namespace penstock::capi;

namespace penstock::capi {

penstock_statistics to_c(const StreamStatistics& from) {
  penstock_statistics out{};
  out.steps = from.steps;
  out.steps_dropped = from.steps_dropped;
  out.steps_voided = from.steps_voided;
  out.bytes = from.bytes;
  out.bytes_copied = from.bytes_copied;
  out.copies = from.copies;
  out.copy_s = from.copy_s;
  out.wait_s = from.wait_s;
  out.announcement_bytes = from.announcement_bytes;
  out.epochs = from.epochs;
  out.plans_built = from.plans_built;
  out.plans_reused = from.plans_reused;
  out.memory_bytes = from.memory_bytes;
  out.queue_depth = from.queue_depth;
  out.peers = static_cast<std::uint32_t>(from.peers.size());
  copy_text(out.data_plane, from.data_plane);
  out.analysis_errors = from.analysis_errors;
  return out;
}

namespace {

WriteStep& step_of(penstock_writer* writer) { return open_step(writer, "writer"); }

// Into the open step, or for the next one.
void put_attribute(penstock_writer* writer, const char* name, Attribute value) {
  need(writer, "writer");
  need(name, "name");
  if (writer->step) writer->step->put_attribute(name, std::move(value));
  else writer->writer.put_attribute(name, std::move(value));
}

// The step is over whether or not it ended well.
template <class Finish>
void finish(penstock_writer* writer, Finish&& how) {
  step_of(writer);
  struct Reset {
    penstock_writer* writer;
    ~Reset() { writer->step.reset(); }
  } reset{writer};
  how(*writer->step);
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

void penstock_writer_destroy(penstock_writer* writer) { delete writer; }

int penstock_writer_close(penstock_writer* writer, int64_t timeout_ms, penstock_error* error) {
  return guarded(error, [&] {
    need(writer, "writer");
    auto deadline = timeout_of(timeout_ms);
    writer->step.reset();
    writer->writer.close(deadline);
  });
}

int penstock_writer_lose(penstock_writer* writer, penstock_error* error) {
  return guarded(error, [&] {
    need(writer, "writer");
    writer->step.reset();
    writer->writer.lose();
  });
}

const char* penstock_writer_name(const penstock_writer* writer) { return writer ? writer->name.c_str() : ""; }
const char* penstock_writer_address(const penstock_writer* writer) { return writer ? writer->address.c_str() : ""; }

int penstock_writer_define(penstock_writer* writer, const char* name, int dtype, size_t ndims, const uint64_t* shape,
                           const penstock_variable_options* options, uint32_t* variable, penstock_error* error) {
  return guarded(error, [&] {
    VariableOptions chosen;
    if (options) {
      chosen.kind = enum_of(options->kind, Kind::local_value, "a kind");
      chosen.order = enum_of(options->order, Order::column, "an order");
      chosen.min_max = options->min_max != 0;
    }
    need(variable, "variable");
    *variable = need(writer, "writer")
                    .writer.define(&need(name, "name"), capi::dtype_of(dtype), dims_of(ndims, shape, "shape"), chosen);
  });
}

int penstock_writer_begin_step(penstock_writer* writer, int64_t timeout_ms, penstock_error* error) {
  return guarded(error, [&] {
    if (need(writer, "writer").step) throw Error(Errc::wrong_state, "the writer has a step open");
    writer->step.emplace(writer->writer.begin_step(timeout_of(timeout_ms)));
  });
}

int penstock_writer_try_begin_step(penstock_writer* writer, int64_t timeout_ms, int* begun, penstock_error* error) {
  return guarded(error, [&] {
    need(begun, "begun");
    if (need(writer, "writer").step) throw Error(Errc::wrong_state, "the writer has a step open");
    auto step = writer->writer.try_begin_step(timeout_of(timeout_ms));
    *begun = step.has_value();
    if (step) writer->step.emplace(std::move(*step));
  });
}

int penstock_writer_step_number(const penstock_writer* writer, uint64_t* number, penstock_error* error) {
  return guarded(error, [&] { need(number, "number") = open_step(writer, "writer").number(); });
}

int penstock_writer_step_dropped(const penstock_writer* writer, int* dropped, penstock_error* error) {
  return guarded(error, [&] { need(dropped, "dropped") = open_step(writer, "writer").dropped(); });
}

int penstock_writer_set_shape(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* shape,
                              penstock_error* error) {
  return guarded(error, [&] { step_of(writer).set_shape(variable, dims_of(ndims, shape, "shape")); });
}

int penstock_writer_put(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                        const uint64_t* count, const void* data, penstock_error* error) {
  return guarded(error, [&] { step_of(writer).put(variable, box_of(ndims, start, count), data); });
}

int penstock_writer_put_strided(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                                const uint64_t* count, const void* data, const int64_t* strides,
                                penstock_error* error) {
  return guarded(error, [&] {
    auto& step = step_of(writer);
    step.put(variable, box_of(ndims, start, count), data, std::span(&need(strides, "strides"), ndims));
  });
}

int penstock_writer_put_whole(penstock_writer* writer, uint32_t variable, const void* data, penstock_error* error) {
  return guarded(error, [&] { step_of(writer).put_whole(variable, data); });
}

int penstock_writer_put_string(penstock_writer* writer, uint32_t variable, const char* value, penstock_error* error) {
  return guarded(error, [&] { step_of(writer).put_string(variable, &need(value, "value")); });
}

int penstock_writer_put_span(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                             const uint64_t* count, void** data, size_t* size, penstock_error* error) {
  return guarded(error, [&] {
    need(data, "data");
    auto span = step_of(writer).put_span(variable, box_of(ndims, start, count));
    *data = span.data();
    if (size) *size = span.size();
  });
}

int penstock_writer_lend(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                         const uint64_t* count, const void* data, penstock_error* error) {
  return guarded(error, [&] { step_of(writer).lend(variable, box_of(ndims, start, count), data); });
}

int penstock_writer_lend_strided(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                                 const uint64_t* count, const void* data, const int64_t* strides,
                                 penstock_error* error) {
  return guarded(error, [&] {
    auto& step = step_of(writer);
    step.lend(variable, box_of(ndims, start, count), data, std::span(&need(strides, "strides"), ndims));
  });
}

int penstock_writer_put_attribute(penstock_writer* writer, const char* name, int dtype, const void* values,
                                  size_t count, int is_array, penstock_error* error) {
  return guarded(error, [&] {
    Attribute value{capi::dtype_of(dtype), is_array != 0, {}, {}};
    std::size_t element = size_of(value.dtype);
    if (element == 0) throw Error(Errc::invalid_argument, "use penstock_writer_put_attribute_string for strings");
    if (!is_array && count != 1) throw Error(Errc::invalid_argument, "a scalar attribute has one value");
    if (count > 0) {
      auto* first = &need(static_cast<const std::byte*>(values), "values");
      value.bytes.assign(first, first + count * element);
    }
    put_attribute(writer, name, std::move(value));
  });
}

int penstock_writer_put_attribute_string(penstock_writer* writer, const char* name, const char* value,
                                         penstock_error* error) {
  return guarded(error, [&] { put_attribute(writer, name, Attribute::of(std::string(&need(value, "value")))); });
}

int penstock_writer_put_attribute_strings(penstock_writer* writer, const char* name, const char* const* values,
                                          size_t count, penstock_error* error) {
  return guarded(error, [&] {
    std::vector<std::string> strings;
    for (std::size_t i = 0; i < count; ++i) strings.emplace_back(&need((&need(values, "values"))[i], "a value"));
    put_attribute(writer, name, Attribute::of(std::move(strings)));
  });
}

int penstock_writer_end_step(penstock_writer* writer, penstock_error* error) {
  return guarded(error, [&] { finish(writer, [](WriteStep& step) { step.end(); }); });
}

int penstock_writer_abandon_step(penstock_writer* writer, penstock_error* error) {
  return guarded(error, [&] { finish(writer, [](WriteStep& step) { step.abandon(); }); });
}

int penstock_writer_statistics(const penstock_writer* writer, penstock_statistics* statistics, penstock_error* error) {
  return guarded(error, [&] {
    auto out = to_c(need(writer, "writer").writer.statistics());
    copy_grown(out, &need(statistics, "statistics"), statistics->struct_size);
  });
}

int penstock_writer_peer_statistics(const penstock_writer* writer, size_t capacity, penstock_peer_statistics* peers,
                                    size_t* written, penstock_error* error) {
  return guarded(error, [&] {
    need(written, "written");
    auto from = need(writer, "writer").writer.statistics().peers;
    std::size_t count = std::min(capacity, from.size());
    std::size_t struct_size = count > 0 ? need(peers, "peers").struct_size : 0;
    auto* place = reinterpret_cast<std::byte*>(peers);
    for (std::size_t i = 0; i < count; ++i, place += struct_size) {
      penstock_peer_statistics out{};
      copy_text(out.name, from[i].name);
      out.ranks = from[i].ranks;
      copy_text(out.data_plane, from[i].data_plane);
      out.steps_delivered = from[i].steps_delivered;
      out.steps_released = from[i].steps_released;
      out.steps_dropped = from[i].steps_dropped;
      out.steps_held = from[i].steps_held;
      copy_grown(out, reinterpret_cast<penstock_peer_statistics*>(place), struct_size);
    }
    *written = count;
  });
}

}  // extern "C"
