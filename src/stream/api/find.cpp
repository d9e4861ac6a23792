#include "stream/api/find.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"
#include "penstock/interrupt.hpp"
#include "stream/api/open.hpp"

namespace penstock::stream {
namespace {

constexpr Timeout first_pause(10);      // between looks; doubled up to the finder's own
constexpr Timeout silent_for(5'000);    // then the log says that a stream is awaited
constexpr Timeout names_within(2'000);  // for suggestions

class Search {
 public:
  Search(const EngineContext& context, std::span<const EngineEntry> engines, const std::string& name,
         const StreamOptions& options)
      : context_(context), name_(name) {
    for (const auto& engine : engines)
      if (engine.finder) looks_.push_back({engine.name, engine.finder(context, name, options)});
  }

  std::optional<Place> look(base::Deadline deadline);
  Place wait(base::Deadline deadline, std::uint32_t timeout_ms);
  // "not found; looked in A, B; did you mean 'heat'?"
  std::string why_not();

 private:
  struct Look {
    std::string_view engine;
    std::shared_ptr<Finder> finder;
    base::Deadline next{Timeout(0)};
    Timeout pause = first_pause;
  };
  static Place place_of(const Look& look, const Finder::Found& found) {
    return {std::string(look.engine), found, look.finder};
  }
  void warn_ended(const Finder::Found& found) const;
  std::string places() const;

  const EngineContext& context_;
  const std::string& name_;
  std::vector<Look> looks_;
};

// With those finders whose turn it is.
std::optional<Place> Search::look(base::Deadline deadline) {
  std::optional<Place> ended;
  for (auto& look : looks_) {
    if (!look.next.passed()) continue;
    const auto found = look.finder->look(deadline);
    if (found && found->live) return place_of(look, *found);
    if (found && !ended) ended = place_of(look, *found);
    look.next = base::Deadline(look.pause);
    look.pause = std::min(2 * look.pause, look.finder->pause());
  }
  return ended;
}

void Search::warn_ended(const Finder::Found& found) const {
  base::log(
      base::Level::warn,
      "nobody writes this stream now: it is read as it was kept; for a new run, start the reader after the writer",
      {{"stream", name_}, {"where", found.where}, {"state", found.state}});
}

Place Search::wait(base::Deadline deadline, std::uint32_t timeout_ms) {
  const base::Deadline quiet_until(silent_for);
  for (bool told = false;;) {
    if (auto place = look(deadline)) {
      if (!place->found.live) warn_ended(place->found);
      return std::move(*place);
    }
    if (deadline.passed() || interrupted())
      throw Error(Errc::timeout,
                  "stream " + name_ + " did not open within " + std::to_string(timeout_ms) + " ms: " + why_not());
    if (quiet_until.passed() && !std::exchange(told, true))
      base::log(base::Level::warn, "waiting for a stream to appear", {{"stream", name_}, {"looking_in", places()}});
    auto until = deadline;
    for (const auto& look : looks_) until = earlier(until, look.next);
    context_.progress->wait_for([] { return false; }, until);
  }
}

std::string Search::places() const {
  std::string text;
  for (const auto& look : looks_)
    if (const auto place = look.finder->place(); !place.empty()) text += (text.empty() ? "" : ", ") + place;
  return text;
}

std::string Search::why_not() {
  std::vector<std::string> names;
  for (const auto& look : looks_) try {
      std::ranges::move(look.finder->names(base::Deadline(names_within)), std::back_inserter(names));
    } catch (const Error&) {  // place() says what is wrong, or the suggestion is less
    }
  std::erase_if(names, [this](const auto& name) { return name == name_; });
  std::ranges::sort(names);
  const auto same = std::ranges::unique(names);
  const std::vector<std::string_view> others(names.begin(), same.begin());
  return "not found; looked in " + places() + base::suggestion(name_, others);
}

}  // namespace

Place wait_for_stream(const EngineContext& context, std::span<const EngineEntry> engines, const std::string& name,
                      Cohort& cohort, const StreamOptions& options, base::Deadline deadline) {
  Place place;
  const auto text = share_text(cohort, [&] {
    place = Search(context, engines, name, options).wait(deadline, options.open_timeout_ms);
    return place.engine + " " + place.found.pool;
  });
  const auto blank = text.find(' ');
  place.engine = text.substr(0, blank);
  place.found.pool = text.substr(blank + 1);
  return place;
}

Place find_stream(const EngineContext& context, std::span<const EngineEntry> engines, const std::string& name,
                  const StreamOptions& options, base::Deadline deadline) {
  Search search(context, engines, name, options);
  if (auto place = search.look(deadline)) return std::move(*place);
  throw Error(Errc::not_found, "stream " + name + ": " + search.why_not());
}

}  // namespace penstock::stream
