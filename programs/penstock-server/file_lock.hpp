// A file that processes lock (flock): the lock belongs to the open file, so it ends with the last process that has that open,
// however that process ends. One thread at a time.
#pragma once

#include <string>

#include "memory/unique_fd.hpp"

namespace penstock::server {

class FileLock {
 public:
  // Opens the file, or makes it (mode 0600). Throws Error(system).
  explicit FileLock(std::string path);
  // At once; false: somebody else has it, and what this had before is given up. Throw Error(system).
  bool try_exclusive();
  bool try_shared();
  void unlock();
  int fd() const { return file_.get(); }
  std::string text() const;
  void set_text(const std::string& text);

 private:
  bool lock(int operation);
  std::string path_;
  memory::UniqueFd file_;
};

}  // namespace penstock::server
