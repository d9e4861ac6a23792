// Owns one file descriptor and closes it. Move-only; one thread at a time.
#pragma once

#include <utility>

namespace penstock::memory {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives the descriptor up without closing it.
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);
  // A second descriptor of the same file (close-on-exec). Throws Error(system).
  static UniqueFd duplicate_of(int fd);

 private:
  int fd_ = -1;
};

}  // namespace penstock::memory
