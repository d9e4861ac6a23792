// What all programs of `penstock bench streams` share: options, pinning, clocks, the workloads' sizes, the values they
// move, and the one line of JSON that each prints.
//
// Method, the same for every system: each side opens its streams, touches its own arrays once, and meets the others at a
// barrier outside the system under test. The clock runs from there to the end of the last step as the reader sees it (W4:
// as the one who sends first sees it), and is read once on the way: the first steps, in which memory is touched for the first
// time, are start-up, all later ones the steady state. CPU time is counted for the steady state, and until the
// stream is closed. Peak memory is the process's VmHWM.
#pragma once

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "handover.hpp"

namespace penstock::bench {

struct Options {
  std::string role = "writer";  // writer | reader
  std::string workload = "W1";
  std::string variant;
  std::string plane = "shm";
  std::string directory = ".";  // of this run: barrier page, sockets, contact files
  std::string data_directory;   // where files of steps go
  int rank = 0;                 // W2 without MPI: which of the programs of this role
  int core = -1;                // pinned to it; -1: not pinned
  int steps = 0;                // 0: the workload's own number
  int spin_us = -1;             // -1: the system's default
  int queue = 2;                // steps in flight; 0: the system's default
  int count_after = 0;          // > 0: count allocations and page faults after so many steps
  int deadline_s = 120;
};

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    const char* value = argv[i + 1];
    if (key == "--role") options.role = value;
    else if (key == "--workload") options.workload = value;
    else if (key == "--variant") options.variant = value;
    else if (key == "--plane") options.plane = value;
    else if (key == "--directory") options.directory = value;
    else if (key == "--data-directory") options.data_directory = value;
    else if (key == "--rank") options.rank = std::atoi(value);
    else if (key == "--core") options.core = std::atoi(value);
    else if (key == "--steps") options.steps = std::atoi(value);
    else if (key == "--spin-us") options.spin_us = std::atoi(value);
    else if (key == "--queue") options.queue = std::atoi(value);
    else if (key == "--count-after") options.count_after = std::atoi(value);
    else if (key == "--deadline-s") options.deadline_s = std::atoi(value);
    else throw std::runtime_error("unknown option " + std::string(key));
  }
  return options;
}

inline void pin(int core) {
  if (core < 0) return;
  cpu_set_t allowed, chosen;
  CPU_ZERO(&chosen);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int wanted = core % CPU_COUNT(&allowed);  // the wanted-th core of those we may use
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == wanted) CPU_SET(cpu, &chosen);
  sched_setaffinity(0, sizeof chosen, &chosen);
}

// ------------------------------------------------------------------------------------------------------- workloads

// W1: one float64 array of 64 MiB a step.
inline constexpr std::uint64_t w1_shape[3] = {128, 256, 256};
inline constexpr std::size_t w1_elements = 128 * 256 * 256;
// W2: one float64 array of 128 MiB a step; two writers each hold half of dimension 0, two readers half of dimension 2.
inline constexpr std::uint64_t w2_side = 256;
inline constexpr int w2_ranks = 2;
inline constexpr std::uint64_t w2_half = w2_side / w2_ranks;
inline constexpr std::size_t w2_part = w2_side * w2_side * w2_half;   // elements of one rank, on either side
inline constexpr std::size_t w2_piece = w2_half * w2_side * w2_half;  // elements from one writer to one reader
// W3: 500 variables of 1 KiB a step.
inline constexpr int w3_variables = 500;
inline constexpr std::size_t w3_elements = 128;
// W4: one element to and fro.

inline int steps_of(const Options& options) {
  if (options.steps > 0) return options.steps;
  if (options.workload == "W1") return 40;
  if (options.workload == "W2") return 20;
  return options.workload == "W3" ? 200 : 2000;
}

inline double bytes_of(const std::string& workload) {  // per step
  if (workload == "W1") return 8.0 * w1_elements;
  if (workload == "W2") return 8.0 * w2_ranks * w2_part;
  return workload == "W3" ? 8.0 * w3_variables * w3_elements : 16.0;
}

// ---------------------------------------------------------------------------------------------------------- values

// Element i of an array holds i, except for `samples` elements that are stamped anew in each step. Arrays that a program
// fills in place hold i + step everywhere. All are integers below 2^53, so sums are exact.
inline constexpr int samples = 64;

inline void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("wrong data: ") + what);
}

inline std::size_t sample_at(int k, std::size_t n) {
  const std::size_t section = n / samples;
  return static_cast<std::size_t>(k) * section + static_cast<std::size_t>(k) * 7919 % section;
}
inline double stamp_of(int step, int k) { return -1000.0 * (step + 1) - k; }

inline void ramp(double* data, std::size_t n, double first = 0) {
  for (std::size_t i = 0; i < n; ++i) data[i] = first + static_cast<double>(i);
}
inline void stamp(double* data, std::size_t n, int step) {
  for (int k = 0; k < samples; ++k) data[sample_at(k, n)] = stamp_of(step, k);
}
inline void check_samples(const double* data, std::size_t n, int step) {
  for (int k = 0; k < samples; ++k) require(data[sample_at(k, n)] == stamp_of(step, k), "a sample");
}
// Every element; done once, after the clock has stopped.
inline void check_all(const double* data, std::size_t n, int step) {
  check_samples(data, n, step);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < n; ++i) differing += data[i] != static_cast<double>(i);
  require(differing <= samples, "an element");
}

// Eight running sums, so that memory and not the adder's latency is the limit.
inline double sum(const double* data, std::size_t n) {
  double part[8] = {};
  for (std::size_t i = 0; i < n; i += 8)
    for (std::size_t k = 0; k < 8; ++k) part[k] += data[i + k];
  return part[0] + part[1] + part[2] + part[3] + part[4] + part[5] + part[6] + part[7];
}
inline double ramp_sum(std::size_t n, double first) {
  return static_cast<double>(n) * first + static_cast<double>(n) * static_cast<double>(n - 1) / 2;
}
inline double stamped_sum(std::size_t n, int step) {
  double total = ramp_sum(n, 0);
  for (int k = 0; k < samples; ++k) total += stamp_of(step, k) - static_cast<double>(sample_at(k, n));
  return total;
}

// W2: the samples are elements of the global array; a rank stamps or checks those that lie in its part.
struct Part {
  std::uint64_t start[3];
  std::uint64_t count[3];
};
inline Part w2_written(int rank) { return {{rank * w2_half, 0, 0}, {w2_half, w2_side, w2_side}}; }
inline Part w2_read(int rank) { return {{0, 0, rank * w2_half}, {w2_side, w2_side, w2_half}}; }

template <class Visit>
void each_sample_in(const Part& part, Visit visit) {
  for (int k = 0; k < samples; ++k) {
    const std::size_t at = sample_at(k, w2_side * w2_side * w2_side);
    const std::uint64_t index[3] = {at / (w2_side * w2_side), at / w2_side % w2_side, at % w2_side};
    std::size_t local = 0;
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      inside = inside && index[d] >= part.start[d] && index[d] < part.start[d] + part.count[d];
      local = local * part.count[d] + (index[d] - part.start[d]);
    }
    if (inside) visit(local, k);
  }
}
inline void w2_ramp(double* data, int rank) {
  ramp(data, w2_part, static_cast<double>(static_cast<std::size_t>(rank) * w2_part));
}
inline void w2_stamp(double* data, int rank, int step) {
  each_sample_in(w2_written(rank), [&](std::size_t at, int k) { data[at] = stamp_of(step, k); });
}
inline void w2_check(const double* data, int rank, int step) {
  each_sample_in(w2_read(rank), [&](std::size_t at, int k) { require(data[at] == stamp_of(step, k), "a sample"); });
}
inline void w2_check_all(const double* data, int rank, int step) {
  w2_check(data, rank, step);
  std::size_t differing = 0;
  for (std::size_t z = 0; z < w2_side; ++z)
    for (std::size_t y = 0; y < w2_side; ++y)
      for (std::size_t x = 0; x < w2_half; ++x)
        differing += data[(z * w2_side + y) * w2_half + x] !=
                     static_cast<double>((z * w2_side + y) * w2_side + static_cast<std::size_t>(rank) * w2_half + x);
  require(differing <= samples, "an element");
}
// The part of a writer's slab that reader `to` wants, packed: it is the contiguous half `from` of the reader's array.
inline void w2_gather(const double* slab, int to, double* out) {
  for (std::size_t row = 0; row < w2_half * w2_side; ++row)
    std::memcpy(out + row * w2_half, slab + row * w2_side + static_cast<std::size_t>(to) * w2_half, w2_half * 8);
}

// W3: element 0 of each variable changes with every step.
inline double w3_value(int step, int variable) { return 1000.0 * (step + 1) + variable; }
inline std::string w3_name(int variable) {
  char text[16];
  std::snprintf(text, sizeof text, "v%d", variable);
  return text;
}
inline void w3_stamp(double* data, int step) {
  for (int v = 0; v < w3_variables; ++v) data[static_cast<std::size_t>(v) * w3_elements] = w3_value(step, v);
}
inline void w3_check(const double* data, int step) {
  for (int v = 0; v < w3_variables; ++v)
    require(data[static_cast<std::size_t>(v) * w3_elements] == w3_value(step, v), "a variable");
}

// --------------------------------------------------------------------------------------------------------- figures

// Of the whole process.
struct Use {
  double user_s = 0, system_s = 0;
  double faults = 0;  // minor ones; pages made ahead by madvise count, too
  double cpu_s() const { return user_s + system_s; }
};
inline Use use_of_process() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return {seconds(use.ru_utime), seconds(use.ru_stime), static_cast<double>(use.ru_minflt)};
}
inline double cpu_seconds() { return use_of_process().cpu_s(); }

// Of the calling thread: rusage is as old as the last tick.
inline double thread_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Not ru_maxrss: that starts from what the starting process had before exec.
inline double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}

inline constexpr int first_steps = 8;  // of a run: start-up; fewer where a run has fewer than twice as many

inline const double program_began = now();

// One program's figures. start() at the barrier, step_done() after each step, loop_done() after the last, print() after
// closing.
class Figures {
 public:
  Figures(const Options& options, int rank = 0)
      : options_(options), rank_(rank), first_(std::min(first_steps, steps_of(options) / 2)) {}
  void start() {
    use_ = use_of_process();
    start_ = now();
  }
  void step_done(int step) {
    if (step + 1 != first_) return;
    const Use use = use_of_process();
    first_use_ = {use.user_s - use_.user_s, use.system_s - use_.system_s, use.faults - use_.faults};
    first_s_ = now() - start_;
  }
  void loop_done() {
    seconds_ = now() - start_;
    loop_cpu_s_ = cpu_seconds() - use_.cpu_s();
  }
  void add(const std::string& key, double value) {
    char text[64];
    std::snprintf(text, sizeof text, ",\"%s\":%.9g", key.c_str(), value);
    extra_ += text;
  }
  void print() {
    const bool timed = options_.workload == "W4" ? options_.role == "writer" : options_.role == "reader";
    add("cpu_s", cpu_seconds() - use_.cpu_s());
    add("step_cpu_s", (loop_cpu_s_ - first_use_.cpu_s()) / (steps_of(options_) - first_));
    add("opened_s", start_ - program_began);
    add("opened_faults", use_.faults);
    add("first_faults", first_use_.faults);
    add("first_system_s", first_use_.system_s);
    if (timed) add("first_s", first_s_);
    if (timed) add("seconds", seconds_);
    char text[256];
    std::snprintf(
        text, sizeof text,
        "{\"role\":\"%s\",\"rank\":%d,\"steps\":%d,\"first_steps\":%d,\"bytes_per_step\":%.0f,\"rss_mb\":%.1f",
        options_.role.c_str(), rank_, steps_of(options_), first_, bytes_of(options_.workload), peak_rss_mb());
    const std::string line = text + extra_ + "}\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::perror("write");  // one call: lines never mix
  }

 private:
  const Options& options_;
  int rank_;
  int first_;
  double start_ = 0, first_s_ = 0, seconds_ = 0, loop_cpu_s_ = 0;
  Use use_, first_use_;
  std::string extra_;
};

// The frame of main: ends with the program that started it, at its deadline, and with a message on any exception.
template <class Body>
int run_program(int argc, char** argv, Body body) {
  try {
    const Options options = parse(argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(static_cast<unsigned>(options.deadline_s));
    pin(options.core);
    body(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

[[noreturn]] inline void unknown_case(const Options& options) {
  throw std::runtime_error("no such case: " + options.workload + " " + options.variant);
}

}  // namespace penstock::bench
