#include "events.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "penstock/error.hpp"

namespace penstock::server {

Events::Events() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = memory::UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!wake_ || !signals_) throw Error(Errc::system, std::string("signals: ") + std::strerror(errno));
}

void Events::wake() {
  const std::uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

std::optional<int> Events::wait(std::optional<std::chrono::milliseconds> timeout) {
  for (;;) {
    pollfd fds[2]{{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const int ready = ::poll(fds, 2, timeout ? static_cast<int>(timeout->count()) : -1);
    if (ready < 0 && errno != EINTR) throw Error(Errc::system, std::string("poll: ") + std::strerror(errno));
    signalfd_siginfo info;
    if (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGHUP) return static_cast<int>(info.ssi_signo);
      continue;
    }
    std::uint64_t count = 0;
    if (::read(wake_.get(), &count, sizeof count) == sizeof count) return 0;
    if (ready == 0) return {};
  }
}

}  // namespace penstock::server
