// The server's end of one worker process. Engine thread only; made by start, owned by shared_ptr. Destroying it kills the
// process and has it reaped elsewhere.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/connection.hpp"
#include "fabric/task.hpp"
#include "pool/compute/compute_workers.hpp"
#include "pool/compute/process.hpp"
#include "pool/compute/protocol.hpp"

namespace penstock::pool::compute {

struct Launch {
  WorkerKind kind = WorkerKind::native;
  std::vector<std::string> argv;
  std::vector<std::string> environment;
};

struct SegmentRef {
  int fd = -1;
  std::uint64_t bytes = 0;  // of the file
};

struct CallReply {
  Reply reply;
  memory::UniqueFd file;  // when the result is in one
  std::chrono::nanoseconds cpu{};
};

class WorkerLink : public std::enable_shared_from_this<WorkerLink> {
 public:
  // spawner: one thread, which starts and reaps workers and outlives them (they die with it). Throws Error(system) when
  // the worker does not become ready, Error(timeout).
  static fabric::Task<std::shared_ptr<WorkerLink>> start(fabric::Progress& progress,
                                                         std::shared_ptr<fabric::Workers> spawner, Launch launch,
                                                         base::Deadline deadline);
  ~WorkerLink();

  // One call at a time; the segments stay open until it returns. Throws what ComputeWorkers::run says.
  fabric::Task<CallReply> call(CallMessage message, std::vector<SegmentRef> segments, ComputeLimits limits,
                               base::Deadline deadline);

  WorkerKind kind() const { return kind_; }
  pid_t pid() const { return process_.pid(); }
  const Hello& hello() const { return hello_; }
  bool alive() const { return !dead_; }
  // Fit for another call: alive, with nothing under way, and not grown much by what it ran.
  bool fit() const;
  // Kills it; what waits for it fails with the error.
  void fail(Error error);

  fabric::Timer idle_timer;  // its owner's

 private:
  struct Event {
    Hello hello;
    CallReply call;
  };
  WorkerLink(fabric::Progress& progress, std::shared_ptr<fabric::Workers> spawner, WorkerKind kind, Process process);
  void listen();
  void on_message(std::uint16_t kind, std::span<const std::byte> bytes, bool has_fd);
  void on_want_file(const FileMessage& wanted);
  void on_reply(Reply reply);
  void on_closed(const Error& error);
  void watch_cpu();
  void reap();

  fabric::Progress& progress_;
  std::shared_ptr<fabric::Workers> spawner_;
  const WorkerKind kind_;
  Process process_;
  const std::string name_;  // for messages
  std::shared_ptr<fabric::Connection> connection_;
  Hello hello_;
  Process::Sizes idle_sizes_;
  bool greeted_ = false, dead_ = false, worn_ = false;
  std::optional<fabric::Promise<Event>> waiting_;  // for the greeting or a reply

  // Of the call under way; its id is 0 without one.
  std::uint64_t id_ = 0;
  std::string function_;
  ComputeLimits limits_;
  memory::UniqueFd file_;
  std::uint64_t file_bytes_ = 0;
  std::chrono::nanoseconds cpu_begin_{};
  fabric::Timer wall_timer_, cpu_timer_;
};

}  // namespace penstock::pool::compute
