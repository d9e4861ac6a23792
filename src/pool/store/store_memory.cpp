// The store's memory: who waits for it, and what is evicted for them.
#include <mutex>

#include "base/text.hpp"
#include "pool/store/store_impl.hpp"

namespace penstock::pool {

// How a blob that goes away on any thread reaches the engine, while there is a store.
struct ObjectStore::Impl::Wake {
  std::mutex mutex;  // guards what follows; held while the call is posted, so that the Progress is still there
  fabric::Progress* progress = nullptr;
  std::shared_ptr<Credit> credit;

  void freed() {
    std::lock_guard lock(mutex);
    if (progress == nullptr || !credit->wake()) return;
    progress->post([weak = std::weak_ptr(credit)] {
      const auto still = weak.lock();
      if (!still) return;
      still->woken();
      still->serve();
    });
  }
};

ObjectStore::Impl::Impl(fabric::Progress& progress, StoreOptions given)
    : progress(progress), options(std::move(given)), settled(progress) {
  if (options.high_watermark > 1 || options.low_watermark > options.high_watermark || options.low_watermark < 0)
    throw Error(Errc::invalid_argument, "watermarks: 0 <= low <= high <= 1 is needed");
  if (options.memory_ahead < 0 || options.memory_ahead > 1)
    throw Error(Errc::invalid_argument, "memory_ahead is a share of the memory");
  for (const auto& tier : options.tiers) limits.push_back(tier.limit_bytes);
}

void ObjectStore::Impl::start(Tiers tiers) {
  wake = std::make_shared<Wake>();
  const auto ahead = static_cast<std::uint64_t>(options.memory_ahead * static_cast<double>(options.memory_bytes));
  memory = ObjectMemory::create(
      options.memory_bytes, [wake = wake] { wake->freed(); }, ahead);
  mapper = std::make_unique<fabric::Workers>(progress, 1, "pool-memory");
  Credit::Source source;
  source.memory = memory;
  source.make_room = [this](std::uint64_t charge) { make_room(charge); };
  source.evict_one = [this] { return evict_one(); };
  source.run_aside = [this](std::function<void()> job, std::function<void(std::exception_ptr)> done) {
    map_aside(std::move(job), std::move(done));
  };
  credit = std::make_shared<Credit>(progress, std::move(source));
  wake->progress = &progress;
  wake->credit = credit;
  keep_memory_ahead();
  if (!tiers.empty()) disk = std::make_shared<DiskQueue>(progress, std::move(tiers), options.writers, options.readers);
}

// done: on the engine thread.
void ObjectStore::Impl::map_aside(std::function<void()> job, std::function<void(std::exception_ptr)> done) {
  mapper->submit([progress = &progress, job = std::move(job), done = std::move(done)] {
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    progress->post([done, error] { done(error); });
  });
}

// One segment after the other, so that whoever needs one at once waits for one at most.
void ObjectStore::Impl::make_memory_ahead(std::uint64_t bytes) {
  const auto mapped = memory->segment_bytes();
  if (stopped || mapped >= bytes) return;
  map_aside([memory = memory] { memory->grow(slab_object_bytes, true); },
            [weak = weak_from_this(), bytes, mapped](std::exception_ptr error) {
              const auto self = weak.lock();
              if (self && !error && self->memory->segment_bytes() > mapped) self->make_memory_ahead(bytes);
            });
}

// While memory for what comes next is short. A segment at a time, as above.
void ObjectStore::Impl::keep_memory_ahead() {
  if (mapping_ahead || stopped || !memory->lacks_ahead()) return;
  mapping_ahead = true;
  const auto mapped = memory->segment_bytes();
  map_aside([memory = memory] { memory->grow_ahead(); },
            [weak = weak_from_this(), mapped](std::exception_ptr error) {
              const auto self = weak.lock();
              if (!self || self->stopped) return;
              self->mapping_ahead = false;
              self->credit->serve();
              // What could not be mapped now is tried again when somebody asks for memory.
              if (!error && self->memory->segment_bytes() > mapped) self->keep_memory_ahead();
            });
}

void ObjectStore::Impl::stop() {
  stopped = true;
  {
    std::lock_guard lock(wake->mutex);
    wake->progress = nullptr;
    wake->credit = nullptr;
  }
  retry = {};
  credit->stop(std::make_exception_ptr(Error(Errc::cancelled, "the object store was closed")));
  mapper.reset();
  if (disk) disk->stop();
  settled.notify_all();
}

bool ObjectStore::Impl::memory_is_short() const {
  const auto high = static_cast<std::uint64_t>(options.high_watermark * static_cast<double>(options.memory_bytes));
  return credit->waiting() > 0 || memory->used() > high;
}

void ObjectStore::Impl::make_room(std::uint64_t charge) {
  keep_memory_ahead();
  if (!disk || stopped) return;
  const auto limit = static_cast<double>(options.memory_bytes);
  const auto high = static_cast<std::uint64_t>(options.high_watermark * limit);
  const auto low = static_cast<std::uint64_t>(options.low_watermark * limit);
  if (memory->used() + charge <= high) return;
  review_leased();
  const auto target = low > charge ? low - charge : 0;
  while (memory->used() > target && evict_one()) {
  }
  if (memory->used() + charge > high) write_behind();
}

bool ObjectStore::Impl::evict_one() {
  if (give_up_first && give_up_first()) return true;
  while (!evictable.empty()) {
    auto entry = evictable.take();
    const auto key = unpack_key(entry.packed_key);
    auto* object = table.find(key.ns, key.row, key.column, entry.version);
    if (object == nullptr || !object->blob || !object->on_disk) continue;
    if (object->last_used != entry.last_used) {
      entry.last_used = object->last_used;
      evictable.add(std::move(entry));
    } else if (object->blob.use_count() > 1) {
      leased.push_back(std::move(entry));
    } else {
      ++evictions;
      // Out of the table first: what is told that memory came free looks at it.
      const auto blob = std::move(object->blob);
      object->blob = nullptr;
      return true;
    }
  }
  return false;
}

// Some of those that were in use when they came up, in turn.
void ObjectStore::Impl::review_leased() {
  constexpr std::size_t most = 256;
  for (std::size_t n = std::min(most, leased.size()); n > 0; --n) {
    auto entry = std::move(leased.front());
    leased.pop_front();
    const auto key = unpack_key(entry.packed_key);
    const auto* object = table.find(key.ns, key.row, key.column, entry.version);
    if (object == nullptr || !object->blob || !object->on_disk) continue;
    if (object->blob.use_count() > 1) leased.push_back(std::move(entry));
    else evictable.add(std::move(entry));
  }
}

void ObjectStore::Impl::add_evictable(const std::string& packed_key, const StoredObject& object) {
  evictable.add({object.last_used, object.version, packed_key});
  trim_heap(evictable, true);
}

// Entries of objects that were dropped are taken out when they are more than the others.
void ObjectStore::Impl::trim_heap(EvictionHeap& heap, bool in_memory) {
  if (heap.size() < 2 * table.size() + 4096) return;
  heap.keep_only([&](const EvictionHeap::Entry& entry) {
    const auto key = unpack_key(entry.packed_key);
    const auto* object = table.find(key.ns, key.row, key.column, entry.version);
    return object != nullptr && object->on_disk && (object->blob || !in_memory);
  });
}

std::string ObjectStore::Impl::why_full(std::uint64_t charge) const {
  const auto used = memory->used();
  std::string text = "no room for " + base::format_size(charge) + ": " + base::format_size(used) + " of " +
                     base::format_size(memory->limit()) + " are in use";
  if (!disk) return text + ", and there is no tier to write to";
  if (unwritten_bytes > 0) text += ", " + base::format_size(unwritten_bytes) + " are not yet written to disk";
  if (!disk_error.empty()) text += " (" + disk_error + ")";
  const auto others = used - std::min(used, unwritten_bytes);
  if (others > 0) text += ", " + base::format_size(others) + " are leased, arriving, or being written";
  const auto usage = memory->usage();
  if (used + charge <= memory->limit())
    text += "; the free parts are too small (largest " + base::format_size(usage.largest_free) + ")";
  return text;
}

}  // namespace penstock::pool
