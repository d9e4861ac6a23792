// Metadata of objects, each text once, however many objects have it: counted, and bounded for those who can be refused. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace penstock::pool {

class SharedTexts : public std::enable_shared_from_this<SharedTexts> {
 public:
  using Text = std::shared_ptr<const std::string>;
  static constexpr std::uint64_t overhead =
      160;  // what a text takes beside its bytes: the map's node, counts, the string

  // A text that is there already is shared. Null: with it, all would take more than `most` bytes.
  Text keep(std::string_view text, std::uint64_t most);
  std::uint64_t bytes() const;  // of all that somebody has

 private:
  struct Shared;
  void forget(const std::string& text);
  mutable std::mutex mutex_;                                                      // guards what follows
  std::unordered_map<std::string_view, std::weak_ptr<const std::string>> texts_;  // the keys are the texts
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock::pool
