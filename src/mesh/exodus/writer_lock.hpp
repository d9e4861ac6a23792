// A lock on an Exodus file that is written, advisory, so that a second writer is refused. It goes with its process, and what a dead
// writer has left can be written again at once. Where the file system has no locks there is none.
#pragma once

#include <string>

#include "storage/file.hpp"

namespace penstock::mesh {

class WriterLock {
 public:
  // is_there: of the file path. Else of path.writing, which is made here: the lock stays with it when it takes its name.
  // hdf5: the file is, or will be, HDF5's. Throws Error(wrong_state) where path or path.writing is being written.
  WriterLock(const std::string& path, bool is_there, bool hdf5);
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  ~WriterLock();  // removes path.writing where nothing has been written into it

 private:
  void remove_if_empty() const;
  storage::File file_;  // none: no lock
  bool made_ = false;
};

// Throws Error(wrong_state) where the file is being written.
void require_no_writer(const std::string& path);

}  // namespace penstock::mesh
