// The C API: reading.
#include "capi/capi.hpp"

using namespace penstock;
using namespace penstock::capi;

namespace penstock::capi {
namespace {

const ReadStep& step_of(const penstock_reader* reader) { return open_step(reader, "reader"); }
ReadStep& step_of(penstock_reader* reader) { return open_step(reader, "reader"); }

penstock_variable to_c(const VariableInfo& info) {
  penstock_variable out{};
  out.id = info.id;
  out.name = info.name.c_str();
  out.dtype = static_cast<int>(info.dtype);
  out.kind = static_cast<int>(info.kind);
  out.order = static_cast<int>(info.order);
  out.ndims = static_cast<std::uint32_t>(info.shape.size());
  copy_dims(out.shape, info.shape);
  out.blocks = info.blocks;
  return out;
}

Selection selection_of(const penstock_selection* from) {
  if (!from) return Selection::all();
  switch (from->form) {
    case PENSTOCK_SELECT_ALL: return Selection::all();
    case PENSTOCK_SELECT_BLOCK: return Selection::block(from->block);
    case PENSTOCK_SELECT_BOX: {
      auto start = dims_of(from->ndims, from->start, "start");
      auto count = dims_of(from->ndims, from->count, "count");
      if (!from->stride) return Selection::box(start, count);
      return Selection::strided(start, count, dims_of(from->ndims, from->stride, "stride"));
    }
    case PENSTOCK_SELECT_POINTS: {
      std::vector<std::uint64_t> coordinates;
      if (from->points > 0 && from->ndims > 0) {
        const auto* first = &need(from->coordinates, "coordinates");
        coordinates.assign(first, first + from->points * from->ndims);
      }
      return Selection::points(std::move(coordinates), from->ndims);
    }
  }
  throw Error(Errc::invalid_argument, "an unknown form of selection");
}

penstock_view to_c(const View& from) {
  penstock_view out{};
  out.data = from.bytes().data();
  out.size = from.bytes().size();
  out.ndims = static_cast<std::uint32_t>(from.box().count.size());
  out.order = static_cast<int>(from.order());
  copy_dims(out.start, from.box().start);
  copy_dims(out.count, from.box().count);
  std::copy(from.strides().begin(), from.strides().end(), out.strides);
  out.owner = new View(from);
  return out;
}

const Strings& names_of(penstock_reader* reader) {
  auto& step = step_of(reader);
  if (!reader->attribute_names) reader->attribute_names.emplace(step.attribute_names());
  return *reader->attribute_names;
}

// The message that goes with a lost writer, which the outcome alone does not carry.
void explain_loss(penstock_reader* reader, penstock_error* error) {
  try {
    reader->reader.begin_step(Timeout(0));
  } catch (const Error& e) {
    fill(error, PENSTOCK_OK, e.what());
  }
}

}  // namespace
}  // namespace penstock::capi

extern "C" {

void penstock_reader_destroy(penstock_reader* reader) { delete reader; }

int penstock_reader_close(penstock_reader* reader, penstock_error* error) {
  return guarded(error, [&] {
    need(reader, "reader").forget_step();
    reader->reader.close();
  });
}

const char* penstock_reader_name(const penstock_reader* reader) { return reader ? reader->name.c_str() : ""; }

int penstock_reader_begin_step(penstock_reader* reader, int64_t timeout_ms, penstock_outcome* outcome,
                               penstock_error* error) {
  return guarded(error, [&] {
    need(outcome, "outcome");
    if (need(reader, "reader").step) throw Error(Errc::wrong_state, "the reader has a step open");
    auto result = reader->reader.try_begin_step(timeout_of(timeout_ms));
    if (result.step) reader->step.emplace(std::move(*result.step));
    *outcome = static_cast<penstock_outcome>(result.outcome);
    if (result.outcome == Outcome::writer_lost) explain_loss(reader, error);
  });
}

int penstock_reader_step_number(const penstock_reader* reader, uint64_t* number, penstock_error* error) {
  return guarded(error, [&] { need(number, "number") = step_of(reader).number(); });
}

int penstock_reader_end_step(penstock_reader* reader, penstock_error* error) {
  return guarded(error, [&] {
    auto& step = step_of(reader);
    struct Forget {
      penstock_reader* reader;
      ~Forget() { reader->forget_step(); }
    } forget{reader};
    step.end();
  });
}

int penstock_reader_on_step(penstock_reader* reader, penstock_step_function function, void* user, int on_error,
                            penstock_error* error) {
  return guarded(error, [&] {
    need(reader, "reader");
    if (!function) throw Error(Errc::invalid_argument, "function is NULL");
    const auto policy = enum_of(on_error, OnStepError::raise, "on_error");
    const auto call = [reader, function, user](ReadStep& step) {
      reader->step.emplace(std::move(step));
      penstock_error why{};
      const int code = function(reader, user, &why);
      if (reader->step) step = std::move(*reader->step);
      reader->forget_step();
      if (code == PENSTOCK_OK) return;
      why.message[sizeof why.message - 1] = '\0';
      throw Error(static_cast<Errc>(code), why.message[0] ? why.message : "the on_step function failed");
    };
    reader->reader.on_step(call, policy);
  });
}

int penstock_reader_seek(penstock_reader* reader, uint64_t step, penstock_error* error) {
  return guarded(error, [&] { need(reader, "reader").reader.seek(step); });
}

int penstock_reader_steps(penstock_reader* reader, size_t capacity, uint64_t* numbers, size_t* count,
                          penstock_error* error) {
  return guarded(error, [&] {
    need(count, "count");
    const auto kept = need(reader, "reader").reader.steps();
    const auto given = std::min(capacity, kept.size());
    if (given > 0) std::copy_n(kept.begin(), given, &need(numbers, "numbers"));
    *count = kept.size();
  });
}

int penstock_reader_variable_count(const penstock_reader* reader, size_t* count, penstock_error* error) {
  return guarded(error, [&] { need(count, "count") = step_of(reader).variables().size(); });
}

int penstock_reader_variable_at(const penstock_reader* reader, size_t index, penstock_variable* variable,
                                penstock_error* error) {
  return guarded(error, [&] {
    const auto& all = step_of(reader).variables();
    if (index >= all.size())
      throw Error(Errc::invalid_argument,
                  "there are " + std::to_string(all.size()) + " variables, none numbered " + std::to_string(index));
    need(variable, "variable") = to_c(all[index]);
  });
}

int penstock_reader_variable(const penstock_reader* reader, const char* name, penstock_variable* variable,
                             penstock_error* error) {
  return guarded(error, [&] { need(variable, "variable") = to_c(step_of(reader).variable(&need(name, "name"))); });
}

int penstock_reader_blocks(const penstock_reader* reader, uint32_t variable, uint64_t first, size_t capacity,
                           penstock_block* blocks, size_t* written, penstock_error* error) {
  return guarded(error, [&] {
    need(written, "written");
    auto all = step_of(reader).blocks(variable);
    std::size_t begin = std::min<std::uint64_t>(first, all.size());
    std::size_t count = std::min(capacity, all.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& from = all[begin + i];
      auto& out = (&need(blocks, "blocks"))[i];
      out.ndims = static_cast<std::uint32_t>(from.box.count.size());
      out.writer_rank = from.writer_rank;
      copy_dims(out.start, from.box.start);
      copy_dims(out.count, from.box.count);
    }
    *written = count;
  });
}

int penstock_reader_min_max(const penstock_reader* reader, uint32_t variable, uint64_t block, void* min, void* max,
                            int* present, penstock_error* error) {
  return guarded(error, [&] {
    const auto& step = step_of(reader);
    need(static_cast<char*>(min), "min");
    need(static_cast<char*>(max), "max");
    auto found = block == PENSTOCK_ALL_BLOCKS ? step.min_max(variable) : step.min_max(variable, block);
    need(present, "present") = found.has_value();
    if (!found) return;
    std::memcpy(min, found->min, size_of(found->dtype));
    std::memcpy(max, found->max, size_of(found->dtype));
  });
}

int penstock_reader_attribute_count(penstock_reader* reader, size_t* count, penstock_error* error) {
  return guarded(error, [&] { need(count, "count") = names_of(reader).pointers.size(); });
}

int penstock_reader_attribute_name(penstock_reader* reader, size_t index, const char** name, penstock_error* error) {
  return guarded(error, [&] {
    const auto& names = names_of(reader).pointers;
    if (index >= names.size())
      throw Error(Errc::invalid_argument, "there are " + std::to_string(names.size()) + " attributes");
    need(name, "name") = names[index];
  });
}

int penstock_reader_attribute(penstock_reader* reader, const char* name, penstock_attribute* attribute,
                              penstock_error* error) {
  return guarded(error, [&] {
    auto& step = step_of(reader);
    need(name, "name");
    need(attribute, "attribute");
    auto held = reader->attributes.find(std::string_view(name));
    if (held == reader->attributes.end()) {
      auto value = step.attribute(name);
      if (!value) throw Error(Errc::not_found, std::string("the step has no attribute '") + name + "'");
      held = reader->attributes.emplace(name, HeldAttribute(std::move(*value))).first;
    }
    const auto& [value, strings] = held->second;
    bool is_text = value.dtype == DType::string;
    *attribute = {static_cast<int>(value.dtype), value.is_array, value.size(), is_text ? nullptr : value.bytes.data(),
                  is_text ? strings.pointers.data() : nullptr};
  });
}

int penstock_reader_strings(penstock_reader* reader, uint32_t variable, const char* const** strings, size_t* count,
                            penstock_error* error) {
  return guarded(error, [&] {
    auto& step = step_of(reader);
    need(strings, "strings");
    need(count, "count");
    auto held = reader->strings.find(variable);
    if (held == reader->strings.end())
      held = reader->strings.emplace(variable, Strings(step.read_strings(variable))).first;
    *strings = held->second.pointers.data();
    *count = held->second.pointers.size();
  });
}

int penstock_reader_selection_shape(const penstock_reader* reader, uint32_t variable,
                                    const penstock_selection* selection, uint32_t* ndims,
                                    uint64_t shape[PENSTOCK_MAX_DIMS], penstock_error* error) {
  return guarded(error, [&] {
    auto found = step_of(reader).shape_of(variable, selection_of(selection));
    need(ndims, "ndims") = static_cast<std::uint32_t>(found.size());
    std::copy(found.begin(), found.end(), &need(shape, "shape"));
  });
}

int penstock_reader_get(penstock_reader* reader, uint32_t variable, const penstock_selection* selection, void* out,
                        int order, const int64_t* strides, penstock_error* error) {
  return guarded(error, [&] {
    auto& step = step_of(reader);
    auto chosen = selection_of(selection);
    auto layout = enum_of(order, Order::column, "an order");
    std::span<const std::int64_t> spread;
    if (strides) spread = {strides, step.shape_of(variable, chosen).size()};
    step.get(variable, chosen, out, layout, spread);
  });
}

int penstock_reader_wait(penstock_reader* reader, int64_t timeout_ms, penstock_error* error) {
  return guarded(error, [&] { step_of(reader).wait(timeout_of(timeout_ms)); });
}

int penstock_reader_view(penstock_reader* reader, uint32_t variable, const penstock_selection* selection,
                         penstock_view** views, size_t* count, penstock_error* error) {
  return guarded(error, [&] {
    need(views, "views");
    need(count, "count");
    auto found = step_of(reader).view(variable, selection_of(selection));
    auto out = std::make_unique<penstock_view[]>(found.size());
    std::size_t made = 0;
    try {
      for (; made < found.size(); ++made) out[made] = to_c(found[made]);
    } catch (...) {
      penstock_views_release(out.release(), made);
      throw;
    }
    *count = found.size();
    *views = out.release();
  });
}

void penstock_views_release(penstock_view* views, size_t count) {
  if (!views) return;
  for (std::size_t i = 0; i < count; ++i) delete static_cast<View*>(views[i].owner);
  delete[] views;
}

int penstock_reader_statistics(const penstock_reader* reader, penstock_statistics* statistics, penstock_error* error) {
  return guarded(error, [&] {
    auto out = capi::to_c(need(reader, "reader").reader.statistics());
    copy_grown(out, &need(statistics, "statistics"), statistics->struct_size);
  });
}

}  // extern "C"
