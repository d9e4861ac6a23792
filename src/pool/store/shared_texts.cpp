#include "pool/store/shared_texts.hpp"

namespace penstock::pool {

struct SharedTexts::Shared {
  explicit Shared(std::string_view given) : text(given) {}
  Shared(const Shared&) = delete;
  ~Shared() {
    if (in) in->forget(text);
  }
  const std::string text;
  std::shared_ptr<SharedTexts> in;  // null: not in the map yet
};

SharedTexts::Text SharedTexts::keep(std::string_view text, std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  const auto found = texts_.find(text);
  if (found != texts_.end())
    if (auto there = found->second.lock()) return there;
  if (bytes_ + text.size() + overhead > most) return nullptr;
  if (found != texts_.end()) texts_.erase(found);  // its last owner has gone, and is about to call forget
  const auto shared = std::make_shared<Shared>(text);
  Text kept(shared, &shared->text);
  texts_.emplace(shared->text, kept);
  bytes_ += text.size() + overhead;
  shared->in = shared_from_this();
  return kept;
}

void SharedTexts::forget(const std::string& text) {
  const std::lock_guard lock(mutex_);
  bytes_ -= text.size() + overhead;
  const auto found = texts_.find(text);
  if (found != texts_.end() && found->first.data() == text.data()) texts_.erase(found);
}

std::uint64_t SharedTexts::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace penstock::pool
