// Subscriptions: the events that a server keeps for a client until its next poll.
#include <algorithm>

#include "pool/keys/protocol.hpp"
#include "pool/server/object_service.hpp"
#include "pool/store/object_info.hpp"

namespace penstock::pool {
namespace {

constexpr std::size_t max_visits = 100'000;  // of what is there first, at a time
constexpr std::size_t max_events_reply = 10'000;
constexpr std::size_t max_bytes_reply = std::size_t{256} << 10;         // goes inline; many polls are answered at once
constexpr std::size_t max_event_bytes = std::size_t{64} << 20;          // kept for one subscription
constexpr std::size_t max_client_event_bytes = std::size_t{256} << 20;  // kept for all of a client

std::size_t bytes_of(const fb::EventT& event) {
  const auto& info = *event.info;
  return sizeof(event) + sizeof(info) + info.row.size() + info.column.size() + info.metadata.size();
}

}  // namespace

// Events are noted in order. Where there is no room, the oldest of this subscription go.
class ObjectService::Subscriber {
 public:
  Subscriber(fabric::Progress& progress, std::size_t max_events, std::shared_ptr<std::size_t> client_bytes)
      : more(progress), max_events_(max_events), client_bytes_(std::move(client_bytes)) {}
  ~Subscriber() { clear(); }
  Subscriber(const Subscriber&) = delete;

  fabric::Signal more;  // of new events, and of the end
  ObjectTable::WaiterId id = 0;

  bool nothing_to_tell() const { return events_.empty() && lost_ == 0; }
  void note(std::unique_ptr<fb::EventT> event) {
    while (!events_.empty() && full()) {
      take();
      ++lost_;
    }
    if (full()) {  // with the events of the client's other subscriptions
      ++lost_;
    } else {
      count(bytes_of(*event));
      events_.push_back(std::move(event));
    }
    more.notify_all();
  }
  fb::SubscribeReplyT reply() {
    fb::SubscribeReplyT reply;
    reply.lost = std::exchange(lost_, 0);
    std::size_t bytes = 0;
    while (!events_.empty() && reply.events.size() < max_events_reply && bytes < max_bytes_reply) {
      reply.events.push_back(take());
      bytes += bytes_of(*reply.events.back());
    }
    return reply;
  }
  void clear() {
    while (!events_.empty()) take();
  }

 private:
  bool full() const {
    return events_.size() >= max_events_ || bytes_ >= max_event_bytes || *client_bytes_ >= max_client_event_bytes;
  }
  void count(std::size_t bytes) {
    bytes_ += bytes;
    *client_bytes_ += bytes;
  }
  std::unique_ptr<fb::EventT> take() {
    auto event = std::move(events_.front());
    events_.pop_front();
    bytes_ -= bytes_of(*event);
    *client_bytes_ -= bytes_of(*event);
    return event;
  }

  const std::size_t max_events_;
  const std::shared_ptr<std::size_t> client_bytes_;  // of the events of all its subscriptions
  std::deque<std::unique_ptr<fb::EventT>> events_;
  std::size_t bytes_ = 0;   // of them
  std::uint64_t lost_ = 0;  // discarded since the last reply
};

std::shared_ptr<ObjectService::Subscriber> ObjectService::begin_subscription(rpc::Call& call,
                                                                             const fb::SubscribeRequestT& request) {
  auto core = core_;
  auto* channel = &call.channel();
  const auto of_channel = subscribers_.find(channel);
  const bool first = of_channel == subscribers_.end();
  if ((first ? 0 : of_channel->second.by_number.size()) >= core->options().max_subscriptions)
    throw Error(Errc::overloaded, "a client may have " + std::to_string(core->options().max_subscriptions) +
                                      " subscriptions at a server (its max_subscriptions)");
  if (!first && of_channel->second.by_number.contains(request.id))
    throw Error(Errc::invalid_argument, "there is a subscription with this number");
  const auto ns = unpack_namespace(request.ns);
  const auto pattern = unpack_pattern(request.row, request.column);
  auto& subscribers = subscribers_[channel];
  const auto subscriber =
      std::make_shared<Subscriber>(*core->progress(), core->options().max_events, subscribers.event_bytes);
  const auto note = [subscriber, core = core.get()](bool dropped, const Namespace& in, std::string_view row,
                                                    std::string_view column, const StoredObject& object) {
    const auto placement = core->placement();
    if (!core->is_primary(*placement, in, row, object.tag)) return;
    auto event = std::make_unique<fb::EventT>();
    event->dropped = dropped;
    event->info = pack_info(Key{std::string(row), std::string(column)}, object, 0);
    subscriber->note(std::move(event));
  };
  if (request.existing) {
    std::string after;
    do {
      const auto visit = [&](const ObjectTable::Entry& entry) {
        note(false, entry.ns, entry.row, entry.column, entry.object);
        return true;
      };
      after = core->store().table().scan(ns, pattern, after, max_visits, visit);
    } while (!after.empty());
  }
  subscriber->id = core->store().table().subscribe(ns, pattern, note);
  subscribers.by_number.emplace(request.id, subscriber);
  ++core->counters().subscriptions;
  if (first) channel->on_closed([this, channel](const Error&) { end_subscriptions(channel); });
  return subscriber;
}

void ObjectService::end(Subscriber& subscriber) {
  core_->store().table().cancel(subscriber.id);
  subscriber.clear();
  subscriber.more.notify_all();
  --core_->counters().subscriptions;
}

void ObjectService::end_subscriptions(const rpc::Channel* channel) {
  const auto ended = subscribers_.extract(channel);
  if (ended.empty()) return;
  for (const auto& [number, subscriber] : ended.mapped().by_number) end(*subscriber);
}

Task<fb::SubscribeReplyT> ObjectService::subscribe(rpc::Call& call, fb::SubscribeRequestT request) {
  ServerCore::require_role(call, "read");
  if (request.begin) co_return begin_subscription(call, request)->reply();
  const auto of_channel = subscribers_.find(&call.channel());
  if (of_channel == subscribers_.end() || !of_channel->second.by_number.contains(request.id))
    throw Error(Errc::not_found, "no such subscription");
  const auto subscriber = of_channel->second.by_number.at(request.id);
  const auto soon = earlier(call.deadline(), base::Deadline(Timeout(20'000)));
  if (subscriber->nothing_to_tell()) co_await subscriber->more.wait(soon);
  co_return subscriber->reply();
}

Task<fb::EmptyT> ObjectService::unsubscribe(rpc::Call& call, fb::UnsubscribeRequestT request) {
  ServerCore::require_role(call, "read");
  if (const auto of_channel = subscribers_.find(&call.channel()); of_channel != subscribers_.end())
    if (const auto ended = of_channel->second.by_number.extract(request.id); !ended.empty()) end(*ended.mapped());
  co_return fb::EmptyT{};
}

}  // namespace penstock::pool
