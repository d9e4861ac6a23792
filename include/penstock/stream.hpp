// Streams of steps: the C++ API.
//
// A stream is a named sequence of steps. A writer cohort (M ranks) puts blocks of variables into a step; reader cohorts
// (any number, N ranks each, joining and leaving at any time) get selections of it. A step is atomic: readers see all of
// it or none. Neither side knows the other's decomposition.
//
// Ownership: put copies before it returns; put_span hands out the stream's own memory to fill until end; lend promises
// that an array stays unchanged until end returns (this engine copies it in end). get fills the caller's memory by the
// time wait or end returns; a View borrows the writer's memory and holds the step's lease until it is destroyed.
// The caller's arrays may lie on a CUDA device, when the work that uses them there is finished.
//
// Threads: a Context may be shared by threads; one Writer or Reader is used by one thread at a time. Several may live in
// one process. Every object here is invalid after fork. Calls throw Error; expected outcomes are values.
// Only opening and closing are collective over the cohort; a step costs no collective call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/cohort.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "penstock/types.hpp"

namespace penstock {

class Pool;
namespace stream {
class WriterEngine;
class ReaderEngine;
struct EngineContext;
}  // namespace stream
namespace fabric {
class Progress;
}

// ---------------------------------------------------------------------------------------------------------- values

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

enum class Outcome : std::uint8_t { ready, not_ready, end_of_stream, writer_lost };

// ---------------------------------------------------------------------------------------------------------- writing

class Writer;

// A step being written. Destroying it without end() voids the step on every rank.
class WriteStep {
 public:
  WriteStep(WriteStep&&) noexcept;
  WriteStep& operator=(WriteStep&&) noexcept;  // abandons its own step first, if it has one
  ~WriteStep();

  std::uint64_t number() const;
  // True when policy dropped this step (discard_*): calls are accepted and cost nothing, readers never see it.
  bool dropped() const;

  // A new shape for a global array, from this step on; the old one again if this rank gives the step up. All ranks that put
  // the array give the same.
  void set_shape(std::uint32_t variable, const Dims& shape);
  template <class T>
  void set_shape(Variable<T> variable, const Dims& shape) {
    set_shape(variable.id, shape);
  }

  // Copies one block. data: element_count(box.count) elements in the variable's order, or with strides (bytes per
  // dimension, of any sign). An empty box (a zero count) is legal and becomes a block without elements.
  // Throws invalid_argument (box outside the shape, wrong rank count), step_too_large (the step is void).
  void put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides = {});
  template <class T>
  void put(Variable<T> variable, const Box& box, const T* data) {
    put(variable.id, box, data);
  }
  // The whole of a one-writer global array, or one value.
  template <class T>
  void put(Variable<T> variable, const T* data) {
    put_whole(variable.id, data);
  }
  template <class T>
  void put(Variable<T> variable, const T& value) {
    put_value(variable.id, value);
  }

  // The stream's memory for one block, to be filled before end(); 64-byte aligned, in the variable's order.
  std::span<std::byte> put_span(std::uint32_t variable, const Box& box);
  template <class T>
  std::span<T> put_span(Variable<T> variable, const Box& box) {
    auto raw = put_span(variable.id, box);
    return {reinterpret_cast<T*>(raw.data()), raw.size() / sizeof(T)};
  }
  // As put, but data stays valid and unchanged until end() returns; the copy is made there, if one is needed.
  void lend(std::uint32_t variable, const Box& box, const void* data);
  template <class T>
  void lend(Variable<T> variable, const Box& box, const T* data) {
    lend(variable.id, box, data);
  }

  void put_whole(std::uint32_t variable, const void* data);
  void put_string(std::uint32_t variable, std::string_view value);
  // In force until put again; not in later steps if this rank gives the step up.
  void put_attribute(std::string_view name, Attribute value);
  template <class T>
  void put_attribute(std::string_view name, const T& value) {
    put_attribute(name, Attribute::of(value));
  }

  // Hands the step over; it becomes visible when every rank has done so. Ranks that put one variable with different types or
  // shapes end the stream: on every rank this, or the next call, throws invalid_argument.
  void end();
  // Gives the step up, on every rank.
  void abandon();

 private:
  friend class Writer;
  explicit WriteStep(stream::WriterEngine* engine) : engine_(engine) {}
  template <class T>
  void put_value(std::uint32_t variable, const T& value) {
    if constexpr (std::is_convertible_v<T, std::string_view>) put_string(variable, value);
    else put_whole(variable, &value);
  }
  stream::WriterEngine* engine_;  // null once ended
};

class Writer {
 public:
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;  // ends what it held, as the destructor does
  // As close(), if that was not called, but failures are only logged. While an exception unwinds, readers are told at
  // once that the writer is lost instead.
  ~Writer();

  const std::string& name() const;
  // For readers on other hosts: "tcp://host:port/name?token=...". Only rank 0 knows it; "" elsewhere.
  std::string address() const;

  // Defines a variable before its first put; once per name. shape: global arrays only.
  std::uint32_t define(std::string_view name, DType dtype, const Dims& shape = {}, VariableOptions options = {});
  template <class T>
  Variable<T> define(std::string_view name, const Dims& shape, VariableOptions options = {}) {
    return {define(name, dtype_of<T>(), shape, options)};
  }
  template <class T>
  Variable<T> define_local(std::string_view name, Order order = Order::row) {
    return {define(name, dtype_of<T>(), {}, {.kind = Kind::local_array, .order = order})};
  }
  template <class T>
  Variable<T> define_value(std::string_view name, Kind kind = Kind::global_value) {
    return {define(name, dtype_of<T>(), {}, {.kind = kind})};
  }
  // In force from the open step on, or from the next one; stays if the open step is given up.
  void put_attribute(std::string_view name, Attribute value);

  // Waits for room (when_full = block) and, the first time, for rendezvous_readers. Throws Error(timeout).
  WriteStep begin_step(Timeout deadline = configured);
  // As begin_step, but an empty optional when the deadline passes.
  std::optional<WriteStep> try_begin_step(Timeout deadline = Timeout(0));
  // Collective. Waits until readers have released what was committed, then tells them that the stream has ended.
  // Throws Error(timeout) naming the readers that still hold steps; the stream is closed all the same.
  void close(Timeout deadline = configured);
  // Closes after a failure: readers get writer_lost, not the end of the stream. Not collective; waits for no reader.
  void lose();

  StreamStatistics statistics() const;

 private:
  friend class Context;
  friend class WriteStep;
  explicit Writer(std::unique_ptr<stream::WriterEngine> engine);
  std::unique_ptr<stream::WriterEngine> engine_;
};

// ---------------------------------------------------------------------------------------------------------- reading

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

class Reader;

// A step being read. Destroying it ends it.
class ReadStep {
 public:
  ReadStep(ReadStep&&) noexcept;
  ReadStep& operator=(ReadStep&&) noexcept;  // ends its own step first, if it has one
  ~ReadStep();

  // The writer's number; gaps follow drops and late joins.
  std::uint64_t number() const;

  // What ranks put into the step; a variable that no rank put into it is not there. References live until the step ends.
  const std::vector<VariableInfo>& variables() const;
  const VariableInfo* find(std::string_view name) const;  // null when absent
  // Throws Error(not_found), as all calls that take an id do, naming the last step with it that this reader has seen, else
  // the nearest name.
  const VariableInfo& variable(std::string_view name) const;
  std::vector<BlockInfo> blocks(std::uint32_t variable) const;
  std::vector<std::string> attribute_names() const;
  std::optional<Attribute> attribute(std::string_view name) const;
  // Over all blocks, or of one. Empty when the writer did not compute it.
  std::optional<MinMax> min_max(std::uint32_t variable) const;
  std::optional<MinMax> min_max(std::uint32_t variable, std::uint64_t block) const;

  // Enqueues; out (elements packed in `order`, or with byte strides) is complete after wait() or end(). Elements that no
  // block covers are left as they were; where blocks overlap, the block with the highest number wins.
  // Throws invalid_argument (selection outside the array), not_found.
  void get(std::uint32_t variable, const Selection& selection, void* out, Order order = Order::row,
           std::span<const std::int64_t> strides = {});
  // With the type checked.
  template <class T>
  void get(const VariableInfo& variable, const Selection& selection, T* out) {
    require_type(variable, dtype_of<T>());
    get(variable.id, selection, static_cast<void*>(out));
  }
  template <class T>
  void get(std::string_view name, const Selection& selection, T* out) {
    get(variable(name), selection, out);
  }
  // A whole array at once, sized for you.
  template <class T>
  std::vector<T> read(std::string_view name, const Selection& selection = Selection::all()) {
    const auto& info = variable(name);
    std::vector<T> out(element_count(shape_of(info.id, selection)));
    get(info, selection, out.data());
    wait();
    return out;
  }
  template <class T>
  T read_value(std::string_view name) {
    T out{};
    get(name, Selection::all(), &out);
    wait();
    return out;
  }
  // The value of a string variable; local values: one string for each writer rank.
  std::vector<std::string> read_strings(std::uint32_t variable) const;
  // The shape that get(selection) fills.
  Dims shape_of(std::uint32_t variable, const Selection& selection) const;

  // Performs everything enqueued, coalesced. Throws timeout, peer_lost, writer_lost, step_gone; out is then unspecified.
  void wait(Timeout deadline = configured);

  // Memory without a copy: one View for each block that the selection (all, box or block) touches, in block order.
  // Over tcp each View owns a fetched buffer.
  Views view(std::uint32_t variable, const Selection& selection = Selection::all());

  // Performs what is enqueued and gives the step back.
  void end();

 private:
  friend class Reader;
  explicit ReadStep(stream::ReaderEngine* engine) : engine_(engine) {}
  static void require_type(const VariableInfo& variable, DType dtype);
  stream::ReaderEngine* engine_;  // null once ended
};

struct StepOutcome {
  Outcome outcome = Outcome::not_ready;
  std::optional<ReadStep> step;  // when ready
};

class Reader {
 public:
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  const std::string& name() const;
  // Waits for the next step. Throws Error: timeout, end_of_stream, writer_lost (naming the steps that are lost).
  ReadStep begin_step(Timeout deadline = configured);
  // As begin_step; outcomes are values.
  StepOutcome try_begin_step(Timeout deadline = Timeout(0));
  // Where steps are kept (engine pool), also after the writer has ended; elsewhere Error(unsupported). All ranks of a
  // cohort seek alike, between steps: the next begin_step gives the first kept step with at least this number, back or
  // forth, and goes on from there.
  void seek(std::uint64_t step);
  // The numbers of the steps that are kept now.
  std::vector<std::uint64_t> steps();
  // Leaves the stream; the writer goes on.
  void close();

  StreamStatistics statistics() const;

 private:
  friend class Context;
  friend class ReadStep;
  explicit Reader(std::unique_ptr<stream::ReaderEngine> engine);
  std::unique_ptr<stream::ReaderEngine> engine_;
};

// ---------------------------------------------------------------------------------------------------------- context

// A stream found in the directory.
struct StreamEntry {
  std::string name;
  std::string address;  // with token: for the owner's eyes
  std::string host;
  std::int64_t pid = 0;
  std::uint32_t ranks = 0;
  bool alive = false;
};

// Configuration and the library's thread. Streams keep what they need of it alive.
class Context {
 public:
  explicit Context(ContextOptions options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // The options in effect for a stream: `defaults` overlaid by penstock.yaml, then by the environment.
  StreamOptions options_for(std::string_view stream, StreamOptions defaults = {}) const;

  // Collective. Registers the stream and returns at once; readers are awaited in the first begin_step.
  // Throws Error: invalid_argument, timeout (a rank that did not come), wrong_state (the stream is being written already; when
  // by another rank of this MPI launch without the communicator, that rank fails too).
  Writer create_stream(std::string_view name, std::shared_ptr<Cohort> cohort = solo(),
                       StreamOptions options = {}) const;
  // Collective. Waits until the stream exists and its writer has admitted this cohort. name: a registered stream, or an
  // address as printed by `penstock ls --address`. Throws Error: timeout, authentication.
  Reader open_stream(std::string_view name, std::shared_ptr<Cohort> cohort = solo(), StreamOptions options = {}) const;

  std::vector<StreamEntry> list_streams() const;
  // The writer's statistics of a live stream, with its readers, as JSON text; asks the writer's engine, joins nothing.
  // name: as for open_stream. Throws Error: not_found (nobody answers), authentication, timeout.
  std::string inspect(std::string_view name, Timeout deadline = Timeout(5000)) const;

  // explicit_progress only: runs what is ready; true when something ran.
  bool progress();

 private:
  friend class Pool;
  stream::EngineContext engine_context() const;
  ContextOptions options_;
  std::shared_ptr<fabric::Progress> progress_;
};

// ---------------------------------------------------------------------------------------------------------- inline

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
