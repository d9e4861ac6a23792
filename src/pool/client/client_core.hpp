// A client of a pool, as coroutines: routes calls to the servers that own what they concern, and asks again where a server is
// gone or the membership has changed. penstock::Pool and the pool's stream engine stand on it. Engine thread, except open().
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "pool/keys/pool_service.hpp"  // generated from pool.fbs
#include "pool/membership/members.hpp"

namespace penstock::pool {

class PoolClient : public std::enable_shared_from_this<PoolClient> {
 public:
  using Deadline = base::Deadline;

  // Finds the directory and the pool, and waits for its first view. registration_directory: ContextOptions::directory,
  // resolved. Where the directory knows no pool at all, one is waited for: its first server is coming up; wait_for_it: also where
  // it knows others. From an application thread. Throws Error: not_found (no directory, no such pool: names those there are),
  // timeout.
  static std::shared_ptr<PoolClient> open(std::shared_ptr<fabric::Progress> progress, const PoolOptions& options,
                                          const std::string& registration_directory, Deadline deadline,
                                          bool wait_for_it = false);
  PoolClient(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<directory::Directory> directory,
             std::shared_ptr<Members> members, std::string pool);
  ~PoolClient();

  const std::string& pool() const { return pool_; }
  Members& members() { return *members_; }
  const std::shared_ptr<fabric::Progress>& progress() const { return progress_; }
  const std::shared_ptr<directory::Directory>& directory() const { return directory_; }
  void close();

  // The view and what each server says of itself; one that does not answer is "lost".
  Task<PoolStatus> status(Deadline deadline);

  using Attempt = std::uint32_t;  // 0 for the first try of a call
  // Calls `call(channel, view, attempt)` at the primary owner; again when it is gone (peer_lost) or refuses the view, each time
  // with the newest view, until the deadline. What the last try met is in the error's message. The call must be repeatable.
  template <class R>
  Task<R> at_primary(Namespace ns, std::string row, std::optional<std::uint64_t> tag, Deadline deadline,
                     std::function<Task<R>(std::shared_ptr<rpc::Channel>, std::uint64_t, Attempt)> call) {
    return route<R>(std::move(ns), std::move(row), tag, deadline, false, std::move(call));
  }
  // For reads: when the primary is gone, the replicas are asked in turn (an Error(not_found) of a replica is not believed
  // while the primary cannot be asked).
  template <class R>
  Task<R> at_owner(Namespace ns, std::string row, std::optional<std::uint64_t> tag, Deadline deadline,
                   std::function<Task<R>(std::shared_ptr<rpc::Channel>, std::uint64_t, Attempt)> call) {
    return route<R>(std::move(ns), std::move(row), tag, deadline, true, std::move(call));
  }

  // Whether a failed call may succeed elsewhere or later.
  static bool may_retry(const Error& error) {
    return error.code() == Errc::peer_lost || error.code() == Errc::stale_view || error.code() == Errc::protocol;
  }
  // The error of a call that is not tried again. A membership that is out of date is not the caller's concern: there was no time
  // left for another try, so it is a timeout.
  static Error final_error(const Error& error) {
    return error.code() == Errc::stale_view ? Error(Errc::timeout, error.what()) : error;
  }
  // Returns if a failed call may be tried again before the deadline, else throws its final error.
  static void throw_unless_retry(const Error& error, Deadline deadline) {
    if (!may_retry(error) || deadline.passed()) throw final_error(error);
  }
  // After a failure: waits for a newer view, or a moment (growing with the attempts).
  Task<void> before_retry(std::uint64_t view, Attempt attempt, const Error& error, Deadline deadline);

 private:
  Task<std::string> status_text(Member member, Deadline deadline);
  template <class R>
  Task<R> route(Namespace ns, std::string row, std::optional<std::uint64_t> tag, Deadline deadline, bool replicas,
                std::function<Task<R>(std::shared_ptr<rpc::Channel>, std::uint64_t, Attempt)> call) {
    std::optional<Error> last;
    for (Attempt attempt = 0;; ++attempt) {
      auto placement = co_await members_->at_least(1, deadline);
      const std::uint64_t number = placement->view().number;
      bool primary_answered = false;
      try {
        const Owners owners = placement->owners(ns, row, tag);
        const std::uint32_t count = replicas ? owners.count : 1;
        for (std::uint32_t i = 0; i < count; ++i) {
          const Member member = placement->view().members[owners.index[i]];
          try {
            auto channel = co_await members_->channel(member, connect_deadline(deadline, count > 1));
            if (i == 0) primary_answered = true;
            co_return co_await call(std::move(channel), number, attempt);
          } catch (const Error& error) {
            const bool believed = i == 0 || primary_answered || error.code() != Errc::not_found;
            if (!may_retry(error) && error.code() != Errc::timeout && believed) throw;
            if (error.code() == Errc::timeout && deadline.passed()) throw;
            last = error.in(member.name);
            if (error.code() == Errc::stale_view) break;
          }
        }
      } catch (const Error& error) {
        if (!last || (!may_retry(error) && error.code() != Errc::timeout)) throw;
      }
      if (deadline.passed())
        throw Error(Errc::timeout, "pool " + pool_ + ": " + (last ? last->what() : "no server answered"));
      const Error why = last ? *last : Error(Errc::peer_lost, "no server answered");
      co_await before_retry(number, attempt, why, deadline);
    }
  }
  static Deadline connect_deadline(Deadline deadline, bool alternatives);

  std::shared_ptr<fabric::Progress> progress_;
  std::shared_ptr<directory::Directory> directory_;
  std::shared_ptr<Members> members_;
  const std::string pool_;
};

// Of the pools that the directory knows.
Task<std::set<std::string>> pool_names(std::shared_ptr<directory::Directory> directory, base::Deadline deadline);

// Gives leases of objects back to their server, without waiting. Any thread; throws nothing.
void release_leases(const std::shared_ptr<rpc::Channel>& channel, std::vector<std::uint64_t> leases);

}  // namespace penstock::pool
