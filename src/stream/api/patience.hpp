// How long a writer waits where no timeout is chosen: for its readers as long as they take, with warnings in the log that say who
// they are and since when; a rank waits for rank 0 alike, which is the one that knows of the readers. For anything else, as another
// rank or a pool: unchosen_timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "penstock/interrupt.hpp"
#include "penstock/options.hpp"
#include "stream/protocol/awaited.hpp"

namespace penstock::stream {

// A timeout of options, where 0 is none.
inline Timeout chosen_or_usual(std::uint32_t timeout_ms) {
  return timeout_ms == 0 ? unchosen_timeout : Timeout(timeout_ms);
}

// One wait, made of attempts. One thread at a time.
class Patience {
 public:
  // step: the one that waits, or is waited for; none: all.
  Patience(std::string stream, std::optional<std::uint64_t> step);

  // Until when the next attempt may last.
  static base::Deadline slice() { return base::Deadline(Timeout(1000)); }
  // After an attempt that timed out: whether to make another. A wait that was given up, and so has not asked for a while, begins
  // anew. awaited: called seldom, as pools ask their servers then.
  bool goes_on(const std::function<Awaited()>& awaited);

  // How long to wait before the first warning; for tests.
  static void set_first_warning(Timeout after);

 private:
  const std::string stream_;
  const std::optional<std::uint64_t> step_;
  void begin();

  base::Clock::time_point since_, asked_;
  Timeout gap_;         // to the next warning
  Timeout next_look_;   // after so long
  Timeout others_end_;  // of waits for anything but readers
};

// Calls attempt(deadline) until it says true: by the timeout where one is chosen, else as long as Patience allows.
template <class Attempt>
bool attempt_patiently(const std::string& stream, std::optional<std::uint64_t> step, std::uint32_t timeout_ms,
                       Attempt attempt, const std::function<Awaited()>& awaited) {
  if (timeout_ms != 0) return attempt(base::Deadline(Timeout(timeout_ms)));
  Patience patience(stream, step);
  while (!attempt(Patience::slice()))
    if (interrupted() || !patience.goes_on(awaited)) return false;
  return true;
}

}  // namespace penstock::stream
