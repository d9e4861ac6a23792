// Functions run beside the data: which there are, where each runs, and what a call may use.
//
// Built-ins are ours: they run on the server's worker threads, on the data where it lies (no copy, no process), and stop
// when their time is over. Plug-ins (shared objects) and Python functions are the operator's: they run in processes of
// their own that see their inputs through read-only mappings. Such a process takes one call at a time; one that crashes,
// outlives its limits or breaks the protocol is killed and replaced, and only its call fails. A worker maps the server's
// memory files that hold its inputs, so it could read whatever else they hold: functions are trusted as to what they
// read, not as to whether they work. What a worker sends is not trusted at all.
//
// Limits of a call: wall time (a timer of the engine), CPU time (the process's clock, read by timers of the engine, so
// that it is exact and nothing in the worker can switch it off), memory beyond what the idle worker has (RLIMIT_DATA:
// heap, private mappings, thread stacks; not the mapped inputs; and RLIMIT_AS with some room as a second fence, for shared
// mappings), size of the result. Always: no file can be written (RLIMIT_FSIZE 0), no core (RLIMIT_CORE 0).
//
// Engine thread only, except the constructor and the destructor. The destructor ends every worker; calls under way fail
// with Error(cancelled).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "fabric/task.hpp"
#include "pool/compute/function.hpp"

namespace penstock::pool::compute {

struct ComputeLimits {
  std::chrono::milliseconds wall{60'000};
  std::chrono::milliseconds cpu{60'000};
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::uint64_t result_bytes = std::uint64_t{256} << 20;
};

// A function in a Python file: called as function(inputs, **arguments).
struct PythonFunction {
  std::string file;
  std::string function;
};

struct ComputeOptions {
  unsigned workers = 0;              // processes at once; 0: as many as hardware threads
  std::size_t max_waiting = 4096;    // calls beyond these are refused (overloaded)
  ComputeLimits limits;              // the most that a call may ask for, and what it gets when it asks for nothing
  std::vector<std::string> plugins;  // shared objects
  std::map<std::string, PythonFunction> python_functions;  // by the name that callers use
  bool builtins_in_server = true;                          // false: in worker processes, like plug-ins
  std::string worker_program;                    // "": penstock-compute-worker beside this program, or from PATH
  std::string python = "python3";                // the interpreter; it needs NumPy
  std::string python_worker;                     // compute_worker.py; "": -m penstock.compute_worker
  std::chrono::milliseconds start_time{30'000};  // for a worker to be ready
  std::chrono::milliseconds idle_time{60'000};   // a worker without calls ends after it
};

struct ComputeInput : Input {
  // The memory file (sealed against shrinking) that holds `bytes`, at this offset; -1: none, workers get a copy.
  int fd = -1;
  std::uint64_t offset = 0;
  // Keeps `bytes` and the descriptor until the call has ended.
  std::shared_ptr<const void> owner;
};

struct ComputeRequest {
  std::string function;
  std::string arguments;  // a JSON object, or ""
  std::vector<ComputeInput> inputs;
  std::optional<ComputeLimits> limits;  // each at most the option's
};

struct ComputeResult {
  DType dtype = DType::none;  // none: raw bytes
  Dims shape;
  std::vector<std::byte> bytes;
  std::string info;                 // JSON, or ""
  std::chrono::nanoseconds wall{};  // waiting for a worker included
  std::chrono::nanoseconds cpu{};   // of the worker; zero for built-ins in the server
};

struct ComputeStatistics {
  std::uint64_t calls = 0, failed = 0, in_server = 0;
  // Of the failed: why.
  std::uint64_t timeouts = 0, out_of_memory = 0, crashes = 0, garbage = 0, overloaded = 0, unknown = 0;
  std::uint64_t workers_started = 0, workers_lost = 0;  // lost: crashed or killed
  unsigned workers_busy = 0, workers_idle = 0;
  std::size_t waiting = 0;
};

struct FunctionInfo {
  std::string name;
  std::string origin;  // "built-in", "plug-in", "python"
};

class ComputeWorkers {
 public:
  // workers: the server's threads, for built-ins and copies. All three outlive this. Starts nothing yet. Throws
  // Error(invalid_argument) for names used twice, Error(not_found) for files that are not there.
  ComputeWorkers(fabric::Progress& progress, fabric::Workers& workers, ComputeOptions options);
  ~ComputeWorkers();
  ComputeWorkers(const ComputeWorkers&) = delete;
  ComputeWorkers& operator=(const ComputeWorkers&) = delete;

  // Calls wait for a worker in order. Destroying the task gives the call up. Throws Error
  //   not_found         no function of that name; suggests one
  //   invalid_argument, unknown_option, unsupported   the inputs or arguments do not suit, or the function threw
  //   timeout           the deadline, the wall time or the CPU time is over; the message says which
  //   memory            the function's memory, or its result, is larger than allowed
  //   peer_lost         the worker crashed; the message names the signal or status
  //   protocol          the worker sent garbage
  //   overloaded, cancelled, system
  fabric::Task<ComputeResult> run(ComputeRequest request, base::Deadline deadline);

  // Starts a worker the first time when there are plug-ins, to ask it.
  fabric::Task<std::vector<FunctionInfo>> functions(base::Deadline deadline);
  ComputeStatistics statistics() const;

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock::pool::compute
