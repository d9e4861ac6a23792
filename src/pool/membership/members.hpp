// Channels to a pool's servers, and the pool's present view as the directory has it. Used by clients and by the servers
// among themselves. Engine thread, except `placement()`.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "directory/directory.hpp"
#include "pool/keys/placement.hpp"
#include "rpc/channel.hpp"

namespace penstock::pool {

using fabric::Task;

// "read" < "write" < "compute" < "admin" < "server": each may do what the ones before may (rank 0..4); -1: no such role.
int role_rank(std::string_view role);
// The token of a role, from the pool's secret: HMAC-SHA256 of the role's name.
fabric::Token role_token(const fabric::Token& secret, std::string_view role);
// Paths in the directory.
std::string pool_path(const std::string& pool, std::string_view what);  // "/pools/<pool>/<what>"

class Members : public std::enable_shared_from_this<Members> {
 public:
  // Joins this process to a server; role: as whom.
  using Connect = std::function<Task<std::shared_ptr<rpc::Channel>>(Member server, std::string role, base::Deadline)>;
  struct Options {
    std::string pool;
    std::string role;
    fabric::Token token;                                // of that role
    const transport::Plane* plane = nullptr;            // of bulk memory; null: the best
    std::uint64_t self = 0;                             // a server's own id: never connected to
    std::shared_ptr<const rpc::ServiceTable> services;  // what we offer to those we connect to; may be null
    Connect connect;                                    // empty: rpc::connect (simulations bring their own network)
  };
  Members(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<directory::Directory> directory, Options options);
  ~Members();

  // Watches the view from now on. changed: called on the engine thread after each newer view was taken over.
  void start(std::function<void(const View&)> changed = {});

  // More who are told, as long as the owner lives. Engine thread.
  void watch(std::weak_ptr<const void> owner, std::function<void(const View&)> changed) {
    watchers_.emplace_back(std::move(owner), std::move(changed));
  }

  // The newest view known; null before the first. Any thread.
  std::shared_ptr<const Placement> placement() const;
  // Waits for a view numbered at least `number` (asks the directory, too). Throws Error(timeout).
  Task<std::shared_ptr<const Placement>> at_least(std::uint64_t number, base::Deadline deadline);
  // Waits until the view's number is above `number`, at most so long; then returns what there is.
  Task<std::shared_ptr<const Placement>> newer_than(std::uint64_t number, base::Deadline deadline);

  // A channel to a server, connecting if there is none. Throws Error: peer_lost, timeout, authentication.
  Task<std::shared_ptr<rpc::Channel>> channel(Member member, base::Deadline deadline);

  const Options& options() const { return options_; }
  directory::Directory& directory() { return *directory_; }
  const std::shared_ptr<fabric::Progress>& progress() const { return progress_; }
  void close();
  bool closed() const { return closed_; }  // engine thread

 private:
  void take(const std::string& json);
  Task<void> read_view(base::Deadline deadline);
  Task<std::shared_ptr<rpc::Channel>> connect(Member member, base::Deadline deadline);
  struct Link {
    std::shared_ptr<rpc::Channel> channel;
    std::shared_ptr<fabric::Signal> connecting;  // while one coroutine connects, others wait here
  };
  std::shared_ptr<fabric::Progress> progress_;
  std::shared_ptr<directory::Directory> directory_;
  const Options options_;
  std::function<void(const View&)> changed_;
  std::vector<std::pair<std::weak_ptr<const void>, std::function<void(const View&)>>> watchers_;
  std::unique_ptr<directory::Directory::Watch> watch_;
  std::map<std::uint64_t, Link> links_;
  fabric::Signal view_changed_;
  mutable std::mutex mutex_;  // guards placement_
  std::shared_ptr<const Placement> placement_;
  bool accepted_ = false;  // a server has taken this side's token
  bool closed_ = false;
};

}  // namespace penstock::pool
