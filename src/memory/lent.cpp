#include "memory/lent.hpp"

#include <algorithm>
#include <string>

#include "memory/arena.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {

std::uint64_t LentMemory::add(const std::byte* data, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto offset = next_;
  next_ += (bytes + block_alignment - 1) / block_alignment * block_alignment;
  arrays_.push_back({offset, bytes, data});
  return offset;
}

void LentMemory::take_back() {
  std::unique_lock lock(mutex_);
  arrays_.clear();
  next_ = 0;
  unused_.wait(lock, [this] { return users_ == 0; });
}

bool LentMemory::empty() const {
  const std::lock_guard lock(mutex_);
  return arrays_.empty();
}

const std::byte* LentMemory::find(std::uint64_t offset, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (arrays_.empty()) throw Error(Errc::step_gone, "the arrays lent to this step were taken back");
  const auto after = std::ranges::upper_bound(arrays_, offset, {}, &Array::offset);
  if (after != arrays_.begin()) {
    const auto& array = *std::prev(after);
    const auto from = offset - array.offset;
    if (from <= array.bytes && bytes <= array.bytes - from) return array.data + from;
  }
  throw Error(Errc::protocol, "bytes " + std::to_string(offset) + " + " + std::to_string(bytes) +
                                  " are not inside one array that was lent");
}

void LentMemory::change_users(int by) {
  const std::lock_guard lock(mutex_);
  users_ += by;
  if (users_ == 0) unused_.notify_all();
}

}  // namespace penstock::memory
