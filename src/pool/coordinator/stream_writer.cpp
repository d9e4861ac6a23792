// The writer of a stream at its home: how it attaches, is joined, and ends or is lost.
#include <algorithm>

#include "base/config.hpp"
#include "base/log.hpp"
#include "pool/coordinator/stream_home.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr auto rejoin_for = std::chrono::seconds(3);  // a writer that does not answer for so long is lost
constexpr auto rejoin_pause = std::chrono::milliseconds(100);
constexpr auto end_pause = std::chrono::milliseconds(100);  // between tries to keep its end
constexpr Timeout last_steps_within(500);                   // for steps that are on their way when their writer leaves
constexpr Timeout last_pulls_within(1'000);                 // for steps that a writer had committed when it was lost
constexpr Timeout end_within(3'000);                        // then whoever waits to drop the stream has a turn
constexpr Timeout orphans_within(5'000);                    // for dropping steps that did not come into the pool

fabric::Registration registration_of(const std::string& stream, const std::string& address,
                                     const std::vector<std::uint8_t>& token) {
  fabric::Registration writer;
  writer.stream = stream;
  writer.endpoint = fabric::endpoint_from_text(address);
  if (token.size() != writer.token.bytes.size())
    throw Error(Errc::protocol, "a writer's token has " + std::to_string(token.size()) + " bytes, expected " +
                                    std::to_string(writer.token.bytes.size()));
  std::copy(token.begin(), token.end(), writer.token.bytes.begin());
  return writer;
}

}  // namespace

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
  const auto options = stream_options(record, name_);
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
        const Deadline deadline(orphans_within);
        co_await drop_orphans(record_.writer, deadline);
      }
      if (kept) co_return;
    }
    co_await fabric::pause_for(*core_->progress(), end_pause);
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
    const Deadline deadline(orphans_within);
    const auto changing = co_await change(deadline);
    if (record_.writer == writer && record_.state == lost) co_await drop_orphans(writer, deadline);
  } catch (const std::exception& e) {  // whoever writes or drops the stream next does it
    if (!retired_) base::log(base::Level::info, "steps that were given up", {{"stream", name_}, {"why", e.what()}});
  }
}

}  // namespace penstock::pool
