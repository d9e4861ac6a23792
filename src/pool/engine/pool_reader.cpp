#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/log.hpp"
#include "fabric/reach.hpp"
#include "fabric/registration.hpp"
#include "penstock/interrupt.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/engine/stripe_plane.hpp"
#include "pool/keys/stream_keys.hpp"
#include "pool/keys/stripes.hpp"
#include "stream/api/open.hpp"
#include "stream/api/patience.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout longest_poll(5'000);  // then the home is asked again
constexpr std::uint32_t max_writer_ranks = 1u << 24;
constexpr std::uint64_t fixed_reply_bytes = 96;  // of a step's announcement, about, without layouts
constexpr Timeout answer_within(3'000);          // beyond what the home may wait
constexpr Timeout tell_within(30'000);           // a home that is new, which may be loading the stream
constexpr auto tell_again = std::chrono::milliseconds(20);

template <class Request>
using Send = std::function<Task<Request>(std::shared_ptr<rpc::Channel>, std::uint64_t, PoolClient::Attempt)>;

rpc::CallOptions until(base::Deadline deadline) {
  rpc::CallOptions options;
  options.deadline = deadline;
  return options;
}

Task<fb::OpenReaderReplyT> send_open(std::shared_ptr<rpc::Channel> channel, fb::OpenReaderRequestT request,
                                     base::Deadline deadline) {
  fb::StreamsClient client(std::move(channel));
  co_return co_await client.open_reader(std::move(request), until(deadline));
}
Task<fb::EmptyT> send_end(std::shared_ptr<rpc::Channel> channel, fb::EndStepRequestT request, base::Deadline deadline) {
  fb::StreamsClient client(std::move(channel));
  co_return co_await client.end_step(std::move(request), until(deadline));
}
Task<fb::EmptyT> send_close(std::shared_ptr<rpc::Channel> channel, fb::CloseReaderRequestT request,
                            base::Deadline deadline) {
  fb::StreamsClient client(std::move(channel));
  co_return co_await client.close_reader(std::move(request), until(deadline));
}
Task<fb::StreamInfoReplyT> send_info(std::shared_ptr<rpc::Channel> channel, fb::StreamInfoRequestT request,
                                     base::Deadline deadline) {
  fb::StreamsClient client(std::move(channel));
  co_return co_await client.stream_info(std::move(request), until(deadline));
}

// Calls the stream's home, wherever it is now.
template <class Reply, class Request>
Task<Reply> at_home(std::shared_ptr<PoolClient> client, Request request,
                    Task<Reply> (*send)(std::shared_ptr<rpc::Channel>, Request, base::Deadline),
                    base::Deadline deadline) {
  const auto row = stream_row(request.stream);
  auto shared = std::make_shared<const Request>(std::move(request));
  Send<Reply> call = [shared, send, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                                              PoolClient::Attempt) {
    auto copy = *shared;
    copy.view = view;
    return send(std::move(channel), std::move(copy), deadline);
  };
  co_return co_await client->at_primary<Reply>(streams_namespace(), row, std::nullopt, deadline, std::move(call));
}

// What nobody need wait for.
template <class Reply, class Request>
fabric::Future<Reply> tell_home(const std::shared_ptr<PoolClient>& client, Request request,
                                Task<Reply> (*send)(std::shared_ptr<rpc::Channel>, Request, base::Deadline)) {
  return fabric::spawn(*client->progress(),
                       at_home<Reply, Request>(client, std::move(request), send, base::Deadline(answer_within)));
}

std::uint64_t random_number() {
  const auto token = fabric::Token::random();
  std::uint64_t number = 0;
  std::copy_n(token.bytes.begin(), sizeof(number), reinterpret_cast<std::uint8_t*>(&number));
  return number;
}

std::int64_t start_of(const std::string& start) {
  return start == "oldest" ? -1 : start == "newest" ? -2 : std::stoll(start);
}

// What a rank was given and reads, as it tells whoever is its stream's home. The reader's thread, whoever drops a step, and the
// engine share it.
//
// All ranks of a cohort must be given the same step for an index, also when one was given it by a home that died, and another
// asks the next home. So a home hears on each channel what the rank was given before it is asked for more; and once one was
// told, no answer of another counts: what that gave meanwhile the new one does not know, and may give otherwise.
class Given {
 public:
  explicit Given(fb::HoldRequestT who) : told_(std::move(who)) {}

  // What a home is to be told on this channel, in the view it was found by. Throws stale_view when one of a newer view was told.
  fb::HoldRequestT tell(const std::shared_ptr<rpc::Channel>& channel, std::uint64_t view) {
    const std::lock_guard lock(mutex_);
    if (!same(channel)) {
      if (view < view_) throw Error(Errc::stale_view, "a newer home of the stream knows of this reader");
      channel_ = channel;
      heard_ = false;
    }
    view_ = std::max(view_, view);
    auto request = told_;
    request.view = view;
    return request;
  }
  void heard(const std::shared_ptr<rpc::Channel>& channel) {
    const std::lock_guard lock(mutex_);
    if (same(channel)) heard_ = true;
  }
  bool heard_on(const std::shared_ptr<rpc::Channel>& channel) const {
    const std::lock_guard lock(mutex_);
    return heard_ && same(channel);
  }
  // A step that came on this channel. False: it does not count.
  bool take(const std::shared_ptr<rpc::Channel>& channel, std::uint64_t index, std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    if (!same(channel)) return false;
    if (told_.index > index) return true;  // again, after an answer that could not be used
    if (told_.given.size() == remembered) told_.given.erase(told_.given.begin());
    told_.given.push_back(step);
    told_.index = index + 1;
    told_.held.push_back(index);
    return true;
  }
  void end(std::uint64_t index) {
    const std::lock_guard lock(mutex_);
    std::erase(told_.held, index);
  }
  const std::string& stream() const { return told_.stream; }  // never changes

  std::uint64_t home = 0;  // whom the last view names; engine thread

 private:
  static constexpr std::size_t remembered = 1024;
  bool same(const std::shared_ptr<rpc::Channel>& channel) const {
    return !channel_.owner_before(channel) && !channel.owner_before(channel_);
  }
  mutable std::mutex mutex_;  // guards what follows
  fb::HoldRequestT told_;
  std::weak_ptr<rpc::Channel> channel_;  // the last on which it was told
  std::uint64_t view_ = 0;
  bool heard_ = false;
};

Task<fb::EmptyT> tell(std::shared_ptr<rpc::Channel> channel, std::uint64_t view, std::shared_ptr<Given> given,
                      base::Deadline deadline) {
  fb::StreamsClient client(channel);
  auto request = given->tell(channel, view);
  auto reply = co_await client.hold(std::move(request), until(deadline));
  given->heard(channel);
  co_return reply;
}

// Until the home has heard it, or there is yet another.
Task<void> tell_new_home(std::shared_ptr<PoolClient> client, std::shared_ptr<Given> given, std::uint64_t home) {
  const auto row = stream_row(given->stream());
  const base::Deadline end(tell_within);
  while (given->home == home && !end.passed()) {
    try {
      const base::Deadline deadline(answer_within);
      Send<fb::EmptyT> call = [given, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                                                PoolClient::Attempt) {
        return tell(std::move(channel), view, given, deadline);
      };
      co_await client->at_primary<fb::EmptyT>(streams_namespace(), row, std::nullopt, deadline, std::move(call));
      co_return;
    } catch (const Error& e) {
      base::log(base::Level::info, "a new home of a stream was not told yet what is read",
                {{"stream", given->stream()}, {"why", e.what()}});
      if (e.code() == Errc::stream_closed) co_return;
    }
    co_await fabric::pause_for(*client->progress(), tell_again);
  }
}

struct Answer {
  fb::NextStepReplyT reply;
  std::shared_ptr<rpc::Channel> channel;  // on which it came
};

Task<Answer> ask(std::shared_ptr<rpc::Channel> channel, std::uint64_t view, fb::NextStepRequestT request,
                 std::shared_ptr<Given> given, base::Deadline deadline) {
  if (!given->heard_on(channel)) co_await tell(channel, view, given, deadline);
  request.view = view;
  fb::StreamsClient client(channel);
  Answer answer;
  answer.reply = co_await client.next_step(std::move(request), until(deadline));
  answer.channel = std::move(channel);
  co_return answer;
}

std::uint64_t home_of(const Placement& placement, const std::string& stream) {
  const auto owners = placement.owners(streams_namespace(), stream_row(stream), std::nullopt);
  return owners.count == 0 ? 0 : placement.view().members[owners.index[0]].id;
}

class PoolSource final : public stream::StepSource {
 public:
  PoolSource(const stream::EngineContext& context, const std::string& name, Cohort& cohort,
             const StreamOptions& options);

  const std::string& stream() const override { return name_; }
  std::uint64_t cohort_number() const override { return reader_; }
  transport::DataPlane& plane() override { return *plane_; }
  Outcome wait_step(Step& step, base::Deadline deadline) override;
  std::string why(Outcome outcome) const override;
  void described(std::span<const std::shared_ptr<const model::RankLayout>> layouts) override;
  void seek(std::uint64_t step) override { seek_ = static_cast<std::int64_t>(step); }
  std::vector<std::uint64_t> steps() override;
  void close() override;
  void add_statistics(StreamStatistics& statistics) const override;

 private:
  void open(Cohort& cohort, base::Deadline deadline);
  void tell_new_homes();
  fb::OpenReaderReplyT wait_for_stream(base::Deadline deadline);
  fb::NextStepRequestT request(Timeout wait) const;
  Task<Answer> ask_home(fb::NextStepRequestT request, base::Deadline deadline) const;
  void take(Step& step, fb::NextStepReplyT& reply);
  void take_layouts(const fb::NextStepReplyT& reply);

  const std::string name_;
  const StreamOptions options_;
  const std::uint32_t rank_, ranks_;
  std::shared_ptr<PoolClient> client_;
  std::unique_ptr<StripePlane> plane_;
  std::uint64_t reader_ = 0;  // the cohort's number, chosen at random
  std::uint64_t life_ = 0, stripe_bytes_ = 0, tag_base_ = 0;
  std::uint32_t writer_ranks_ = 0;
  std::string writer_, why_;
  std::uint64_t index_ = 0;  // of the step to ask for
  std::int64_t last_ = -1;   // the step given before
  std::int64_t seek_ = -1;
  std::shared_ptr<const stream::EpochBlobs> epoch_;
  std::vector<std::shared_ptr<const model::RankLayout>> layouts_;  // by rank, as they were described
  std::vector<std::shared_ptr<const StripeMap>> maps_;             // likewise
  std::uint64_t epochs_ = 0, reply_bytes_ = 0;
  std::shared_ptr<Given> given_;
  std::shared_ptr<std::atomic<std::uint64_t>> held_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

PoolSource::PoolSource(const stream::EngineContext& context, const std::string& name, Cohort& cohort,
                       const StreamOptions& options)
    : name_(name),
      options_(options),
      rank_(static_cast<std::uint32_t>(cohort.rank())),
      ranks_(static_cast<std::uint32_t>(cohort.size())) {
  if (fabric::is_address(name))
    throw Error(Errc::unsupported, "a stream in a pool is opened by its name, not by an address");
  const base::Deadline deadline(Timeout(options.open_timeout_ms));
  const bool by_ucx = options.data_plane == DataPlane::ucx;
  client_ = shared_client(context, options.pool, "read", deadline, by_ucx ? DataPlane::ucx : DataPlane::automatic);
  open(cohort, deadline);
  tell_new_homes();
  // All servers on this node: their memory can be mapped. (If one is not, its stripes are asked for all the same.)
  const bool may_share = options.data_plane != DataPlane::tcp && !by_ucx;
  bool local = may_share;
  for (const auto& member : client_->members().placement()->view().members)
    local = local && fabric::reachable_locally(member.endpoint);
  if (options.data_plane == DataPlane::shm && !local)
    throw Error(Errc::unsupported, "stream " + name + ": data_plane=shm, but a server of pool " + client_->pool() +
                                       " cannot be reached on this host");
  plane_ = std::make_unique<StripePlane>(client_, may_share, stripe_bytes_, tag_base_,
                                         by_ucx  ? "ucx"
                                         : local ? "shm"
                                                 : "tcp");
}

void PoolSource::described(std::span<const std::shared_ptr<const model::RankLayout>> layouts) {
  layouts_.resize(layouts.size());
  maps_.resize(layouts.size());
  for (std::size_t rank = 0; rank < layouts.size(); ++rank) {
    if (layouts_[rank] == layouts[rank]) continue;
    layouts_[rank] = layouts[rank];
    maps_[rank] = std::make_shared<const StripeMap>(stripes_of(*layouts[rank], stripe_bytes_, true));
  }
  plane_->describe(maps_);
}

void PoolSource::open(Cohort& cohort, base::Deadline deadline) {
  const auto text = stream::share_text(cohort, [&] {
    const auto reply = wait_for_stream(deadline);
    std::ostringstream out;
    out << random_number() << ' ' << reply.life << ' ' << reply.stripe_bytes << ' ' << reply.tag_base << ' '
        << reply.writer_ranks << ' ' << reply.writer;
    return out.str();
  });
  std::istringstream in(text);
  in >> reader_ >> life_ >> stripe_bytes_ >> tag_base_ >> writer_ranks_ >> writer_;
}

// Another server becomes the stream's home: it hears at once what this rank holds, whatever the rank is doing.
void PoolSource::tell_new_homes() {
  fb::HoldRequestT who;
  who.stream = name_;
  who.reader = reader_;
  who.rank = rank_;
  who.ranks = ranks_;
  who.group = options_.group;
  who.life = life_;
  given_ = std::make_shared<Given>(std::move(who));
  client_->progress()->call([client = client_, given = given_] {
    given->home = home_of(*client->members().placement(), given->stream());
    const auto tell = [weak = std::weak_ptr<PoolClient>(client), told = std::weak_ptr<Given>(given)](const View&) {
      const auto to = weak.lock();
      const auto what = told.lock();
      if (!to || !what) return;
      const auto home = home_of(*to->members().placement(), what->stream());
      if (std::exchange(what->home, home) == home) return;
      fabric::spawn(*to->progress(), tell_new_home(to, what, home));
    };
    client->members().watch(given, tell);
  });
}

fb::OpenReaderReplyT PoolSource::wait_for_stream(base::Deadline deadline) {
  for (;;) {
    fb::OpenReaderRequestT request;
    request.stream = name_;
    request.group = options_.group;
    request.ranks = ranks_;
    const auto wait = std::min(longest_poll, deadline.remaining());
    request.wait_ms = static_cast<std::uint32_t>(wait.count());
    const base::Deadline answer(wait + answer_within);
    std::string why;
    try {
      return fabric::run_task(*client_->progress(),
                              at_home<fb::OpenReaderReplyT>(client_, std::move(request), &send_open, answer), answer);
    } catch (const Error& e) {
      if (e.code() != Errc::not_found && e.code() != Errc::timeout && !PoolClient::may_retry(e)) throw;
      why = e.what();
    }
    if (deadline.passed() || interrupted())
      throw Error(Errc::timeout, "stream " + name_ + " did not open within " +
                                     std::to_string(options_.open_timeout_ms) + " ms in pool " + client_->pool() +
                                     ": " + why);
  }
}

fb::NextStepRequestT PoolSource::request(Timeout wait) const {
  fb::NextStepRequestT request;
  request.stream = name_;
  request.reader = reader_;
  request.rank = rank_;
  request.ranks = ranks_;
  request.index = index_;
  request.known_epoch = epoch_ ? epoch_->number : 0;
  request.life = life_;
  request.group = options_.group;
  request.latest = options_.delivery == Delivery::latest;
  request.start = start_of(options_.start);
  request.last = last_;
  request.seek = seek_;
  request.wait_ms = static_cast<std::uint32_t>(wait.count());
  return request;
}

Task<Answer> PoolSource::ask_home(fb::NextStepRequestT request, base::Deadline deadline) const {
  auto shared = std::make_shared<const fb::NextStepRequestT>(std::move(request));
  const auto row = stream_row(shared->stream);
  const auto client = client_;
  Send<Answer> call = [shared, deadline, given = given_](std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                                                         PoolClient::Attempt) {
    return ask(std::move(channel), view, *shared, given, deadline);
  };
  co_return co_await client->at_primary<Answer>(streams_namespace(), row, std::nullopt, deadline, std::move(call));
}

Outcome PoolSource::wait_step(Step& step, base::Deadline deadline) {
  for (;;) {
    const auto wait = std::min(longest_poll, deadline.remaining());
    const base::Deadline answer(wait + answer_within);
    try {
      auto asked = fabric::spawn(*client_->progress(), ask_home(request(wait), answer));
      auto [reply, channel] = asked.get(answer);
      if (reply.outcome > static_cast<std::uint8_t>(Outcome::writer_lost))
        throw Error(Errc::protocol, "no such outcome");
      const auto outcome = static_cast<Outcome>(reply.outcome);
      why_ = reply.why;
      if (outcome == Outcome::ready && !given_->take(channel, index_, reply.step))
        continue;  // another home has been told that this rank was not given this one
      if (outcome == Outcome::ready) take(step, reply);
      if (outcome != Outcome::not_ready || deadline.passed() || interrupted()) return outcome;
    } catch (const Error& e) {
      if (e.code() != Errc::timeout && !PoolClient::may_retry(e)) throw;
      why_ = std::string("the pool does not answer: ") + e.what();
      if (deadline.passed() || interrupted()) return Outcome::not_ready;
    }
  }
}

void PoolSource::take(Step& step, fb::NextStepReplyT& reply) {
  if (reply.epoch == 0) throw Error(Errc::protocol, "a step without a description");
  if (!epoch_ || epoch_->number != reply.epoch) take_layouts(reply);
  reply_bytes_ += fixed_reply_bytes + 8 * reply.payload_bytes.size();
  auto held = std::make_shared<HeldStep>();
  held->stream = name_;
  held->step = reply.step;
  held->life = reply.writer;
  held->payload_bytes = std::move(reply.payload_bytes);
  fb::EndStepRequestT end;
  end.stream = name_;
  end.reader = reader_;
  end.rank = rank_;
  end.index = index_;
  held_->fetch_add(1);
  held->ended = [client = client_, end, count = held_, given = given_] {
    count->fetch_sub(1);
    given->end(end.index);
    try {
      tell_home<fb::EmptyT, fb::EndStepRequestT>(client, end, &send_end);
    } catch (const std::exception& e) {
      base::log(base::Level::warn, "a step could not be released", {{"stream", end.stream}, {"why", e.what()}});
    }
  };
  plane_->read(held);
  ++index_;
  last_ = static_cast<std::int64_t>(reply.step);
  seek_ = -1;
  step.step = reply.step;
  step.slot = 0;
  step.epoch = epoch_;
  step.lease = std::move(held);
}

void PoolSource::take_layouts(const fb::NextStepReplyT& reply) {
  auto epoch = std::make_shared<stream::EpochBlobs>();
  epoch->number = reply.epoch;
  if (reply.base != 0 && epoch_ && reply.base == epoch_->number) epoch->layouts = epoch_->layouts;
  if (reply.ranks == 0 || reply.ranks > max_writer_ranks) throw Error(Errc::protocol, "a step of so many ranks");
  writer_ranks_ = reply.ranks;
  epoch->layouts.resize(writer_ranks_);
  for (const auto& blob : reply.layouts) {
    if (!blob || blob->rank >= writer_ranks_) throw Error(Errc::protocol, "a layout of a rank that is not there");
    epoch->layouts[blob->rank] = std::make_shared<const std::string>(blob->layout.begin(), blob->layout.end());
    reply_bytes_ += blob->layout.size();
  }
  epoch_ = std::move(epoch);
  ++epochs_;
}

std::string PoolSource::why(Outcome outcome) const {
  const auto read = last_ >= 0 ? "the last step read was " + std::to_string(last_) : std::string("no step was read");
  switch (outcome) {
    case Outcome::not_ready: return "no step in time; " + why_ + "; " + read;
    case Outcome::end_of_stream: return "the writer has closed it; " + read;
    case Outcome::writer_lost: return why_ + "; " + read + "; later ones, if there were any, are lost";
    case Outcome::ready: break;
  }
  return "";
}

std::vector<std::uint64_t> PoolSource::steps() {
  fb::StreamInfoRequestT request;
  request.stream = name_;
  const base::Deadline deadline(stream::chosen_or_usual(options_.step_timeout_ms));
  return fabric::run_task(*client_->progress(),
                          at_home<fb::StreamInfoReplyT>(client_, std::move(request), &send_info, deadline), deadline)
      .steps;
}

void PoolSource::close() {
  client_->progress()->post([given = given_] { given->home = 0; });  // nobody needs to be told any more
  fb::CloseReaderRequestT request;
  request.stream = name_;
  request.reader = reader_;
  request.rank = rank_;
  auto told = tell_home<fb::EmptyT, fb::CloseReaderRequestT>(client_, std::move(request), &send_close);
  if (client_->progress()->threaded()) return;
  try {  // nobody may poll any more, and what waits for an answer holds the client
    told.get(base::Deadline(answer_within));
  } catch (const Error&) {
  }
}

void PoolSource::add_statistics(StreamStatistics& statistics) const {
  statistics.epochs = epochs_;
  statistics.announcement_bytes = reply_bytes_;
  statistics.queue_depth = static_cast<std::uint32_t>(held_->load());
  PeerStatistics peer;
  peer.name = writer_;
  peer.ranks = writer_ranks_;
  peer.data_plane = plane_->name();
  peer.steps_delivered = index_;
  peer.steps_held = held_->load();
  peer.steps_released = index_ - peer.steps_held;
  statistics.peers.push_back(std::move(peer));
}

}  // namespace

std::string inspect_in_pool(const stream::EngineContext& context, const std::string& name, const StreamOptions& options,
                            base::Deadline deadline) {
  auto client = shared_client(context, options.pool, "read", deadline);
  fb::StreamInfoRequestT request;
  request.stream = name;
  auto asking = at_home<fb::StreamInfoReplyT>(client, std::move(request), &send_info, deadline);
  return fabric::run_task(*context.progress, std::move(asking), base::Deadline::never())
      .json;  // it ends by its deadline
}

std::unique_ptr<stream::StepSource> open_in_pool(const stream::EngineContext& context, const std::string& name,
                                                 Cohort& cohort, const StreamOptions& options) {
  return std::make_unique<PoolSource>(context, name, cohort, options);
}

}  // namespace penstock::pool
