// What the files of the C API share: the handles, and the border where exceptions become codes.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/penstock.h"
#include "penstock/penstock.hpp"
#include "penstock/pool.hpp"

namespace penstock::capi {

// Strings and elements handed out to C; freed when the step ends. Pointers into a node of a map stay put.
struct Strings {
  std::vector<std::string> values;
  std::vector<const char*> pointers;
  explicit Strings(std::vector<std::string> v) : values(std::move(v)) {
    for (const auto& value : values) pointers.push_back(value.c_str());
  }
  Strings(Strings&&) = default;  // the values stay where they are; a copy's pointers would dangle
};
struct HeldAttribute {
  Attribute value;
  Strings strings;
  explicit HeldAttribute(Attribute v) : value(std::move(v)), strings(value.strings) {}
};

}  // namespace penstock::capi

struct penstock_context {
  penstock::Context context;
};

struct penstock_writer {
  penstock::Writer writer;
  std::string name;
  std::string address;
  std::optional<penstock::WriteStep> step;  // after writer: destroyed before it
};

struct penstock_reader {
  penstock::Reader reader;
  std::string name;
  std::optional<penstock::ReadStep> step;
  // Of the open step, as far as asked for.
  std::optional<penstock::capi::Strings> attribute_names;
  std::map<std::string, penstock::capi::HeldAttribute, std::less<>> attributes;
  std::map<std::uint32_t, penstock::capi::Strings> strings;

  void forget_step() {
    step.reset();
    attribute_names.reset();
    attributes.clear();
    strings.clear();
  }
};

namespace penstock::capi {

inline void fill(penstock_error* error, int code, const char* message) noexcept {
  if (!error) return;
  error->code = code;
  std::size_t length = std::min(std::strlen(message), sizeof error->message - 1);
  std::memcpy(error->message, message, length);
  error->message[length] = '\0';
}

// Runs body; what it throws becomes the returned code and the caller's error.
template <class Body>
int guarded(penstock_error* error, Body&& body) noexcept {
  fill(error, PENSTOCK_OK, "");
  int code = PENSTOCK_ERR_INTERNAL;
  try {
    body();
    return PENSTOCK_OK;
  } catch (const Error& e) {
    code = static_cast<int>(e.code());
    fill(error, code, e.what());
  } catch (const std::bad_alloc&) {
    code = PENSTOCK_ERR_MEMORY;
    fill(error, code, "out of memory");
  } catch (const std::exception& e) {
    fill(error, code, e.what());
  } catch (...) {
    fill(error, code, "an unknown exception");
  }
  return code;
}

// The pointer, when it is one.
template <class T>
T& need(T* pointer, const char* what) {
  if (!pointer) throw Error(Errc::invalid_argument, std::string(what) + " is NULL");
  return *pointer;
}

inline std::string text_of(const char* text) { return text ? text : ""; }

inline std::vector<std::string> texts_of(std::size_t count, const char* const* names, const char* what) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.emplace_back(&need((&need(names, what))[i], what));
  return out;
}

template <class Handle>
auto& open_step(Handle* handle, const char* what) {
  need(handle, what);
  if (!handle->step) throw Error(Errc::wrong_state, std::string("the ") + what + " has no step open");
  return *handle->step;
}

inline Timeout timeout_of(std::int64_t timeout_ms) {
  if (timeout_ms < -1) throw Error(Errc::invalid_argument, "a timeout is -1 (as configured) or at least 0");
  return timeout_ms == PENSTOCK_FOREVER ? forever : Timeout(timeout_ms);
}

inline Dims dims_of(std::size_t ndims, const std::uint64_t* values, const char* what) {
  if (ndims == 0) return {};
  return Dims(std::span(&need(values, what), ndims));
}

// start: null for zeros.
inline Box box_of(std::size_t ndims, const std::uint64_t* start, const std::uint64_t* count) {
  return {start ? dims_of(ndims, start, "start") : Dims::filled(ndims, 0), dims_of(ndims, count, "count")};
}

// An enumerator received from C, checked against the last one defined.
template <class Enum>
Enum enum_of(int value, Enum last, const char* what) {
  if (value < 0 || value > static_cast<int>(last))
    throw Error(Errc::invalid_argument, std::string(what) + " cannot be " + std::to_string(value));
  return static_cast<Enum>(value);
}

inline DType dtype_of(int value) { return enum_of(value, DType::string, "a dtype"); }

template <std::size_t N>
void copy_text(char (&out)[N], const std::string& text) {
  std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

inline void copy_dims(std::uint64_t (&out)[PENSTOCK_MAX_DIMS], const Dims& dims) {
  std::fill(std::copy(dims.begin(), dims.end(), out), out + PENSTOCK_MAX_DIMS, 0);
}

// A cohort that calls the C functions; solo for NULL. The C cohort is released also when this throws.
std::shared_ptr<Cohort> cohort_of(const penstock_cohort* cohort);

// Calls set(key, value) for each part of "key=value,key=value"; a part without '=' gives ("", part).
template <class Set>
void for_each_option(const char* options, Set&& set) {
  std::string_view rest = options ? options : "";
  while (!rest.empty()) {
    auto part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    auto trim = [](std::string_view text) {
      auto first = text.find_first_not_of(" \t\n");
      if (first == text.npos) return std::string();
      return std::string(text.substr(first, text.find_last_not_of(" \t\n") - first + 1));
    };
    if (trim(part).empty()) continue;
    auto equals = part.find('=');
    if (equals == part.npos) set(std::string(), trim(part));
    else set(trim(part.substr(0, equals)), trim(part.substr(equals + 1)));
  }
}

penstock_statistics to_c(const StreamStatistics& statistics);

// From "key=value,...".
PoolOptions pool_options(const char* text);

// A text that penstock_text_free frees.
inline char* new_text(const std::string& text) {
  auto copy = std::make_unique<char[]>(text.size() + 1);
  std::memcpy(copy.get(), text.c_str(), text.size() + 1);
  return copy.release();
}

// An array for C: make(element) of each element of `from`, whose strings it may point into. The array follows the pointer to them;
// free_array<From> frees both.
inline constexpr std::size_t array_header = 16;
template <class C, class From, class Make>
C* array_for_c(std::vector<From> from, Make make) {
  auto owned = std::make_unique<std::vector<From>>(std::move(from));
  auto* block = static_cast<std::byte*>(::operator new(array_header + owned->size() * sizeof(C)));
  auto* out = reinterpret_cast<C*>(block + array_header);
  for (std::size_t i = 0; i < owned->size(); ++i) new (&out[i]) C(make((*owned)[i]));
  new (block) std::vector<From>*(owned.release());
  return out;
}
template <class From>
void free_array(void* array) {
  if (!array) return;
  auto* block = static_cast<std::byte*>(array) - array_header;
  delete *reinterpret_cast<std::vector<From>**>(block);
  ::operator delete(block);
}

// Copies a struct that may have grown since the caller was compiled, or before.
template <class Struct>
void copy_grown(const Struct& from, Struct* out, std::size_t struct_size) {
  if (struct_size < 2 * sizeof(std::size_t))
    throw Error(Errc::invalid_argument, "struct_size is not set to the size of the struct");
  // As bytes: with a caller of another version this is not an array of Struct.
  std::memcpy(static_cast<void*>(out), static_cast<const void*>(&from), std::min(struct_size, sizeof from));
  std::memcpy(static_cast<void*>(out), &struct_size, sizeof struct_size);
}

}  // namespace penstock::capi
