#include "storage/disk_faults.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>

namespace penstock::storage {

namespace {

using Kind = DiskCall::Kind;

std::atomic<bool> in_force{false};
std::mutex mutex;  // guards present
std::shared_ptr<const DiskFaults::Rule> present;

int ask(const DiskCall& call) {
  std::shared_ptr<const DiskFaults::Rule> rule;
  {
    std::lock_guard lock(mutex);
    rule = present;
  }
  return rule ? (*rule)(call) : 0;
}

int ask(Kind kind, int fd, std::uint64_t bytes = 0) {
  if (!in_force) return 0;
  char path[4096];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size > 0 ? ask({kind, std::string(path, static_cast<std::size_t>(size)), bytes}) : 0;
}

int failed(int error) {
  errno = error;
  return -1;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

DiskFaults::DiskFaults(Rule rule) {
  std::lock_guard lock(mutex);
  present = std::make_shared<const Rule>(std::move(rule));
  in_force = true;
}

DiskFaults::~DiskFaults() {
  std::lock_guard lock(mutex);
  in_force = false;
  present.reset();
}

}  // namespace penstock::storage

using penstock::storage::ask;
using penstock::storage::failed;
using penstock::storage::next;

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  if (const int error = ask(penstock::storage::Kind::write, fd, size)) return failed(error);
  return real(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (const int error = ask(penstock::storage::Kind::write, fd, size)) return failed(error);
  return real(fd, data, size, offset);
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  static const auto real = next<ssize_t(int, const iovec*, int, off_t)>("pwritev");
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  if (const int error = ask(penstock::storage::Kind::write, fd, bytes)) {
    real(fd, parts, 1, offset);
    return failed(error);
  }
  return real(fd, parts, count, offset);
}

int fsync(int fd) {
  static const auto real = next<int(int)>("fsync");
  if (const int error = ask(penstock::storage::Kind::sync, fd)) return failed(error);
  return real(fd);
}

int fdatasync(int fd) {
  static const auto real = next<int(int)>("fdatasync");
  if (const int error = ask(penstock::storage::Kind::sync, fd)) return failed(error);
  return real(fd);
}

int posix_fallocate(int fd, off_t offset, off_t size) {
  static const auto real = next<int(int, off_t, off_t)>("posix_fallocate");
  if (const int error = ask(penstock::storage::Kind::allocate, fd, static_cast<std::uint64_t>(size))) return error;
  return real(fd, offset, size);
}

int statvfs(const char* path, struct statvfs* out) noexcept {
  static const auto real = next<int(const char*, struct statvfs*)>("statvfs");
  const int result = real(path, out);
  if (result == 0 && penstock::storage::in_force && ask({penstock::storage::Kind::space, path, 0}) != 0)
    out->f_bavail = 0;
  return result;
}

}  // extern "C"
