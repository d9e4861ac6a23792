// What tests of directories share: waiting for what a watch tells, and calls from the test's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "directory/directory.hpp"
#include "fabric/task.hpp"

namespace penstock::directory {

// A watch and all that it told.
class Told {
 public:
  Told(fabric::Progress& progress, Directory& directory, const std::string& prefix) : progress_(progress) {
    watch_ = directory.watch(prefix, [this](const std::vector<DirectoryEvent>& events) {
      {
        std::lock_guard lock(mutex_);
        ++calls_;
        for (const auto& e : events) {
          events_.push_back(e);
          if (e.removed) now_.erase(e.entry.path);
          else now_[e.entry.path] = e.entry;
        }
      }
      progress_.notify();
    });
  }
  void end() { watch_.reset(); }
  std::vector<DirectoryEvent> events() const {
    std::lock_guard lock(mutex_);
    return events_;
  }
  std::map<std::string, DirectoryEntry> now() const {
    std::lock_guard lock(mutex_);
    return now_;
  }
  int calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] bool wait(const std::function<bool()>& ready) { return progress_.wait_for(ready, soon()); }
  [[nodiscard]] bool wait_first() {
    return wait([this] { return calls() > 0; });
  }
  [[nodiscard]] bool wait_value(const std::string& path, const std::string& value) {
    return wait([&] {
      const auto all = now();
      const auto at = all.find(path);
      return at != all.end() && at->second.value == value;
    });
  }
  [[nodiscard]] bool wait_gone(const std::string& path) {
    return wait([&] { return !now().contains(path); });
  }

 private:
  fabric::Progress& progress_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<DirectoryEvent> events_;
  std::map<std::string, DirectoryEntry> now_;
  int calls_ = 0;
  std::unique_ptr<Directory::Watch> watch_;
};

// A client, called from the test's thread.
class Client {
 public:
  Client(std::shared_ptr<fabric::Progress> progress, std::unique_ptr<Directory> directory)
      : progress_(std::move(progress)), directory_(std::move(directory)) {}
  Directory& operator*() { return *directory_; }
  Directory* operator->() { return directory_.get(); }
  template <class T>
  T run(fabric::Task<T> task) {
    return fabric::run_task(*progress_, std::move(task), soon());
  }
  std::optional<std::uint64_t> put(const std::string& path, const std::string& value,
                                   std::optional<std::uint64_t> expected = {}, std::uint64_t lease = 0) {
    return run(directory_->put(path, value, expected, lease, soon()));
  }
  std::optional<DirectoryEntry> get(const std::string& path) { return run(directory_->get(path, soon())); }
  std::vector<DirectoryEntry> list(const std::string& prefix, const std::string& after = "",
                                   std::size_t limit = SIZE_MAX) {
    return run(directory_->list(prefix, after, limit, soon()));
  }
  bool remove(const std::string& path, std::optional<std::uint64_t> expected = {}) {
    return run(directory_->remove(path, expected, soon()));
  }
  std::uint64_t grant(std::chrono::milliseconds ttl, std::function<void()> lost = {}) {
    return run(directory_->grant(ttl, std::move(lost), soon()));
  }
  void revoke(std::uint64_t lease) { run(directory_->revoke(lease, soon())); }

 private:
  std::shared_ptr<fabric::Progress> progress_;
  std::unique_ptr<Directory> directory_;
};

}  // namespace penstock::directory
