// Retention: which versions begin, which go before a new one begins, and who must have read them. The home of an array's versions
// decides.
#include <algorithm>

#include "pool/keys/protocol.hpp"
#include "space/names.hpp"
#include "space/server/parts.hpp"
#include "space/server/parts_impl.hpp"

namespace penstock::space {

namespace {

constexpr std::size_t old_at_once = 8;  // so that a put does not wait for the drops of all that are too old

}  // namespace

class Parts::Begun final : public pool::PutToken {
 public:
  Begun(std::shared_ptr<Home> row, std::string column) : row_(std::move(row)), column_(std::move(column)) {
    row_->begun.insert(column_);
  }
  Begun(const Begun&) = delete;
  ~Begun() override {
    row_->begun.erase(row_->begun.find(column_));
    row_->changed.notify_all();
  }

 private:
  std::shared_ptr<Home> row_;
  const std::string column_;
};

// Read anew: as long as it is there, versions begin and are read.
Parts::Task<std::shared_ptr<const DefinedArray>> Parts::open_array(std::string row, base::Deadline deadline) {
  const auto core = locked(core_);
  std::string column(open_column);
  const auto open =
      co_await core->load(arrays_namespace(), std::move(row), std::move(column), std::nullopt, std::nullopt, deadline);
  if (!open) throw Error(Errc::not_found, "the array was dropped, or is being dropped");
  co_return std::make_shared<const DefinedArray>(decode_record(open->object.blob->bytes()));
}

// In a view that is not settled also those that others have not passed on yet. What is here is looked at last: it has all that
// this server has put until now.
Parts::Task<std::vector<std::string>> Parts::columns_of(std::string row, std::string after, base::Deadline deadline) {
  const auto core = locked(core_);
  std::vector<std::string> columns;
  const auto elsewhere = co_await core->list_elsewhere(arrays_namespace(), pool::escape_pattern(row), deadline);
  for (const auto& key : elsewhere) columns.push_back(key.column);
  const auto pattern = rows_like(row, false);
  std::string from = after.empty() ? after : pool::pack_key(arrays_namespace(), row, after);
  do {
    from = core->store().table().scan(arrays_namespace(), pattern, from, scan_at_once,
                                      [&](const pool::ObjectTable::Entry& entry) {
                                        columns.emplace_back(entry.column);
                                        return true;
                                      });
  } while (!from.empty());
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  co_return columns;
}

Parts::Task<std::optional<std::uint64_t>> Parts::read_until(std::uint64_t array, std::string reader,
                                                            base::Deadline deadline) {
  const auto core = locked(core_);
  auto row = versions_row(array);
  auto column = reader_column(reader);
  const auto mark =
      co_await core->load(arrays_namespace(), std::move(row), std::move(column), std::nullopt, std::nullopt, deadline);
  co_return mark ? version_of_column(text_of(*mark->object.blob)) : std::nullopt;
}

// The readers of the array that have not said that they have read the version.
Parts::Task<std::vector<std::string>> Parts::unread_by(std::shared_ptr<const DefinedArray> record,
                                                       std::uint64_t version, base::Deadline deadline) {
  std::vector<std::string> lacking;
  for (const auto& reader : record->options.readers) {
    const auto read = co_await read_until(record->id, reader, deadline);
    if (!read || *read < version) lacking.push_back(reader);
  }
  co_return lacking;
}

// The first version of an empty array begins. Marks of readers at its number or higher are of versions that were dropped: they go.
Parts::Task<void> Parts::forget_readers(std::shared_ptr<const DefinedArray> record, std::uint64_t version,
                                        base::Deadline deadline) {
  const auto core = locked(core_);
  for (const auto& reader : record->options.readers) {
    const auto read = co_await read_until(record->id, reader, deadline);
    if (!read || *read < version) continue;
    auto row = versions_row(record->id);
    auto column = reader_column(reader);
    co_await core->drop(arrays_namespace(), std::move(row), std::move(column), std::nullopt, std::nullopt,
                        Acknowledge::memory, deadline);
  }
}

// One of a reader's after the other: what was read is never taken back.
Parts::Task<std::shared_ptr<pool::PutToken>> Parts::admit_read(const pool::ServerCore::Put& put,
                                                               base::Deadline deadline) {
  const auto reader = reader_of_column(put.column);
  const auto version = version_of_column(text_of(*put.blob));
  if (!reader || !version) throw foreign_error();
  const auto row = home_of(put.row);
  while (row->begun.contains(put.column)) {
    const bool notified = co_await row->changed.wait(deadline);
    if (!notified) throw Error(Errc::timeout, "an earlier 'done' of the same reader did not end");
  }
  auto token = std::make_shared<Begun>(row, put.column);
  const auto array = co_await open_array(put.row, deadline);
  const auto& readers = array->options.readers;
  if (std::find(readers.begin(), readers.end(), *reader) == readers.end())
    throw Error(Errc::invalid_argument, "the array waits for no reader '" + *reader + "'");
  const auto before = co_await read_until(array->id, *reader, deadline);
  if (before > version)
    throw Error(Errc::wrong_state, "'" + *reader + "' has read version " + std::to_string(*before) + " before");
  co_return token;
}

// A version begins while the array is open, and has room: its home decides, which has all of them. It goes at any time.
Parts::Task<std::shared_ptr<pool::PutToken>> Parts::admit_version(const pool::ServerCore::Put& put, IfExists if_exists,
                                                                  base::Deadline deadline) {
  const auto bytes = text_of(*put.blob);
  const bool refuse = if_exists == IfExists::refuse, overwrite = if_exists == IfExists::overwrite;
  if (put.column == open_column && refuse) {
    if (versions_row(decode_record(put.blob->bytes()).id) != put.row) throw foreign_error();
    co_return std::make_shared<pool::PutToken>();
  }
  if (reader_of_column(put.column) && overwrite) {
    auto read = co_await admit_read(put, deadline);
    co_return read;
  }
  const auto number = version_of_column(put.column);
  const bool begins = bytes.empty() && refuse;
  const bool goes = bytes == going && overwrite;
  if (!number || (!begins && !goes)) throw foreign_error();
  const auto home = home_of(put.row);
  auto token = std::make_shared<Begun>(home, put.column);
  if (!begins) co_return token;
  const auto array = co_await open_array(put.row, deadline);
  const auto keep = array->options.keep;
  if (keep == 0) co_return token;
  auto there = co_await columns_of(put.row, "", deadline);
  if (std::binary_search(there.begin(), there.end(), put.column)) co_return token;  // the put is refused
  const auto& begun = home->begun;
  there.insert(there.end(), begun.begin(), begun.end());
  std::set<std::string> versions;
  for (auto& name : there)
    if (version_of_column(name) && name != put.column) versions.insert(std::move(name));
  if (versions.size() >= keep) throw Error(Errc::wrong_state, "as many versions are there as are kept");
  if (versions.empty()) co_await forget_readers(array, *number, deadline);
  co_return token;
}

// Whether it began longer ago than versions are kept for, or some drop has left it going.
Parts::Task<bool> Parts::is_old(std::shared_ptr<const DefinedArray> record, std::uint64_t version,
                                base::Deadline deadline) {
  const auto core = locked(core_);
  auto row = versions_row(record->id);
  auto column = version_column(version);
  const auto found = co_await core->load_anywhere(arrays_namespace(), std::move(row), std::move(column), std::nullopt,
                                                  false, deadline);
  if (!found) co_return false;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::chrono::microseconds begun(found->object.put_us);
  co_return found->object.bytes != 0 || now - begun > std::chrono::milliseconds(record->options.keep_ms);
}

Parts::Task<std::vector<std::uint64_t>> Parts::old_ones(std::shared_ptr<const DefinedArray> record,
                                                        std::vector<std::uint64_t> there, std::uint64_t version,
                                                        base::Deadline deadline) {
  std::vector<std::uint64_t> found;
  for (const auto number : there) {
    if (number >= version || found.size() == old_at_once) break;
    const bool old = co_await is_old(record, number, deadline);
    if (!old) break;
    const auto unread = co_await unread_by(record, number, deadline);
    if (!unread.empty()) break;
    found.push_back(number);
  }
  co_return found;
}

Parts::Task<Parts::Room> Parts::room_for(std::uint64_t array, std::uint64_t version, std::uint64_t view,
                                         base::Deadline deadline) {
  const auto core = locked(core_);
  const auto of = co_await record(array, deadline);
  const auto row = versions_row(array);
  const auto home = home_of(row);
  for (;;) {
    if (core->placement()->view().number != view)
      throw Error(Errc::stale_view, "the pool's membership changed meanwhile");
    const auto changes = home->changes;
    const auto columns = co_await columns_of(row, "", deadline);
    std::vector<std::uint64_t> there;
    for (const auto& column : columns)
      if (const auto number = version_of_column(column)) there.push_back(*number);
    std::sort(there.begin(), there.end());
    if (of->options.keep == 0 || there.size() < of->options.keep) {
      Room room{{}, true};
      if (of->options.keep_ms > 0) room.go = co_await old_ones(of, std::move(there), version, deadline);
      co_return room;
    }
    Room room;
    for (const auto number : there) {
      const auto state = co_await state_of({array, number}, deadline);
      if (state == VersionState::open && number == version) co_return Room{{}, true};
      if (state == VersionState::going) room.go.push_back(number);
    }
    if (!room.go.empty()) co_return room;
    if (version < there[0])
      throw Error(Errc::wrong_state,
                  "it is older than the " + std::to_string(there.size()) + " versions that are kept");
    const auto unread = co_await unread_by(of, there[0], deadline);
    if (unread.empty()) {
      room.go.push_back(there[0]);
      co_return room;
    }
    if (home->changes != changes) continue;
    const bool notified = co_await home->changed.wait(deadline);
    if (notified) continue;
    std::string names;
    for (const auto& name : unread) names += (names.empty() ? "'" : ", '") + name + "'";
    throw Error(Errc::timeout, "it waits for version " + std::to_string(there[0]) + ", which was not read by " + names);
  }
}

}  // namespace penstock::space
