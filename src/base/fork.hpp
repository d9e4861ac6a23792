// What fork leaves behind. The library's threads are the parent's: what was made before a fork is of no use in the child, and
// must not speak for the parent there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace penstock::base {

// In a child that is forked from now on, /dev/null takes the place of this descriptor, of a socket or a locked file: the parent's
// death closes the socket and frees the lock, whatever children live on. Any thread; nothing is to be undone when it is closed.
void leave_to_parent(int descriptor);

// How many forks lie between the process that called this first and this one. Any thread.
std::uint32_t forks();

// The process that made an object. In a forked child the object is the parent's: whose threads may have held any mutex.
class Origin {
 public:
  Origin() : forks_(forks()) {}
  bool inherited() const { return forks_ != forks(); }
  // Throws Error(wrong_state) in a child; what: the object, in words.
  void check(const std::string& what) const;
  // In a child: drops what is held without destroying it, and returns true.
  template <class... T>
  bool leave(T&... held) const {
    if (!inherited()) return false;
    (static_cast<void>(new T(std::move(held))), ...);
    return true;
  }

 private:
  std::uint32_t forks_;
};

// An object that a process has once, as long as somebody holds it. A forked child has one of its own: it leaves the parent's,
// whose threads and mutexes are of no use there. For variables with static storage duration. Any thread.
template <class T>
class OncePerProcess {
 public:
  template <class Make>
  std::shared_ptr<T> get(Make make) {
    auto* place = place_.load();
    while (place == nullptr || place->forks != forks()) {
      auto* fresh = new Place(forks());
      if (place_.compare_exchange_strong(place, fresh)) place = fresh;
      else delete fresh;
    }
    std::lock_guard lock(place->mutex);
    auto object = place->object.lock();
    if (!object) place->object = object = make();
    return object;
  }

 private:
  struct Place {
    explicit Place(std::uint32_t now) : forks(now) {}
    const std::uint32_t forks;
    std::mutex mutex;  // guards what follows
    std::weak_ptr<T> object;
  };
  std::atomic<Place*> place_{nullptr};
};

}  // namespace penstock::base
