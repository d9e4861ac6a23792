// What a store has its tiers do: jobs that write, erase or read entries, in order for each key, grouped where that saves syncs.
//
// A job names the keys that it concerns; jobs that have a key in common run in the order in which they were submitted, all
// others side by side. Writing jobs that are ready at the same time go to the tier as one write batch with one sync (if that
// fails, each is tried alone, so that one cannot fail for another's sake). Urgent jobs, for which a caller waits, go first;
// of several writer threads one is always kept for them. Reading jobs have threads of their own.
//
// Entries are written to the first tier that takes them (Error(system) from one: the next is tried), always synced. Erasing
// goes from the slowest tier to the fastest, so that an older copy never outlives a newer one.
//
// Engine thread, but for what a job runs. A job is finished even if nobody waits for it any more; `done` is always called, with
// Error(cancelled) once the queue was stopped (also for a job that had come to its end).
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/task.hpp"
#include "pool/store/object_table.hpp"
#include "storage/checksum.hpp"
#include "storage/tier.hpp"

namespace penstock::pool {

using Tiers = std::vector<std::unique_ptr<storage::Tier>>;

struct DiskWrite {
  std::string packed_key;
  StoredObject object;  // with its blob
  bool keep_older = false;
  std::uint64_t id = 0;  // the submitter's
  bool fresh = false;    // no tier can have it
};

struct DiskJob {
  std::vector<std::string> keys;    // packed; those of the writes need not be named
  std::vector<DiskWrite> writes;    // all or none
  std::vector<std::string> erases;  // tier keys, in this order, after the writes
  std::uint64_t version_floor = 0;  // recorded before the erases, if not 0 (object_store.hpp: first_version)
  bool sync_erases = false;
  bool urgent = false;
  // Instead of all that: runs on a reading thread; what it throws goes to done.
  std::function<void(const Tiers&)> read;
  std::function<void(DiskJob&, std::exception_ptr)> done;

 private:
  friend class DiskQueue;
  std::vector<std::uint64_t> lines;  // where it stands
  std::size_t blocked = 0;
  std::exception_ptr error;
  std::uint64_t bytes = 0;
};

class DiskQueue : public std::enable_shared_from_this<DiskQueue> {
 public:
  DiskQueue(fabric::Progress& progress, Tiers tiers, std::uint32_t writers, std::uint32_t readers);
  ~DiskQueue();
  void submit(std::shared_ptr<DiskJob> job);
  // Runs on a writer thread, out of order with everything else (recovery, sync).
  void run_aside(std::function<void(const Tiers&)> work, std::function<void(std::exception_ptr)> done);
  // Ends what runs, drops the rest, closes the tiers. Not on a worker thread.
  void stop();

  std::size_t jobs() const { return jobs_; }  // submitted and not done
  bool busy(const std::string& packed_key) {
    if (jobs_ == 0) return false;
    list_alone();
    return lines_.contains(line_of(packed_key));
  }
  const Tiers& tiers() const { return tiers_; }
  std::uint64_t groups() const { return groups_; }  // write batches begun

  static constexpr std::size_t max_group_writes = 4096;
  static constexpr std::uint64_t max_group_bytes = 16 << 20;  // a job that is larger goes alone
  // The entry that keeps the version floor: in a namespace that no name has.
  static const std::string& floor_key();

 private:
  using JobPtr = std::shared_ptr<DiskJob>;
  // Mostly of one job: what follows costs nothing while it is empty.
  struct Line {
    JobPtr first;
    std::vector<JobPtr> rest;
  };
  static std::uint64_t line_of(const std::string& key) { return storage::checksum(std::as_bytes(std::span(key))); }
  void stand_in_lines(const JobPtr& job);
  void stand_in_line(std::uint64_t key, const JobPtr& job);
  void list_alone() {
    if (const auto job = std::exchange(alone_, nullptr)) stand_in_lines(job);
  }
  void make_ready(const JobPtr& job);
  void dispatch();
  std::vector<JobPtr> take_group(std::deque<JobPtr>& ready);
  void finish(const JobPtr& job);
  static void run_group(const Tiers& tiers, const std::vector<JobPtr>& group);
  static void put_writes(const Tiers& tiers, const std::vector<JobPtr>& group);
  static void run_erases(const Tiers& tiers, DiskJob& job);

  fabric::Progress& progress_;
  Tiers tiers_;
  std::uint32_t writers_, busy_ = 0, busy_behind_ = 0;
  struct AsIs {
    std::size_t operator()(std::uint64_t hash) const { return hash; }
  };
  absl::flat_hash_map<std::uint64_t, Line, AsIs>
      lines_;     // by a strong hash of the key: two that share it wait for each other
  JobPtr alone_;  // came when there was no other, and stands in no line while nobody asks
  std::deque<JobPtr> urgent_, behind_;
  std::size_t jobs_ = 0;
  std::uint64_t groups_ = 0;
  bool stopped_ = false;
  std::unique_ptr<fabric::Workers> write_workers_, read_workers_;
};

}  // namespace penstock::pool
