// How steps leave the pool: by the bounds of retention, and when a new writer replaces the stream.
#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "pool/coordinator/stream_home.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout drop_within(10'000);
constexpr std::chrono::milliseconds drop_again(1'000);

}  // namespace

Task<void> StreamHome::put_groups(Deadline deadline) {
  auto self = shared_from_this();
  const auto life = record_.life;
  for (const auto& [group, next] : std::map<std::string, std::uint64_t>(readers_.groups())) {
    if (life != record_.life) co_return;  // of a stream that was replaced meanwhile
    fb::GroupRecordT record;
    record.life = life;
    record.next = next;
    auto bytes = encode_object<fb::GroupRecord>(record);
    co_await put_object(group_column(group), std::move(bytes), safe_for(options_), deadline);
  }
}

// The oldest step, if it may go now. The newest stays: it tells a home that is new how far the pool has come.
std::optional<std::uint64_t> StreamHome::step_to_drop() const {
  if (steps_.size() < 2 || !settled()) return std::nullopt;
  const auto& [number, oldest] = *steps_.begin();
  const bool bounded = options_.retain_steps > 0 || options_.retain_bytes > 0 || options_.retain_age_ms > 0;
  if (!bounded && options_.retain_for.empty()) return std::nullopt;
  const bool beyond = (options_.retain_steps > 0 && steps_.size() > options_.retain_steps) ||
                      (options_.retain_bytes > 0 && bytes_ > options_.retain_bytes) ||
                      (options_.retain_age_ms > 0 &&
                       base::unix_time_us() - oldest.put_us > std::int64_t{options_.retain_age_ms} * 1000);
  if (bounded && !beyond) return std::nullopt;
  if (!options_.retain_for.empty())
    for (const auto group : base::split(options_.retain_for, ','))
      if (readers_.group_next(std::string(group)) <= number) return std::nullopt;
  if (readers_.held(number)) return std::nullopt;
  return number;
}

Task<void> StreamHome::trim() {
  auto self = shared_from_this();
  if (trimming_ || retired_) co_return;
  trimming_ = true;
  struct Done {
    bool& trimming;
    ~Done() { trimming = false; }
  } done{trimming_};
  try {
    co_await drop_leaving();
    co_await drop_remains();
    while (!retired_) {
      const auto step = step_to_drop();
      if (!step) break;
      co_await drop_step(*step);
    }
    co_await drop_old_epochs();
  } catch (const std::exception& e) {
    if (!retired_)
      base::log(base::Level::warn, "a step could not be dropped yet", {{"stream", name_}, {"why", e.what()}});
  }
  const bool aging = options_.retain_age_ms > 0 && steps_.size() >= 2;
  if (retired_ || (!aging && !leaving_)) co_return;
  const auto age =
      aging ? std::chrono::milliseconds(std::clamp<std::uint32_t>(options_.retain_age_ms / 4, 20, 10'000)) : drop_again;
  age_timer_ = core_->progress()->after(age, [weak = weak_from_this()] {
    if (const auto home = weak.lock()) fabric::spawn(*home->core_->progress(), home->trim());
  });
}

// First nobody can find it any more, then its stripes go.
Task<void> StreamHome::drop_step(std::uint64_t step) {
  auto self = shared_from_this();
  const auto found = steps_.find(step);
  if (found == steps_.end()) co_return;
  bytes_ -= std::min(bytes_, found->second.bytes);
  leaving_ = std::move(found->second);
  steps_.erase(found);
  co_await drop_leaving();
}

// When it fails, the next time: no other step goes before.
Task<void> StreamHome::drop_leaving() {
  auto self = shared_from_this();
  if (!leaving_ || retired_) co_return;
  const auto record = *leaving_;
  const Deadline deadline(drop_within);
  const auto column = step_column(record.step);
  co_await core_->drop(streams_namespace(), row_, column, std::nullopt, std::nullopt, Acknowledge::memory, deadline);
  co_await drop_stripes(record, deadline);
  leaving_.reset();
}

// What an earlier home was dropping when it lost the row: the step's record has gone, and some of its stripes have not. Rows of
// stripes are in the order of steps, so the lowest row of each server tells.
Task<void> StreamHome::drop_remains() {
  auto self = shared_from_this();
  if (!look_for_remains_ || !settled() || steps_.empty()) co_return;
  const Deadline deadline(drop_within);
  const auto placement = core_->placement();
  const auto view = placement->view().number;
  if (!placement->view().settled) co_return;  // stripes are on their way from one server to another
  const auto life = record_.life;
  bool stayed = false;
  for (const auto& member : placement->view().members) {
    std::optional<std::uint64_t> last;
    while (!retired_ && life == record_.life && !steps_.empty()) {
      const auto row = co_await first_row(*core_, member, view, stripe_pattern(name_), deadline);
      const auto step = step_of_stripe_row(row, name_);
      if (!step || *step >= steps_.begin()->first) break;
      stayed = stayed || step == last;
      if (step == last) break;  // it does not go: the next time
      last = step;
      for (const auto& each : placement->view().members)
        co_await drop_stripes_at(*core_, each, view, stripe_pattern(name_, *step), "*", deadline);
    }
  }
  if (life == record_.life) look_for_remains_ = stayed;
}

// Descriptions that no step has any more. Steps and descriptions are numbered in the same order.
Task<void> StreamHome::drop_old_epochs() {
  auto self = shared_from_this();
  const auto life = record_.life;
  while (!retired_ && !steps_.empty() && !leaving_ && !described_.empty() && life == record_.life) {
    const auto oldest = *described_.begin();
    if (oldest >= steps_.begin()->second.epoch) co_return;
    const Deadline deadline(drop_within);
    const auto column = epoch_column(life, oldest);
    co_await core_->drop(streams_namespace(), row_, column, std::nullopt, std::nullopt, Acknowledge::memory, deadline);
    if (life != record_.life) co_return;
    described_.erase(oldest);
    epochs_.erase(oldest);
  }
}

Task<void> StreamHome::drop_stripes(fb::StepRecordT record, Deadline deadline) {
  auto self = shared_from_this();
  const auto epoch = co_await epoch_of(record.life, record.epoch, deadline);
  if (!epoch) co_return;
  const auto placement = core_->placement();
  struct Drop {
    std::uint64_t tag = 0;
    std::vector<Key> keys;
  };
  std::map<std::uint64_t, Drop> drops;  // by Placement::batch_of
  for (std::uint32_t rank = 0; rank < epoch->ranks.size(); ++rank) {
    for (std::uint32_t number = 0; number < epoch->ranks[rank].size(); ++number) {
      const auto tag = stripe_tag(record_.tag_base, record.step, rank, number);
      auto& drop = drops[placement->batch_of(tag)];
      drop.tag = tag;
      drop.keys.push_back({stripe_row(name_, record.step, rank, number), stripe_column(record.writer)});
    }
  }
  for (auto& [batch, drop] : drops) {
    const auto owner = placement->owners(streams_namespace(), "", drop.tag).index[0];
    co_await drop_at(*core_, placement->view().members[owner], placement->view().number, std::move(drop.keys), drop.tag,
                     deadline);
  }
  if (core_->placement() != placement) throw Error(Errc::stale_view, "stripes may have moved meanwhile");
}

void StreamHome::forget_steps() {
  steps_.clear();
  leaving_.reset();
  epochs_.clear();
  described_.clear();
  readers_.clear();
  bytes_ = steps_taken_ = bytes_taken_ = 0;
}

// The record goes first: then nobody finds the stream, and a home that takes over now has nothing to load. The rest of its row
// goes last: by that a later home sees that more may be there.
Task<void> StreamHome::drop_everything(Deadline deadline) {
  auto self = shared_from_this();
  co_await core_->drop(streams_namespace(), row_, std::string(record_column), std::nullopt, std::nullopt,
                       Acknowledge::memory, deadline);
  record_ = {};
  record_safe_ = false;
  remains_ = true;
  forget_steps();
  changed_.notify_all();
  const auto placement = core_->placement();
  for (const auto& member : placement->view().members)
    co_await drop_stripes_at(*core_, member, placement->view().number, stripe_pattern(name_), "*", deadline);
  const auto columns = co_await columns_of_row(deadline);
  for (const auto& column : columns)
    co_await core_->drop(streams_namespace(), row_, column, std::nullopt, std::nullopt, Acknowledge::memory, deadline);
  remains_ = false;
}

// What a writer that is gone left of steps that nobody will see: stripes that were pulled of steps without a record. They
// follow the newest step, by no more than the writer's queue held.
Task<void> StreamHome::drop_orphans(std::uint64_t writer, Deadline deadline) {
  auto self = shared_from_this();
  if (writer == 0) co_return;
  const auto first = steps_.empty() ? record_.base : std::max(record_.base, steps_.rbegin()->first + 1);
  const auto last = first + options_.queue_steps;
  try {
    const auto placement = core_->placement();
    for (auto step = first; step < last && !retired_; ++step)
      for (const auto& member : placement->view().members)
        co_await drop_stripes_at(*core_, member, placement->view().number, stripe_pattern(name_, step),
                                 stripe_column(writer), deadline);
  } catch (const Error& e) {
    if (!retired_)
      base::log(base::Level::warn, "what a lost writer left was not dropped", {{"stream", name_}, {"why", e.what()}});
  }
}

Task<void> StreamHome::drop_stream(Deadline deadline) {
  auto self = shared_from_this();
  const auto changing = co_await change(deadline);
  if (!known() && !remains_) throw Error(Errc::not_found, "the pool has no stream " + name_);
  if (being_written())
    throw Error(Errc::wrong_state, "stream " + name_ + " is being written, by " + record_.host + ":" +
                                       std::to_string(record_.pid) + "; it can be dropped when its writer has ended");
  co_await let_last_writer_go(deadline);
  co_await drop_everything(deadline);
}

}  // namespace penstock::pool
