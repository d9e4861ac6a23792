// Traces: what clients of pools did to objects and to streams, recorded (PoolOptions::trace, StreamOptions::trace), looked at,
// and done again.
//
// A recording is what several processes left, put on one clock: processes of one machine share the kernel's steady clock, so
// that their order is exact; between machines it is as good as their real-time clocks agree. It is immutable; cheap to copy.
// What is given back as text is JSON. Times in it are seconds since the first operation, durations microseconds.
//
// Bytes are not recorded: a replay puts bytes of the recorded sizes, in namespaces and streams of its own, and drops them at its
// end. What the recorded clients found but none of them had put or written is put before it begins.
// Errors: not_found, protocol (no trace), system, invalid_argument.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/pool.hpp"

namespace penstock {

class Context;

class Recording {
 public:
  // Files, or folders of files "*.trace".
  static Recording read(const std::vector<std::string>& paths);

  // Processes (host, pid, program, operations, bytes that could not be read) and, for each verb, how many calls, keys and bytes,
  // how long they took (median, 99 %), and outcomes other than ok.
  std::string summary() const;
  std::uint64_t operations() const;
  // `count` operations from the `first` on, in the order of their starts: one line of JSON each.
  std::string lines(std::uint64_t first, std::uint64_t count) const;
  // All of them as a file of such lines.
  void write_lines(const std::string& path) const;
  // As Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.
  void write_chrome_trace(const std::string& path) const;

  struct Impl;  // the library's own
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

struct ReplayOptions {
  PoolOptions pool;           // pool: "" for the recorded names. Its namespace does not matter
  double speed = 1;           // 2: twice as fast as recorded; 0: as fast as outcomes allow
  std::uint32_t clients = 1;  // so many copies of the whole recording at once
  bool keep = false;          // what it put, in the namespaces and streams that the report names
  Timeout timeout = forever;  // then nothing more is begun
};

// A replay under way: it begins when made, in threads of its own (one for each recorded client thread and copy). The context
// outlives it. Thread-safe.
class Replay {
 public:
  Replay(const Context& context, Recording recording, ReplayOptions options);
  // Stops it and waits until what was begun has ended.
  ~Replay();
  Replay(Replay&&) noexcept;

  std::pair<std::uint64_t, std::uint64_t> progress() const;  // operations that have ended, and that there are
  void stop();                                               // begins nothing more
  bool wait(Timeout timeout);                                // whether it has ended
  // Once it has ended: how many operations ended as recorded (code and number of failed keys) and how many did not, for each
  // verb outcomes and durations, recorded and replayed, and the first hundred differences. Throws what kept it from beginning.
  std::string report();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
