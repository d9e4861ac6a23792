#include "stream/direct/reader_node.hpp"

#include <sstream>

#include "base/log.hpp"
#include "base/text.hpp"
#include "fabric/connect.hpp"
#include "fabric/handshake.hpp"
#include "penstock/interrupt.hpp"
#include "stream/api/listening.hpp"
#include "stream/api/patience.hpp"
#include "stream/api/registry.hpp"

namespace penstock::stream {

using wire::Kind;
using wire::Message;

// Nodes that are needed after their close. With explicit progress nobody may poll again: those last until the process ends.
struct ReaderNode::KeptNodes {
  std::mutex mutex;  // guards what follows; taken with a node's lock held
  std::set<std::shared_ptr<ReaderNode>> nodes;
  static KeptNodes& all() {
    static auto* const kept = new KeptNodes;  // never destroyed: engine threads may outlive static objects
    return *kept;
  }
};

ReaderNode::ReaderNode(const EngineContext& context, const StreamOptions& options, Cohort& cohort)
    : options_(options),
      rank_(static_cast<std::uint32_t>(cohort.rank())),
      ranks_(static_cast<std::uint32_t>(cohort.size())),
      waiter_(context.progress, options.spin_us, on_every_rank(cohort, [&] {
                wanted_plane(options);  // else an error
                return memory::Doorbell::create();
              })) {}

ReaderNode::~ReaderNode() { shut_down(); }

std::shared_ptr<ReaderNode> ReaderNode::open(const EngineContext& context, const std::string& name, Cohort& cohort,
                                             const StreamOptions& options) {
  std::shared_ptr<ReaderNode> node(new ReaderNode(context, options, cohort));
  const base::Deadline deadline(Timeout(options.open_timeout_ms));
  node->stream_ = fabric::is_address(name) ? fabric::parse_address(name).stream : name;
  share_outcome(cohort, [&] { node->join(context, name, deadline); });
  node->share_admission(cohort);
  if (cohort.size() > 1) node->open_tree(context, cohort, deadline);
  return node;
}

// ---------------------------------------------------------------------------------------------------------------- join

namespace {

// A stream that is there and may have been meant, as words to add.
std::string suggestion(Registry& registry, const std::string& name) {
  constexpr Timeout patience{1'000};
  std::vector<std::string> names;
  try {
    for (const auto& one : registry.list(base::Deadline(patience))) names.push_back(one.stream);
  } catch (const Error&) {
    return "";
  }
  const auto nearest = base::nearest_name(name, names);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace

void ReaderNode::join(const EngineContext& context, const std::string& name, base::Deadline deadline) {
  const auto registry = open_registry(context.progress, context.directory);
  std::string last = "it is not registered in " + registry->describe();
  bool seen = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    lock.unlock();
    try {
      const auto registration =
          fabric::is_address(name) ? std::optional(fabric::parse_address(name)) : registry->read(name, deadline);
      seen = seen || registration.has_value();
      if (registration && try_join(*registration, deadline)) return;
      if (registration) last = "its writer did not admit this reader (" + join_failed_ + ")";
    } catch (const Error& e) {
      if (e.code() != Errc::peer_lost) throw e.in("stream " + stream_);
      last = std::string("nobody answers: ") + e.what();
    }
    lock.lock();
    // Not yet there, stale, or just ending: look again soon, until the deadline.
    waiter_.wait(
        lock, [] { return false; }, earlier(deadline, base::Deadline(registry->patience())));
    if (deadline.passed() || interrupted()) break;
  }
  lock.unlock();
  if (!seen) last += suggestion(*registry, name);
  throw Error(Errc::timeout, "stream " + stream_ + " did not open within " + std::to_string(options_.open_timeout_ms) +
                                 " ms: " + last);
}

bool ReaderNode::try_join(const fabric::Registration& registration, base::Deadline deadline) {
  wire::Hello hello;
  hello.purpose = wire::Purpose::join;
  hello.stream = stream_;
  const bool shared = options_.data_plane == DataPlane::shm;
  const bool can_share = !registration.endpoint.unix_name.empty();
  const auto reach = options_.data_plane == DataPlane::tcp ? fabric::Reach::tcp_only
                     : shared && can_share                 ? fabric::Reach::unix_only
                                                           : fabric::Reach::automatic;
  auto socket = fabric::connect_blocking(registration.endpoint, registration.token, hello, reach, deadline);
  auto connection = fabric::Connection::adopt(waiter_.progress(), std::move(socket), "writer");
  if (shared && !can_share)
    throw Error(Errc::unsupported, "data_plane=shm, but the writer was opened with another data_plane");
  std::unique_lock lock(mutex_);
  admission_.token = registration.token;
  join_failed_.clear();
  local_ = connection->local();
  auto& link = links_[parent_link] = PeerLink(connection);
  if (local_) link.offer_ring(waiter_.bell());
  start_link(parent_link, connection);
  link.send(Message{.kind = Kind::join,
                    .ranks = ranks_,
                    .flag = options_.delivery == Delivery::latest,
                    .text = fabric::process_name()});
  const bool answered = waiter_.wait(
      lock, [&] { return protocol_.has_value() || !join_failed_.empty(); }, deadline);
  if (protocol_) return true;
  if (!answered) join_failed_ = "no answer in time";
  links_.erase(parent_link);
  lock.unlock();
  connection->close();
  return false;
}

void ReaderNode::on_admit(const Message& message) {
  if (message.ranks == 0 || message.addresses.size() != message.ranks || message.slot == 0 ||
      message.slot > wire::max_slots)
    throw Error(Errc::protocol, "an admission that makes no sense");
  admission_.cohort = message.value;
  admission_.slots = message.slot;
  admission_.writer_ranks = message.ranks;
  admission_.demand = message.flag;
  admission_.writer = message.text;
  admission_.addresses = message.addresses;
  protocol_.emplace(rank_, ranks_, admission_.writer_ranks, admission_.slots, admission_.demand,
                    static_cast<Sink&>(*this));
}

// Rank 0's admission, as text lines: numbers, the token, then one address a line.
void ReaderNode::share_admission(Cohort& cohort) {
  if (cohort.size() == 1) return;
  const auto text = share_text(cohort, [&] {
    std::ostringstream out;
    out << admission_.cohort << ' ' << admission_.slots << ' ' << admission_.writer_ranks << ' ' << admission_.demand
        << ' ' << admission_.writer << ' ' << admission_.token.hex() << '\n';
    for (const auto& address : admission_.addresses) out << address << '\n';
    return out.str();
  });
  if (rank_ == 0) return;
  std::istringstream in(text);
  std::string token, line;
  in >> admission_.cohort >> admission_.slots >> admission_.writer_ranks >> admission_.demand >> admission_.writer >>
      token;
  admission_.token = fabric::Token::from_hex(token);
  std::getline(in, line);
  while (std::getline(in, line)) admission_.addresses.push_back(line);
  std::unique_lock lock(mutex_);
  protocol_.emplace(rank_, ranks_, admission_.writer_ranks, admission_.slots, admission_.demand,
                    static_cast<Sink&>(*this));
}

void ReaderNode::open_tree(const EngineContext& context, Cohort& cohort, base::Deadline deadline) {
  const auto token = shared_token(cohort);
  const auto address = listening_address(context, stream_, cohort, Callers::ranks);
  const auto endpoints = exchange_endpoints(cohort, [&] {
    listener_ = std::make_unique<fabric::Listener>(
        waiter_.progress(), token, stream_, address,
        [this](std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello) {
          if (hello.purpose == wire::Purpose::tree) accept_child(std::move(connection), hello.rank);
          else connection->close();
        });
    return listener_->endpoint();
  });
  connect_ranks(endpoints, token, deadline);  // no rank waits for another after this, but to its deadline
}

// To the parent, and the children to this.
void ReaderNode::connect_ranks(const std::vector<fabric::Endpoint>& endpoints, const fabric::Token& token,
                               base::Deadline deadline) {
  if (rank_ != 0) {
    auto connection =
        connect_tree(waiter_.progress(), endpoints[parent_of(rank_, default_fan_out)], token, stream_, rank_, deadline);
    std::unique_lock lock(mutex_);
    links_[parent_link].connect(connection);
    start_link(parent_link, connection);
  }
  std::unique_lock lock(mutex_);
  const auto first = first_child(rank_, default_fan_out);
  const auto children = child_count(rank_, ranks_, default_fan_out);
  std::uint32_t missing = 0;
  const bool all = waiter_.wait(
      lock,
      [&] {
        for (missing = first; missing < first + children; ++missing)
          if (!came_.contains(missing)) return false;
        return true;
      },
      deadline);
  if (!all)
    throw Error(Errc::timeout,
                "stream " + stream_ + ": rank " + std::to_string(missing) + " of the reader did not connect in time");
}

// ------------------------------------------------------------------------------------------------------- engine thread

void ReaderNode::accept_child(std::shared_ptr<fabric::Connection> connection, std::uint32_t rank) {
  std::unique_lock lock(mutex_);
  if (rank == 0 || rank >= ranks_ || parent_of(rank, default_fan_out) != rank_ || !came_.insert(rank).second) {
    connection->close();
    return;
  }
  links_[rank].connect(connection);
  start_link(rank, connection);
  waiter_.bell().ring();
}

void ReaderNode::start_link(LinkId link, const std::shared_ptr<fabric::Connection>& connection) {
  connection->start([this, link](std::uint16_t kind, std::span<const std::byte> bytes,
                                 fabric::UniqueFd fd) { on_frame(link, kind, bytes, std::move(fd)); },
                    [this, link](const Error& why) { on_closed(link, why); });
}

void ReaderNode::on_frame(LinkId link, std::uint16_t, std::span<const std::byte> bytes, fabric::UniqueFd fd) {
  std::unique_lock lock(mutex_);
  pump();
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  try {
    auto& peer = found->second;
    if (bytes.empty() && fd) {
      if (rank_ != 0 || link != parent_link || protocol_)
        throw Error(Errc::protocol, "a descriptor that was not asked for");
      if (!peer.has_mailbox()) peer.accept_mailbox(fd.get());
      else peer.accept_doorbell(fd.get());
    } else {
      const auto message = wire::decode_message(bytes);
      if (message.kind == Kind::admit && rank_ == 0 && link == parent_link && !protocol_) on_admit(message);
      else if (!protocol_) throw Error(Errc::protocol, "the writer spoke before it admitted this reader");
      else if (message.kind != Kind::poke) {
        if (message.kind == Kind::announce) announcement_bytes_ += sizeof(fabric::FrameHeader) + bytes.size();
        protocol_->on_message(link, message);
      }
    }
  } catch (const std::exception& e) {
    drop_link(link, e.what());
  }
  leave_if_done();
  end_if_released();
  waiter_.bell().ring();
}

void ReaderNode::on_closed(LinkId link, const Error& why) {
  std::unique_lock lock(mutex_);
  pump();  // what was announced before the end counts
  drop_link(link, why.what());
  end_if_released();
  waiter_.bell().ring();
}

// ----------------------------------------------------------------------------------------------------- with the lock held

void ReaderNode::send(LinkId link, const Message& message) {
  if (link != parent_link) links_[link].send(message);
  else if (const auto found = links_.find(link); found != links_.end()) found->second.send(message);
}

void ReaderNode::pump() {
  if (rank_ != 0 || !protocol_) return;
  const auto found = links_.find(parent_link);
  if (found == links_.end() || !found->second.ring_ready()) return;
  try {
    if (found->second.failed()) throw Error(Errc::protocol, "its ring is full");
    Message message;
    while (found->second.pop(message)) {
      if (message.kind == Kind::announce) announcement_bytes_ += sizeof(memory::Record);
      protocol_->on_message(parent_link, message);
    }
  } catch (const std::exception& e) {
    drop_link(parent_link, e.what());
  }
}

// The link is gone, or its peer broke the protocol.
void ReaderNode::drop_link(LinkId link, const std::string& why) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  const auto connection = found->second.connection();
  links_.erase(found);
  if (protocol_) protocol_->on_link_lost(link, why);
  else join_failed_ = why;
  if (connection) connection->close();
}

void ReaderNode::leave_if_done() {
  if (left_ || !protocol_) return;
  const bool at_the_end = protocol_->ended() && !reading_ && (leases_ > 0 || ranks_ > 1);
  if (!closing_ && !at_the_end) return;
  left_ = true;
  protocol_->leave();
}

// The links of a closed rank stay while this rank or ranks below it hold leases.
bool ReaderNode::needed() const { return protocol_->holding() && links_.contains(parent_link); }

// Engine thread.
void ReaderNode::end_if_released() {
  if (kept_ && !needed()) waiter_.progress().post([last = stop_keeping()] {});
}

void ReaderNode::keep() {
  auto& all = KeptNodes::all();
  std::lock_guard lock(all.mutex);
  kept_ = all.nodes.insert(shared_from_this()).second;
}

std::shared_ptr<ReaderNode> ReaderNode::stop_keeping() {
  auto& all = KeptNodes::all();
  std::lock_guard lock(all.mutex);
  kept_ = false;
  auto self = shared_from_this();
  all.nodes.erase(self);
  return self;
}

// -------------------------------------------------------------------------------------------------- application threads

Outcome ReaderNode::wait_step(ReaderProtocol::Step& step, base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto outcome = Outcome::not_ready;
  reading_ = false;
  waiter_.wait(
      lock,
      [&] {
        pump();
        if (auto next = protocol_->take()) {
          step = std::move(*next);
          reading_ = true;
          last_step_ = step.step;
          any_step_ = true;
          outcome = Outcome::ready;
        } else if (protocol_->ended()) {
          outcome = Outcome::end_of_stream;
          leave_if_done();
        } else if (protocol_->lost()) {
          outcome = Outcome::writer_lost;
        } else {
          protocol_->want();
          return false;
        }
        return true;
      },
      deadline);
  return outcome;
}

std::string ReaderNode::why(Outcome outcome) const {
  std::unique_lock lock(mutex_);
  const auto read =
      any_step_ ? "the last step read was " + std::to_string(last_step_) : std::string("no step was read");
  const auto held = leases_ == 0
                        ? std::string()
                        : "this reader holds " + std::to_string(leases_) + (leases_ == 1 ? " step" : " steps") +
                              "; release their views or raise queue_steps; ";
  switch (outcome) {
    case Outcome::not_ready: return "no step in time; awaited: writer " + admission_.writer + "; " + held + read;
    case Outcome::end_of_stream: return "the writer has closed it; " + read;
    case Outcome::writer_lost: return protocol_->lost_why() + "; " + read + "; later ones, if there were any, are lost";
    case Outcome::ready: break;
  }
  return "";
}

void ReaderNode::count_lease() {
  std::unique_lock lock(mutex_);
  ++leases_;
}

void ReaderNode::step_ended() {
  std::unique_lock lock(mutex_);
  reading_ = false;
  leave_if_done();
}

void ReaderNode::release(std::uint64_t step, std::uint32_t slot) {
  std::unique_lock lock(mutex_);
  --leases_;
  protocol_->release(step, slot);
  if (kept_ && !needed()) stop_keeping();  // the lease that is released owns this node as well
}

void ReaderNode::close() {
  std::unique_lock lock(mutex_);
  if (closing_ || !protocol_) return;
  pump();
  closing_ = true;
  leave_if_done();
  if (ranks_ == 1) return;
  // Ranks below this one speak to the writer through it: they leave first. Their views may stay.
  const bool all = waiter_.wait(
      lock, [&] { return protocol_->all_left() || protocol_->lost(); },
      base::Deadline(chosen_or_usual(options_.close_timeout_ms)));
  if (!all) {
    base::log(base::Level::warn, "a rank of this reader did not close in time", {{"stream", stream_}, {"rank", rank_}});
    protocol_->stop_waiting();
  }
  if (needed()) keep();
}

void ReaderNode::shut_down() {
  listener_.reset();
  waiter_.progress().call([this] {
    std::unique_lock lock(mutex_);
    for (auto& [id, link] : links_)
      if (link.connection()) link.connection()->close();
    links_.clear();
  });
}

void ReaderNode::add_statistics(StreamStatistics& statistics) const {
  std::unique_lock lock(mutex_);
  if (!protocol_) return;
  statistics.steps_dropped = protocol_->dropped();
  statistics.epochs = protocol_->epochs_received();
  statistics.announcement_bytes = announcement_bytes_;
  statistics.queue_depth = static_cast<std::uint32_t>(leases_);
  statistics.peers.push_back({admission_.writer, admission_.writer_ranks, statistics.data_plane, protocol_->taken(),
                              protocol_->taken() - leases_, protocol_->dropped(), leases_});
}

}  // namespace penstock::stream
