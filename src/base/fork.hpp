// What fork leaves behind. The library's threads are the parent's: what was made before a fork is of no use in the child, and
// must not speak for the parent there.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace penstock::base {

// In a child, forked from now on, this socket of ours is at its end: a peer hears of the parent's death at once, whatever
// children live on. The descriptor's number stays taken in the child. Any thread; nothing is to be undone when it is closed.
void leave_to_parent(int socket);

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

}  // namespace penstock::base
