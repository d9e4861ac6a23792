// What a watcher has been told: turns a directory's events, and the lists read after a gap, into changes that are each told
// once and in order. Plain value, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "directory/directory.hpp"

namespace penstock::directory {

class DirectoryView {
 public:
  // Those of the events that are new; events of a path come in order of their revisions.
  std::vector<DirectoryEvent> apply(std::vector<DirectoryEvent> events) {
    std::erase_if(events, [this](const DirectoryEvent& event) {
      const auto at = known_.find(event.entry.path);
      if (event.removed) {
        if (at == known_.end() || at->second >= event.entry.revision) return true;
        known_.erase(at);
        return false;
      }
      if (at != known_.end() && at->second >= event.entry.revision) return true;
      known_[event.entry.path] = event.entry.revision;
      return false;
    });
    return events;
  }

  // What has changed, given all that is there now (in path order, as of `revision` or later).
  std::vector<DirectoryEvent> reset(std::vector<DirectoryEntry> entries, std::uint64_t revision) {
    std::vector<DirectoryEvent> events;
    std::unordered_map<std::string, std::uint64_t> now;
    now.reserve(entries.size());
    for (auto& entry : entries) {
      now.emplace(entry.path, entry.revision);
      const auto at = known_.find(entry.path);
      if (at == known_.end() || at->second != entry.revision) events.push_back({false, std::move(entry)});
    }
    for (const auto& [path, known] : known_) {
      if (now.contains(path)) continue;
      DirectoryEvent event;
      event.removed = true;
      event.entry.path = path;
      event.entry.revision = revision;
      events.push_back(std::move(event));
    }
    known_ = std::move(now);
    return events;
  }

 private:
  std::unordered_map<std::string, std::uint64_t> known_;  // path -> revision
};

}  // namespace penstock::directory
