#include "stream/api/patience.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.hpp"

namespace penstock::stream {
namespace {

constexpr Timeout longest_gap = std::chrono::minutes(5);
std::atomic<Timeout> first_warning{std::chrono::seconds(10)};

}  // namespace

Patience::Patience(std::string stream, std::optional<std::uint64_t> step)
    : stream_(std::move(stream)), step_(step), gap_(first_warning.load()), next_look_(gap_) {}

void Patience::set_first_warning(Timeout after) { first_warning = after; }

bool Patience::goes_on(const std::function<Awaited()>& awaited) {
  const auto waited = std::chrono::duration_cast<Timeout>(base::Clock::now() - since_);
  if (waited < next_look_) return true;
  const auto now = awaited();
  if (now.whom == Awaited::Whom::others) {
    next_look_ = others_end_;
    return waited < others_end_;
  }
  if (now.whom == Awaited::Whom::readers)
    base::log(base::Level::warn, "the writer waits for its readers",
              {{"stream", stream_},
               {"step", step_ ? std::to_string(*step_) : "all"},
               {"awaited", now.who},
               {"since_s", waited.count() / 1000}});
  others_end_ = waited + unchosen_timeout;
  next_look_ = waited + gap_;
  gap_ = std::min(2 * gap_, longest_gap);
  return true;
}

}  // namespace penstock::stream
