// Retention: which versions go before a new one begins, and who must have read them. The home of an array's versions decides.
#include <algorithm>

#include "pool/keys/protocol.hpp"
#include "space/names.hpp"
#include "space/server/parts.hpp"
#include "space/server/parts_impl.hpp"

namespace penstock::space {

// In a view that is not settled also those that others have not passed on yet. What is here is looked at last: it has all that
// this server has put until now.
Parts::Task<std::vector<std::string>> Parts::columns_of(std::string row, base::Deadline deadline) {
  const auto core = locked(core_);
  const auto placement = core->placement();
  std::vector<std::string> columns;
  if (!placement->view().settled) {
    for (const auto& member : placement->view().members) {
      if (member.id == core->self()) continue;
      const auto more =
          co_await core->list_columns(member, placement->view().number, arrays_namespace(), row, deadline);
      columns.insert(columns.end(), more.begin(), more.end());
    }
  }
  const auto pattern = rows_like(row, false);
  std::string after;
  do {
    after = core->store().table().scan(arrays_namespace(), pattern, after, scan_at_once,
                                       [&](const pool::ObjectTable::Entry& entry) {
                                         columns.emplace_back(entry.column);
                                         return true;
                                       });
  } while (!after.empty());
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  co_return columns;
}

// The readers of the array that have not said that they have read the version.
Parts::Task<std::vector<std::string>> Parts::unread_by(std::shared_ptr<const ArrayRecord> record, std::uint64_t version,
                                                       base::Deadline deadline) {
  const auto core = locked(core_);
  std::vector<std::string> lacking;
  for (const auto& reader : record->options.readers) {
    auto row = versions_row(record->id);
    auto column = reader_column(reader);
    const auto mark = co_await core->load(arrays_namespace(), std::move(row), std::move(column), std::nullopt,
                                          std::nullopt, deadline);
    const auto read = mark ? version_of_column(text_of(*mark->object.blob)) : std::nullopt;
    if (!read || *read < version) lacking.push_back(reader);
  }
  co_return lacking;
}

Parts::Task<std::vector<std::uint64_t>> Parts::room_for(std::uint64_t array, std::uint64_t version, std::uint64_t view,
                                                        base::Deadline deadline) {
  const auto core = locked(core_);
  const auto of = co_await record(array, deadline);
  const auto row = versions_row(array);
  const auto home = kept(row);
  for (;;) {
    if (core->placement()->view().number != view)
      throw Error(Errc::stale_view, "the pool's membership changed meanwhile");
    std::vector<std::uint64_t> there, going;
    const auto columns = co_await columns_of(row, deadline);
    for (const auto& column : columns)
      if (const auto number = version_of_column(column)) there.push_back(*number);
    std::sort(there.begin(), there.end());
    if (of->options.keep == 0 || there.size() < of->options.keep) co_return std::vector<std::uint64_t>();
    for (const auto number : there) {
      const auto state = co_await state_of({array, number}, deadline);
      if (state == VersionState::open && number == version) co_return std::vector<std::uint64_t>();
      if (state == VersionState::going) going.push_back(number);
    }
    if (!going.empty()) co_return going;
    if (version < there[0])
      throw Error(Errc::wrong_state,
                  "it is older than the " + std::to_string(there.size()) + " versions that are kept");
    const auto unread = co_await unread_by(of, there[0], deadline);
    if (unread.empty()) co_return std::vector<std::uint64_t>{there[0]};
    const bool notified = co_await home->changed.wait(deadline);
    if (notified) continue;
    std::string names;
    for (const auto& name : unread) names += (names.empty() ? "'" : ", '") + name + "'";
    throw Error(Errc::timeout, "it waits for version " + std::to_string(there[0]) + ", which was not read by " + names);
  }
}

}  // namespace penstock::space
