// Worker processes as the server sees them: started, watched, limited, ended. One thread at a time for each.
//
// A worker is started with an environment of its own making, a process group of its own, descriptors 0 (nothing), 1 and
// 2 (the server's stderr) and 3 (the socket) only, no signals but SIGXFSZ blocked (output beyond RLIMIT_FSIZE is lost and
// kills nobody), in the folder "/". It dies with the thread that started it (PR_SET_PDEATHSIG).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/unique_fd.hpp"

namespace penstock::pool::compute {

inline constexpr int worker_descriptor = 3;

// A child process. Destroying it kills its group and reaps it, which takes as long as the kernel needs.
class Process {
 public:
  Process() = default;
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)), socket_(std::move(other.socket_)) {}
  Process& operator=(Process&& other) noexcept;
  ~Process();

  // argv[0] is a path or a name to look up. Blocks until the child has executed it. Throws Error(system).
  static Process start(const std::vector<std::string>& argv, const std::vector<std::string>& environment);

  pid_t pid() const { return pid_; }
  // Our end of the socket pair; may be taken once.
  memory::UniqueFd take_socket() { return std::move(socket_); }

  void kill();
  // "was killed by SIGSEGV (segmentation fault)", "ended with status 3". Waits for the end of a process that ends; one
  // that goes on after the grace time is killed ("closed its connection"). Blocks.
  std::string how_it_ended(std::chrono::milliseconds grace);
  std::chrono::nanoseconds cpu_time() const;  // of all its threads; zero when it is gone

  // The sizes that limits are counted from.
  struct Sizes {
    std::uint64_t address_space = 0;
    std::uint64_t data = 0;
  };
  Sizes sizes() const;
  // Soft limits; false when it is gone.
  bool limit_memory(std::uint64_t address_space, std::uint64_t data) const;

 private:
  pid_t pid_ = -1;
  memory::UniqueFd pidfd_, socket_;
};

// What is left of this process's environment for a worker: where programs and libraries are, and the language. Nothing
// that a token could be in.
std::vector<std::string> worker_environment();
// `name` beside this program, else from PATH ("" when nowhere).
std::string find_program(const std::string& name);

}  // namespace penstock::pool::compute
