// HDF5's identifiers, its one lock, and its errors as Error.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/layout.hpp"
#include "penstock/error.hpp"
#include "penstock/types.hpp"

namespace penstock::stream::h5 {

// Throws Error(system) with the innermost message of HDF5, which has errno's text where there is one.
[[noreturn]] void fail(const char* doing);
template <class Result>
Result check(Result result, const char* doing) {
  if (result < 0) fail(doing);
  return result;
}

// While it lives this thread may call HDF5, which prints nothing. (The library may be one that knows no threads.)
class Use {
 public:
  Use();
  ~Use();
  Use(const Use&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// Runs body as one that uses HDF5; its errors name the file.
template <class Body>
auto with(const std::string& path, Body&& body) {
  const Use use;
  try {
    return body();
  } catch (const Error& error) {
    throw error.in(path);
  }
}

class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id() = default;
  Id(hid_t id, Close close, const char* doing) : id_(check(id, doing)), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }
  void close(const char* doing) { check(close_(std::exchange(id_, -1)), doing); }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

Id access_list();  // how files are opened
Id names_list();   // how links are made: UTF-8, with the groups above them
using Extents = std::vector<hsize_t>;
Id space_of(const Extents& shape);
Id type_of(DType dtype);
Id text_type();
// As penstock save marks what HDF5 has no type for.
void mark_type(hid_t dataset, DType dtype);
void write_text(hid_t object, const char* name, const std::string& text);

// Sizes or indices as they are in the file: those of a column-major variable the other way round, after a dimension `step`
// that all variables but local arrays have.
Extents in_file(const Dims& dims, const model::VariableDefinition& variable, hsize_t step);
std::string block_name(std::uint32_t number);
// A dataset in one piece, of which nothing is written yet.
Id make_dataset(hid_t file, const std::string& name, hid_t type, const Extents& shape);
std::uint64_t offset_of(hid_t dataset);

}  // namespace penstock::stream::h5
