// The C API: names, contexts and opening streams.
#include "base/config.hpp"
#include "base/text.hpp"
#include "capi/capi.hpp"
#include "penstock/version.hpp"

using namespace penstock;
using namespace penstock::capi;

// The C enumerations are the C++ ones.
#define SAME(c, cpp) static_assert(static_cast<int>(c) == static_cast<int>(cpp))
SAME(PENSTOCK_OK, Errc::ok);
SAME(PENSTOCK_ERR_INVALID_ARGUMENT, Errc::invalid_argument);
SAME(PENSTOCK_ERR_WRONG_STATE, Errc::wrong_state);
SAME(PENSTOCK_ERR_NOT_FOUND, Errc::not_found);
SAME(PENSTOCK_ERR_UNKNOWN_OPTION, Errc::unknown_option);
SAME(PENSTOCK_ERR_UNSUPPORTED, Errc::unsupported);
SAME(PENSTOCK_ERR_STEP_TOO_LARGE, Errc::step_too_large);
SAME(PENSTOCK_ERR_STEP_VOIDED, Errc::step_voided);
SAME(PENSTOCK_ERR_STEP_GONE, Errc::step_gone);
SAME(PENSTOCK_ERR_TIMEOUT, Errc::timeout);
SAME(PENSTOCK_ERR_END_OF_STREAM, Errc::end_of_stream);
SAME(PENSTOCK_ERR_WRITER_LOST, Errc::writer_lost);
SAME(PENSTOCK_ERR_STREAM_CLOSED, Errc::stream_closed);
SAME(PENSTOCK_ERR_PEER_LOST, Errc::peer_lost);
SAME(PENSTOCK_ERR_AUTHENTICATION, Errc::authentication);
SAME(PENSTOCK_ERR_PROTOCOL, Errc::protocol);
SAME(PENSTOCK_ERR_ALREADY_EXISTS, Errc::already_exists);
SAME(PENSTOCK_ERR_OVERLOADED, Errc::overloaded);
SAME(PENSTOCK_ERR_POOL_FULL, Errc::pool_full);
SAME(PENSTOCK_ERR_STALE_VIEW, Errc::stale_view);
SAME(PENSTOCK_ERR_CANCELLED, Errc::cancelled);
SAME(PENSTOCK_ERR_FORBIDDEN, Errc::forbidden);
SAME(PENSTOCK_ERR_SYSTEM, Errc::system);
SAME(PENSTOCK_ERR_MEMORY, Errc::memory);
SAME(PENSTOCK_ERR_INTERNAL, Errc::internal);
SAME(PENSTOCK_NONE, DType::none);
SAME(PENSTOCK_BOOLEAN, DType::boolean);
SAME(PENSTOCK_INT8, DType::int8);
SAME(PENSTOCK_INT16, DType::int16);
SAME(PENSTOCK_INT32, DType::int32);
SAME(PENSTOCK_INT64, DType::int64);
SAME(PENSTOCK_UINT8, DType::uint8);
SAME(PENSTOCK_UINT16, DType::uint16);
SAME(PENSTOCK_UINT32, DType::uint32);
SAME(PENSTOCK_UINT64, DType::uint64);
SAME(PENSTOCK_FLOAT16, DType::float16);
SAME(PENSTOCK_BFLOAT16, DType::bfloat16);
SAME(PENSTOCK_FLOAT32, DType::float32);
SAME(PENSTOCK_FLOAT64, DType::float64);
SAME(PENSTOCK_COMPLEX64, DType::complex64);
SAME(PENSTOCK_COMPLEX128, DType::complex128);
SAME(PENSTOCK_STRING, DType::string);
SAME(PENSTOCK_GLOBAL_ARRAY, Kind::global_array);
SAME(PENSTOCK_LOCAL_ARRAY, Kind::local_array);
SAME(PENSTOCK_GLOBAL_VALUE, Kind::global_value);
SAME(PENSTOCK_LOCAL_VALUE, Kind::local_value);
SAME(PENSTOCK_ROW, Order::row);
SAME(PENSTOCK_COLUMN, Order::column);
SAME(PENSTOCK_READY, Outcome::ready);
SAME(PENSTOCK_NOT_READY, Outcome::not_ready);
SAME(PENSTOCK_END_OF_STREAM, Outcome::end_of_stream);
SAME(PENSTOCK_WRITER_LOST, Outcome::writer_lost);
static_assert(PENSTOCK_MAX_DIMS == max_dims);
#undef SAME

namespace penstock::capi {
namespace {

StreamOptions stream_options(const char* text, base::Side side) {
  StreamOptions options;
  if (text && *text) base::apply_text(options, text, side);
  return options;
}

}  // namespace

PoolOptions pool_options(const char* text) {
  PoolOptions options;
  for_each_option(text, [&](const std::string& key, const std::string& value) {
    set_option(options, key.empty() ? value : key, value);
  });
  return options;
}

}  // namespace penstock::capi

extern "C" {

const char* penstock_code_name(int code) {
  auto name = name_of(static_cast<Errc>(code));  // names are literals
  return name.empty() ? "unknown" : name.data();
}

const char* penstock_version(void) { return version; }

size_t penstock_dtype_size(int dtype) {
  return dtype < 0 || dtype >= static_cast<int>(dtype_count) ? 0 : size_of(static_cast<DType>(dtype));
}

const char* penstock_dtype_name(int dtype) {
  return dtype < 0 || dtype >= static_cast<int>(dtype_count) ? "none" : name_of(static_cast<DType>(dtype)).data();
}

int penstock_context_create(const char* options, penstock_context** context, penstock_error* error) {
  return guarded(error, [&] {
    need(context, "context");
    ContextOptions parsed;
    for_each_option(options, [&](const std::string& key, const std::string& value) {
      base::set_option(parsed, key.empty() ? value : key, value);
    });
    *context = new penstock_context{Context(parsed)};
  });
}

void penstock_context_destroy(penstock_context* context) { delete context; }

int penstock_context_progress(penstock_context* context, int* ran, penstock_error* error) {
  return guarded(error, [&] {
    bool did = need(context, "context").context.progress();
    if (ran) *ran = did;
  });
}

int penstock_context_create_stream(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                   const char* options, penstock_writer** writer, penstock_error* error) {
  return guarded(error, [&] {
    auto owned = cohort_of(cohort);
    need(writer, "writer");
    auto created =
        need(context, "context")
            .context.create_stream(&need(name, "name"), std::move(owned), stream_options(options, base::Side::writer));
    auto address = created.address();
    auto own_name = created.name();
    *writer = new penstock_writer{std::move(created), std::move(own_name), std::move(address), std::nullopt};
  });
}

int penstock_context_open_stream(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                 const char* options, penstock_reader** reader, penstock_error* error) {
  return guarded(error, [&] {
    auto owned = cohort_of(cohort);
    need(reader, "reader");
    auto opened =
        need(context, "context")
            .context.open_stream(&need(name, "name"), std::move(owned), stream_options(options, base::Side::reader));
    auto own_name = opened.name();
    *reader = new penstock_reader{std::move(opened), std::move(own_name), std::nullopt, std::nullopt, {}, {}};
  });
}

int penstock_context_list_streams(penstock_context* context, penstock_stream_entry** entries, size_t* count,
                                  penstock_error* error) {
  return guarded(error, [&] {
    need(entries, "entries");
    need(count, "count");
    auto list = need(context, "context").context.list_streams();
    const auto size = list.size();
    *entries = array_for_c<penstock_stream_entry>(std::move(list), [](const StreamEntry& stream) {
      return penstock_stream_entry{stream.name.c_str(), stream.address.c_str(), stream.host.c_str(),
                                   stream.pid,          stream.ranks,           stream.alive};
    });
    *count = size;
  });
}

int penstock_context_inspect(penstock_context* context, const char* name, int64_t timeout_ms, char** text,
                             penstock_error* error) {
  return guarded(error, [&] {
    need(text, "text");
    *text = new_text(need(context, "context").context.inspect(&need(name, "name"), timeout_of(timeout_ms)));
  });
}

void penstock_text_free(char* text) { delete[] text; }

void penstock_stream_entries_free(penstock_stream_entry* entries) { free_array<StreamEntry>(entries); }

}  // extern "C"
