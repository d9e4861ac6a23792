#include "pool/store/disk_queue.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "pool/store/object_memory.hpp"
#include "pool/store/object_record.hpp"

namespace penstock::pool {

namespace {

// The tier's view of some jobs' writes; the strings belong to it.
class WriteBatch {
 public:
  // again: it was tried before, and an entry that a failed write left may be there.
  void add(const DiskWrite& write, bool again) {
    const auto& o = write.object;
    strings_.push_back(tier_key(write.packed_key, o.version));
    const auto& key = strings_.back();
    strings_.push_back(
        encode_record({o.put_us, o.tag, write.keep_older, o.metadata ? std::string_view(*o.metadata) : ""}));
    writes_.push_back({key, strings_.back(), o.blob->bytes(), o.checksum, write.fresh && !again});
  }
  void add(const DiskJob& job, bool again) {
    for (const auto& write : job.writes) add(write, again);
  }
  std::span<const storage::TierWrite> writes() const { return writes_; }

 private:
  std::deque<std::string> strings_;  // stay where they are
  std::vector<storage::TierWrite> writes_;
};

// Into the first tier that takes them all. What a full or failing tier refuses, the next may take.
void put_below(const Tiers& tiers, std::span<const storage::TierWrite> writes) {
  std::exception_ptr first;
  for (const auto& tier : tiers) {
    try {
      tier->put(writes, true);
      return;
    } catch (const Error& error) {
      if (!first) first = std::current_exception();
      if (error.code() != Errc::system) break;
    }
  }
  std::rethrow_exception(first);
}

}  // namespace

DiskQueue::DiskQueue(fabric::Progress& progress, Tiers tiers, std::uint32_t writers, std::uint32_t readers)
    : progress_(progress),
      tiers_(std::move(tiers)),
      writers_(std::max(writers, 1u)),
      write_workers_(std::make_unique<fabric::Workers>(progress, writers_, "tier-writer")),
      read_workers_(std::make_unique<fabric::Workers>(progress, std::max(readers, 1u), "tier-reader")) {}

DiskQueue::~DiskQueue() { stop(); }

void DiskQueue::stop() {
  if (stopped_) return;
  stopped_ = true;
  list_alone();
  write_workers_.reset();
  read_workers_.reset();
  tiers_.clear();
  // Those who wait may be what keeps the owner of this queue.
  const auto closed = std::make_exception_ptr(Error(Errc::cancelled, "the object store was closed"));
  urgent_.clear();
  behind_.clear();
  for (auto& [key, line] : std::exchange(lines_, {})) {
    line.rest.push_back(line.first);
    for (const auto& job : line.rest)
      if (const auto done = std::exchange(job->done, nullptr)) done(*job, closed);
  }
}

const std::string& DiskQueue::floor_key() {
  static const std::string key = [] {
    Namespace reserved;
    reserved.bytes.fill(0xff);
    return tier_key(pack_key(reserved, "penstock", "version floor"), 0);
  }();
  return key;
}

void DiskQueue::submit(JobPtr job) {
  if (stopped_) {
    if (job->done) job->done(*job, std::make_exception_ptr(Error(Errc::cancelled, "the object store was closed")));
    return;
  }
  for (const auto& write : job->writes) job->bytes += write.object.bytes + write.object.metadata_bytes();
  if (jobs_++ == 0) {
    alone_ = job;
  } else {
    list_alone();
    stand_in_lines(job);
  }
  if (job->blocked == 0) make_ready(job);
  dispatch();
}

void DiskQueue::stand_in_lines(const JobPtr& job) {
  job->lines.reserve(job->keys.size() + job->writes.size());
  for (const auto& key : job->keys) stand_in_line(line_of(key), job);
  for (const auto& write : job->writes) stand_in_line(line_of(write.packed_key), job);
}

void DiskQueue::stand_in_line(std::uint64_t key, const JobPtr& job) {
  auto& line = lines_[key];
  if ((line.rest.empty() ? line.first : line.rest.back()) == job) return;  // a batch may name a key twice
  job->lines.push_back(key);
  if (!line.first) {
    line.first = job;
  } else {
    line.rest.push_back(job);
    ++job->blocked;
  }
}

// Jobs go back to the engine thread for good: what they hold (an object's memory) has been let go of when `done` was seen.
void DiskQueue::make_ready(const JobPtr& job) {
  if (!job->read) {
    (job->urgent ? urgent_ : behind_).push_back(job);
    return;
  }
  read_workers_->submit([self = weak_from_this(), tiers = &tiers_, progress = &progress_, job = JobPtr(job)]() mutable {
    try {
      job->read(*tiers);
    } catch (...) {
      job->error = std::current_exception();
    }
    progress->post([self, job = std::move(job)] {
      if (const auto queue = self.lock()) {
        queue->finish(job);
        queue->dispatch();
      }
    });
  });
}

std::vector<DiskQueue::JobPtr> DiskQueue::take_group(std::deque<JobPtr>& ready) {
  std::vector<JobPtr> group;
  std::size_t writes = 0;
  std::uint64_t bytes = 0;
  while (!ready.empty()) {
    const auto& next = ready.front();
    if (!group.empty() && (writes + next->writes.size() > max_group_writes || bytes + next->bytes > max_group_bytes))
      break;
    writes += next->writes.size() + 1;
    bytes += next->bytes;
    group.push_back(next);
    ready.pop_front();
  }
  return group;
}

void DiskQueue::dispatch() {
  const auto most_behind = std::max(writers_ - 1, 1u);
  while (!stopped_ && busy_ < writers_) {
    const bool behind = urgent_.empty();
    if (behind && (behind_.empty() || busy_behind_ >= most_behind)) return;
    auto group = take_group(behind ? behind_ : urgent_);
    ++busy_;
    busy_behind_ += behind ? 1 : 0;
    ++groups_;
    write_workers_->submit(
        [self = weak_from_this(), tiers = &tiers_, progress = &progress_, group = std::move(group), behind]() mutable {
          try {
            run_group(*tiers, group);
          } catch (...) {  // out of memory, where no job is to blame
            for (const auto& job : group)
              if (!job->error) job->error = std::current_exception();
          }
          progress->post([self, group = std::move(group), behind] {
            const auto queue = self.lock();
            if (!queue) return;
            --queue->busy_;
            queue->busy_behind_ -= behind ? 1 : 0;
            for (const auto& job : group) queue->finish(job);
            queue->dispatch();
          });
        });
  }
}

void DiskQueue::finish(const JobPtr& job) {
  if (stopped_) return;
  if (alone_ == job) alone_ = nullptr;
  for (const auto key : job->lines) {
    const auto at = lines_.find(key);
    auto& line = at->second;
    if (line.rest.empty()) {
      lines_.erase(at);
      continue;
    }
    line.first = std::move(line.rest.front());
    line.rest.erase(line.rest.begin());
    if (--line.first->blocked == 0) make_ready(line.first);
  }
  --jobs_;
  const auto done = std::move(job->done);
  if (done) done(*job, job->error);
}

void DiskQueue::run_aside(std::function<void(const Tiers&)> work, std::function<void(std::exception_ptr)> done) {
  write_workers_->submit([self = weak_from_this(), tiers = &tiers_, progress = &progress_, work = std::move(work),
                          done = std::move(done)] {
    std::exception_ptr error;
    try {
      work(*tiers);
    } catch (...) {
      error = std::current_exception();
    }
    progress->post([self, done, error] {
      if (const auto queue = self.lock(); queue && !queue->stopped_) done(error);
    });
  });
}

// ------------------------------------------------------------------------------------------------- on a writer thread

void DiskQueue::run_group(const Tiers& tiers, const std::vector<JobPtr>& group) {
  put_writes(tiers, group);
  const auto unless_failed = [&](auto chosen, auto action) {
    for (const auto& job : group) {
      if (job->error || !chosen(*job)) continue;
      try {
        action(*job);
      } catch (...) {
        job->error = std::current_exception();
      }
    }
  };
  unless_failed([](const DiskJob& job) { return !job.erases.empty(); }, [&](DiskJob& job) { run_erases(tiers, job); });
  bool synced = false;  // one sync serves all
  unless_failed([](const DiskJob& job) { return job.sync_erases; },
                [&](DiskJob&) {
                  if (!synced)
                    for (const auto& tier : tiers) tier->sync();
                  synced = true;
                });
}

void DiskQueue::put_writes(const Tiers& tiers, const std::vector<JobPtr>& group) {
  std::vector<DiskJob*> writing;
  WriteBatch all;
  for (const auto& job : group) {
    if (job->writes.empty()) continue;
    writing.push_back(job.get());
    all.add(*job, false);
  }
  if (writing.empty()) return;
  try {
    if (writing.size() > 1) tiers.front()->put(all.writes(), true);
    else put_below(tiers, all.writes());
    return;
  } catch (const Error&) {
    if (writing.size() == 1) {
      writing.front()->error = std::current_exception();
      return;
    }
    // Each for itself below: that tells whose fault it was.
  }
  for (auto* job : writing) {
    WriteBatch batch;
    batch.add(*job, true);
    try {
      put_below(tiers, batch.writes());
    } catch (...) {
      job->error = std::current_exception();
    }
  }
}

void DiskQueue::run_erases(const Tiers& tiers, DiskJob& job) {
  if (job.version_floor != 0) {
    const auto record = tier_key("", job.version_floor);
    const storage::TierWrite write{floor_key(), record, {}, std::nullopt, false, true};
    put_below(tiers, {&write, 1});
  }
  for (const auto& key : job.erases)
    for (auto tier = tiers.rbegin(); tier != tiers.rend(); ++tier) (*tier)->erase(key, false);
}

}  // namespace penstock::pool
