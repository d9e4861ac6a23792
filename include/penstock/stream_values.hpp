// What goes into streams and comes out of them, as values: attributes, selections, descriptions, statistics, memory that is
// read in place. Any thread; a View keeps what it borrows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/types.hpp"

namespace penstock {

// A named value attached to a step, or to a variable of it ("T/units"). Scalars and one-dimensional arrays of every
// element type. An attribute stays in force for later steps until it is put again.
struct Attribute {
  DType dtype = DType::none;
  bool is_array = false;
  std::vector<std::byte> bytes;      // packed elements; empty for strings
  std::vector<std::string> strings;  // one for a scalar string

  std::size_t size() const { return dtype == DType::string ? strings.size() : bytes.size() / size_of(dtype); }
  template <class T>
  static Attribute of(std::span<const T> values, bool is_array = true) {
    auto raw = std::as_bytes(values);
    return {dtype_of<T>(), is_array, {raw.begin(), raw.end()}, {}};
  }
  template <class T>
  static Attribute of(const T& value) {
    if constexpr (std::is_convertible_v<T, std::string>) return {DType::string, false, {}, {std::string(value)}};
    else return of(std::span<const T>(&value, 1), false);
  }
  static Attribute of(std::vector<std::string> values) { return {DType::string, true, {}, std::move(values)}; }
  // The first (or only) value. Throws Error(invalid_argument) when T is not the attribute's type.
  template <class T>
  T as() const;
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

struct VariableOptions {
  Kind kind = Kind::global_array;
  Order order = Order::row;
  bool min_max = false;
};

// A handle of a variable of one writer; cheap to copy. T is void when the type is known only at run time.
template <class T = void>
struct Variable {
  std::uint32_t id = 0;
};

// What a reader asks for.
class Selection {
 public:
  enum class Form : std::uint8_t { all, box, block, points };
  static Selection all() { return {}; }
  static Selection box(Box box) { return Selection(Form::box, std::move(box)); }
  static Selection box(Dims start, Dims count) { return box(Box{start, count}); }
  // Every stride[d]-th element: start[d], start[d] + stride[d], ... count[d] of them. Strides are at least 1.
  static Selection strided(Dims start, Dims count, Dims stride);
  // One block as its writer put it; blocks are numbered 0.. by writer rank, then by order of put.
  static Selection block(std::uint64_t number);
  // Single elements in any order; coordinates hold one index tuple after the other (points x dimensions).
  static Selection points(std::vector<std::uint64_t> coordinates, std::size_t dimensions);

  Form form() const { return form_; }
  const Box& box() const { return box_; }
  const Dims& stride() const { return stride_; }  // empty: 1 everywhere
  std::uint64_t block_number() const { return block_; }
  std::span<const std::uint64_t> coordinates() const { return points_; }
  std::size_t dimensions() const { return dimensions_; }
  friend bool operator==(const Selection&, const Selection&) = default;

 private:
  Selection() = default;
  Selection(Form form, Box box) : form_(form), box_(std::move(box)) {}
  Form form_ = Form::all;
  Box box_;
  Dims stride_;
  std::uint64_t block_ = 0;
  std::vector<std::uint64_t> points_;
  std::size_t dimensions_ = 0;
};

struct BlockInfo {
  Box box;  // local arrays: start is all zeros
  int writer_rank = 0;
};

// A variable as a step describes it.
struct VariableInfo {
  std::uint32_t id = 0;  // valid within its epoch; use the name across steps
  std::string name;
  DType dtype = DType::none;
  Kind kind = Kind::global_array;
  Order order = Order::row;  // how the writer keeps it; get converts
  Dims shape;                // global arrays; local_value: the number of blocks; others empty
  std::uint64_t blocks = 0;
};

// Both as raw elements of the variable's type (at most 16 bytes each).
struct MinMax {
  DType dtype = DType::none;
  std::byte min[16]{};
  std::byte max[16]{};
  template <class T>
  std::pair<T, T> as() const;
};

struct PeerStatistics {
  std::string name;  // host:pid of the cohort's rank 0
  std::uint32_t ranks = 0;
  std::string data_plane;
  std::uint64_t steps_delivered = 0;  // begun by the reader, or announced to it
  std::uint64_t steps_released = 0;
  std::uint64_t steps_dropped = 0;  // dropped by policy before this reader saw them
  std::uint64_t steps_held = 0;     // leased by it now
};

// Counted since open. Times in seconds.
struct StreamStatistics {
  std::uint64_t steps = 0;               // committed (writer) or delivered (reader)
  std::uint64_t steps_dropped = 0;       // by policy, on either side's account
  std::uint64_t steps_voided = 0;        // given up by any rank; complete on every rank once it has closed
  std::uint64_t analysis_errors = 0;     // reader: steps at which its on_step function failed
  std::uint64_t bytes = 0;               // put, or got and viewed
  std::uint64_t bytes_copied = 0;        // by the calling thread
  std::uint64_t copies = 0;              // blocks or pieces copied
  double copy_s = 0;                     // in put, get
  double wait_s = 0;                     // in begin_step, waiting for the other side
  std::uint64_t announcement_bytes = 0;  // control bytes sent (writer) or received (reader) for steps in a known epoch
  std::uint64_t epochs = 0;
  std::uint64_t plans_built = 0;
  std::uint64_t plans_reused = 0;
  std::uint32_t queue_depth = 0;   // steps held now
  std::uint64_t memory_bytes = 0;  // arena of this rank
  std::string data_plane;          // reader: the plane in use ("shm", "tcp")
  std::vector<PeerStatistics> peers;
};

// What becomes of an exception that a function given to Reader::on_step throws.
enum class OnStepError : std::uint8_t {
  report,  // it is logged and counted (StreamStatistics::analysis_errors); the simulation goes on
  raise,   // as report; and the writer's end of the step throws it, when the step was given back
};

enum class Outcome : std::uint8_t { ready, not_ready, end_of_stream, writer_lost };

// Read-only memory of one contiguous piece, valid while any copy of this View lives, even after the step has ended, the
// reader was closed, or the writer died.
class View {
 public:
  View() = default;
  View(std::span<const std::byte> bytes, Box box, Order order, std::array<std::int64_t, max_dims> strides,
       std::shared_ptr<const void> owner)
      : bytes_(bytes), box_(std::move(box)), order_(order), strides_(strides), owner_(std::move(owner)) {}
  std::span<const std::byte> bytes() const { return bytes_; }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  const Box& box() const { return box_; }  // which part of the array this is
  Order order() const { return order_; }
  // Bytes between neighbours in each dimension.
  const std::array<std::int64_t, max_dims>& strides() const { return strides_; }
  // What keeps the memory alive; hold it to outlive the View.
  std::shared_ptr<const void> owner() const { return owner_; }

 private:
  std::span<const std::byte> bytes_;  // from the first to the last element selected
  Box box_;
  Order order_ = Order::row;
  std::array<std::int64_t, max_dims> strides_{};
  std::shared_ptr<const void> owner_;
};

// The Views of one call, in block order. Up to one is kept without allocation.
class Views {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const View& operator[](std::size_t i) const { return size_ == 1 ? one_ : many_[i]; }
  const View& front() const { return (*this)[0]; }
  const View* begin() const { return size_ == 1 ? &one_ : many_.data(); }
  const View* end() const { return begin() + size_; }
  void push_back(View view) {
    if (size_ == 1) many_.push_back(std::move(one_));
    if (size_ == 0) one_ = std::move(view);
    else many_.push_back(std::move(view));
    ++size_;
  }

 private:
  View one_;
  std::vector<View> many_;  // when there is more than one
  std::size_t size_ = 0;
};

// A stream found in the directory.
struct StreamEntry {
  std::string name;
  std::string address;  // with token: for the owner's eyes
  std::string host;
  std::int64_t pid = 0;
  std::uint32_t ranks = 0;
  bool alive = false;
};

template <class T>
T Attribute::as() const {
  if (dtype_of<T>() != dtype || size() == 0)
    throw Error(Errc::invalid_argument, "the attribute holds " + std::string(name_of(dtype)));
  if constexpr (std::is_same_v<T, std::string>) return strings.front();
  else {
    T value;
    std::copy_n(bytes.data(), sizeof(T), reinterpret_cast<std::byte*>(&value));
    return value;
  }
}

template <class T>
std::pair<T, T> MinMax::as() const {
  if (dtype_of<T>() != dtype) throw Error(Errc::invalid_argument, "the range holds " + std::string(name_of(dtype)));
  std::pair<T, T> out;
  std::copy_n(min, sizeof(T), reinterpret_cast<std::byte*>(&out.first));
  std::copy_n(max, sizeof(T), reinterpret_cast<std::byte*>(&out.second));
  return out;
}

}  // namespace penstock
