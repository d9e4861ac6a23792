// penstock::Pool: subscriptions. A long poll at each server of the view; servers that join later are asked from then on.
#include <atomic>
#include <mutex>

#include "base/log.hpp"
#include "pool/client/client_impl.hpp"
#include "pool/keys/protocol.hpp"

namespace penstock {

namespace fb = pool::fb;
using fabric::Task;

namespace {

// A number of its own for each subscription at a server, in this process. A poll that begins anew takes another.
std::uint64_t new_number() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

// The server answered, and not as one that is gone or late.
bool is_refusal(const Error& error) {
  switch (error.code()) {
    case Errc::overloaded:
    case Errc::forbidden:
    case Errc::authentication:
    case Errc::invalid_argument:
    case Errc::unsupported: return true;
    default: return false;
  }
}

// Until the server has answered, or is gone: then it has forgotten it.
Task<void> end_at_server(std::shared_ptr<rpc::Channel> channel, std::uint64_t number) {
  while (channel->open()) {
    try {
      fb::UnsubscribeRequestT request;
      request.id = number;
      rpc::CallOptions options;
      co_await fb::ObjectsClient(channel).unsubscribe(std::move(request), options);
      co_return;
    } catch (const std::exception& error) {
      if (!channel->open()) co_return;
      base::log(base::Level::debug, "a server was not told that a subscription has ended",
                {{"server", channel->peer_name()}, {"why", error.what()}});
    }
    co_await fabric::pause_for(*channel->progress(), std::chrono::seconds(1));
  }
}

class PoolSubscription final : public Subscription {
 public:
  struct Poll {
    const std::uint64_t number = new_number();
    std::shared_ptr<rpc::Channel> channel;  // null: the server has not been asked, or need not be told of the end
    bool begun = false;                     // the server has answered
  };
  struct Shared : std::enable_shared_from_this<Shared> {
    std::shared_ptr<Pool::Impl> impl;
    Pattern pattern;
    std::shared_ptr<const std::function<void(const ObjectEvent&)>> callback;  // null when it has ended
    bool existing = false;
    bool ended = false;                   // engine thread
    std::map<std::uint64_t, Poll> polls;  // those under way, by server. Engine thread
    std::atomic<std::uint64_t> lost{0};
    mutable std::mutex mutex;
    std::map<std::uint64_t, Error> refusals;  // by server; guarded by mutex

    Task<void> watch();
    Task<void> poll(pool::Member member);
    fb::SubscribeRequestT request(const Poll& poll) const;
    void take(const pool::Member& member, const fb::SubscribeReplyT& reply);
    void tell(const fb::EventT& event);
    void refused(const pool::Member& member, const Error& error);
    void not_refused(std::uint64_t server);
    void gone(const pool::Member& member, const Poll& poll, const char* why);
    void forget(const Poll& poll);
    void end();
  };
  explicit PoolSubscription(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  ~PoolSubscription() override {
    if (shared_->impl->origin.leave(shared_)) return;
    shared_->impl->progress->call([this] { shared_->end(); });
  }
  std::uint64_t lost() const override {
    shared_->impl->origin.check("the subscription");
    return shared_->lost;
  }
  void check() const override {
    shared_->impl->origin.check("the subscription");
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->refusals.empty()) throw shared_->refusals.begin()->second;
  }

 private:
  std::shared_ptr<Shared> shared_;
};

// Sends Unsubscribe if the server may have the subscription; waits for nothing.
void PoolSubscription::Shared::forget(const Poll& poll) {
  if (poll.channel) fabric::spawn(*impl->progress, end_at_server(poll.channel, poll.number));
}

// Ends the long polls as well. A server whose first answer is still to come is told now, and by its poll after that answer: a
// call may overtake another.
void PoolSubscription::Shared::end() {
  if (std::exchange(ended, true)) return;
  callback = nullptr;
  impl->subscriptions.erase(this);
  const auto told = polls;  // telling may end a poll
  for (auto& [server, poll] : polls)
    if (poll.begun) poll.channel = nullptr;
  for (const auto& [server, poll] : told) forget(poll);
}

Task<void> PoolSubscription::Shared::watch() {
  auto self = shared_from_this();
  if (!ended)
    impl->subscriptions.emplace(this, [weak = weak_from_this()] {
      if (const auto still = weak.lock()) still->end();
    });
  std::uint64_t seen = 0;
  while (!ended) {
    auto& members = impl->client->members();
    if (members.closed()) co_return;
    auto placement = members.placement();
    if (placement) {
      {
        const std::lock_guard lock(mutex);
        std::erase_if(refusals, [&](const auto& refusal) { return !placement->view().find(refusal.first); });
      }
      // Also in a view seen before: a poll that failed is begun again.
      for (const auto& member : placement->view().members)
        if (polls.try_emplace(member.id).second) fabric::spawn(*impl->progress, poll(member));
      seen = placement->view().number;
    }
    co_await members.newer_than(seen, base::Deadline(Timeout(1000)));
  }
}

// The callback may end the subscription, and what it throws is its own affair.
void PoolSubscription::Shared::tell(const fb::EventT& event) {
  ObjectEvent e;
  e.what = event.dropped ? ObjectEvent::What::dropped : ObjectEvent::What::put;
  if (event.info) e.info = pool::unpack_info(*event.info);
  const auto alive = callback;
  try {
    (*alive)(e);
  } catch (const std::exception& error) {
    base::log(base::Level::error, "a subscription's callback has failed",
              {{"pool", impl->client->pool()}, {"why", error.what()}});
  } catch (...) {
    base::log(base::Level::error, "a subscription's callback has failed", {{"pool", impl->client->pool()}});
  }
}

void PoolSubscription::Shared::refused(const pool::Member& member, const Error& error) {
  {
    const std::lock_guard lock(mutex);
    if (!refusals.insert_or_assign(member.id, error.in(member.name)).second) return;  // it was logged
  }
  base::log(base::Level::warn, "a server refuses a subscription: it is asked again each second",
            {{"pool", impl->client->pool()}, {"server", member.name}, {"why", error.what()}});
}

void PoolSubscription::Shared::not_refused(std::uint64_t server) {
  const std::lock_guard lock(mutex);
  refusals.erase(server);
}

// The server may have had events for the subscription, or a reply with some under way: that counts as one.
void PoolSubscription::Shared::gone(const pool::Member& member, const Poll& poll, const char* why) {
  not_refused(member.id);
  if (ended) return;
  if (poll.begun) ++lost;
  base::log(base::Level::info, "a server's events have ended: some may be lost",
            {{"pool", impl->client->pool()}, {"server", member.name}, {"why", why}});
}

fb::SubscribeRequestT PoolSubscription::Shared::request(const Poll& poll) const {
  fb::SubscribeRequestT request;
  request.id = poll.number;
  request.begin = !poll.begun;
  if (poll.begun) return request;
  request.ns = {impl->ns.bytes.begin(), impl->ns.bytes.end()};
  request.row = {pattern.row.begin(), pattern.row.end()};
  request.column = {pattern.column.begin(), pattern.column.end()};
  request.existing = existing;
  return request;
}

void PoolSubscription::Shared::take(const pool::Member& member, const fb::SubscribeReplyT& reply) {
  if (reply.lost != 0 && lost.fetch_add(reply.lost) == 0)
    base::log(base::Level::warn, "events of a subscription were lost: it does not take them fast enough",
              {{"pool", impl->client->pool()}, {"server", member.name}});
  for (const auto& event : reply.events) {
    if (ended) return;
    tell(*event);
  }
}

// However it ends, it sends Unsubscribe: the server would otherwise keep events that no client fetches. Not where the server has
// refused the subscription: there it has none.
Task<void> PoolSubscription::Shared::poll(pool::Member member) {
  auto self = shared_from_this();
  Poll& its = polls.at(member.id);
  try {
    const auto channel = co_await impl->client->members().channel(member, base::Deadline(Timeout(60'000)));
    its.channel = channel;
    while (!ended) {
      auto next = request(its);
      rpc::CallOptions options{base::Deadline(Timeout(60'000))};
      bool busy = false;
      try {
        const auto reply = co_await fb::ObjectsClient(channel).subscribe(std::move(next), options);
        if (!std::exchange(its.begun, true)) not_refused(member.id);
        take(member, reply);
      } catch (const Error& error) {
        if (!its.begun || error.code() != Errc::overloaded) throw;
        busy = true;  // it still has the subscription and its events
      }
      if (busy) co_await fabric::pause_for(*impl->progress, std::chrono::seconds(1));
    }
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known && !its.begun && is_refusal(*known)) {
      its.channel = nullptr;
      refused(member, *known);
    } else {
      gone(member, its, error.what());
    }
  }
  forget(its);
  polls.erase(member.id);
}

}  // namespace

std::unique_ptr<Subscription> Pool::Impl::subscribe(const Pattern& pattern,
                                                    std::function<void(const ObjectEvent&)> callback, bool existing) {
  auto shared = std::make_shared<PoolSubscription::Shared>();
  shared->impl = shared_from_this();
  shared->pattern = pattern;
  shared->callback = std::make_shared<const std::function<void(const ObjectEvent&)>>(std::move(callback));
  shared->existing = existing;
  fabric::spawn(*progress, shared->watch());
  return std::make_unique<PoolSubscription>(std::move(shared));
}

}  // namespace penstock
