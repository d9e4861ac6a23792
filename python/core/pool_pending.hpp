// What is under way in a pool after the call of Python that began it: subscriptions, puts, and requests for objects.
#pragma once

#include <condition_variable>
#include <deque>
#include <set>

#include "core.hpp"

namespace penstock::python {

// An object at the border: what is known of it, and its bytes, which the memory keeps alive.
nb::dict info_dict(const ObjectInfo& info);
std::unique_ptr<Memory> object_memory(Object& object);

class PySubscription;
using OpenSubscriptions = std::set<PySubscription*>;  // of one pool; with the interpreter lock

// What subscriptions saw and Python has not yet taken. Filled on the library's thread, which takes no interpreter lock.
class PySubscription {
 public:
  PySubscription(std::shared_ptr<Pool> pool, const Pattern& pattern, bool existing,
                 std::shared_ptr<OpenSubscriptions> all);
  ~PySubscription() { close(); }
  // Also while another thread waits in next(), and from its pool's close(), which owns none.
  void close();
  bool closed() const { return !subscription_; }
  // (dropped, info), or None after the slice, or when it is closed. Without an event: throws what a server refuses it with.
  nb::object next(std::int64_t slice_ms);
  std::uint64_t lost() const;

 private:
  static constexpr std::size_t max_events = 1'000'000;
  static constexpr std::size_t max_metadata = std::size_t{64} << 20;  // of these events
  struct Shared {
    mutable std::mutex mutex;
    std::condition_variable ready;
    std::deque<ObjectEvent> events;
    std::size_t metadata = 0;  // bytes
    std::uint64_t lost = 0;
    bool closed = false;
  };
  const Origin origin_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Subscription> subscription_;
  std::uint64_t lost_at_servers_ = 0;  // once it is closed
  std::shared_ptr<OpenSubscriptions> all_;
};

// A put that is under way and its bytes. Those that nobody waits for any more, because a signal came or the object was dropped,
// are kept until they have ended, which their deadlines bound: the library reads the bytes until then.
class PyPendingPut {
 public:
  PyPendingPut(Pending<std::uint64_t> pending, Buffer buffer, std::shared_ptr<const OpenState> open)
      : open_(std::move(open)), pending_(std::move(pending)), buffer_(std::move(buffer)) {}
  ~PyPendingPut();
  PyPendingPut(const PyPendingPut&) = delete;
  PyPendingPut& operator=(const PyPendingPut&) = delete;
  bool done() const;
  // The version, or None after the slice.
  nb::object wait(std::int64_t slice_ms);

 private:
  const Origin origin_;
  const std::shared_ptr<const OpenState> open_;
  Pending<std::uint64_t> pending_;
  Buffer buffer_;
};

class PyWant {
 public:
  PyWant(Pending<Object> pending, std::shared_ptr<const OpenState> open)
      : open_(std::move(open)), pending_(std::move(pending)) {}
  bool done() const;
  // (memory, info), or None after the slice.
  nb::object wait(std::int64_t slice_ms);

 private:
  const Origin origin_;
  const std::shared_ptr<const OpenState> open_;
  Pending<Object> pending_;
};

// A batch of puts, by a thread that Python need not wait for: when a signal comes, it goes on alone until its deadline or until the
// pool is closed, and its bytes are kept as long.
std::vector<Result<std::uint64_t>> put_batch(std::shared_ptr<Pool> pool, const OpenState& open,
                                             std::vector<Buffer> buffers, std::vector<Pool::PutItem> items,
                                             PutOptions options);

void bind_pool_pending(nb::module_& m);

}  // namespace penstock::python
