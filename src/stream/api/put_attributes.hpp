// The attributes of one writer rank that are in force, and what the open step replaced of them, should it become void.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/stream_values.hpp"

namespace penstock::stream {

// Whether an attribute was put into the open step, and goes with it when it is void, or into the stream.
enum class AttributeOf : std::uint8_t { step, stream };

class PutAttributes {
 public:
  using Values = std::vector<std::pair<std::string, Attribute>>;
  // Throws when attributes of so many bytes, all together, do not fit.
  using RequireRoom = std::function<void(const std::string& what, std::uint64_t bytes)>;

  static constexpr std::uint64_t value_bytes = 64;  // of an encoded value besides its characters or elements

  explicit PutAttributes(Values& in_force) : in_force_(in_force) {}

  // False when it is in force already.
  bool put(std::string_view name, Attribute value, AttributeOf of, const RequireRoom& require_room);
  // The open step is complete, or is void: then what it replaced is in force again. False when that changed nothing.
  void keep_step() { before_.clear(); }
  bool undo_step();

  std::uint64_t bytes() const { return bytes_; }  // encoded; rather more than less

 private:
  Values& in_force_;
  std::vector<std::pair<std::string, std::optional<Attribute>>> before_;  // nothing: it was not there
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock::stream
