// The readers of a stream at its home: which step each gets, and what each holds.
#include "base/log.hpp"
#include "pool/coordinator/stream_home.hpp"
#include "pool/coordinator/stream_objects.hpp"
#include "pool/keys/protocol.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout keep_within(5'000);

}  // namespace

class StreamHome::KeptSteps final : public ReaderBook::Kept {
 public:
  explicit KeptSteps(const std::map<std::uint64_t, fb::StepRecordT>& steps) : steps_(steps) {}
  std::optional<std::uint64_t> first_from(std::uint64_t step) const override {
    const auto found = steps_.lower_bound(step);
    return found == steps_.end() ? std::nullopt : std::optional(found->first);
  }
  std::optional<std::uint64_t> newest() const override {
    return steps_.empty() ? std::nullopt : std::optional(steps_.rbegin()->first);
  }

 private:
  const std::map<std::uint64_t, fb::StepRecordT>& steps_;
};

Task<fb::OpenReaderReplyT> StreamHome::open_reader(fb::OpenReaderRequestT request, Deadline deadline) {
  auto self = shared_from_this();
  const auto until = earlier(deadline, Deadline(Timeout(request.wait_ms)));
  while (!known()) {
    check_ours();
    const bool changed = co_await changed_.wait(until);
    if (!changed && !known()) throw Error(Errc::not_found, "the pool has no stream " + name_);
  }
  fb::OpenReaderReplyT reply;
  reply.writer_ranks = record_.ranks;
  reply.stripe_bytes = options_.stripe_bytes;
  reply.writer = record_.host + ":" + std::to_string(record_.pid);
  reply.life = record_.life;
  reply.tag_base = record_.tag_base;
  co_return reply;
}

void StreamHome::watch(const std::shared_ptr<rpc::Channel>& channel, std::uint64_t reader, std::uint32_t rank) {
  auto& watched = watched_[{reader, rank}];
  if (watched.lock() == channel) return;
  watched = channel;
  channel->on_closed([weak = weak_from_this(), raw = std::weak_ptr<rpc::Channel>(channel), reader, rank](const Error&) {
    const auto self = weak.lock();
    if (!self) return;
    const auto found = self->watched_.find({reader, rank});
    if (found == self->watched_.end() || found->second.owner_before(raw) || raw.owner_before(found->second)) return;
    self->watched_.erase(found);
    self->readers_.lost(reader, rank);
    fabric::spawn(*self->core_->progress(), self->trim());
  });
}

Task<fb::NextStepReplyT> StreamHome::next_step(std::shared_ptr<rpc::Channel> channel, fb::NextStepRequestT request,
                                               Deadline deadline) {
  auto self = shared_from_this();
  const auto until = earlier(deadline, Deadline(Timeout(request.wait_ms)));
  const ReaderBook::Ask ask{request.reader, request.rank,  request.ranks, request.index, request.group,
                            request.latest, request.start, request.last,  request.seek};
  const KeptSteps kept(steps_);
  fb::NextStepReplyT reply;
  watch(channel, request.reader, request.rank);
  for (;;) {
    check_ours();
    if (!channel->open()) throw Error(Errc::peer_lost, "the reader has gone");  // what asks for it would revive it
    reply.life = record_.life;
    if (request.life != 0 && request.life != record_.life) {
      reply.outcome = static_cast<std::uint8_t>(Outcome::writer_lost);
      reply.why = known()
                      ? "another writer has begun the stream anew"
                      : "no server has a record of the stream: it was dropped, or is away with the server that kept it";
      co_return reply;
    }
    // An earlier home may have given another rank this step. Also one that does not wait gets none before that is known.
    const bool awaits_others = !settled() && readers_.awaits_others(ask);
    if (awaits_others && !until.passed()) {
      const auto soon = earlier(until, settled_from_);
      co_await changed_.wait(soon);
      continue;
    }
    if (const auto step = awaits_others ? std::nullopt : readers_.step_for(ask, kept)) {
      reply.step = *step;
      break;
    }
    if (record_.state != open && !steps_coming() && !awaits_others) {
      reply.outcome = static_cast<std::uint8_t>(record_.state == ended ? Outcome::end_of_stream : Outcome::writer_lost);
      reply.why = record_.state == ended ? "the writer has closed it" : record_.why;
      co_return reply;
    }
    if (until.passed()) {
      reply.outcome = static_cast<std::uint8_t>(Outcome::not_ready);
      reply.why = awaits_others ? "awaited: the other ranks of this reader, by the stream's new home"
                                : "awaited: writer " + record_.host + ":" + std::to_string(record_.pid);
      co_return reply;
    }
    co_await changed_.wait(until);
  }
  const auto found = steps_.find(reply.step);
  if (found == steps_.end())
    throw Error(Errc::step_gone,
                "stream " + name_ + ": step " + std::to_string(reply.step) + " has gone by its policy of retention");
  reply.outcome = static_cast<std::uint8_t>(Outcome::ready);
  reply.epoch = found->second.epoch;
  reply.payload_bytes = found->second.payload_bytes;
  reply.writer = found->second.writer;
  reply.ranks = static_cast<std::uint32_t>(reply.payload_bytes.size());
  if (reply.epoch == request.known_epoch) co_return reply;
  auto epoch = co_await epoch_of(record_.life, reply.epoch, deadline);
  std::shared_ptr<const Epoch> base;
  if (request.known_epoch != 0) base = co_await epoch_of(record_.life, request.known_epoch, deadline);
  reply.base = base ? request.known_epoch : 0;
  fill_layouts(reply, std::move(epoch), std::move(base));
  co_return reply;
}

void StreamHome::fill_layouts(fb::NextStepReplyT& reply, std::shared_ptr<const Epoch> epoch,
                              std::shared_ptr<const Epoch> base) const {
  if (!epoch) throw Error(Errc::step_gone, "stream " + name_ + ": the description of a step has gone");
  for (std::uint32_t rank = 0; rank < epoch->layouts.size(); ++rank) {
    const auto& layout = *epoch->layouts[rank];
    if (base && rank < base->layouts.size() && *base->layouts[rank] == layout) continue;
    auto blob = std::make_unique<fb::RankLayoutBlobT>();
    blob->rank = rank;
    blob->layout.assign(layout.begin(), layout.end());
    reply.layouts.push_back(std::move(blob));
  }
}

void StreamHome::hold(const std::shared_ptr<rpc::Channel>& channel, const fb::HoldRequestT& request) {
  if (request.life != record_.life) return;
  const bool moved = readers_.tell(
      {request.reader, request.rank, request.ranks, request.group, request.index, request.given, request.held});
  watch(channel, request.reader, request.rank);
  changed_.notify_all();
  if (moved) fabric::spawn(*core_->progress(), keep_groups());
}

// What was read to its end at an earlier home, which may not have kept that.
Task<void> StreamHome::keep_groups() {
  auto self = shared_from_this();
  try {
    const Deadline deadline(keep_within);
    co_await put_groups(deadline);
    co_await trim();
  } catch (const std::exception& e) {  // the next step that is read brings it again
    if (!retired_) base::log(base::Level::info, "a group was not kept", {{"stream", name_}, {"why", e.what()}});
  }
}

Task<void> StreamHome::end_step(fb::EndStepRequestT request, Deadline deadline) {
  auto self = shared_from_this();
  const bool moved = readers_.end_step(request.reader, request.rank, request.index);
  co_await trim();  // first: the room that it makes may be what the next line waits for
  if (moved) co_await put_groups(deadline);
}

}  // namespace penstock::pool
