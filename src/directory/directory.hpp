// The directory: a tree of names with small values, leases and watches. Streams, pools, services and servers are found in it.
//
// Two implementations pass one conformance suite: the embedded one (directory/state.hpp behind a service, in one server,
// journaled) and etcd (its v3 API). Paths: '/' followed by segments of A-Z a-z 0-9 . _ - separated by '/', at most 512 bytes;
// values at most 256 KiB. Revisions number all changes of the tree in one ascending sequence.
//
// All calls are coroutines of the engine thread; each ends by its deadline with Error(timeout) naming the directory.
// A directory that cannot be reached is Error(peer_lost); clients reconnect by themselves, and leases survive that while
// the directory lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "fabric/task.hpp"

namespace penstock::directory {

using fabric::Progress;
using fabric::Task;

struct DirectoryEntry {
  std::string path;
  std::string value;
  std::uint64_t revision = 0;  // of its last change
  std::uint64_t created = 0;   // revision of its creation
  std::uint64_t lease = 0;     // 0: stays until removed
};

struct DirectoryEvent {
  bool removed = false;  // by remove, or because its lease ended
  DirectoryEntry entry;  // removed: path and revision only
};

class Directory {
 public:
  template <class T>
  using Task = fabric::Task<T>;
  using Deadline = base::Deadline;
  virtual ~Directory() = default;

  virtual std::string describe() const = 0;  // "embedded at host:port", "etcd at host:port,..."

  // A lease that this object keeps alive until it is revoked or destroyed; entries under it vanish when it ends (ttl after
  // the last heartbeat). lost is called once on the engine thread when the directory says that it has ended.
  virtual Task<std::uint64_t> grant(std::chrono::milliseconds ttl, std::function<void()> lost, Deadline deadline) = 0;
  virtual Task<void> revoke(std::uint64_t lease, Deadline deadline) = 0;

  // Returns the new revision. expected: the revision the entry must have; 0: it must not exist; absent: whatever there is.
  // Empty when the expectation does not hold (nothing changed). Throws invalid_argument (path, value), not_found (lease).
  virtual Task<std::optional<std::uint64_t>> put(std::string path, std::string value,
                                                 std::optional<std::uint64_t> expected, std::uint64_t lease,
                                                 Deadline deadline) = 0;
  virtual Task<std::optional<DirectoryEntry>> get(std::string path, Deadline deadline) = 0;
  // Entries whose path starts with the prefix, in path order, at most `limit`, after `after` ("": from the start).
  virtual Task<std::vector<DirectoryEntry>> list(std::string prefix, std::string after, std::size_t limit,
                                                 Deadline deadline) = 0;
  // False when there was none, or its revision was another than expected (if given).
  virtual Task<bool> remove(std::string path, std::optional<std::uint64_t> expected, Deadline deadline) = 0;

  // Calls on_events (engine thread) with what is there under the prefix at first (as changes), then with every change in
  // order, batched as they come; after a reconnection, with the differences. Ends when the Watch is destroyed.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  virtual std::unique_ptr<Watch> watch(std::string prefix,
                                       std::function<void(const std::vector<DirectoryEvent>&)> on_events) = 0;
};

}  // namespace penstock::directory
