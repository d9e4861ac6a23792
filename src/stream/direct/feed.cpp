#include "stream/direct/feed.hpp"
#include "fabric/handshake.hpp"

#include "base/log.hpp"
#include "fabric/handshake.hpp"

namespace penstock::stream {

using wire::Kind;
using wire::Message;

// Lives on while a callback of its connection runs.
struct Feed::State final : Sink, std::enable_shared_from_this<Feed::State> {
  std::shared_ptr<fabric::Progress> progress;
  fabric::Registration writer;
  Events events;
  std::shared_ptr<fabric::Connection> connection;
  std::optional<Admission> admission;
  std::optional<ReaderProtocol> protocol;
  fabric::Timer late;
  bool over = false;
  std::vector<std::byte> scratch;

  void send(LinkId, const Message& message) override {
    if (!connection) return;
    scratch.clear();
    wire::encode(message, scratch);
    connection->send(static_cast<std::uint16_t>(message.kind), wire::name_of(message.kind), scratch);
  }

  void start(fabric::Reach reach, base::Deadline deadline);
  void connected(std::shared_ptr<fabric::Connection> to, base::Deadline deadline);
  void on_frame(std::span<const std::byte> bytes);
  void on_closed(const Error& why);
  void admit(const Message& message);
  void pump();
  void end(Outcome outcome, const std::string& why);
};

void Feed::State::start(fabric::Reach reach, base::Deadline deadline) {
  wire::Hello hello;
  hello.purpose = wire::Purpose::join;
  hello.stream = writer.stream;
  fabric::connect_async(
      *progress, writer.endpoint, writer.token, hello, reach, deadline,
      [weak = weak_from_this(), deadline](std::shared_ptr<fabric::Connection> to, std::optional<Error> error) {
        const auto self = weak.lock();
        if (!self || self->over) return;
        if (to) self->connected(std::move(to), deadline);
        else self->end(Outcome::not_ready, error->what());
      });
}

void Feed::State::connected(std::shared_ptr<fabric::Connection> to, base::Deadline deadline) {
  connection = std::move(to);
  connection->start(
      [weak = weak_from_this()](std::uint16_t, std::span<const std::byte> bytes, fabric::UniqueFd) {
        if (const auto self = weak.lock()) self->on_frame(bytes);
      },
      [weak = weak_from_this()](const Error& why) {
        if (const auto self = weak.lock()) self->on_closed(why);
      });
  late = progress->after(deadline.remaining(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->admission) self->end(Outcome::not_ready, "the writer did not admit its consumer in time");
  });
  send(parent_link, Message{.kind = Kind::join, .ranks = 1, .text = fabric::process_name()});
}

void Feed::State::admit(const Message& message) {
  if (message.ranks == 0 || message.addresses.size() != message.ranks || message.slot == 0 ||
      message.slot > wire::max_slots)
    throw Error(Errc::protocol, "an admission that makes no sense");
  admission.emplace();
  admission->cohort = message.value;
  admission->slots = message.slot;
  admission->writer_ranks = message.ranks;
  admission->demand = message.flag;
  admission->writer = message.text;
  admission->addresses = message.addresses;
  admission->token = writer.token;
  protocol.emplace(0, 1, admission->writer_ranks, admission->slots, admission->demand, static_cast<Sink&>(*this));
  late.cancel();
  if (events.joined) events.joined(*admission);
}

void Feed::State::on_frame(std::span<const std::byte> bytes) {
  if (over) return;
  const auto self = shared_from_this();
  try {
    const auto message = wire::decode_message(bytes);
    if (message.kind == Kind::admit && !protocol) admit(message);
    else if (!protocol) throw Error(Errc::protocol, "the writer spoke before it admitted its consumer");
    else if (message.kind != Kind::poke) protocol->on_message(parent_link, message);
    if (!over) pump();
  } catch (const std::exception& e) {
    end(Outcome::writer_lost, e.what());
  }
}

void Feed::State::pump() {
  while (!over) {
    auto step = protocol->take();
    if (!step) break;
    events.step(std::move(*step));
  }
  if (over) return;
  if (protocol->ended()) end(Outcome::end_of_stream, "the writer has closed it");
  else if (protocol->lost()) end(Outcome::writer_lost, protocol->lost_why());
  else protocol->want();
}

// The writer's process is gone, or it has closed the connection for another consumer.
void Feed::State::on_closed(const Error& why) {
  if (over) return;
  end(Outcome::not_ready, why.what());
}

void Feed::State::end(Outcome outcome, const std::string& why) {
  if (over) return;
  over = true;
  late.cancel();
  const auto self = shared_from_this();
  // It stays open at a proper end: steps that were given are still to be released.
  if (outcome != Outcome::end_of_stream && connection) std::exchange(connection, nullptr)->close();
  if (const auto ended = std::move(events.ended)) ended(outcome, why);
}

Feed::Feed(std::shared_ptr<fabric::Progress> progress, fabric::Registration writer, fabric::Reach reach,
           base::Deadline deadline, Events events)
    : state_(std::make_shared<State>()) {
  state_->progress = std::move(progress);
  state_->writer = std::move(writer);
  state_->events = std::move(events);
  state_->start(reach, deadline);
}

Feed::~Feed() {
  state_->over = true;
  state_->late.cancel();
  state_->events = {};
  if (state_->connection) state_->connection->close();
}

void Feed::release(std::uint64_t step, std::uint32_t slot) {
  if (state_->protocol && state_->connection) state_->protocol->release(step, slot);
}

std::uint64_t Feed::dropped() const { return state_->protocol ? state_->protocol->dropped() : 0; }

}  // namespace penstock::stream
