#include "pool_pending.hpp"

#include <list>
#include <thread>

namespace penstock::python {
namespace {

nb::bytes python_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// What it came to, or nothing after the slice. An outcome of its own that is a timeout is told from the slice's.
template <class T>
std::optional<T> within_slice(Pending<T>& pending, std::int64_t slice_ms) {
  Unlocked unlocked;
  if (!pending.done()) try {
      return pending.get(Timeout(slice_ms));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      if (!pending.done()) return std::nullopt;
    }
  return pending.get();
}

// The same of a pool that may be closed meanwhile, which ends what is under way.
template <class T>
std::optional<T> while_open(const OpenState& open, Pending<T>& pending, std::int64_t slice_ms) {
  try {
    auto outcome = within_slice(pending, slice_ms);
    if (!outcome) open.check();
    return outcome;
  } catch (const Error& error) {
    if (error.code() == Errc::stream_closed) open.check();
    throw;
  }
}

using LeftPuts = std::list<std::pair<Pending<std::uint64_t>, Buffer>>;
// Used with the interpreter lock; never destroyed, as the interpreter may be gone by then.
LeftPuts& left_puts() {
  static auto* left = new LeftPuts();
  return *left;
}

struct PutBatch {
  PutBatch(std::shared_ptr<Pool> to, std::vector<Buffer> bytes, std::vector<Pool::PutItem> what, PutOptions how)
      : pool(std::move(to)), buffers(std::move(bytes)), items(std::move(what)), options(how) {}

  static std::vector<Result<std::uint64_t>> run(const OpenState& open, const std::shared_ptr<PutBatch>& batch) {
    open.check();
    static auto* all = new std::list<std::shared_ptr<PutBatch>>();  // with the interpreter lock; never destroyed
    std::erase_if(*all, [](const auto& one) { return one->ended(); });
    all->push_back(batch);
    open.run([&] { wait(*batch); });
    all->remove(batch);
    if (batch->error) std::rethrow_exception(batch->error);
    return std::move(batch->results);
  }

 private:
  static void wait(PutBatch& batch) {
    std::thread([&batch] { batch.put(); }).detach();
    std::unique_lock lock(batch.mutex);
    while (!batch.changed.wait_for(lock, slice, [&] { return batch.done; })) {
      lock.unlock();
      if (interrupted()) throw Error(Errc::cancelled, "interrupted by a signal");
      lock.lock();
    }
  }
  static constexpr std::chrono::milliseconds slice{50};
  void put() {
    try {
      results = pool->put(items, options);
    } catch (...) {
      error = std::current_exception();
    }
    auto last = std::exchange(pool, nullptr);
    last.reset();
    const std::lock_guard lock(mutex);  // held to the end: who has seen done may free this
    done = true;
    changed.notify_all();
  }
  bool ended() {
    const std::lock_guard lock(mutex);
    return done;
  }
  std::shared_ptr<Pool> pool;
  const std::vector<Buffer> buffers;
  const std::vector<Pool::PutItem> items;
  const PutOptions options;
  std::vector<Result<std::uint64_t>> results;
  std::exception_ptr error;
  std::mutex mutex;  // guards done
  std::condition_variable changed;
  bool done = false;
};

}  // namespace

nb::dict info_dict(const ObjectInfo& info) {
  nb::dict out;
  out["row"] = python_bytes(info.key.row);
  out["column"] = python_bytes(info.key.column);
  out["bytes"] = info.bytes;
  out["version"] = info.version;
  out["checksum"] = info.checksum;
  out["put_us"] = info.put_us;
  out["in_memory"] = info.in_memory;
  out["on_disk"] = info.on_disk;
  out["waiters"] = info.waiters;
  out["metadata"] = info.metadata;
  return out;
}

std::unique_ptr<Memory> object_memory(Object& object) {
  auto memory = std::make_unique<Memory>();
  memory->data = const_cast<std::byte*>(object.bytes().data());
  memory->size = object.bytes().size();
  memory->owner = object.owner;
  memory->box = {{0}, {memory->size}};
  memory->strides = {1};
  return memory;
}

PySubscription::PySubscription(std::shared_ptr<Pool> pool, const Pattern& pattern, bool existing,
                               std::shared_ptr<OpenSubscriptions> all)
    : pool_(std::move(pool)), all_(std::move(all)) {
  subscription_ = pool_->subscribe(
      pattern,
      [shared = shared_](const ObjectEvent& event) {
        std::lock_guard lock(shared->mutex);
        const std::size_t metadata = event.info.metadata.size();
        if (shared->events.size() >= max_events || shared->metadata + metadata > max_metadata) {
          ++shared->lost;
          return;
        }
        shared->metadata += metadata;
        shared->events.push_back(event);
        shared->ready.notify_one();
      },
      existing);
  all_->insert(this);
}

void PySubscription::close() {
  all_->erase(this);
  if (origin_.leave(subscription_, pool_)) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closed = true;
    shared_->ready.notify_all();
  }
  if (!subscription_) return;
  lost_at_servers_ = subscription_->lost();
  auto ended = std::make_pair(std::move(subscription_), std::move(pool_));  // dropped in this order
  drop_unlocked(ended);
}

nb::object PySubscription::next(std::int64_t slice_ms) {
  origin_.check("the subscription");
  std::optional<ObjectEvent> event;
  {
    Unlocked unlocked;
    std::unique_lock lock(shared_->mutex);
    const auto ready = [&] { return shared_->closed || !shared_->events.empty(); };
    shared_->ready.wait_for(lock, std::chrono::milliseconds(slice_ms), ready);
    if (!shared_->closed && !shared_->events.empty()) {
      event = std::move(shared_->events.front());
      shared_->events.pop_front();
      shared_->metadata -= event->info.metadata.size();
    }
  }
  if (!event) {
    if (subscription_) subscription_->check();
    return nb::none();
  }
  return nb::make_tuple(event->what == ObjectEvent::What::dropped, info_dict(event->info));
}

std::uint64_t PySubscription::lost() const {
  origin_.check("the subscription");
  const auto at_servers = subscription_ ? subscription_->lost() : lost_at_servers_;
  std::lock_guard lock(shared_->mutex);
  return shared_->lost + at_servers;
}

PyPendingPut::~PyPendingPut() {
  if (origin_.leave(pending_, buffer_)) return;
  auto& left = left_puts();
  std::erase_if(left, [](const auto& one) { return one.first.done(); });
  if (!pending_.done()) left.emplace_back(std::move(pending_), std::move(buffer_));
}

bool PyPendingPut::done() const {
  origin_.check("the put");
  return pending_.done();
}

nb::object PyPendingPut::wait(std::int64_t slice_ms) {
  const auto version = while_open(*open_, pending_, slice_ms);
  return version ? nb::object(nb::int_(*version)) : nb::none();
}

bool PyWant::done() const {
  origin_.check("the request");
  return pending_.done();
}

nb::object PyWant::wait(std::int64_t slice_ms) {
  auto object = while_open(*open_, pending_, slice_ms);
  if (!object) return nb::none();
  return nb::make_tuple(nb::cast(object_memory(*object)), info_dict(object->info));
}

std::vector<Result<std::uint64_t>> put_batch(std::shared_ptr<Pool> pool, const OpenState& open,
                                             std::vector<Buffer> buffers, std::vector<Pool::PutItem> items,
                                             PutOptions options) {
  return PutBatch::run(open,
                       std::make_shared<PutBatch>(std::move(pool), std::move(buffers), std::move(items), options));
}

void bind_pool_pending(nb::module_& m) {
  nb::class_<PySubscription>(m, "Subscription")
      .def("next", &PySubscription::next, "slice_ms"_a,
           nb::sig("def next(self, slice_ms: int) -> tuple[bool, dict[str, typing.Any]] | None"))
      .def("lost", &PySubscription::lost)
      .def("closed", &PySubscription::closed)
      .def("close", &PySubscription::close);
  nb::class_<PyPendingPut>(m, "PendingPut")
      .def("done", &PyPendingPut::done)
      .def("wait", &PyPendingPut::wait, "slice_ms"_a, nb::sig("def wait(self, slice_ms: int) -> int | None"));
  nb::class_<PyWant>(m, "Want")
      .def("done", &PyWant::done)
      .def("wait", &PyWant::wait, "slice_ms"_a,
           nb::sig("def wait(self, slice_ms: int) -> tuple[Memory, dict[str, typing.Any]] | None"));
}

}  // namespace penstock::python
