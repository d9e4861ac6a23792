// Co-processing: the simulation's side of an analysis that runs in its process, beside it, behind a pool, or later on files.
//
// A channel is a stream whose steps carry fields on meshes. The simulation makes Catalyst's five calls: construct (initialize),
// add_pipeline, request (request data description), CoprocessStep::coprocess, finalize. Where the analysis runs is the stream's
// engine, which configuration chooses (penstock.yaml: sections `streams` and `coprocessing`).
//
//   penstock::Coprocessor coprocessor(context, "heat", penstock::mpi_cohort(comm));
//   coprocessor.set_mesh("grid", {penstock::UniformMesh{.shape = {64, 64, 64}}});
//   const auto t = coprocessor.field<double>("grid", "T", {.units = "K"});
//   coprocessor.declare("source", 1.0, 0.0, 10.0);
//   for (cycle...) {
//     if (auto step = coprocessor.request(cycle, time)) {  // nothing is asked for at most cycles
//       step->lend(t, box, array, strides);
//       step->coprocess();
//     }
//     source = coprocessor.value<double>("source");
//   }
//   coprocessor.finalize();
//
// The attributes of a step: `meshes` and `coprocessing` (JSON; docs/internals/coprocessing.md), `cycle`, `time`. The stream's
// variables are the simulation's alone.
//
// The demand: analyses say on the stream NAME.requests which fields they want, and when, in terms of cycle and time. Rank 0
// receives them on a thread of its own, and broadcasts new ones in request(); all ranks decide alike. Until the first request
// comes, every field is asked for at every cycle (of each `every`); a demand stays in force when its analysis leaves.
// With engine file nothing is heard, and all is written, whatever `wait` says.
//
// Ownership: as in penstock/stream.hpp: put copies, lend promises that the array stays until coprocess returns. The context
// outlives the coprocessor. Threads: one at a time. Ranks: all calls but those on a CoprocessStep are collective: every rank
// makes them in the same order, with the same arguments. Invalid after fork; not for contexts with explicit_progress.
// Errors: Error. invalid_argument and not_found change nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/cohort.hpp"
#include "penstock/mesh.hpp"
#include "penstock/options.hpp"
#include "penstock/stream.hpp"

namespace penstock {

enum class Association : std::uint8_t { node, element };

struct FieldOptions {
  Association association = Association::node;
  std::uint32_t components = 1;  // interleaved, as the last dimension of the variable
  std::string units = {};
  std::string variable = {};  // its name on the stream; "": the field's name
  Order order = Order::row;
  bool min_max = false;
};

// A handle of a variable of a mesh; cheap to copy. T is void when the type is known only at run time.
template <class T = void>
struct Field {
  std::uint32_t id = 0;
};

// Counted since construction, on this rank: requests are steps, skipped ones, and those that failed or were given up. Times in
// seconds.
struct CoprocessorStatistics {
  std::uint64_t requests = 0;           // calls of request()
  std::uint64_t steps = 0;              // published
  std::uint64_t skipped_every = 0;      // by the option `every`
  std::uint64_t skipped_trigger = 0;    // no rule of the demand held
  std::uint64_t skipped_not_ready = 0;  // wait: automatic, and the analysis had no room, or was not there
  std::uint64_t skipped_dropped = 0;    // no room: wait: drop
  std::uint64_t replaced = 0;  // wait: latest; of the steps, those that gave way to newer ones; rank 0 counts them
  std::uint64_t demands = 0;   // requests of analyses that were applied
  std::uint64_t demands_refused = 0;  // those that could not be read; rank 0 counts them
  std::uint64_t demand_number = 0;    // of the one in force; 0: none
  double request_s = 0;               // in request(), waiting for room and ranks included
  double put_s = 0;                   // in put, lend
  double end_s = 0;                   // in coprocess()
};

// An analysis that runs in this process.
class RunningAnalysis {
 public:
  virtual ~RunningAnalysis() = default;
  // Its exit status. Throws Error(timeout).
  virtual int wait(Timeout deadline) = 0;
};
// Starts the Python module penstock.analysis with these arguments.
using StartAnalysis = std::function<std::unique_ptr<RunningAnalysis>(std::vector<std::string> arguments)>;

class CoprocessStep;

class Coprocessor {
 public:
  struct Impl;  // the library's own
  // Initialize; creates the channel's Writer. options, stream: overlaid by penstock.yaml and the environment. start: for
  // processes that have a Python of their own; "": an interpreter is embedded (libpenstock_python_program.so), which a process can
  // do once. Throws as Context::create_stream.
  Coprocessor(const Context& context, std::string_view channel, std::shared_ptr<Cohort> cohort = solo(),
              CoprocessorOptions options = {}, StreamOptions stream = {}, StartAnalysis start = {});
  Coprocessor(Coprocessor&&) noexcept;
  Coprocessor& operator=(Coprocessor&&) = delete;
  // As finalize, but failures are only logged; as Writer::lose while an exception unwinds.
  ~Coprocessor();

  const std::string& channel() const;
  // A pipeline of the analysis, beside those of the option `pipelines`; before the first request. With engine insitu this process
  // runs it, on a thread of each rank, from the first request on; throws Error(unsupported) where that is not installed. With
  // other engines the analysis is another program, and this says that one is expected.
  void add_pipeline(const std::string& path);

  // Defines a mesh, or describes it anew from the next step on: another shape, not another kind.
  void set_mesh(std::string_view name, Mesh mesh);
  // A field of a mesh. With the same name and another `variable`: the field's next component.
  std::uint32_t field(std::string_view mesh, std::string_view name, DType dtype, const FieldOptions& options = {});
  template <class T>
  Field<T> field(std::string_view mesh, std::string_view name, const FieldOptions& options = {}) {
    return {field(mesh, name, dtype_of<T>(), options)};
  }
  // A variable that the mesh's description names: coordinates, connectivity, levels, ids. It is wanted with any field of the mesh.
  std::uint32_t structure(std::string_view mesh, std::string_view variable, DType dtype, Order order = Order::row);
  template <class T>
  Field<T> structure(std::string_view mesh, std::string_view variable, Order order = Order::row) {
    return {structure(mesh, variable, dtype_of<T>(), order)};
  }

  // A parameter that analyses may set, within bounds; T: double, std::int64_t, and without bounds bool and std::string.
  template <class T>
  void declare(std::string_view name, T value, T least, T greatest) {
    if constexpr (std::is_floating_point_v<T>) declare_number(name, value, least, greatest);
    else declare_integer(name, value, least, greatest);
  }
  void declare(std::string_view name, bool value);
  void declare(std::string_view name, std::string value);
  void declare(std::string_view name, const char* value) { declare(name, std::string(value)); }
  // Its value as of the last request(), the same on all ranks. T as declared.
  template <class T>
  T value(std::string_view name) const {
    T out{};
    read(name, out);
    return out;
  }

  // Asks whether this cycle is to be published. Empty: it is not, and nothing was copied. Waits for room as the option `wait`
  // says. The first call waits for the first demand when wait is block, rendezvous_readers is not 0, a pipeline was named, and the
  // engine has readers at run time: up to open_timeout_ms, then throws Error(timeout) naming what is missing.
  std::optional<CoprocessStep> request(std::int64_t cycle, double time);

  CoprocessorStatistics statistics() const;
  // The channel's writer, for what is not of a mesh: values, attributes, further variables, statistics. Its steps are begun by
  // request().
  Writer& writer();

  // Closes the channel, which waits for readers, and then waits for the analysis of this process. Returns its exit status, 0 where
  // there is none. Throws Error(timeout); closed all the same. deadline: of each of the two; as configured: close_timeout_ms.
  int finalize(Timeout deadline = configured);
  // Closes after a failure: readers are told at once that the writer is lost. Not collective.
  void lose();

 private:
  friend class CoprocessStep;
  void declare_number(std::string_view name, double value, double least, double greatest);
  void declare_integer(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t greatest);
  void read(std::string_view name, bool& out) const;
  void read(std::string_view name, std::int64_t& out) const;
  void read(std::string_view name, double& out) const;
  void read(std::string_view name, std::string& out) const;
  std::unique_ptr<Impl> impl_;
};

// A cycle that is being published. Fields that are not asked for may be put all the same: that does nothing. Destroying it
// without coprocess() gives the step up, on all ranks.
class CoprocessStep {
 public:
  CoprocessStep(CoprocessStep&&) noexcept;
  CoprocessStep& operator=(CoprocessStep&&) = delete;
  ~CoprocessStep();

  bool wants(std::uint32_t field) const;
  template <class T>
  bool wants(Field<T> field) const {
    return wants(field.id);
  }

  // As those of WriteStep. box: of the variable; without its last dimension, where that is of interleaved components. An empty
  // box of no dimensions: the whole of a global array.
  void put(std::uint32_t field, const Box& box, const void* data, std::span<const std::int64_t> strides = {});
  template <class T>
  void put(Field<T> field, const Box& box, const T* data, std::span<const std::int64_t> strides = {}) {
    put(field.id, box, data, strides);
  }
  void lend(std::uint32_t field, const Box& box, const void* data, std::span<const std::int64_t> strides = {});
  template <class T>
  void lend(Field<T> field, const Box& box, const T* data, std::span<const std::int64_t> strides = {}) {
    lend(field.id, box, data, strides);
  }
  // No bytes when the field is not asked for.
  std::span<std::byte> put_span(std::uint32_t field, const Box& box);
  template <class T>
  std::span<T> put_span(Field<T> field, const Box& box) {
    const auto raw = put_span(field.id, box);
    return {reinterpret_cast<T*>(raw.data()), raw.size() / sizeof(T)};
  }
  // The step of the channel's writer, for what is not of a mesh. coprocess() ends it.
  WriteStep& step();

  // Publishes the step. With engine insitu the analysis has used lent arrays when this returns.
  void coprocess();

 private:
  friend class Coprocessor;
  CoprocessStep(Coprocessor::Impl* coprocessor, WriteStep step);
  Coprocessor::Impl* coprocessor_;
  std::optional<WriteStep> step_;
};

}  // namespace penstock
