// The stream's record and what else lies in its row. The writer: stream_writer.cpp; readers: stream_readers.cpp; taking steps
// over: stream_staging.cpp; dropping them: stream_retention.cpp.
#include "pool/coordinator/stream_home.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr auto put_pause = std::chrono::milliseconds(100);  // between tries of a put
constexpr auto join_within = std::chrono::seconds(10);
// Readers tell a home that is new what they hold as soon as they hear of it; so long it drops nothing, and decides nothing for
// cohorts of which it has not heard all.
constexpr Timeout settle_within(5'000);
constexpr Timeout put_again_within(2'000);  // in a pool that is full its steps can be read nevertheless

}  // namespace

StreamHome::StreamHome(std::shared_ptr<ServerCore> core, std::shared_ptr<StripePuller> puller, std::string name)
    : core_(std::move(core)),
      puller_(std::move(puller)),
      name_(std::move(name)),
      row_(stream_row(name_)),
      readers_(core_->options().max_readers),
      changed_(*core_->progress()) {}

StreamHome::~StreamHome() = default;

void StreamHome::retire() {
  if (retired_) return;
  retired_ = true;
  feed_.reset();
  age_timer_.cancel();
  settled_timer_.cancel();
  changed_.notify_all();
}

Error StreamHome::retired_error() const {
  return Error(Errc::stale_view, "another server is the home of stream " + name_);
}
void StreamHome::check_ours() const {
  if (retired_) throw retired_error();
}
bool StreamHome::primary() const {
  const auto placement = core_->placement();
  return placement && core_->is_primary(*placement, streams_namespace(), row_, std::nullopt);
}

// What readers are told, and what the writer forgets for it, the next home must know: at least every owner has the record. The
// step itself lies at all of its owners already, whatever the level.
Acknowledge StreamHome::safe_for(const StreamOptions& options) {
  return std::max(options.acknowledge, Acknowledge::replicated);
}

fb::StreamInfoReplyT StreamHome::info() const {
  fb::StreamInfoReplyT reply;
  for (const auto& [number, step] : steps_) reply.steps.push_back(number);
  const char* states[] = {"open", "ended", "lost"};
  const nlohmann::json json{{"stream", name_},
                            {"home", core_->options().name},
                            {"state", states[std::min<int>(record_.state, 2)]},
                            {"writer", record_.host + ":" + std::to_string(record_.pid)},
                            {"ranks", record_.ranks},
                            {"steps", steps_.size()},
                            {"newest", steps_.empty() ? nlohmann::json() : nlohmann::json(steps_.rbegin()->first)},
                            {"bytes", bytes_},
                            {"steps_taken", steps_taken_},
                            {"bytes_taken", bytes_taken_},
                            {"staging", staging_.size()},
                            {"readers", readers_.cohorts()}};
  reply.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // hosts say who they are
  return reply;
}

// ---------------------------------------------------------------------------------------------------------------- objects

Task<void> StreamHome::put_object(std::string column, std::vector<std::byte> bytes, Acknowledge acknowledge,
                                  Deadline deadline) {
  auto self = shared_from_this();
  auto blob = co_await core_->store().reserve(bytes.size(), answer_in_time(deadline), true);
  std::copy(bytes.begin(), bytes.end(), blob->writable().begin());
  std::vector<ServerCore::Put> puts;
  puts.emplace_back();
  puts[0].ns = streams_namespace();
  puts[0].row = row_;
  puts[0].column = std::move(column);
  puts[0].checksum = storage::checksum(blob->bytes());
  puts[0].blob = std::move(blob);
  check_ours();
  auto results = co_await core_->put(std::move(puts), IfExists::overwrite, acknowledge, deadline);
  if (results[0].error) throw *results[0].error;
}

// What a step that is coming needs: until it is done, the step is given up, or this is not the home any more.
Task<void> StreamHome::keep_trying_put(std::uint64_t step, std::string column, std::vector<std::byte> bytes) {
  auto self = shared_from_this();
  for (;;) {
    check_ours();
    if (staging_.at(step).given_up)
      throw Error(Errc::step_gone, "an earlier step did not come, or the writer has left");
    if (!primary()) throw retired_error();
    std::string why;
    try {
      const Deadline deadline(Timeout(10'000));
      co_await put_object(column, bytes, safe_for(options_), deadline);
      co_return;
    } catch (const Error& e) {
      if (retired_) throw;
      why = e.what();
    }
    ++stall_retries_;
    base::log(base::Level::warn, "a stream's record could not be kept yet", {{"stream", name_}, {"why", why}});
    co_await fabric::pause_for(*core_->progress(), put_pause);
  }
}

template <class Table>
Task<std::optional<typename Table::NativeTableType>> StreamHome::get_object(std::string column, Deadline deadline) {
  auto self = shared_from_this();
  auto loaded = co_await core_->load(streams_namespace(), row_, column, std::nullopt, std::nullopt, deadline);
  if (!loaded) co_return std::nullopt;
  co_return decode_object<Table>(loaded->object.blob->bytes());
}

template Task<std::optional<fb::EpochRecordT>> StreamHome::get_object<fb::EpochRecord>(std::string, Deadline);

Task<void> StreamHome::load(Deadline deadline) {
  auto self = shared_from_this();
  auto record = co_await get_object<fb::StreamRecord>(std::string(record_column), deadline);
  if (!record) {  // one that was not dropped to the end
    const auto columns = co_await columns_of_row(deadline);
    remains_ = !columns.empty();
    check_ours();
    co_return;
  }
  record_ = std::move(*record);
  options_ = stream_options(record_, name_);
  const auto columns = co_await columns_of_row(deadline);
  for (const auto& column : columns) {
    if (column.starts_with("step/")) {
      auto step = co_await get_object<fb::StepRecord>(column, deadline);
      if (!step || step->life != record_.life) continue;
      bytes_ += step->bytes;
      const auto number = step->step;
      steps_.emplace(number, std::move(*step));
    } else if (column.starts_with("group/")) {
      auto group = co_await get_object<fb::GroupRecord>(column, deadline);
      if (group && group->life == record_.life) readers_.set_group_next(column.substr(6), group->next);
    } else if (const auto epoch = epoch_of_column(column, record_.life)) {
      described_.insert(*epoch);
    }
  }
  if (record_.state == open) co_await put_again(deadline);
  steps_taken_ = steps_.size();
  bytes_taken_ = bytes_;
  check_ours();
  base::log(base::Level::info, "this server is the home of a stream",
            {{"stream", name_}, {"steps", steps_.size()}, {"state", static_cast<int>(record_.state)}});
  look_for_remains_ = true;
  settled_from_ = Deadline(settle_within);
  settled_timer_ = core_->progress()->after(settle_within, [weak = weak_from_this()] {
    const auto home = weak.lock();
    if (!home) return;
    home->changed_.notify_all();
    fabric::spawn(*home->core_->progress(), home->trim());
  });
  if (record_.state == open) start_feed(Deadline(std::chrono::duration_cast<Timeout>(join_within)));
}

// What the home before was putting when it lost the row may lie with a single owner. Whoever waits for it will be told that it
// is there, so it is made as safe as they take it to be: the record, the groups, and of the steps, which come one after the
// other, the newest.
Task<void> StreamHome::put_again(Deadline until) {
  auto self = shared_from_this();
  const auto deadline = earlier(until, Deadline(put_again_within));
  const auto safe = safe_for(options_);
  try {
    auto record = encode_object<fb::StreamRecord>(record_);
    co_await put_object(std::string(record_column), std::move(record), safe, deadline);
    record_safe_ = true;
    if (!steps_.empty()) {
      auto newest = encode_object<fb::StepRecord>(steps_.rbegin()->second);
      auto column = step_column(steps_.rbegin()->first);
      co_await put_object(std::move(column), std::move(newest), safe, deadline);
    }
    co_await put_groups(deadline);
  } catch (const Error& e) {
    // A timeout: another owner has no room, or disks are slow. Without it nobody could read what would make room.
    if (e.code() != Errc::pool_full && e.code() != Errc::system && e.code() != Errc::timeout) throw;
    base::log(base::Level::warn, "what the last home of a stream put could not be put again",
              {{"stream", name_}, {"why", e.what()}});
  }
}

// What this server has, and while the view is not settled what the others have.
Task<std::vector<std::string>> StreamHome::columns_of_row(Deadline deadline) {
  auto self = shared_from_this();
  std::vector<std::string> columns;
  const KeyPattern pattern = exact_row(row_);
  core_->store().table().scan(streams_namespace(), pattern, "", ~std::size_t{0}, [&](const ObjectTable::Entry& entry) {
    columns.emplace_back(entry.column);
    return true;
  });
  const auto elsewhere = co_await core_->list_elsewhere(streams_namespace(), escape_pattern(row_), deadline);
  if (elsewhere.empty()) co_return columns;
  for (const auto& key : elsewhere) columns.push_back(key.column);
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  co_return columns;
}

}  // namespace penstock::pool
