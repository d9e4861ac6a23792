// Functions that run beside the data: the interface of plug-ins.
//
// A plug-in is a shared object that a pool's operator names in the server's configuration. It is loaded by worker
// processes, never by the server. It needs this header and no library. Example:
//
//   #include <penstock/compute.hpp>
//
//   static void energy(const penstock::compute::Call& call) {
//     double sum = 0;
//     for (std::size_t i = 0; i < call.input_count(); ++i)
//       for (const double v : call.input(i).values<double>()) sum += v * v;
//     call.value(sum);
//   }
//   PENSTOCK_COMPUTE_FUNCTIONS({"energy", penstock::compute::entry<energy>})
//
// Inputs are the objects or blocks that the caller chose, in the order of their names; they are mapped read-only, lie
// aligned to their elements, and are gone when the function returns. Arguments are the caller's JSON text. A function
// gives one output: raw bytes, or an array. It may throw: the caller gets the exception's text. It runs on the only
// thread of a process of its own, under limits of time and memory; it cannot write files.
//
// What crosses the boundary is C (structures and function pointers below), so plug-in and worker may be built by
// different compilers. `size` fields let later versions append members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "penstock/types.hpp"

extern "C" {

#define PENSTOCK_COMPUTE_ABI 1
#define PENSTOCK_COMPUTE_MAX_DIMS 8

struct penstock_compute_input {
  const char* name;  // not terminated: keys may hold zeros
  std::uint64_t name_bytes;
  std::uint32_t dtype;  // penstock::DType; 0: raw bytes
  std::uint32_t ndims;
  std::uint64_t shape[PENSTOCK_COMPUTE_MAX_DIMS];
  std::uint64_t start[PENSTOCK_COMPUTE_MAX_DIMS];  // of the block within its global array; 0 without one
  std::uint32_t has_start;
  std::uint32_t reserved;
  const void* data;
  std::uint64_t bytes;
};

struct penstock_compute_call {
  std::uint64_t size;  // of this structure
  const penstock_compute_input* inputs;
  std::uint64_t input_count;
  const char* arguments;  // JSON text, terminated
  void* context;          // for the functions below
  // Memory for the output, zeroed, `bytes` long. dtype 0: raw bytes; else an array of that shape. Null when the output is
  // larger than the call allows or makes no sense: return at once then. A second call replaces the first.
  void* (*output)(void* context, std::uint64_t bytes, std::uint32_t dtype, std::uint32_t ndims,
                  const std::uint64_t* shape);
  // A few words of JSON that go to the caller beside the output.
  void (*info)(void* context, const char* text, std::uint64_t bytes);
  // Says why the function failed.
  void (*fail)(void* context, const char* text, std::uint64_t bytes);
};

struct penstock_compute_entry {
  const char* name;
  int (*function)(const penstock_compute_call* call);  // 0: the output is valid
};

struct penstock_compute_table {
  std::uint32_t abi;  // PENSTOCK_COMPUTE_ABI
  std::uint32_t count;
  const penstock_compute_entry* entries;
};

// What a plug-in exports.
typedef const penstock_compute_table* (*penstock_compute_register)(void);
}

namespace penstock::compute {

// One object or block.
class Input {
 public:
  explicit Input(const penstock_compute_input& input) : input_(input) {}
  std::string_view name() const { return {input_.name, input_.name_bytes}; }
  DType dtype() const { return static_cast<DType>(input_.dtype); }
  std::span<const std::uint64_t> shape() const { return {input_.shape, input_.ndims}; }
  // Where the block begins in its global array; empty without one.
  std::span<const std::uint64_t> start() const { return {input_.start, input_.has_start ? input_.ndims : 0}; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(input_.data), input_.bytes}; }
  // The elements, row-major. Throws std::invalid_argument when T is not their type.
  template <class T>
  std::span<const T> values() const {
    if (dtype() != dtype_of<T>()) throw std::invalid_argument(std::string(name()) + " has elements of another type");
    return {static_cast<const T*>(input_.data), input_.bytes / sizeof(T)};
  }

 private:
  const penstock_compute_input& input_;
};

class Call {
 public:
  explicit Call(const penstock_compute_call& call) : call_(call) {}
  std::size_t input_count() const { return call_.input_count; }
  // i below input_count().
  Input input(std::size_t i) const { return Input(call_.inputs[i]); }
  std::string_view arguments() const { return call_.arguments; }  // JSON; "" without

  // Room for the output. Throw std::length_error when the call allows no output of that size.
  std::span<std::byte> output(std::uint64_t bytes) const {
    return {static_cast<std::byte*>(checked(call_.output(call_.context, bytes, 0, 0, nullptr))), bytes};
  }
  template <class T>
  std::span<T> array(std::span<const std::uint64_t> shape) const {
    std::uint64_t count = 1;
    for (const auto size : shape)
      if (__builtin_mul_overflow(count, size, &count)) throw std::length_error("the output is too large");
    void* data = checked(call_.output(call_.context, count * sizeof(T), static_cast<std::uint32_t>(dtype_of<T>()),
                                      static_cast<std::uint32_t>(shape.size()), shape.data()));
    return {static_cast<T*>(data), count};
  }
  // An output of one number, or of text.
  template <class T>
  void value(T value) const {
    array<T>({}).front() = value;
  }
  void text(std::string_view text) const {
    const auto bytes = output(text.size());
    if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  }
  void info(std::string_view json) const { call_.info(call_.context, json.data(), json.size()); }

 private:
  static void* checked(void* data) {
    if (data == nullptr) throw std::length_error("the output is larger than the call allows");
    return data;
  }
  const penstock_compute_call& call_;
};

// Turns a C++ function into a table's entry: exceptions become the call's error.
template <void (*function)(const Call&)>
int entry(const penstock_compute_call* call) {
  const auto fail = [call](std::string_view text) { call->fail(call->context, text.data(), text.size()); };
  try {
    function(Call(*call));
    return 0;
  } catch (const std::bad_alloc&) {
    fail("out of memory");
    return 2;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of an unknown type");
  }
  return 1;
}

}  // namespace penstock::compute

// Defines what the plug-in exports: {"name", function}, {"name", function}, ...
#define PENSTOCK_COMPUTE_FUNCTIONS(...)                                                                              \
  extern "C" [[gnu::visibility("default")]] const penstock_compute_table* penstock_compute_functions(void) {         \
    static const penstock_compute_entry entries[] = {__VA_ARGS__};                                                   \
    static const penstock_compute_table table = {PENSTOCK_COMPUTE_ABI, sizeof entries / sizeof entries[0], entries}; \
    return &table;                                                                                                   \
  }
