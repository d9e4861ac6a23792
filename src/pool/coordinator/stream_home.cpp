// The stream's record, and its writer's coming and going. Readers: stream_readers.cpp; taking steps over: stream_staging.cpp;
// letting them go: stream_retention.cpp.
#include "pool/coordinator/stream_home.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/config.hpp"
#include "base/log.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr auto rejoin_for = std::chrono::seconds(3);  // a writer that does not answer for so long is lost
constexpr auto rejoin_pause = std::chrono::milliseconds(100);
constexpr auto join_within = std::chrono::seconds(10);
// Readers tell a home that is new what they hold as soon as they hear of it; so long it drops nothing, and decides nothing for
// cohorts of which it has not heard all.
constexpr Timeout settle_within(5'000);
constexpr Timeout put_again_within(2'000);   // in a pool that is full its steps can be read nevertheless
constexpr Timeout last_steps_within(500);    // for steps that are on their way when their writer leaves
constexpr Timeout last_pulls_within(1'000);  // for steps that a writer had committed when it was lost
constexpr Timeout end_within(3'000);         // then whoever waits to drop the stream has a turn

StreamOptions options_of(const fb::StreamRecordT& record, const std::string& stream) {
  StreamOptions options = base::from_yaml(record.options, [&](const Error& e) {  // of a writer newer than this server
    base::log(base::Level::warn, "an option of a stream is not understood", {{"stream", stream}, {"why", e.what()}});
  });
  if (record.stripe_bytes != 0) options.stripe_bytes = record.stripe_bytes;  // readers know the first writer's
  return options;
}

fabric::Registration registration_of(const std::string& stream, const std::string& address,
                                     const std::vector<std::uint8_t>& token) {
  fabric::Registration writer;
  writer.stream = stream;
  writer.endpoint = fabric::endpoint_from_text(address);
  if (token.size() != writer.token.bytes.size()) throw Error(Errc::protocol, "a token of another size");
  std::copy(token.begin(), token.end(), writer.token.bytes.begin());
  return writer;
}

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
    co_await fabric::pause_for(*core_->progress(), rejoin_pause);
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

// Nobody is told of it before it is kept. False: not yet. Only who may change the record calls it.
Task<bool> StreamHome::put_state(State state, std::string why) {
  auto self = shared_from_this();
  if (record_safe_ && record_.state == state && record_.why == why) co_return true;
  auto record = record_;
  record.state = state;
  record.why = std::move(why);
  auto bytes = encode_object<fb::StreamRecord>(record);
  if (!primary()) throw retired_error();
  std::optional<Error> failed;
  try {
    const Deadline deadline(end_within);
    co_await put_object(std::string(record_column), std::move(bytes), safe_for(options_), deadline);
  } catch (const Error& e) {
    failed = e;
  }
  check_ours();
  if (failed) {
    ++stall_retries_;
    base::log(base::Level::warn, "a stream's end could not be kept yet", {{"stream", name_}, {"why", failed->what()}});
    co_return false;
  }
  record_ = std::move(record);
  record_safe_ = true;
  changed_.notify_all();
  co_return true;
}

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
  options_ = options_of(record_, name_);
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

// ----------------------------------------------------------------------------------------------------------------- writer

// One at a time changes whose stream this is, and how it stands.
Task<StreamHome::Changing> StreamHome::change(Deadline deadline) {
  auto self = shared_from_this();
  while (changing_) {
    check_ours();
    if (!co_await changed_.wait(deadline))
      throw Error(Errc::timeout, "stream " + name_ + " is being opened, ended or dropped by another");
  }
  check_ours();
  changing_ = true;
  co_return Changing(this);
}

void StreamHome::Changed::operator()(StreamHome* home) const {
  home->changing_ = false;
  if (home->let_go_) home->look_for_writer();
  home->changed_.notify_all();
}

// Nobody took its place after all: it is joined again, or found to be lost, as one that does not answer.
void StreamHome::look_for_writer() {
  let_go_ = false;
  if (retired_ || !known() || record_.state != open) return;
  try {
    start_feed(Deadline(std::chrono::duration_cast<Timeout>(rejoin_for)));
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a stream's writer cannot be joined again", {{"stream", name_}, {"why", e.what()}});
  }
}

bool StreamHome::being_written() const {
  return record_.state == open && feed_ && feed_joined_ && !(feed_ended_ && staging_.empty());
}

Task<fb::AttachReplyT> StreamHome::attach(fb::AttachRequestT request, Deadline deadline) {
  auto self = shared_from_this();
  (void)registration_of(name_, request.address, request.token);  // throws
  const auto changing = co_await change(deadline);
  const bool same = known() && record_.writer == request.life;
  if (same) require_writer(request.token);
  if (!same && request.again && known() && record_.writer != request.replaced)
    throw Error(Errc::wrong_state, "stream " + name_ + " was taken over by another writer (" + record_.host + ":" +
                                       std::to_string(record_.pid) +
                                       ") while this one did not answer and was taken for lost");
  if (same && !refused_.empty()) throw Error(Errc::invalid_argument, refused_);
  const bool over = same && record_.state == ended;  // said before that, and late
  if (!same || record_.state == lost) co_await become(std::move(request), deadline);
  if (!over) co_await join_writer(deadline);
  fb::AttachReplyT reply;
  reply.base = record_.base;
  reply.next_step = next_number();
  reply.replaced = record_.replaced;
  co_return reply;
}

// Readers know a writer's life, and so does everybody who lists the pool: that alone speaks for nobody.
void StreamHome::require_writer(const std::vector<std::uint8_t>& token) const {
  if (token != record_.token)
    throw Error(Errc::forbidden,
                "stream " + name_ + ": this is not its writer, " + record_.host + ":" + std::to_string(record_.pid));
}

void StreamHome::forget_steps() {
  steps_.clear();
  leaving_.reset();
  epochs_.clear();
  described_.clear();
  readers_.clear();
  bytes_ = steps_taken_ = bytes_taken_ = 0;
}

// When both are ranks of one launch that take themselves for the whole cohort, the first is refused too, as it attaches the
// next time: it would go on with half of the data. Further ranks are then refused as the second was.
void StreamHome::require_no_other_writer(const fb::AttachRequestT& request) {
  const fabric::Launch first{record_.launch, record_.launch_rank}, second{request.launch, request.launch_rank};
  const bool alone = known() && record_.ranks == 1 && request.ranks == 1;
  const auto why = alone ? fabric::forgotten_communicator(first, second) : "";
  if (!being_written() && (why.empty() || !refused_launch_)) return;
  if (!why.empty() && refused_.empty()) {
    refused_ = "stream " + name_ + ": " + why;
    refused_launch_ = true;
    std::function<bool()> still = [this, writer = record_.writer] { return writer == record_.writer; };
    fabric::spawn(*core_->progress(), end_stream(lost, refused_, std::move(still)));
  }
  throw Error(Errc::wrong_state, "stream " + name_ + " is being written already, by " + record_.host + ":" +
                                     std::to_string(record_.pid) + (why.empty() ? "" : ": " + why));
}

Task<void> StreamHome::let_last_writer_go(Deadline deadline) {
  auto self = shared_from_this();
  feed_.reset();
  admission_.reset();
  ++feed_number_;
  let_go_ = true;
  while (!staging_.empty()) {  // its steps: they notice
    check_ours();
    if (!co_await changed_.wait(deadline)) throw Error(Errc::timeout, "stream " + name_ + ": its last writer's steps");
  }
}

// A new writer's stream replaces what an earlier one of the same name left, or goes on with it. Nobody hears of it before its
// record is kept: a home to come would not know of it.
Task<void> StreamHome::become(fb::AttachRequestT request, Deadline deadline) {
  auto self = shared_from_this();
  const bool same = known() && record_.writer == request.life;
  if (!same) require_no_other_writer(request);
  fb::StreamRecordT record;
  if (same) {
    record = record_;
    record.why.clear();
  } else {
    co_await let_last_writer_go(deadline);
    record.replaced = record_.writer;
    const auto resume = base::from_yaml(request.options, [](const Error&) {}).resume;  // a newer writer's word: no
    const bool goes_on = known() && resume != "no";
    if (goes_on) {
      co_await drop_orphans(record_.writer, deadline);
      record.life = record_.life;
      record.stripe_bytes = options_.stripe_bytes;
      record.tag_base = record_.tag_base;
      record.epoch_base = co_await newest_epoch(deadline);
    } else {
      record.life = request.life;
      record.tag_base = tag_base_of(name_);
      if (known() || remains_) co_await drop_everything(deadline);
    }
    if (resume == "append") record.base = goes_on ? next_number() : 0;
    else if (resume != "no") record.base = std::stoull(resume);
  }
  record.writer = request.life;
  record.state = open;
  record.address = request.address;
  record.token = request.token;
  record.host = request.host;
  record.pid = request.pid;
  record.ranks = request.ranks;
  record.launch = request.launch;
  record.launch_rank = request.launch_rank;
  record.options = request.options;
  const auto options = options_of(record, name_);
  auto bytes = encode_object<fb::StreamRecord>(record);
  co_await put_object(std::string(record_column), std::move(bytes), safe_for(options), deadline);
  check_ours();
  record_ = std::move(record);
  record_safe_ = true;
  options_ = options;
  refused_.clear();
  refused_launch_ = false;
  changed_.notify_all();
}

// The highest number of a description that this stream has.
Task<std::uint64_t> StreamHome::newest_epoch(Deadline deadline) {
  auto self = shared_from_this();
  std::uint64_t newest = epochs_.empty() ? 0 : epochs_.rbegin()->first;
  const auto columns = co_await columns_of_row(deadline);
  for (const auto& column : columns) newest = std::max(newest, epoch_of_column(column, record_.life).value_or(0));
  co_return newest;
}

Task<void> StreamHome::join_writer(Deadline deadline) {
  auto self = shared_from_this();
  if (!feed_) start_feed(deadline);
  while (!feed_joined_) {
    check_ours();
    if (!feed_) throw Error(Errc::peer_lost, "stream " + name_ + ": the pool cannot join its writer: " + feed_why_);
    const bool in_time = co_await changed_.wait(deadline);
    if (!in_time && !feed_joined_)
      throw Error(Errc::timeout, "stream " + name_ + ": the pool could not join its writer");
  }
}

void StreamHome::start_feed(Deadline deadline) {
  auto writer = registration_of(name_, record_.address, record_.token);
  const auto number = ++feed_number_;
  feed_joined_ = feed_ended_ = let_go_ = false;
  feed_why_.clear();
  std::weak_ptr<StreamHome> weak = weak_from_this();
  stream::Feed::Events events;
  events.joined = [weak, number](const stream::Admission& admission) {
    const auto self = weak.lock();
    if (!self || self->feed_number_ != number) return;
    self->admission_ = admission;
    self->feed_joined_ = true;
    self->rejoin_until_.reset();
    self->changed_.notify_all();
  };
  events.step = [weak, number](stream::ReaderProtocol::Step step) {
    if (const auto self = weak.lock()) self->on_step(std::move(step), number);
  };
  events.ended = [weak, number](Outcome outcome, const std::string& why) {
    if (const auto self = weak.lock()) self->on_end(outcome, why, number);
  };
  feed_ = std::make_unique<stream::Feed>(core_->progress(), std::move(writer), fabric::Reach::automatic, deadline,
                                         std::move(events));
}

void StreamHome::on_end(Outcome outcome, std::string why, std::uint64_t feed) {
  if (retired_ || feed != feed_number_) return;
  feed_why_ = why;
  feed_ended_ = outcome == Outcome::end_of_stream;
  // A writer that says that it is lost may still live, and have its last steps.
  if (outcome == Outcome::writer_lost) pull_until_ = Deadline(last_pulls_within);
  // At a proper end the feed stays, to release what is under way. It is destroyed later: this is one of its callbacks.
  if (outcome != Outcome::end_of_stream) {
    core_->progress()->post([old = std::shared_ptr<stream::Feed>(std::move(feed_))] {});
    feed_joined_ = false;
  }
  changed_.notify_all();
  fabric::spawn(*core_->progress(), settle_end(outcome, std::move(why), feed));
}

// The writer has ended, is lost, or does not answer: then it is tried again for a while before it is given up.
Task<void> StreamHome::settle_end(Outcome outcome, std::string why, std::uint64_t feed) {
  auto self = shared_from_this();
  try {
    if (outcome == Outcome::not_ready) {
      if (!rejoin_until_) rejoin_until_ = Deadline(std::chrono::duration_cast<Timeout>(rejoin_for));
      if (!rejoin_until_->passed()) {
        co_await fabric::pause_for(*core_->progress(), rejoin_pause);
        if (!retired_ && feed == feed_number_ && !feed_ && record_.state == open && primary())
          start_feed(*rejoin_until_);
        co_return;  // its end, if it comes to that, comes here again
      }
      outcome = Outcome::writer_lost;
    }
    while (!staging_.empty() && !retired_ && feed == feed_number_) {
      const Deadline soon(Timeout(1000));
      co_await changed_.wait(soon);
    }
    if (outcome == Outcome::end_of_stream) why.clear();
    else why = "the writer " + record_.host + ":" + std::to_string(record_.pid) + " was lost (" + why + ")";
    std::function<bool()> still = [this, feed] { return feed == feed_number_ && record_.state == open; };
    co_await end_stream(outcome == Outcome::end_of_stream ? ended : lost, std::move(why), std::move(still));
  } catch (const std::exception& e) {
    if (!retired_) base::log(base::Level::warn, "the end of a stream", {{"stream", name_}, {"why", e.what()}});
  }
}

// Until its end is kept, or it is not to end so any more (still). In a pool that is full that may take until the stream is
// dropped: between two tries others may change it.
Task<void> StreamHome::end_stream(State state, std::string why, std::function<bool()> still) {
  auto self = shared_from_this();
  const Deadline never = Deadline::never();
  for (;;) {
    {
      const auto changing = co_await change(never);
      if (!still()) co_return;
      const bool kept = co_await put_state(state, why);
      if (kept && state == lost && staging_.empty()) {
        // Its steps that did not come into the pool go, before it (or another) may come again.
        const Deadline deadline(settle_within);
        co_await drop_orphans(record_.writer, deadline);
      }
      if (kept) co_return;
    }
    co_await fabric::pause_for(*core_->progress(), rejoin_pause);
  }
}

Task<void> StreamHome::finish(fb::FinishRequestT request, Deadline deadline) {
  auto self = shared_from_this();
  if (request.life != record_.writer) co_return;  // another has begun since
  require_writer(request.token);
  if (!refused_.empty() && request.why.empty()) throw Error(Errc::invalid_argument, refused_);
  while (!staging_.empty() && request.why.empty()) {
    check_ours();
    if (!co_await changed_.wait(deadline))
      throw Error(Errc::timeout, "stream " + name_ + ": steps are not in the pool yet");
  }
  const bool well = request.why.empty();
  // What the pool has room for is worth keeping.
  const auto soon = earlier(deadline, Deadline(last_steps_within));
  while (!well && record_.state == open && !staging_.empty() && !soon.passed()) {
    check_ours();
    co_await changed_.wait(soon);
  }
  const bool gives_up = !well && record_.state == open && record_.writer == request.life;
  if (gives_up) give_up_staging();
  std::function<bool()> still = [this, well, writer = request.life] {
    return writer == record_.writer && (well || record_.state != ended);
  };
  co_await end_stream(well ? ended : lost, std::move(request.why), std::move(still));
  if (gives_up && !staging_.empty()) fabric::spawn(*core_->progress(), drop_given_up(request.life));
}

bool StreamHome::steps_coming() const {
  return std::ranges::any_of(staging_,
                             [](const auto& entry) { return !entry.second.given_up || entry.second.recorded; });
}

// The writer says that it leaves with steps that are not in the pool. What waits for memory may wait for ever.
void StreamHome::give_up_staging() {
  for (auto& [step, staging] : staging_) staging.given_up = true;
  feed_.reset();
  admission_.reset();
  ++feed_number_;
  feed_joined_ = false;
  changed_.notify_all();
}

// What is under way of them ends first.
Task<void> StreamHome::drop_given_up(std::uint64_t writer) {
  auto self = shared_from_this();
  const Deadline never = Deadline::never();
  while (!staging_.empty() && !retired_) co_await changed_.wait(never);
  try {
    const Deadline deadline(settle_within);
    const auto changing = co_await change(deadline);
    if (record_.writer == writer && record_.state == lost) co_await drop_orphans(writer, deadline);
  } catch (const std::exception& e) {  // whoever writes or drops the stream next does it
    if (!retired_) base::log(base::Level::info, "steps that were given up", {{"stream", name_}, {"why", e.what()}});
  }
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

}  // namespace penstock::pool
