// Writes a process's trace (trace.hpp): every client's operations go into one file.
//
// record() takes well under a microsecond: it appends to a block in memory under a lock; each full block, and each that is
// older than a second, is written by whoever comes next. A process that is killed loses its last block. When the file cannot
// be written, that is logged once and recording ends: a trace never disturbs what it records. In a forked child the parent's
// writers do nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trace/format.hpp"

namespace penstock::trace {

class TraceWriter {
 public:
  // path: a new file, when it ends with ".trace"; else a folder, made if need be, in which the file is HOST-PID.trace
  // (HOST-PID-2.trace ... when that is there already). Throws Error: already_exists (the file), system.
  static std::shared_ptr<TraceWriter> open(const std::string& path);
  // The writer that this process has for this path, or a new one (also when its file was removed): Pools and streams share it,
  // also one after the other. It stays open until the process ends.
  static std::shared_ptr<TraceWriter> shared(const std::string& path);
  ~TraceWriter();

  // A number for a client of this pool.
  std::uint32_t client(std::string_view pool);
  void record(const TraceEvent& event);
  // What has been recorded is in the file (not synced) when it returns.
  void flush();
  const std::string& path() const;

  // A small number for the calling thread, from 0 in the order of their first calls.
  static std::uint32_t this_thread();
  // Now, as TraceFields::start_ns.
  static std::int64_t now_ns();

 private:
  struct Impl;
  explicit TraceWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::trace
