// What the files of Parts share.
#pragma once

#include <set>

#include "pool/keys/protocol.hpp"
#include "space/server/parts.hpp"

namespace penstock::space {

inline constexpr std::size_t scan_at_once = 10'000;

inline std::shared_ptr<pool::ServerCore> locked(const std::weak_ptr<pool::ServerCore>& core) {
  auto held = core.lock();
  if (!held) throw Error(Errc::stale_view, "this server is stopping");
  return held;
}

inline pool::KeyPattern rows_like(std::string_view text, bool prefix) {
  Pattern pattern;
  pattern.row = pool::escape_pattern(text) + (prefix ? "*" : "");
  return pool::KeyPattern(pattern);
}

inline std::string_view text_of(const pool::Blob& blob) {
  return {reinterpret_cast<const char*>(blob.bytes().data()), blob.size()};
}

inline Error dropped_error() { return Error(Errc::not_found, "this version of the array was dropped, or never begun"); }

inline Error foreign_error() {
  return Error(Errc::invalid_argument, "in this namespace is what arrays are made of: a Space puts it");
}

// The row of an array's versions, as long as somebody waits for a change of it or puts into it.
struct Parts::Home {
  explicit Home(fabric::Progress& progress) : changed(progress) {}
  std::multiset<std::string> begun;  // columns of puts that are under way
  fabric::Signal changed;
  std::uint64_t changes = 0;  // to see those that came while nobody waited

  void note_change() {
    ++changes;
    changed.notify_all();
  }
};

// A row of blocks with its index.
struct Parts::Part {
  Part(std::string name, fabric::Progress& progress) : row(std::move(name)), changed(progress) {}
  const std::string row;
  BlockIndex index;
  std::uint64_t elements = 0;  // of the blocks in it
  enum class State : std::uint8_t { stale, filling, filled } state = State::stale;
  bool dropped = false;
  std::vector<Box> pending;   // of puts that are under way
  std::vector<Box> doubtful;  // of puts that ended without saying how: they may still come
  fabric::Signal changed;

  void insert(const Box& box) {
    std::erase(doubtful, box);
    if (index.first_met(box)) return;
    index.insert(box);
    elements += element_count(box.count);
  }
};

}  // namespace penstock::space
