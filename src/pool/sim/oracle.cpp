#include "pool/sim/oracle.hpp"

namespace penstock::pool::sim {

std::string text_of(const Oracle::Values& values) {
  std::string text;
  for (const auto& value : values)
    text += (text.empty() ? "" : " or ") + (value.empty() ? "nothing" : "'" + value + "'");
  return text;
}

void Oracle::begin(const std::string& key, const std::string& value) {
  auto& state = keys_[key];
  state.allowed.insert(value);
  state.since_safe.insert(value);
  state.deaths_at_begin = deaths_;
  for (auto& read : reads_)
    if (read.key == key) read.allowed.insert(value);
}

void Oracle::done(const std::string& key, const std::string& value, bool safe) {
  auto& state = keys_[key];
  state.allowed = {value};
  if (safe) state.since_safe = state.allowed;
  else if (state.deaths_at_begin != deaths_) state.allowed = state.since_safe;  // perhaps by the one that died
}

void Oracle::refused(const std::string& key, const std::string& value) {
  keys_[key].allowed.erase(value);
  keys_[key].since_safe.erase(value);
}

void Oracle::connection_lost() {
  for (auto& read : reads_) read.allowed.insert(keys_[read.key].since_safe.begin(), keys_[read.key].since_safe.end());
}

void Oracle::server_died() {
  ++deaths_;
  for (auto& [key, state] : keys_) state.allowed.insert(state.since_safe.begin(), state.since_safe.end());
  connection_lost();
}

Oracle::ReadId Oracle::begin_read(const std::string& key) {
  return reads_.insert(reads_.end(), Read{key, keys_[key].allowed});
}

void Oracle::end_read(ReadId read, const std::string& found) {
  const Read ended = *read;
  reads_.erase(read);
  if (ended.allowed.contains(found)) return;
  throw Violation("key " + ended.key + ": found " + text_of({found}) + ", expected " + text_of(ended.allowed));
}

}  // namespace penstock::pool::sim
