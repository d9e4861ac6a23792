// What clients of a simulated pool may find. A value of a key is a text; "" stands for no object.
//
// An acknowledged change is the only thing that may be found from then on, except that
//   - a change that failed may have been done or not, until the next change that is acknowledged;
//   - one that was acknowledged in memory may be lost with a server that died: then every value since the last one that
//     was acknowledged as replicated (or dropped everywhere) may be found;
//   - a read may find any value that was allowed at some time while it was under way.
// Each key has one client that changes it, one change at a time; any client reads it.
#pragma once

#include <list>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

namespace penstock::pool::sim {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Oracle {
 public:
  using Values = std::set<std::string>;
  struct Read {
    std::string key;
    Values allowed;
  };
  using ReadId = std::list<Read>::iterator;

  // The client asks for a change to this value. One that fails may have been done: the value stays allowed.
  void begin(const std::string& key, const std::string& value);
  // It was acknowledged; safe: not in memory only.
  void done(const std::string& key, const std::string& value, bool safe);
  // It was refused, and is not done by anybody.
  void refused(const std::string& key, const std::string& value);
  // What reads find is no newer than what replicas have for a moment: a connection was lost.
  void connection_lost();
  // A server is gone, and what only it had.
  void server_died();

  ReadId begin_read(const std::string& key);
  // Throws Violation.
  void end_read(ReadId read, const std::string& found);
  void forget(ReadId read) { reads_.erase(read); }  // it failed
  // For the end, when nothing is under way: what may be there.
  const Values& allowed(const std::string& key) { return keys_[key].allowed; }
  bool safe(const std::string& key) { return keys_[key].since_safe.size() <= 1; }

 private:
  struct State {
    Values allowed{""}, since_safe{""};
    std::uint64_t deaths_at_begin = 0;
  };
  std::map<std::string, State> keys_;
  std::list<Read> reads_;
  std::uint64_t deaths_ = 0;
};

std::string text_of(const Oracle::Values& values);

}  // namespace penstock::pool::sim
