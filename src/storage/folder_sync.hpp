// Makes names durable for many threads at once: while one round of fsync is under way, the threads that come wait for the
// next, in which one of them syncs what all of them asked for. Safe from any thread.
#pragma once

#include <bitset>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "penstock/error.hpp"

namespace penstock::storage {

class FolderSync {
 public:
  static constexpr unsigned folder_count = 256;
  using Folders = std::bitset<folder_count>;

  // Folders are called 00 to ff below root.
  explicit FolderSync(std::string root) : root_(std::move(root)) {}
  // Names made before the call are durable on return. Throws Error(system) when any sync of its round fails.
  void sync(const Folders& folders);
  std::string folder_path(unsigned folder) const;

 private:
  struct Round {
    Folders folders;
    bool done = false;
    std::optional<Error> error;
  };

  std::string root_;
  std::mutex mutex_;  // guards what follows; not held while syncing
  std::condition_variable changed_;
  std::shared_ptr<Round> next_ = std::make_shared<Round>();
  bool syncing_ = false;
};

}  // namespace penstock::storage
