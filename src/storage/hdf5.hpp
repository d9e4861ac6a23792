// HDF5's identifiers and its errors as Error: what the pool's tier and the file engine share. Only for sources of
// modules that link HDF5; nothing of it is in libpenstock.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "storage/hdf5_lock.hpp"

namespace penstock::storage::h5 {

// Throws Error(system) with the innermost message of HDF5, which has errno's text where there is one.
[[noreturn]] inline void fail(const char* doing) {
  std::string innermost;
  const auto first = [](unsigned n, const H5E_error2_t* error, void* text) -> herr_t {
    if (n == 0 && error->desc) *static_cast<std::string*>(text) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &innermost);
  H5Eclear2(H5E_DEFAULT);
  throw Error(Errc::system, std::string("HDF5 cannot ") + doing + (innermost.empty() ? "" : ": " + innermost));
}
template <class Result>
Result check(Result result, const char* doing) {
  if (result < 0) fail(doing);
  return result;
}

// While it lives this thread may call HDF5, which prints nothing. (The library may be one that knows no threads.)
class Use {
 public:
  Use() : lock_(hdf5_mutex()) {
    // Before HDF5 starts: what it cleans up when the process exits are files that could not be closed, on a full disk for
    // instance, and HDF5 1.10 crashes over them.
    [[maybe_unused]] static const herr_t none_left = H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Use() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }
  Use(const Use&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
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

using Extents = std::vector<hsize_t>;

inline Id space_of(const Extents& shape) {
  if (shape.empty()) return {H5Screate(H5S_SCALAR), H5Sclose, "make a space"};
  return {H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "make a space"};
}

}  // namespace penstock::storage::h5
