/* Preloaded into programs to count what they send over sockets, all processes together: calls, and bytes. The counts are two
 * 64-bit words in the file that $PENSTOCK_BENCH_MESSAGES names (16 bytes, made by whoever looks at them). Bulk that is shared
 * through memory sends nothing; announcements through rings in shared memory are not seen here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic unsigned long* counts;

__attribute__((constructor)) static void open_counts(void) {
  const char* path = getenv("PENSTOCK_BENCH_MESSAGES");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* memory = mmap(NULL, 2 * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory != MAP_FAILED) counts = memory;
}

static ssize_t count(ssize_t sent) {
  if (counts && sent > 0) {
    atomic_fetch_add_explicit(&counts[0], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[1], (unsigned long)sent, memory_order_relaxed);
  }
  return sent;
}

ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  static ssize_t (*real)(int, const void*, size_t, int);
  if (!real) real = (ssize_t(*)(int, const void*, size_t, int))dlsym(RTLD_NEXT, "send");
  return count(real(socket, data, bytes, flags));
}
ssize_t sendmsg(int socket, const struct msghdr* message, int flags) {
  static ssize_t (*real)(int, const struct msghdr*, int);
  if (!real) real = (ssize_t(*)(int, const struct msghdr*, int))dlsym(RTLD_NEXT, "sendmsg");
  return count(real(socket, message, flags));
}
ssize_t sendto(int socket, const void* data, size_t bytes, int flags, const struct sockaddr* to, socklen_t length) {
  static ssize_t (*real)(int, const void*, size_t, int, const struct sockaddr*, socklen_t);
  if (!real)
    real = (ssize_t(*)(int, const void*, size_t, int, const struct sockaddr*, socklen_t))dlsym(RTLD_NEXT, "sendto");
  return count(real(socket, data, bytes, flags, to, length));
}
