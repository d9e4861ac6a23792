// The embedded directory as a process of its own (penstock-server --directory), which outlives the server that started it.
// Two files in the registration folder say what there is:
//
//   directory.lock   flock of the directory's process, exclusive, for all its life: never more than one. Its text: the
//                    settings to start it with. Whoever starts one takes the lock first and hands it down.
//   directory.users  flock of each server on this host that uses the directory, shared. The directory takes it exclusively to
//                    end, so no server can join one that is ending.
//
// Each server looks at directory.lock every 200 ms and starts the process again when nobody holds it. The journal is in the
// first server's folder, or, when that server has none, in directory.d beside the two files: then it is not synced, and removed
// in the end. The process ends when no server on its host uses it and no lease is left in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "options.hpp"

namespace penstock::server {

class DirectoryKeeper {
 public:
  // For options.directory embedded: starts the process, or joins the one that keeps its journal in the same folder.
  // registered, or an address: joins the one that is registered, if it runs on this host; waits until there is one
  // (registered). Blocks. Throws Error: timeout, wrong_state (another directory is registered), system (it does not start),
  // and as fabric::Directory does.
  DirectoryKeeper(const ServeOptions& options, base::Deadline deadline);
  // Waits for the end of a directory that nobody else on this host uses: 3 s at most, then it ends by itself.
  ~DirectoryKeeper();
  // Secret: holds the token.
  const std::string& address() const { return address_; }

 private:
  class Impl;
  std::string address_;
  std::unique_ptr<Impl> impl_;  // null: the directory is not a process of this host
};

// That process; returns its exit code. settings: KEY=VALUE, as DirectoryKeeper gives them. ready_fd: gets "ready {}", or
// "failed WHY".
int run_directory(const std::vector<std::string>& settings, int ready_fd);

}  // namespace penstock::server
