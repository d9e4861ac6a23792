// The embedded directory's tree: entries with revisions, leases, and the history that watches read. Pure: no I/O, no
// threads, no clock of its own (whoever drives it says what time it is); directory/server.hpp puts a service and a
// journal around it.
//
// Each operation that changes something returns the change, which has happened when it returns; applying the same changes
// in the same order to an equal state gives an equal state (the journal). Revisions ascend by one with each put or removal.
// What is refused throws Error and changes nothing: invalid_argument (path, value, ttl), not_found (lease), overloaded
// (a bound is reached; the message names it).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "directory/directory.hpp"

namespace penstock::directory {

inline constexpr std::size_t max_path_bytes = 512;
inline constexpr std::size_t max_value_bytes = std::size_t{256} << 10;
inline constexpr std::chrono::milliseconds min_lease_ttl{50};
inline constexpr std::chrono::milliseconds max_lease_ttl{24 * 3600 * 1000};

// Throw Error(invalid_argument) that says what is wrong. A prefix may end anywhere; "" is the whole tree.
void check_path(std::string_view path);
void check_prefix(std::string_view prefix);
void check_value(std::string_view path, std::string_view value);
void check_ttl(std::chrono::milliseconds ttl);

// All bounds. Entries' bytes are those of paths and values.
struct DirectoryLimits {
  std::size_t entries = 1'000'000;
  std::size_t bytes = std::size_t{256} << 20;
  std::size_t leases = 65'536;
  std::size_t history = 65'536;  // events kept for watches
  std::size_t history_bytes = std::size_t{32} << 20;
};

// What an operation did; the journal keeps these.
struct DirectoryChange {
  enum class Kind : std::uint8_t { put = 1, remove = 2, grant = 3, end_lease = 4 };
  Kind kind = Kind::put;
  std::uint64_t revision = 0;  // put, remove: the new one; end_lease: of the first removal (one each, in path order)
  std::uint64_t lease = 0;     // put: 0 for none
  std::uint32_t ttl_ms = 0;    // grant
  std::string path;            // put, remove
  std::string value;           // put
};

// Everything there is, apart from the history.
struct DirectorySnapshot {
  std::uint64_t tree = 0;
  std::uint64_t revision = 0;
  std::uint64_t next_lease = 1;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> leases;  // id, ttl in ms
  std::vector<DirectoryEntry> entries;
};

class DirectoryState {
 public:
  using Time = base::Clock::time_point;

  // tree: a random number that tells this tree from one that another server began.
  explicit DirectoryState(std::uint64_t tree, DirectoryLimits limits = {});
  // Leases begin again at `now`: their owners had no chance to heartbeat meanwhile. Throws Error(protocol) when it
  // contradicts itself.
  DirectoryState(DirectorySnapshot snapshot, DirectoryLimits limits, Time now);

  // Empty when the expectation does not hold (directory/directory.hpp).
  std::optional<DirectoryChange> put(std::string_view path, std::string_view value,
                                     std::optional<std::uint64_t> expected, std::uint64_t lease);
  std::optional<DirectoryChange> remove(std::string_view path, std::optional<std::uint64_t> expected);
  DirectoryChange grant(std::chrono::milliseconds ttl, Time now);
  // Empty when there is no such lease.
  std::optional<DirectoryChange> revoke(std::uint64_t lease);
  // False when the lease has ended.
  bool heartbeat(std::uint64_t lease, Time now);
  // Ends what is due.
  std::vector<DirectoryChange> expire(Time now);
  std::optional<Time> next_expiry() const;
  // The server itself was away (stopped, or its host asleep): whoever could not be heard meanwhile has half a ttl, and a second
  // at most, to be heard. Once, until it is, so that a server which is late again and again lets the dead go, too.
  void spare_leases(Time now);

  // A change that another state made. Throws Error(protocol) when it does not follow from this one.
  void apply(const DirectoryChange& change, Time now);
  DirectorySnapshot snapshot() const;

  std::optional<DirectoryEntry> get(std::string_view path) const;
  struct Page {
    std::vector<DirectoryEntry> entries;
    bool more = false;  // there are others after these
  };
  // In path order, after `after`; at most `limit` and, beyond the first entry, max_bytes.
  Page list(std::string_view prefix, std::string_view after, std::size_t limit, std::size_t max_bytes) const;

  struct Events {
    std::vector<DirectoryEvent> events;
    std::uint64_t revision = 0;  // what to ask with next time
    bool reset = false;          // the history does not reach back that far: list what is there and compare
    bool more = false;
  };
  // Changes after `revision` under the prefix, in order.
  Events events_since(std::string_view prefix, std::uint64_t revision, std::size_t max_events,
                      std::size_t max_bytes) const;

  std::uint64_t tree() const { return tree_; }
  std::uint64_t revision() const { return revision_; }
  std::size_t entries() const { return entries_.size(); }
  std::size_t leases() const { return leases_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string value;
    std::uint64_t revision = 0, created = 0, lease = 0;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;
  struct Lease {
    std::chrono::milliseconds ttl{};
    Time end{};
    bool spared = false;
    std::set<std::string> paths;
  };

  static DirectoryEntry to_entry(const Entries::value_type& item);
  void do_put(const DirectoryChange& change);
  void do_remove(Entries::iterator at);
  void do_grant(std::uint64_t lease, std::chrono::milliseconds ttl, Time now);
  DirectoryChange do_end_lease(std::uint64_t lease);
  void remember(DirectoryEvent event);

  DirectoryLimits limits_;
  std::uint64_t tree_ = 0;
  std::uint64_t revision_ = 0;
  std::uint64_t next_lease_ = 1;
  std::size_t bytes_ = 0;
  Entries entries_;
  std::unordered_map<std::uint64_t, Lease> leases_;
  std::set<std::pair<Time, std::uint64_t>> ends_;
  std::deque<DirectoryEvent> history_;  // all with revisions above history_start_
  std::uint64_t history_start_ = 0;
  std::size_t history_bytes_ = 0;
};

}  // namespace penstock::directory
