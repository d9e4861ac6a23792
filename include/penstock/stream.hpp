// Streams of steps: the C++ API.
//
// A stream is a named sequence of steps. A writer cohort (M ranks) puts blocks of variables into a step; reader cohorts
// (any number, N ranks each, joining and leaving at any time) get selections of it. A step is atomic: readers see all of
// it or none. Neither side knows the other's decomposition.
//
// Ownership: put copies before it returns; put_span hands out the stream's own memory to fill until end; lend promises
// that an array stays unchanged until end returns (engine insitu reads it where it lies, others copy it in end). get fills the caller's memory by the
// time wait or end returns; a View borrows the writer's memory and holds the step's lease until it is destroyed.
// The caller's arrays may lie on a CUDA device, when the work that uses them there is finished.
//
// Threads: a Context may be shared by threads; one Writer or Reader is used by one thread at a time. Several may live in
// one process. Every object here is invalid after fork. Calls throw Error; expected outcomes are values.
// Only opening and closing are collective over the cohort; a step costs no collective call.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/cohort.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "penstock/stream_values.hpp"
#include "penstock/types.hpp"

namespace penstock {

// ---------------------------------------------------------------------------------------------------------- writing

class WriteStep;

class Writer {
 public:
  struct Impl;  // the library's own
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
  // In effect, with the engine that was chosen or found.
  const StreamOptions& options() const;

 private:
  friend class Context;
  friend class WriteStep;
  explicit Writer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

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
  void put(Variable<T> variable, const Box& box, const T* data, std::span<const std::int64_t> strides = {}) {
    put(variable.id, box, data, strides);
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
  // As put, but data stays valid and unchanged until end() returns; the copy is made there, if one is needed. With strides: the
  // inside of an array with halos, for instance. Engine insitu makes none of host memory with strides that go forward (unless
  // min_max is asked of an array that is not packed): readers of this process see data itself, and end() waits until no reader
  // uses it, or throws Error(timeout) after step_timeout_ms; the step stays committed then.
  void lend(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides = {});
  template <class T>
  void lend(Variable<T> variable, const Box& box, const T* data, std::span<const std::int64_t> strides = {}) {
    lend(variable.id, box, data, strides);
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
  explicit WriteStep(Writer::Impl* writer) : writer_(writer) {}
  template <class T>
  void put_value(std::uint32_t variable, const T& value) {
    if constexpr (std::is_convertible_v<T, std::string_view>) put_string(variable, value);
    else put_whole(variable, &value);
  }
  Writer::Impl* writer_;  // null once ended
};

// ---------------------------------------------------------------------------------------------------------- reading

class ReadStep;
class StepIterator;
struct StepOutcome;

class Reader {
 public:
  struct Impl;  // the library's own
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  const std::string& name() const;
  // Waits for the next step. Throws Error: timeout, end_of_stream, writer_lost (naming the steps that are lost).
  ReadStep begin_step(Timeout deadline = configured);
  // As begin_step; outcomes are values.
  StepOutcome try_begin_step(Timeout deadline = Timeout(0));
  // For `for (auto& step : reader)`: each step is begun as by begin_step(), and ends when the loop goes on or is left. The loop
  // ends at the end of the stream. It throws what begin_step() throws otherwise (timeout, writer_lost).
  StepIterator begin();
  std::default_sentinel_t end() { return {}; }
  // From now on the function is called for each step, in the thread of the writer's end, which waits for it: that of the
  // writer's rank with this reader's rank number, in this process (engine insitu; elsewhere Error(unsupported)). Functions of
  // several readers are called in the order in which those were opened. The step ends when the function returns; of a step
  // with arrays that were lent, no View may outlive it, which counts as an error of the function. The reader stays open,
  // and is used by no other thread, while the writer is. The function may close it.
  void on_step(std::function<void(ReadStep&)> function, OnStepError on_error = OnStepError::report);
  // Where steps are kept (engines pool, file and space), also after the writer has ended; elsewhere Error(unsupported). All ranks of a
  // cohort seek alike, between steps: the next begin_step gives the first kept step with at least this number, back or
  // forth, and goes on from there.
  void seek(std::uint64_t step);
  // The numbers of the steps that are kept now.
  std::vector<std::uint64_t> steps();
  // Leaves the stream; the writer goes on.
  void close();

  StreamStatistics statistics() const;
  // In effect, with the engine that was chosen or found.
  const StreamOptions& options() const;

 private:
  friend class Context;
  friend class ReadStep;
  explicit Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A step being read. Destroying it ends it. Variables are given by their id or by their name.
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
  std::vector<BlockInfo> blocks(std::string_view name) const { return blocks(variable(name).id); }
  std::vector<std::string> attribute_names() const;
  std::optional<Attribute> attribute(std::string_view name) const;
  // Over all blocks, or of one. Empty when the writer did not compute it.
  std::optional<MinMax> min_max(std::uint32_t variable) const;
  std::optional<MinMax> min_max(std::uint32_t variable, std::uint64_t block) const;
  std::optional<MinMax> min_max(std::string_view name) const { return min_max(variable(name).id); }
  std::optional<MinMax> min_max(std::string_view name, std::uint64_t block) const {
    return min_max(variable(name).id, block);
  }

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
    require_type(info, dtype_of<T>());
    // A std::vector<bool> keeps bits: it is made of bytes.
    std::vector<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>> out(
        element_count(shape_of(info.id, selection)));
    get(info.id, selection, static_cast<void*>(out.data()));
    wait();
    if constexpr (std::is_same_v<T, bool>) return std::vector<T>(out.begin(), out.end());
    else return out;
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
  std::vector<std::string> read_strings(std::string_view name) const { return read_strings(variable(name).id); }
  // The shape that get(selection) fills.
  Dims shape_of(std::uint32_t variable, const Selection& selection) const;
  Dims shape_of(std::string_view name, const Selection& selection) const {
    return shape_of(variable(name).id, selection);
  }

  // Performs everything enqueued, coalesced. Throws timeout, peer_lost, writer_lost, step_gone; out is then unspecified.
  void wait(Timeout deadline = configured);

  // Memory without a copy: one View for each block that the selection (all, box or block) touches, in block order.
  // Over tcp each View owns a fetched buffer.
  Views view(std::uint32_t variable, const Selection& selection = Selection::all());
  Views view(std::string_view name, const Selection& selection = Selection::all()) {
    return view(variable(name).id, selection);
  }

  // Performs what is enqueued and gives the step back.
  void end();

 private:
  friend class Reader;
  friend class StepIterator;
  explicit ReadStep(Reader::Impl* reader) : reader_(reader) {}
  static void require_type(const VariableInfo& variable, DType dtype);
  Reader::Impl* reader_;  // null once ended
};

// What a loop over a Reader advances: an input iterator that owns the present step.
class StepIterator {
 public:
  using value_type = ReadStep;
  using difference_type = std::ptrdiff_t;
  explicit StepIterator(Reader& reader) : reader_(&reader) { ++*this; }
  ReadStep& operator*() const { return *step_; }
  // Ends the step, if the loop has not, and waits for the next one.
  StepIterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const StepIterator& at, std::default_sentinel_t) { return !at.step_; }

 private:
  Reader* reader_;
  mutable std::optional<ReadStep> step_;  // none: the stream has ended
};
inline StepIterator Reader::begin() { return StepIterator(*this); }

struct StepOutcome {
  Outcome outcome = Outcome::not_ready;
  std::optional<ReadStep> step;  // when ready
};

// ---------------------------------------------------------------------------------------------------------- context

// Configuration and the library's thread. Streams keep what they need of it alive.
class Context {
 public:
  struct Impl;  // the library's own
  explicit Context(ContextOptions options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // The options in effect for a stream: `defaults` overlaid by penstock.yaml, then by the environment. The engine is automatic
  // where nobody names one.
  StreamOptions options_for(std::string_view stream, StreamOptions defaults = {}) const;
  // Of each option of a stream its value in effect, and where that came from; in the order of to_yaml.
  std::vector<OptionValue> describe_options(std::string_view stream, const StreamOptions& defaults = {}) const;
  // Of the process: config_file, directory, listen, log and trace.
  std::vector<OptionValue> describe_settings() const;

  // The same for a channel's coprocessor (penstock/coprocessor.hpp).
  CoprocessorOptions coprocessor_options_for(std::string_view channel, CoprocessorOptions defaults = {}) const;

  // The same for a mesh region (penstock/mesh_database.hpp).
  MeshOptions mesh_options_for(std::string_view region, MeshOptions defaults = {}) const;

  // Collective. Registers the stream and returns at once; readers are awaited in the first begin_step.
  // Throws Error: invalid_argument, timeout (a rank that did not come), wrong_state (the stream is being written already; when
  // by another rank of this MPI launch without the communicator, that rank fails too).
  Writer create_stream(std::string_view name, std::shared_ptr<Cohort> cohort = solo(),
                       StreamOptions options = {}) const;
  // Collective. Waits until the stream exists and its writer, if it lives, has admitted this cohort. name: a stream's, or an
  // address as printed by `penstock stream ls --address`. Without an engine's name the stream is looked for among living
  // writers, then in pools, then in files; one that has ended is opened at once, unless another of the name is being written.
  // An option pool or folder in code says that it is there. Throws Error: timeout (says where was looked, and the nearest
  // name), authentication.
  Reader open_stream(std::string_view name, std::shared_ptr<Cohort> cohort = solo(), StreamOptions options = {}) const;

  std::vector<StreamEntry> list_streams() const;
  // The writer's statistics of a live stream, with its readers, as JSON text; asks the writer's engine, joins nothing. Of a
  // stream in a pool its coordinator tells: state (open, ended, lost), writer, ranks, steps, bytes, readers. All have engine,
  // and pool, where there is one. name and options (engine, pool): as for open_stream, but it looks once. Throws Error:
  // not_found (says where was looked, and the nearest name; or nobody answers), authentication, timeout.
  std::string inspect(std::string_view name, Timeout deadline = Timeout(5000), StreamOptions options = {}) const;

  // explicit_progress only: runs what is ready; true when something ran.
  bool progress();

 private:
  friend class Pool;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace penstock
