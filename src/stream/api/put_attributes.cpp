#include "stream/api/put_attributes.hpp"

#include <algorithm>

namespace penstock::stream {
namespace {

std::uint64_t encoded_bytes(std::string_view name, const Attribute& value) {
  std::uint64_t bytes = PutAttributes::value_bytes + name.size() + value.bytes.size();
  for (const auto& s : value.strings) bytes += 16 + s.size();
  return bytes;
}

}  // namespace

bool PutAttributes::put(std::string_view name, Attribute value, AttributeOf of, const RequireRoom& require_room) {
  const auto named = [&](const auto& each) { return each.first == name; };
  const auto at = std::ranges::find_if(in_force_, named);
  const bool is_new = at == in_force_.end();
  if (!is_new && at->second == value) {
    if (of == AttributeOf::stream) std::erase_if(before_, named);
    return false;
  }
  const auto bytes = bytes_ + encoded_bytes(name, value) - (is_new ? 0 : encoded_bytes(name, at->second));
  require_room("attribute " + std::string(name), bytes);
  bytes_ = bytes;
  if (of == AttributeOf::stream) {
    std::erase_if(before_, named);
  } else if (std::ranges::none_of(before_, named)) {
    before_.emplace_back(name, is_new ? std::nullopt : std::optional(std::move(at->second)));
  }
  if (is_new) in_force_.emplace_back(name, std::move(value));
  else at->second = std::move(value);
  return true;
}

bool PutAttributes::undo_step() {
  const bool changes = !before_.empty();
  for (; !before_.empty(); before_.pop_back()) {
    auto& [name, before] = before_.back();
    const auto at = std::ranges::find(in_force_, name, &Values::value_type::first);
    bytes_ -= encoded_bytes(name, at->second);
    if (before) {
      bytes_ += encoded_bytes(name, *before);
      at->second = std::move(*before);
    } else {
      in_force_.erase(at);
    }
  }
  return changes;
}

}  // namespace penstock::stream
