// A disk that fails, for tests: a program that links disk_faults.cpp has each of the calls below asked for first, those of
// libraries included. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace penstock::storage {

struct DiskCall {
  enum class Kind {
    write,     // write, pwrite, pwritev (of which the first part is written)
    sync,      // fsync, fdatasync
    allocate,  // posix_fallocate
    space,     // statvfs: fails by telling of no free space
  };
  Kind kind = Kind::write;
  std::string path;
  std::uint64_t bytes = 0;  // written, allocated
};

// In force while it lives; one at a time.
class DiskFaults {
 public:
  // 0: the call is made; else the errno it fails with. May wait, and is called by several threads at once.
  using Rule = std::function<int(const DiskCall&)>;
  explicit DiskFaults(Rule rule);
  DiskFaults(const DiskFaults&) = delete;
  DiskFaults& operator=(const DiskFaults&) = delete;
  ~DiskFaults();
};

}  // namespace penstock::storage
