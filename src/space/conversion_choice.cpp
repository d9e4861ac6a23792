#include "space/conversion_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.hpp"

namespace penstock::space {
namespace {

constexpr double unknown_bytes_per_s = 1e9;
constexpr double never = std::numeric_limits<double>::infinity();

constexpr std::array<std::string_view, 4> names{"at_reader", "on_request", "in_advance", "automatic"};

double known(double measured, double otherwise) { return measured > 0 ? measured : otherwise; }

}  // namespace

ConversionChoice choose_conversion(const ConversionCosts& costs) {
  const double server = known(costs.server_bytes_per_s, known(costs.reader_bytes_per_s, unknown_bytes_per_s));
  const double reader = known(costs.reader_bytes_per_s, server);
  const double link = known(costs.link_bytes_per_s, unknown_bytes_per_s);
  const double requests = std::max(costs.requests, 1.0);
  const double transfers = requests * costs.bytes / link;
  const double wanted = std::clamp(costs.wanted_bytes, costs.bytes, std::max(costs.bytes, costs.whole_bytes));
  const auto room = static_cast<double>(costs.memory_left);

  ConversionChoice choice;
  auto& [at_reader, on_request, in_advance] = choice.seconds;
  at_reader = requests * costs.bytes / reader + (costs.fused_at_reader ? 0 : transfers);
  on_request = wanted > room ? never : costs.queue_s + wanted / server + transfers;
  in_advance = !costs.on_put || costs.requests == 0 || costs.whole_bytes > room
                   ? never
                   : std::max(0.0, costs.queue_s + costs.whole_bytes / server - costs.idle_s) + transfers +
                         std::max(0.0, costs.whole_bytes - wanted) / server;
  const auto least = std::min_element(choice.seconds.begin(), choice.seconds.end());
  choice.place = static_cast<ConvertAt>(least - choice.seconds.begin());

  choice.why = fmt::format("{} for {:.3g} expected request(s) of {}:", name_of(choice.place), requests,
                           base::format_size(static_cast<std::uint64_t>(costs.bytes)));
  for (std::size_t i = 0; i < choice.seconds.size(); ++i) {
    const auto place = static_cast<ConvertAt>(i);
    if (place == ConvertAt::in_advance && !costs.on_put) continue;
    const auto needed = place == ConvertAt::in_advance ? costs.whole_bytes : costs.bytes;
    choice.why +=
        fmt::format(" {} {}", name_of(place),
                    choice.seconds[i] < never
                        ? fmt::format("{:.3g} ms,", choice.seconds[i] * 1e3)
                        : fmt::format("needs {} of {} left,", base::format_size(static_cast<std::uint64_t>(needed)),
                                      base::format_size(costs.memory_left)));
  }
  choice.why.pop_back();
  return choice;
}

}  // namespace penstock::space

namespace penstock {

std::string_view name_of(ConvertAt place) { return space::names.at(static_cast<std::size_t>(place)); }

ConvertAt convert_at_named(std::string_view name) {
  const auto found = std::find(space::names.begin(), space::names.end(), name);
  if (found == space::names.end())
    throw Error(Errc::invalid_argument,
                fmt::format("convert is at_reader, on_request, in_advance or automatic, and not '{}'", name));
  return static_cast<ConvertAt>(found - space::names.begin());
}

}  // namespace penstock
