#include "pool/store/object_memory.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>
#include <vector>

#include "pool/store/slab.hpp"

namespace penstock::pool {

namespace {

constexpr std::uint64_t heap_alignment = 16;
constexpr std::uint64_t smallest_segment_bytes = 1 << 20;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Room for `extra` bytes behind what allocate_shared asks for; tells where they are.
template <class T>
struct TrailingAllocator {
  using value_type = T;
  std::size_t extra;
  std::byte** trailing;
  TrailingAllocator(std::size_t extra, std::byte** trailing) : extra(extra), trailing(trailing) {}
  template <class U>
  TrailingAllocator(const TrailingAllocator<U>& other) : extra(other.extra), trailing(other.trailing) {}
  T* allocate(std::size_t count) {
    auto* memory = static_cast<std::byte*>(::operator new(own_bytes(count) + extra));
    *trailing = memory + own_bytes(count);
    return reinterpret_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory); }
  static constexpr std::size_t own_bytes(std::size_t count) { return round_up(count * sizeof(T), heap_alignment); }
  friend bool operator==(const TrailingAllocator&, const TrailingAllocator&) { return true; }
};

// What glibc takes for a small blob: the shared counts, the allocator and the Blob before its bytes, and malloc's own word.
constexpr std::uint64_t heap_header_bytes =
    round_up(sizeof(Blob) + sizeof(TrailingAllocator<Blob>) + 16, heap_alignment);

}  // namespace

struct ObjectMemory::Impl {
  std::uint64_t limit = 0, segment = 0, ahead = 0;
  std::size_t most_empty = max_empty_segments;
  std::function<void()> freed;
  std::atomic<std::uint64_t> used{0}, peak{0};
  std::atomic<std::uint64_t> free{0}, empty{0};  // as note() found the slab: its free bytes, those of empty segments
  mutable std::mutex mutex;                      // guards what follows; nothing is mapped, unmapped or called under it
  Slab<transport::BulkBuffer> slab;
  std::uint64_t promised = 0;  // bytes of segments that are being mapped

  std::uint64_t mapped_limit() const { return limit + segment; }
  // Called with the mutex held, when the slab has changed.
  void note() {
    free.store(slab.mapped() - slab.used(), std::memory_order_relaxed);
    empty.store(slab.empty_bytes(), std::memory_order_relaxed);
  }
  // Objects that would leave much of a shared segment unusable get one of their own size.
  std::uint64_t segment_for(std::uint64_t pages) const { return pages > segment / 4 ? pages : segment; }

  bool charge(std::uint64_t bytes, std::uint64_t beyond = 0) {
    const auto most = limit + beyond;
    auto now = used.load(std::memory_order_relaxed);
    do {
      if (bytes > most || now > most - bytes) return false;
    } while (!used.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }
  // Once what was charged is there: what is refused after all was never in use.
  void note_peak() {
    const auto now = used.load(std::memory_order_relaxed);
    auto highest = peak.load(std::memory_order_relaxed);
    while (highest < now && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
    }
  }
  void give_back(std::uint64_t bytes) { used.fetch_sub(bytes, std::memory_order_relaxed); }
};

std::shared_ptr<ObjectMemory> ObjectMemory::create(std::uint64_t limit_bytes, std::function<void()> freed,
                                                   std::uint64_t ahead_bytes) {
  auto impl = std::make_unique<Impl>();
  impl->limit = limit_bytes;
  impl->segment = std::clamp(std::bit_floor(limit_bytes / 16), smallest_segment_bytes, slab_segment_bytes);
  impl->ahead = std::min(ahead_bytes, limit_bytes);
  impl->most_empty = std::max<std::size_t>(max_empty_segments, impl->ahead / impl->segment);
  impl->freed = std::move(freed);
  return std::shared_ptr<ObjectMemory>(new ObjectMemory(std::move(impl)));
}

ObjectMemory::ObjectMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ObjectMemory::~ObjectMemory() = default;

std::uint64_t ObjectMemory::charge_of(std::uint64_t bytes) {
  if (bytes >= slab_object_bytes) return round_up(bytes, slab_page_bytes);
  return heap_header_bytes + round_up(bytes, heap_alignment);
}

std::shared_ptr<Blob> ObjectMemory::try_allocate(std::uint64_t bytes) { return allocate(bytes, true); }
std::shared_ptr<Blob> ObjectMemory::try_allocate_mapped(std::uint64_t bytes) { return allocate(bytes, false); }

std::shared_ptr<Blob> ObjectMemory::allocate_heap(std::uint64_t bytes) {
  std::byte* data = nullptr;
  std::shared_ptr<Blob> blob;
  try {
    blob = std::allocate_shared<Blob>(TrailingAllocator<Blob>(bytes, &data), Blob::Token{});
  } catch (const std::bad_alloc&) {
    throw Error(Errc::memory, "no memory for an object of " + std::to_string(bytes) + " bytes");
  }
  blob->data_ = data;
  return blob;
}

std::shared_ptr<Blob> ObjectMemory::allocate(std::uint64_t bytes, bool may_map) {
  auto& m = *impl_;
  const auto charged = charge_of(bytes);
  if (!m.charge(charged)) return nullptr;
  try {
    if (bytes < slab_object_bytes) make_way();
    std::shared_ptr<Blob> blob;
    if (bytes < slab_object_bytes) {
      blob = allocate_heap(bytes);
    } else {
      blob = std::make_shared<Blob>(Blob::Token{});
      Slab<transport::BulkBuffer>::Part part;
      for (;;) {
        {
          std::lock_guard lock(m.mutex);
          part = m.slab.take(charged);
          m.note();
        }
        if (part.data != nullptr) break;
        if (!may_map || !could_grow(bytes)) {
          m.give_back(charged);
          return nullptr;
        }
        grow(bytes);
      }
      blob->data_ = part.data;
      blob->segment_ = std::move(part.segment);
    }
    blob->size_ = bytes;
    blob->charged_ = charged;
    blob->memory_ = shared_from_this();
    m.note_peak();
    return blob;
  } catch (...) {
    m.give_back(charged);
    throw;
  }
}

bool ObjectMemory::try_allocate_small(std::span<const std::uint64_t> sizes, std::vector<std::shared_ptr<Blob>>& out,
                                      std::uint64_t beyond) {
  std::uint64_t charge = 0;
  for (const auto size : sizes) charge += charge_of(size);
  if (!impl_->charge(charge, beyond)) return false;
  const auto self = shared_from_this();
  out.reserve(out.size() + sizes.size());
  std::size_t made = 0;
  try {
    make_way();
    for (; made < sizes.size(); ++made) {
      auto blob = allocate_heap(sizes[made]);
      blob->size_ = sizes[made];
      blob->charged_ = charge_of(sizes[made]);
      blob->memory_ = self;
      out.push_back(std::move(blob));
    }
  } catch (...) {
    for (; made < sizes.size(); ++made) impl_->give_back(charge_of(sizes[made]));
    throw;
  }
  impl_->note_peak();
  return true;
}

bool ObjectMemory::could_grow(std::uint64_t bytes, bool beside) const {
  const auto pages = charge_of(bytes);
  std::lock_guard lock(impl_->mutex);
  // Empty segments that are too small for it are given back first.
  const auto in_use = impl_->slab.mapped() - impl_->slab.empty_bytes() + impl_->promised;
  return bytes >= slab_object_bytes && (beside || !impl_->slab.fits(pages)) &&
         in_use + impl_->segment_for(pages) <= impl_->mapped_limit();
}

void ObjectMemory::grow(std::uint64_t bytes, bool beside) {
  auto& m = *impl_;
  const auto pages = charge_of(bytes);
  const auto size = m.segment_for(pages);
  std::vector<std::shared_ptr<transport::BulkBuffer>> unmapped;
  {
    std::lock_guard lock(m.mutex);
    if (!beside && m.slab.fits(pages)) return;
    const auto room = m.mapped_limit();
    if (size + m.promised > room) return;
    unmapped = m.slab.trim(m.most_empty, room - size - m.promised);
    m.note();
    if (m.slab.mapped() + m.promised + size > room) return;
    m.promised += size;
  }
  unmapped.clear();
  try {
    auto buffer = std::make_shared<transport::BulkBuffer>(transport::BulkBuffer::allocate(size, false));
    std::lock_guard lock(m.mutex);
    m.promised -= size;
    m.slab.add(buffer, buffer->span().data(), size);
    m.note();
  } catch (...) {
    std::lock_guard lock(m.mutex);
    m.promised -= size;
    throw;
  }
}

bool ObjectMemory::lacks_ahead() const {
  const auto& m = *impl_;
  const auto free = m.free.load(std::memory_order_relaxed);
  return free + m.segment <= m.ahead && m.used.load(std::memory_order_relaxed) + free + m.segment <= m.limit;
}

void ObjectMemory::grow_ahead() {
  if (lacks_ahead()) grow(slab_object_bytes, true);
}

// What lies on the heap takes the place of segments that nothing lies in.
void ObjectMemory::make_way() {
  auto& m = *impl_;
  const auto excess = [&] {
    const auto sum = m.used.load(std::memory_order_relaxed) + m.empty.load(std::memory_order_relaxed);
    return sum - std::min(sum, m.limit);
  };
  if (excess() == 0) return;
  std::vector<std::shared_ptr<transport::BulkBuffer>> unmapped;
  const std::lock_guard lock(m.mutex);
  unmapped = m.slab.trim(m.most_empty, m.slab.mapped() - std::min(m.slab.mapped(), excess()));
  m.note();
}

void ObjectMemory::release(Blob& blob) {
  auto& m = *impl_;
  std::vector<std::shared_ptr<transport::BulkBuffer>> unmapped;
  if (blob.segment_) {
    std::lock_guard lock(m.mutex);
    m.slab.give_back(blob.data_, blob.charged_);
    unmapped = m.slab.trim(m.most_empty, m.mapped_limit());
    m.note();
  }
  m.give_back(blob.charged_);
  unmapped.clear();
  blob.segment_.reset();
  if (m.freed) m.freed();
}

Blob::~Blob() {
  if (memory_) memory_->release(*this);
}

std::uint64_t ObjectMemory::used() const { return impl_->used.load(std::memory_order_relaxed); }
std::uint64_t ObjectMemory::peak() const { return impl_->peak.load(std::memory_order_relaxed); }
std::uint64_t ObjectMemory::limit() const { return impl_->limit; }
std::uint64_t ObjectMemory::segment_bytes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->slab.mapped();
}

std::uint64_t ObjectMemory::new_segment_bytes() const { return impl_->segment; }

double ObjectMemory::Usage::fragmentation() const {
  const auto free = segment_bytes - slab_used;
  return free == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free) / static_cast<double>(free);
}

ObjectMemory::Usage ObjectMemory::usage() const {
  std::lock_guard lock(impl_->mutex);
  const auto& slab = impl_->slab;
  return {used(),          slab.used(),          slab.mapped(), slab.largest_free(), slab.free_parts(),
          slab.segments(), slab.empty_segments()};
}

}  // namespace penstock::pool
