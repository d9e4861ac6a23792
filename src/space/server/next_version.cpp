// Subscriptions: the version that comes next. The home of an array's versions knows when one begins.
#include <algorithm>

#include "space/names.hpp"
#include "space/server/parts.hpp"
#include "space/server/parts_impl.hpp"

namespace penstock::space {

Parts::Task<std::optional<std::uint64_t>> Parts::next_version(std::uint64_t array, std::uint64_t first,
                                                              std::uint64_t step, std::uint64_t view,
                                                              base::Deadline deadline) {
  const auto core = locked(core_);
  const auto row = versions_row(array);
  const auto home = home_of(row);
  const std::string before = first == 0 ? std::string() : version_column(first - 1);
  for (;;) {
    if (core->placement()->view().number != view)
      throw Error(Errc::stale_view, "the pool's membership changed meanwhile");
    const auto changes = home->changes;
    const auto columns = co_await columns_of(row, before, deadline);
    if (std::none_of(columns.begin(), columns.end(), [](const auto& column) { return column == open_column; }))
      throw Error(Errc::not_found, "the array was dropped, or is being dropped");
    for (const auto& column : columns) {
      const auto version = version_of_column(column);
      if (!version || *version < first || (*version - first) % step != 0) continue;
      const auto state = co_await state_of({array, *version}, deadline);
      if (state == VersionState::open) co_return version;
    }
    if (home->changes != changes) continue;  // while others were asked
    const bool notified = co_await home->changed.wait(deadline);
    if (!notified) co_return std::nullopt;
  }
}

}  // namespace penstock::space
