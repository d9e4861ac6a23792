#include "rpc/bulk_loop.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/log.hpp"

namespace penstock::rpc {

struct BulkLoop::Impl {
  Impl() : poller(::epoll_create1(EPOLL_CLOEXEC)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!poller || !wake) throw Error(Errc::system, "no descriptors for bulk transfers");
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
        const auto found = links.find(static_cast<BulkLink*>(events[i].data.ptr));
        if (found == links.end()) continue;
        const auto link = found->second;
        BulkLoop::deliver(*link, events[i].events);
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
  std::unordered_map<BulkLink*, std::shared_ptr<BulkLink>> links;
};

void BulkLoop::deliver(BulkLink& link, std::uint32_t events) { link.on_events(events); }

// The thread owns what it works on: what it runs may hold the last reference to this object.
BulkLoop::BulkLoop() : impl_(std::make_shared<Impl>()) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([impl = impl_] { impl->run(); });
  ::pthread_setname_np(thread.native_handle(), "penstock-bulk");
  thread.detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BulkLoop::~BulkLoop() {
  impl_->stopping = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(impl_->wake.get(), &one, sizeof one);
}

std::shared_ptr<BulkLoop> BulkLoop::shared() {
  static std::mutex mutex;
  static std::weak_ptr<BulkLoop> current;
  std::lock_guard lock(mutex);
  auto loop = current.lock();
  if (!loop) current = loop = std::shared_ptr<BulkLoop>(new BulkLoop);
  return loop;
}

void BulkLoop::post(std::function<void()> command) {
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

void BulkLoop::add(const std::shared_ptr<BulkLink>& link, int socket) {
  impl_->links.emplace(link.get(), link);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = link.get();
  ::epoll_ctl(impl_->poller.get(), EPOLL_CTL_ADD, socket, &event);
}

void BulkLoop::watch(BulkLink& link, int socket, bool writes) {
  epoll_event event{};
  event.events = writes ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = &link;
  ::epoll_ctl(impl_->poller.get(), EPOLL_CTL_MOD, socket, &event);
}

void BulkLoop::remove(BulkLink& link, int socket) {
  ::epoll_ctl(impl_->poller.get(), EPOLL_CTL_DEL, socket, nullptr);
  impl_->links.erase(&link);
}

}  // namespace penstock::rpc
