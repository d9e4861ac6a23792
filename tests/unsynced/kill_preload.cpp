// Preloaded into a program: kills it before the n-th call that changes a file below a folder, or before its n-th send.
//
//   LD_PRELOAD=libkill_preload.so PENSTOCK_KILL_ROOT=/d/heat.steps PENSTOCK_KILL_AT=12 program
//   LD_PRELOAD=libkill_preload.so PENSTOCK_KILL_SEND=12 program
//
// Calls that change files: open and openat that may create, write, pwrite, writev, ftruncate, rename, unlink. Sends: send, sendmsg, and
// the wake-up of another process (a shared futex), which announces what was written into shared memory. With PENSTOCK_KILL_SEND=0
// nothing is killed; a program that ends well writes "N sends" to its standard error.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

namespace {

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static const auto next = real<decltype(&name)>(#name)

std::atomic<long> calls{0}, sends{0};

void count(const char* path) {
  static const char* root = getenv("PENSTOCK_KILL_ROOT");
  static const long at = getenv("PENSTOCK_KILL_AT") ? atol(getenv("PENSTOCK_KILL_AT")) : 0;
  if (root == nullptr || path == nullptr || strncmp(path, root, strlen(root)) != 0) return;
  if (++calls == at) raise(SIGKILL);
}

void count(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const auto size = readlink(link, path, sizeof(path) - 1);
  path[size > 0 ? size : 0] = 0;
  count(path);
}

void count_send() {
  static const char* at = getenv("PENSTOCK_KILL_SEND");
  if (at != nullptr && ++sends == atol(at)) raise(SIGKILL);
}

__attribute__((destructor)) void say() {
  if (getenv("PENSTOCK_KILL_SEND") != nullptr) fprintf(stderr, "%ld sends\n", sends.load());
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) != 0) count(path);
  REAL(open);
  return next(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) != 0) count(path);
  REAL(open64);
  return next(path, flags, mode);
}
ssize_t write(int fd, const void* data, size_t size) {
  count(fd);
  REAL(write);
  return next(fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  count(fd);
  REAL(pwrite);
  return next(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  count(fd);
  REAL(pwrite64);
  return next(fd, data, size, offset);
}
ssize_t writev(int fd, const iovec* parts, int n) {
  count(fd);
  REAL(writev);
  return next(fd, parts, n);
}
ssize_t send(int socket, const void* data, size_t size, int flags) {
  count_send();
  REAL(send);
  return next(socket, data, size, flags);
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  count_send();
  REAL(sendmsg);
  return next(socket, message, flags);
}
long syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  long words[6];
  for (long& word : words) word = va_arg(more, long);
  va_end(more);
  if (number == SYS_futex && words[1] == FUTEX_WAKE) count_send();
  REAL(syscall);
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
int ftruncate(int fd, off_t size) {
  count(fd);
  REAL(ftruncate);
  return next(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  count(fd);
  REAL(ftruncate64);
  return next(fd, size);
}
int rename(const char* from, const char* to) {
  count(to);
  REAL(rename);
  return next(from, to);
}
int unlink(const char* path) {
  count(path);
  REAL(unlink);
  return next(path);
}

}  // extern "C"
