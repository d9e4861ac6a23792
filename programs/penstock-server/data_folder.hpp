// The folder that makes a server itself again after a restart: it keeps the server's id, and belongs to one process at a time.
#pragma once

#include <cstdint>
#include <string>

#include "memory/unique_fd.hpp"

namespace penstock::server {

class DataFolder {
 public:
  // Makes the folder (mode 0700) and the id when they are not there; "": an id for this life only. Throws Error:
  // wrong_state (another process has it), protocol (the id cannot be read), system.
  explicit DataFolder(const std::string& path);
  std::uint64_t id() const { return id_; }

 private:
  memory::UniqueFd lock_;  // the id's file, locked
  std::uint64_t id_ = 0;
};

}  // namespace penstock::server
