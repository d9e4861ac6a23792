/* Preloaded into programs to force TCP_NODELAY on both ends of every TCP connection, which the peer under test leaves off
 * on one of them. Setting it fails harmlessly on sockets that are not TCP. errno is left as the wrapped call set it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void force_nodelay(int descriptor) {
  const int saved = errno;
  const int on = 1;
  if (descriptor >= 0) setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  errno = saved;
}

int socket(int domain, int type, int protocol) {
  int (*next)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
  const int descriptor = next(domain, type, protocol);
  force_nodelay(descriptor);
  return descriptor;
}

int connect(int descriptor, __CONST_SOCKADDR_ARG address, socklen_t length) {
  int (*next)(int, __CONST_SOCKADDR_ARG, socklen_t) =
      (int (*)(int, __CONST_SOCKADDR_ARG, socklen_t))dlsym(RTLD_NEXT, "connect");
  force_nodelay(descriptor);
  return next(descriptor, address, length);
}

int accept(int listener, __SOCKADDR_ARG address, socklen_t* length) {
  int (*next)(int, __SOCKADDR_ARG, socklen_t*) = (int (*)(int, __SOCKADDR_ARG, socklen_t*))dlsym(RTLD_NEXT, "accept");
  const int descriptor = next(listener, address, length);
  force_nodelay(descriptor);
  return descriptor;
}

int accept4(int listener, __SOCKADDR_ARG address, socklen_t* length, int flags) {
  int (*next)(int, __SOCKADDR_ARG, socklen_t*, int) =
      (int (*)(int, __SOCKADDR_ARG, socklen_t*, int))dlsym(RTLD_NEXT, "accept4");
  const int descriptor = next(listener, address, length, flags);
  force_nodelay(descriptor);
  return descriptor;
}
