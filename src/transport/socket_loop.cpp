#include "transport/socket_loop.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/fork.hpp"
#include "memory/unique_fd.hpp"
#include "penstock/error.hpp"

namespace penstock::transport {

struct SocketLoop::Impl {
  Impl() : poller(::epoll_create1(EPOLL_CLOEXEC)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!poller || !wake) throw Error(Errc::system, "no descriptors to move bytes with");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = nullptr;
    ::epoll_ctl(poller.get(), EPOLL_CTL_ADD, wake.get(), &event);
  }

  void run() {
    while (!stopping) {
      epoll_event events[64];
      const int count = ::epoll_wait(poller.get(), events, 64, -1);
      if (count < 0 && errno != EINTR) return;
      bool woken = false;
      for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr == nullptr) {
          woken = true;
          continue;
        }
        const auto found = handlers.find(static_cast<Handler*>(events[i].data.ptr));
        if (found == handlers.end()) continue;
        const auto handler = found->second;
        handler->on_events(events[i].events);
      }
      if (woken) run_commands();
    }
  }
  void run_commands() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake.get(), &count, sizeof count);
    std::vector<std::function<void()>> now;
    {
      std::lock_guard lock(mutex);
      now.swap(commands);
    }
    for (auto& command : now) {
      command();
      command = nullptr;
    }
  }

  memory::UniqueFd poller, wake;
  std::atomic<bool> stopping{false};
  std::mutex mutex;  // guards what follows
  std::vector<std::function<void()>> commands;
  // The loop's own.
  std::unordered_map<Handler*, std::shared_ptr<Handler>> handlers;
};

// The thread owns what it works on: what it runs may hold the last reference to this object.
SocketLoop::SocketLoop() : impl_(std::make_shared<Impl>()) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([impl = impl_] { impl->run(); });
  ::pthread_setname_np(thread.native_handle(), "penstock-bulk");
  thread.detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SocketLoop::~SocketLoop() {
  impl_->stopping = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(impl_->wake.get(), &one, sizeof one);
}

std::shared_ptr<SocketLoop> SocketLoop::shared() {
  static base::OncePerProcess<SocketLoop> loop;
  return loop.get([] { return std::shared_ptr<SocketLoop>(new SocketLoop); });
}

void SocketLoop::post(std::function<void()> command) {
  bool first = false;
  {
    std::lock_guard lock(impl_->mutex);
    first = impl_->commands.empty();
    impl_->commands.push_back(std::move(command));
  }
  if (!first) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(impl_->wake.get(), &one, sizeof one);
}

void SocketLoop::call(const std::function<void()>& command) {
  std::promise<void> done;
  post([&] {
    command();
    done.set_value();
  });
  done.get_future().wait();
}

void SocketLoop::add(const std::shared_ptr<Handler>& handler, int socket) {
  impl_->handlers.emplace(handler.get(), handler);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = handler.get();
  ::epoll_ctl(impl_->poller.get(), EPOLL_CTL_ADD, socket, &event);
}

void SocketLoop::watch(Handler& handler, int socket, bool reads, bool writes) {
  epoll_event event{};
  event.events = (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u);
  event.data.ptr = &handler;
  ::epoll_ctl(impl_->poller.get(), EPOLL_CTL_MOD, socket, &event);
}

void SocketLoop::remove(Handler& handler, int socket) {
  ::epoll_ctl(impl_->poller.get(), EPOLL_CTL_DEL, socket, nullptr);
  impl_->handlers.erase(&handler);
}

}  // namespace penstock::transport
