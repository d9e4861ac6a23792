// Putting and dropping: what the table says at once, and what the tiers are told, in the order of each key.
#include <algorithm>

#include "base/log.hpp"
#include "pool/store/store_impl.hpp"

namespace penstock::pool {

using fabric::Promise;

namespace {

constexpr std::chrono::milliseconds first_backoff(50), longest_backoff(2000);
constexpr std::chrono::seconds log_interval(10);

template <class List>
auto find_pending(List& pending, std::uint64_t id) {
  return std::find_if(pending.begin(), pending.end(), [id](const auto& p) { return p.id == id; });
}

}  // namespace

// The version will not be in the table any more. What a tier has of it, or may come to have, goes to obsolete.
void ObjectStore::Impl::void_version(KeyState& state, std::uint64_t version, bool on_disk,
                                     std::vector<std::uint64_t>& obsolete) {
  for (auto p = state.pending.begin(); p != state.pending.end(); ++p) {
    if (p->version != version || p->hidden || p->gone) continue;
    obsolete.insert(obsolete.end(), p->obsolete.begin(), p->obsolete.end());
    p->obsolete.clear();
    unwritten_bytes -= p->bytes;
    --unwritten_objects;
    if (p->in_flight) {
      p->gone = true;
      on_disk = true;
    } else {
      state.pending.erase(p);
    }
    break;
  }
  if (on_disk) obsolete.push_back(version);
}

// A newer version than those in the table is about to be inserted.
void ObjectStore::Impl::replace_older(const UnpackedKey& key, KeyState& state, bool keep_older,
                                      std::vector<std::uint64_t>& obsolete) {
  const auto* newest = table.find(key.ns, key.row, key.column);
  if (newest == nullptr) return;
  state.older.push_back(newest->version);
  if (keep_older) return;
  for (const auto version : std::exchange(state.older, {})) {
    const auto* object = table.find(key.ns, key.row, key.column, version);
    void_version(state, version, object != nullptr && object->on_disk, obsolete);
  }
}

// A version older than the newest is about to be inserted.
void ObjectStore::Impl::take_below(const UnpackedKey& key, KeyState& state, std::uint64_t version, bool keep_older,
                                   std::vector<std::uint64_t>& obsolete) {
  auto at = std::lower_bound(state.older.begin(), state.older.end(), version);
  if (!keep_older) {
    for (auto old = state.older.begin(); old != at; ++old) {
      const auto* object = table.find(key.ns, key.row, key.column, *old);
      void_version(state, *old, object != nullptr && object->on_disk, obsolete);
    }
    at = state.older.erase(state.older.begin(), at);
  }
  state.older.insert(at, version);
}

// Begins with the first writes, up to one whose key was among them. Null: nothing to wait for.
ObjectStore::Impl::Done ObjectStore::Impl::start_put(std::span<Write> writes, bool durable, bool after_disk,
                                                     std::size_t& taken) {
  auto job = std::make_shared<DiskJob>();
  std::vector<bool> newer(writes.size());
  if (durable) job->writes.reserve(writes.size());
  ++batch;
  for (taken = 0; taken < writes.size(); ++taken) {
    auto& write = writes[taken];
    auto packed = pack_key(write.ns, write.row, write.column);
    auto& state = keys[packed];
    if (state.batch == batch) break;
    state.batch = batch;
    auto& object = write.object;
    object.on_disk = false;
    object.last_used = ++uses;
    const auto* newest = table.find(write.ns, write.row, write.column);
    const bool below = newest != nullptr && newest->version >= object.version;
    if (newest != nullptr && !table.takes(write.ns, write.row, write.column, object.version)) {
      forget_if_empty(packed);
      continue;
    }
    newer[taken] = true;
    Pending pending;
    pending.id = next_id++;
    pending.version = object.version;
    pending.bytes = object.bytes;
    pending.checksum = object.checksum;
    pending.in_flight = durable;
    pending.hidden = after_disk;
    pending.keep_older = write.keep_older;
    if (!after_disk) {
      const UnpackedKey key{write.ns, write.row, write.column};
      if (below) take_below(key, state, object.version, write.keep_older, pending.obsolete);
      else replace_older(key, state, write.keep_older, pending.obsolete);
      unwritten_bytes += object.bytes;
      ++unwritten_objects;
    }
    if (durable) {
      const bool first =
          std::ranges::none_of(state.pending, [&](const auto& p) { return p.version == object.version; });
      job->writes.push_back({packed, object, write.keep_older, pending.id, failures == 0 && first});
    } else {
      behind.push_back({packed, pending.id});
    }
    state.pending.push_back(std::move(pending));
  }
  // The disk's order is settled before anybody is told of the objects, and may drop them.
  Done done;
  if (!job->writes.empty()) {
    done = std::make_shared<Promise<void>>(progress);
    job->urgent = true;
    submit_writes(std::move(job), done, false);
  }
  for (std::size_t i = 0; i < taken && !after_disk; ++i) {
    if (!newer[i]) continue;
    auto& write = writes[i];
    const auto version = write.object.version;
    if (table.insert(write.ns, write.row, write.column, std::move(write.object), write.keep_older)) continue;
    // Somebody who was told of an earlier one has put a newer version of this one already.
    const auto packed = pack_key(write.ns, write.row, write.column);
    std::vector<std::uint64_t> obsolete;
    void_version(keys[packed], version, false, obsolete);
    std::erase(keys[packed].older, version);
    if (!obsolete.empty()) submit_erases(packed, obsolete, 0, false, nullptr);
    forget_if_empty(packed);
  }
  return done;
}

bool ObjectStore::Impl::start_drop(const Namespace& ns, std::string_view row, std::string_view column,
                                   std::optional<std::uint64_t> version, bool durable, Done& done) {
  const auto packed = pack_key(ns, row, column);
  const auto* newest = table.find(ns, row, column);
  const auto at = keys.find(packed);
  // Earlier work on the key that has not ended, or failed: a durable drop answers for it too.
  const bool unfinished = durable && (disk->busy(packed) || !failed_erases.empty());
  if (newest == nullptr && at == keys.end() && !unfinished) return false;
  KeyState none;
  auto& state = at == keys.end() ? none : at->second;

  std::vector<std::uint64_t> versions = state.older, erases;
  if (newest != nullptr) versions.push_back(newest->version);
  if (version) std::erase_if(versions, [&](auto v) { return v != *version; });
  bool had = !versions.empty();
  for (const auto v : versions) {
    void_version(state, v, table.find(ns, row, column, v)->on_disk, erases);
    std::erase(state.older, v);
  }
  // The next older one is the newest then.
  if (version && newest != nullptr && *version == newest->version && !state.older.empty()) state.older.pop_back();
  for (auto& p : state.pending) {
    if (!p.hidden || p.gone || (version && p.version != *version)) continue;
    p.gone = had = true;
    erases.push_back(p.version);
  }
  if (durable)
    std::erase_if(failed_erases, [&](const Place& place) {
      if (place.packed_key != packed) return false;
      erases.push_back(place.id_or_version);
      return true;
    });
  std::sort(erases.begin(), erases.end());
  erases.erase(std::unique(erases.begin(), erases.end()), erases.end());

  if (!erases.empty() || (durable && disk->busy(packed))) {
    if (durable) done = std::make_shared<Promise<void>>(progress);
    const auto floor = !erases.empty() && erases.back() > floor_written ? erases.back() : 0;
    submit_erases(packed, erases, floor, durable, done);
  }
  forget_if_empty(packed);
  table.erase(ns, row, column, version);
  return had;
}

void ObjectStore::Impl::give_up_hidden() {
  std::vector<Place> erases;
  std::uint64_t floor = 0;
  for (auto& [packed, state] : keys) {
    for (auto& p : state.pending) {
      if (!p.hidden || p.gone) continue;
      const auto key = unpack_key(packed);
      if (table.find(key.ns, key.row, key.column, p.version) != nullptr) continue;  // the tier has one entry for both
      p.gone = p.given_up = true;
      erases.push_back({packed, p.version});
      floor = std::max(floor, p.version);
    }
  }
  if (erases.empty()) return;
  submit_erases(std::make_shared<DiskJob>(), std::move(erases), floor > floor_written ? floor : 0, false, nullptr);
}

void ObjectStore::Impl::forget_if_empty(const std::string& packed_key) {
  const auto at = keys.find(packed_key);
  if (at != keys.end() && at->second.empty()) keys.erase(at);
}

// -------------------------------------------------------------------------------------------------------- the disk's part

void ObjectStore::Impl::submit_writes(std::shared_ptr<DiskJob> job, Done done, bool behind_callers) {
  ++writing_jobs;
  behind_jobs += behind_callers ? 1 : 0;
  job->done = [weak = weak_from_this(), done = std::move(done), behind_callers, number = ++submitted](
                  DiskJob& job, std::exception_ptr error) {
    const auto self = weak.lock();
    if (!self || self->stopped) {
      if (done) done->set_error(error);
      return;
    }
    --self->writing_jobs;
    if (behind_callers) {
      --self->behind_jobs;
      self->behind_objects = error ? 1 : std::min(2 * self->behind_objects, DiskQueue::max_group_writes);
    }
    if (error) self->last_failed = std::max(self->last_failed, number);
    self->note_disk(error, behind_callers);
    const bool counts = self->written(job, error);
    if (done && !error && !counts)
      error = std::make_exception_ptr(Error(Errc::stale_view, "it was given up on its way"));
    if (done && error) done->set_error(error);
    else if (done) done->set();
    self->write_behind();
    self->demote_if_full();
    self->settled.notify_all();
    self->credit->serve();
  };
  disk->submit(std::move(job));
}

// Gives the disk the oldest of what it does not have.
void ObjectStore::Impl::write_behind() {
  if (!disk || stopped || retry_pending) return;
  if (!options.write_behind && flushing == 0 && !memory_is_short()) return;
  const auto most_jobs = std::max(options.writers, 2u) - 1;
  while (behind_jobs < most_jobs && !behind.empty()) {
    auto job = std::make_shared<DiskJob>();
    std::uint64_t bytes = 0;
    while (!behind.empty() && job->writes.size() < behind_objects) {
      const auto& [packed, id] = behind.front();
      const auto at = keys.find(packed);
      if (at != keys.end()) {
        const auto p = find_pending(at->second.pending, id);
        if (p != at->second.pending.end() && !p->in_flight) {
          const auto key = unpack_key(packed);
          const auto* object = table.find(key.ns, key.row, key.column, p->version);
          if (object == nullptr || !object->blob) break;  // about to be inserted
          bytes += p->bytes + object->metadata_bytes();
          if (!job->writes.empty() && bytes > DiskQueue::max_group_bytes) break;
          p->in_flight = true;
          job->writes.push_back({packed, *object, p->keep_older, id, failures == 0});
        }
      }
      behind.pop_front();
    }
    if (job->writes.empty()) return;
    submit_writes(std::move(job), nullptr, true);
  }
}

bool ObjectStore::Impl::written(DiskJob& job, std::exception_ptr error) {
  std::vector<Place> erases;
  bool counts = true;
  for (const auto& write : job.writes) counts = written_one(write, error, erases) && counts;
  job.writes.clear();  // and with them the bytes
  if (!erases.empty()) submit_erases(std::make_shared<DiskJob>(), std::move(erases), 0, false, nullptr);
  return counts;
}

bool ObjectStore::Impl::written_one(const DiskWrite& write, const std::exception_ptr& error,
                                    std::vector<Place>& erases) {
  auto& state = keys.at(write.packed_key);
  const auto at = find_pending(state.pending, write.id);
  if (error && !at->hidden && !at->gone) {
    // In memory still, and to be tried again.
    at->in_flight = false;
    behind.push_back({write.packed_key, write.id});
    return true;
  }
  const Pending pending = std::move(*at);
  state.pending.erase(at);
  if (!error && !pending.gone) stored(write, pending, erases);
  // A tier may have it all the same. If it was put twice, the entry is the other one's, too.
  if (error && !pending.gone && !is_wanted(write.packed_key, pending.version))
    erases.push_back({write.packed_key, pending.version});
  forget_if_empty(write.packed_key);  // looked up again: who was told of the object may have changed it
  return !pending.given_up;
}

// The version is there, or about to be.
bool ObjectStore::Impl::is_wanted(const std::string& packed_key, std::uint64_t version) {
  const auto key = unpack_key(packed_key);
  if (table.find(key.ns, key.row, key.column, version) != nullptr) return true;
  const auto at = keys.find(packed_key);
  return at != keys.end() &&
         std::ranges::any_of(at->second.pending, [&](const auto& p) { return p.version == version && !p.gone; });
}

// A tier holds it. erases: what it has replaced there.
void ObjectStore::Impl::stored(const DiskWrite& write, const Pending& pending, std::vector<Place>& erases) {
  const auto key = unpack_key(write.packed_key);
  auto obsolete = pending.obsolete;
  if (pending.hidden) {
    if (const auto* newest = table.find(key.ns, key.row, key.column); newest != nullptr) {
      // Put twice: the tier has one entry for both.
      if (table.find(key.ns, key.row, key.column, pending.version) != nullptr) return;
      if (!table.takes(key.ns, key.row, key.column, pending.version)) {
        erases.push_back({write.packed_key, pending.version});
        return;
      }
      auto& state = keys[write.packed_key];
      if (newest->version > pending.version) take_below(key, state, pending.version, write.keep_older, obsolete);
      else replace_older(key, state, write.keep_older, obsolete);
    }
    auto object = write.object;
    object.on_disk = true;
    add_evictable(write.packed_key, object);
    if (demotes()) {
      demotable.add({object.last_used, object.version, write.packed_key});
      trim_heap(demotable, false);
    }
    for (const auto version : obsolete) erases.push_back({write.packed_key, version});
    table.insert(key.ns, key.row, key.column, std::move(object), write.keep_older);
    return;
  }
  unwritten_bytes -= pending.bytes;
  --unwritten_objects;
  for (const auto version : obsolete) erases.push_back({write.packed_key, version});
  auto* object = table.find(key.ns, key.row, key.column, pending.version);
  if (object == nullptr) return;
  object->on_disk = true;
  add_evictable(write.packed_key, *object);
  if (demotes()) {
    demotable.add({object->last_used, object->version, write.packed_key});
    trim_heap(demotable, false);
  }
}

void ObjectStore::Impl::submit_erases(const std::string& packed_key, const std::vector<std::uint64_t>& versions,
                                      std::uint64_t floor, bool sync, Done done) {
  std::vector<Place> places;
  for (const auto version : versions) places.push_back({packed_key, version});
  auto job = std::make_shared<DiskJob>();
  job->keys.push_back(packed_key);
  submit_erases(std::move(job), std::move(places), floor, sync, std::move(done));
}

void ObjectStore::Impl::submit_erases(std::shared_ptr<DiskJob> job, std::vector<Place> erases, std::uint64_t floor,
                                      bool sync, Done done) {
  for (const auto& place : erases) {
    job->keys.push_back(place.packed_key);
    job->erases.push_back(tier_key(place.packed_key, place.id_or_version));
  }
  job->version_floor = floor;
  job->sync_erases = job->urgent = sync;
  ++writing_jobs;
  erasing += erases.size();
  job->done = [weak = weak_from_this(), done = std::move(done), erases = std::move(erases), floor,
               number = ++submitted](DiskJob& job, std::exception_ptr error) {
    const auto self = weak.lock();
    if (!self || self->stopped) {
      if (done) done->set_error(error);
      return;
    }
    --self->writing_jobs;
    self->erasing -= erases.size();
    if (!error) self->floor_written = std::max(self->floor_written, floor);
    else self->failed_erases.insert(self->failed_erases.end(), erases.begin(), erases.end());
    const auto outcome = error;
    // One that answers for earlier drops of its key.
    if (done && !error && std::any_of(self->failed_erases.begin(), self->failed_erases.end(), [&](const Place& place) {
          return place.packed_key == job.keys.front();
        }))
      error = std::make_exception_ptr(Error(Errc::system, "an earlier drop has failed: " + self->disk_error));
    if (outcome) self->last_failed = std::max(self->last_failed, number);
    self->note_disk(outcome, true);
    if (done && error) done->set_error(error);
    else if (done) done->set();
    self->settled.notify_all();
  };
  disk->submit(std::move(job));
}

void ObjectStore::Impl::note_disk(std::exception_ptr error, bool retry_later) {
  if (!error) {
    if (!disk_error.empty()) base::log(base::Level::info, "the pool's disk takes objects again");
    disk_error.clear();
    backoff = {};
    if (retry_pending) retry_failed();
    return;
  }
  ++failures;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    disk_error = e.what();
  }
  if (const auto now = base::Clock::now(); now - logged > log_interval) {
    logged = now;
    base::log(base::Level::error, "the pool's disk does not take objects; memory goes on", {{"error", disk_error}});
  }
  if (!retry_later || retry_pending) return;
  backoff = std::clamp(2 * backoff, first_backoff, longest_backoff);
  retry_pending = true;
  retry = progress.after(backoff, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->retry_failed();
  });
}

// What the disk did not take, once more.
void ObjectStore::Impl::retry_failed() {
  if (stopped) return;
  retry = {};
  retry_pending = false;
  // A version that was put again since belongs to the newer put.
  std::erase_if(failed_erases, [this](const Place& place) { return is_wanted(place.packed_key, place.id_or_version); });
  if (!failed_erases.empty()) {
    std::uint64_t floor = 0;
    for (const auto& place : failed_erases) floor = std::max(floor, place.id_or_version);
    submit_erases(std::make_shared<DiskJob>(), std::exchange(failed_erases, {}), floor > floor_written ? floor : 0,
                  false, nullptr);
  }
  write_behind();
}

}  // namespace penstock::pool
