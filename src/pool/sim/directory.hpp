// A directory that dies and comes back: directory::DirectoryState in one place, and handles through which simulated processes
// use it as they use the embedded one: calls wait while it is away, leases are kept alive, watches go on after it has
// come back.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "directory/directory.hpp"
#include "directory/state.hpp"
#include "directory/view.hpp"
#include "pool/sim/network.hpp"

namespace penstock::pool::sim {

// Where all handles lead.
class DirectoryHost {
 public:
  DirectoryHost(std::shared_ptr<fabric::Progress> progress, Network& network);
  // Its process is gone; come_back: with what it had, and leases that begin again (all but one if renew_leases is
  // false: a defect).
  void go_away();
  void come_back(bool renew_leases);
  bool away() const { return away_; }

  directory::DirectoryState& state() { return *state_; }
  // After each change of the state.
  void changed();
  // Called with each new value of an entry, whoever put it.
  std::function<void(const directory::DirectoryEntry&)> on_put;

 private:
  friend class DirectoryHandle;
  struct Watcher;
  void arm();

  std::shared_ptr<fabric::Progress> progress_;
  Network& network_;
  std::unique_ptr<directory::DirectoryState> state_;
  bool away_ = false;
  std::uint64_t life_ = 0;  // how often it has died: who waited for an answer of an earlier one asks again
  fabric::Timer expiry_;
  std::list<std::weak_ptr<Watcher>> watchers_;
};

// What one process holds of it. cut_off: this process does not reach it, for a while or, when it was killed, for good.
class DirectoryHandle final : public directory::Directory, public std::enable_shared_from_this<DirectoryHandle> {
 public:
  using Mutate = std::function<void(const std::string& path, std::string& value)>;
  // mutate: what a defect does to what this process writes; may be empty.
  DirectoryHandle(DirectoryHost& host, Mutate mutate) : host_(host), mutate_(std::move(mutate)) {}
  void kill();
  void cut_off(bool off);
  bool reached() const { return !host_.away_ && !cut_off_ && !dead_; }

  std::string describe() const override { return "simulated directory"; }
  Task<std::uint64_t> grant(std::chrono::milliseconds ttl, std::function<void()> lost, Deadline deadline) override;
  Task<void> revoke(std::uint64_t lease, Deadline deadline) override;
  Task<std::optional<std::uint64_t>> put(std::string path, std::string value, std::optional<std::uint64_t> expected,
                                         std::uint64_t lease, Deadline deadline) override;
  Task<std::optional<directory::DirectoryEntry>> get(std::string path, Deadline deadline) override;
  Task<std::vector<directory::DirectoryEntry>> list(std::string prefix, std::string after, std::size_t limit,
                                                    Deadline deadline) override;
  Task<bool> remove(std::string path, std::optional<std::uint64_t> expected, Deadline deadline) override;
  std::unique_ptr<Watch> watch(std::string prefix,
                               std::function<void(const std::vector<directory::DirectoryEvent>&)> on_events) override;

 private:
  struct Lease {
    std::chrono::milliseconds ttl{};
    std::function<void()> lost;
    fabric::Timer timer;
  };
  // Runs the operation there and comes back with its result; again when the directory died before its answer was here.
  template <class R>
  Task<R> ask(std::function<R(directory::DirectoryState&)> operation, Deadline deadline,
              std::shared_ptr<bool> repeated = {});
  void schedule(std::uint64_t lease, std::chrono::milliseconds delay);
  Task<void> heartbeat(std::uint64_t lease);

  DirectoryHost& host_;
  Mutate mutate_;
  bool dead_ = false, cut_off_ = false;
  std::map<std::uint64_t, Lease> leases_;
};

}  // namespace penstock::pool::sim
