#include "directory/state.hpp"

#include <algorithm>

#include "penstock/error.hpp"

namespace penstock::directory {
namespace {

bool is_path_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

[[noreturn]] void refuse_path(std::string_view what, std::string_view path, std::string_view why) {
  // The text comes from elsewhere: a bounded part of it, without what a terminal would act upon.
  std::string shown(path.substr(0, 80));
  for (char& c : shown)
    if (!is_path_character(c) && c != '/') c = '?';
  throw Error(Errc::invalid_argument, std::string(what) + " '" + shown + "' " + std::string(why));
}

void check_characters(std::string_view what, std::string_view path) {
  if (path.size() > max_path_bytes) refuse_path(what, path, "is longer than 512 bytes");
  if (!path.empty() && path.front() != '/') refuse_path(what, path, "does not begin with '/'");
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '/') {
      if (i > 0 && path[i - 1] == '/') refuse_path(what, path, "has an empty part");
    } else if (!is_path_character(path[i])) {
      refuse_path(what, path, "has a character other than A-Z a-z 0-9 . _ - /");
    }
  }
}

Error full(const std::string& what, std::size_t limit) {
  return Error(Errc::overloaded, "the directory is full: " + std::to_string(limit) + " " + what);
}

Error contradiction(const std::string& what) {
  return Error(Errc::protocol, "the directory contradicts itself: " + what);
}

std::size_t counted_bytes(const DirectoryEvent& event) {
  return event.entry.path.size() + event.entry.value.size() + 64;
}

}  // namespace

void check_path(std::string_view path) {
  if (path.size() < 2) refuse_path("the path", path, "is empty");
  check_characters("the path", path);
  if (path.back() == '/') refuse_path("the path", path, "ends with '/'");
}

void check_prefix(std::string_view prefix) { check_characters("the prefix", prefix); }

void check_value(std::string_view path, std::string_view value) {
  if (value.size() > max_value_bytes)
    throw Error(Errc::invalid_argument, "the value of " + std::string(path) + " has " + std::to_string(value.size()) +
                                            " bytes; at most 262144 are allowed");
}

void check_ttl(std::chrono::milliseconds ttl) {
  if (ttl < min_lease_ttl || ttl > max_lease_ttl)
    throw Error(Errc::invalid_argument,
                "a lease of " + std::to_string(ttl.count()) + " ms: it must be between 50 ms and one day");
}

// A lease of one tree is none of another's, should a server lose its disk.
DirectoryState::DirectoryState(std::uint64_t tree, DirectoryLimits limits)
    : limits_(limits), tree_(tree), next_lease_(((tree & 0x7fffffff) << 24) + 1) {}

DirectoryState::DirectoryState(DirectorySnapshot snapshot, DirectoryLimits limits, Time now)
    : limits_(limits),
      tree_(snapshot.tree),
      revision_(snapshot.revision),
      next_lease_(snapshot.next_lease),
      history_start_(snapshot.revision) {
  for (const auto& [id, ttl_ms] : snapshot.leases) {
    if (id == 0 || id >= next_lease_ || leases_.contains(id)) throw contradiction("lease " + std::to_string(id));
    do_grant(id, std::chrono::milliseconds(ttl_ms), now);
  }
  for (auto& e : snapshot.entries) {
    if (e.revision == 0 || e.revision > revision_ || e.created == 0 || e.created > e.revision)
      throw contradiction("revision of " + e.path);
    if (e.lease != 0) {
      const auto lease = leases_.find(e.lease);
      if (lease == leases_.end()) throw contradiction("lease of " + e.path);
      lease->second.paths.insert(e.path);
    }
    bytes_ += e.path.size() + e.value.size();
    if (!entries_.emplace(e.path, Entry{std::move(e.value), e.revision, e.created, e.lease}).second)
      throw contradiction("two of " + e.path);
  }
}

std::optional<DirectoryChange> DirectoryState::put(std::string_view path, std::string_view value,
                                                   std::optional<std::uint64_t> expected, std::uint64_t lease) {
  check_path(path);
  check_value(path, value);
  if (lease != 0 && !leases_.contains(lease))
    throw Error(Errc::not_found, "lease " + std::to_string(lease) + " has ended");
  const auto at = entries_.find(path);
  const bool exists = at != entries_.end();
  if (expected && *expected != (exists ? at->second.revision : 0)) return {};
  if (!exists && entries_.size() >= limits_.entries) throw full("entries", limits_.entries);
  const std::size_t before = exists ? path.size() + at->second.value.size() : 0;
  if (bytes_ - before + path.size() + value.size() > limits_.bytes) throw full("bytes", limits_.bytes);
  DirectoryChange change;
  change.kind = DirectoryChange::Kind::put;
  change.revision = revision_ + 1;
  change.lease = lease;
  change.path = path;
  change.value = value;
  do_put(change);
  return change;
}

std::optional<DirectoryChange> DirectoryState::remove(std::string_view path, std::optional<std::uint64_t> expected) {
  check_path(path);
  const auto at = entries_.find(path);
  if (at == entries_.end() || (expected && *expected != at->second.revision)) return {};
  DirectoryChange change;
  change.kind = DirectoryChange::Kind::remove;
  change.revision = revision_ + 1;
  change.path = path;
  do_remove(at);
  return change;
}

DirectoryChange DirectoryState::grant(std::chrono::milliseconds ttl, Time now) {
  check_ttl(ttl);
  if (leases_.size() >= limits_.leases) throw full("leases", limits_.leases);
  DirectoryChange change;
  change.kind = DirectoryChange::Kind::grant;
  change.lease = next_lease_++;
  change.ttl_ms = static_cast<std::uint32_t>(ttl.count());
  do_grant(change.lease, ttl, now);
  return change;
}

std::optional<DirectoryChange> DirectoryState::revoke(std::uint64_t lease) {
  if (!leases_.contains(lease)) return {};
  return do_end_lease(lease);
}

bool DirectoryState::heartbeat(std::uint64_t lease, Time now) {
  const auto at = leases_.find(lease);
  if (at == leases_.end()) return false;
  ends_.erase({at->second.end, lease});
  at->second.end = std::max(at->second.end, now + at->second.ttl);
  at->second.spared = false;
  ends_.insert({at->second.end, lease});
  return true;
}

std::vector<DirectoryChange> DirectoryState::expire(Time now) {
  std::vector<DirectoryChange> changes;
  while (!ends_.empty() && ends_.begin()->first <= now) changes.push_back(do_end_lease(ends_.begin()->second));
  return changes;
}

std::optional<DirectoryState::Time> DirectoryState::next_expiry() const {
  if (ends_.empty()) return {};
  return ends_.begin()->first;
}

void DirectoryState::spare_leases(Time now) {
  for (auto& [id, lease] : leases_) {
    const Time end = now + std::min<std::chrono::milliseconds>(lease.ttl / 2, std::chrono::seconds(1));
    if (lease.spared || lease.end >= end) continue;
    lease.spared = true;
    ends_.erase({lease.end, id});
    ends_.insert({lease.end = end, id});
  }
}

void DirectoryState::apply(const DirectoryChange& change, Time now) {
  const auto next_revision = [&] {
    if (change.revision != revision_ + 1)
      throw contradiction("revision " + std::to_string(change.revision) + " after " + std::to_string(revision_));
  };
  switch (change.kind) {
    case DirectoryChange::Kind::put:
      next_revision();
      check_path(change.path);
      check_value(change.path, change.value);
      if (change.lease != 0 && !leases_.contains(change.lease)) throw contradiction("lease of " + change.path);
      do_put(change);
      return;
    case DirectoryChange::Kind::remove: {
      next_revision();
      const auto at = entries_.find(change.path);
      if (at == entries_.end()) throw contradiction("removal of " + change.path);
      do_remove(at);
      return;
    }
    case DirectoryChange::Kind::grant:
      if (change.lease == 0 || change.lease < next_lease_ || change.lease == UINT64_MAX)
        throw contradiction("lease " + std::to_string(change.lease));
      check_ttl(std::chrono::milliseconds(change.ttl_ms));
      next_lease_ = change.lease + 1;
      do_grant(change.lease, std::chrono::milliseconds(change.ttl_ms), now);
      return;
    case DirectoryChange::Kind::end_lease:
      next_revision();
      if (!leases_.contains(change.lease)) throw contradiction("end of lease " + std::to_string(change.lease));
      do_end_lease(change.lease);
      return;
  }
  throw contradiction("change of an unknown kind");
}

DirectorySnapshot DirectoryState::snapshot() const {
  DirectorySnapshot result{tree_, revision_, next_lease_, {}, {}};
  result.leases.reserve(leases_.size());
  for (const auto& [id, lease] : leases_) result.leases.emplace_back(id, static_cast<std::uint32_t>(lease.ttl.count()));
  result.entries.reserve(entries_.size());
  for (const auto& item : entries_) result.entries.push_back(to_entry(item));
  return result;
}

std::optional<DirectoryEntry> DirectoryState::get(std::string_view path) const {
  check_path(path);
  const auto at = entries_.find(path);
  if (at == entries_.end()) return {};
  return to_entry(*at);
}

DirectoryState::Page DirectoryState::list(std::string_view prefix, std::string_view after, std::size_t limit,
                                          std::size_t max_bytes) const {
  check_prefix(prefix);
  Page page;
  std::size_t bytes = 0;
  for (auto at = after < prefix ? entries_.lower_bound(prefix) : entries_.upper_bound(after);
       at != entries_.end() && at->first.starts_with(prefix); ++at) {
    const std::size_t size = at->first.size() + at->second.value.size() + 64;
    if (page.entries.size() >= limit || (!page.entries.empty() && bytes + size > max_bytes)) {
      page.more = true;
      break;
    }
    bytes += size;
    page.entries.push_back(to_entry(*at));
  }
  return page;
}

DirectoryState::Events DirectoryState::events_since(std::string_view prefix, std::uint64_t revision,
                                                    std::size_t max_events, std::size_t max_bytes) const {
  check_prefix(prefix);
  Events result;
  result.revision = revision_;
  if (revision < history_start_ || revision > revision_) {
    result.reset = true;
    return result;
  }
  // Revisions in the history have no gaps.
  auto at = history_.begin() + static_cast<std::ptrdiff_t>(revision - history_start_);
  std::size_t bytes = 0;
  for (; at != history_.end(); ++at) {
    if (!at->entry.path.starts_with(prefix)) continue;
    if (!result.events.empty() && (result.events.size() >= max_events || bytes + counted_bytes(*at) > max_bytes)) {
      result.revision = at->entry.revision - 1;
      result.more = true;
      break;
    }
    bytes += counted_bytes(*at);
    result.events.push_back(*at);
  }
  return result;
}

DirectoryEntry DirectoryState::to_entry(const Entries::value_type& item) {
  return {item.first, item.second.value, item.second.revision, item.second.created, item.second.lease};
}

void DirectoryState::do_put(const DirectoryChange& change) {
  revision_ = change.revision;
  auto [at, is_new] = entries_.try_emplace(change.path);
  Entry& entry = at->second;
  if (is_new) {
    entry.created = revision_;
    bytes_ += change.path.size();
  } else {
    bytes_ -= entry.value.size();
    if (entry.lease != 0 && entry.lease != change.lease) leases_.at(entry.lease).paths.erase(change.path);
  }
  entry.value = change.value;
  entry.revision = revision_;
  entry.lease = change.lease;
  bytes_ += entry.value.size();
  if (change.lease != 0) leases_.at(change.lease).paths.insert(change.path);
  remember({false, to_entry(*at)});
}

void DirectoryState::do_remove(Entries::iterator at) {
  ++revision_;
  bytes_ -= at->first.size() + at->second.value.size();
  if (at->second.lease != 0) leases_.at(at->second.lease).paths.erase(at->first);
  DirectoryEvent event;
  event.removed = true;
  event.entry.path = at->first;
  event.entry.revision = revision_;
  entries_.erase(at);
  remember(std::move(event));
}

void DirectoryState::do_grant(std::uint64_t id, std::chrono::milliseconds ttl, Time now) {
  Lease lease;
  lease.ttl = ttl;
  lease.end = now + ttl;
  ends_.insert({lease.end, id});
  leases_.emplace(id, std::move(lease));
}

DirectoryChange DirectoryState::do_end_lease(std::uint64_t id) {
  DirectoryChange change;
  change.kind = DirectoryChange::Kind::end_lease;
  change.revision = revision_ + 1;
  change.lease = id;
  const auto at = leases_.find(id);
  const auto paths = std::move(at->second.paths);
  ends_.erase({at->second.end, id});
  leases_.erase(at);
  for (const auto& path : paths) {
    const auto entry = entries_.find(path);
    entry->second.lease = 0;
    do_remove(entry);
  }
  return change;
}

void DirectoryState::remember(DirectoryEvent event) {
  history_bytes_ += counted_bytes(event);
  history_.push_back(std::move(event));
  while (history_.size() > limits_.history || history_bytes_ > limits_.history_bytes) {
    history_bytes_ -= counted_bytes(history_.front());
    history_start_ = history_.front().entry.revision;
    history_.pop_front();
  }
}

}  // namespace penstock::directory
