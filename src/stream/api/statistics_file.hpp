// $PENSTOCK_STATISTICS names a directory, which is made: rank 0 of each stream's end then keeps a JSON file of its statistics there,
// <stream>.<writer|reader>.<pid>.json, rewritten at most five times a second. For launchers that show progress.
#pragma once

#include <string>

#include "base/clock.hpp"
#include "penstock/stream.hpp"

namespace penstock::stream {

// The fields of StreamStatistics by their names.
std::string to_json(const StreamStatistics& statistics, const std::string& stream, const std::string& side);

class StatisticsFile {
 public:
  // Does nothing unless rank is 0 and the variable is set.
  StatisticsFile(const std::string& stream, const std::string& side, int rank);
  template <class Make>
  void update(Make make) {
    if (path_.empty() || base::Clock::now() < due_) return;
    write(make());
  }
  template <class Make>
  void finish(Make make) noexcept {
    if (path_.empty()) return;
    try {
      write(make());
    } catch (const std::exception&) {
    }
    path_.clear();
  }

 private:
  void write(const StreamStatistics& statistics);
  std::string path_, stream_, side_;
  base::Clock::time_point due_{};
};

}  // namespace penstock::stream
