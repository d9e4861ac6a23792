#include "stream/api/patience.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.hpp"

namespace penstock::stream {
namespace {

constexpr Timeout longest_gap = std::chrono::minutes(5);
constexpr Timeout given_up_after = std::chrono::seconds(10);  // without another attempt
std::atomic<Timeout> first_warning{std::chrono::seconds(10)};

}  // namespace

Patience::Patience(std::string stream, std::optional<std::uint64_t> step) : stream_(std::move(stream)), step_(step) {
  begin();
}

void Patience::begin() {
  since_ = asked_ = base::Clock::now();
  gap_ = next_look_ = first_warning.load();
  others_end_ = unchosen_timeout;
}

void Patience::set_first_warning(Timeout after) { first_warning = after; }

bool Patience::goes_on(const std::function<Awaited()>& awaited) {
  if (base::Clock::now() - asked_ > given_up_after) begin();
  asked_ = base::Clock::now();
  const auto waited = std::chrono::duration_cast<Timeout>(asked_ - since_);
  if (waited < next_look_) return true;
  const auto now = awaited();
  if (now.whom == Awaited::Whom::others) {
    next_look_ = others_end_;
    return waited < others_end_;
  }
  base::log(base::Level::warn,
            now.whom == Awaited::Whom::readers
                ? "the writer waits for its readers"
                : "a rank of the writer waits for rank 0, or for readers that rank 0 waits for",
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
