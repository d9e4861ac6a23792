#include "stream/direct/writer_node.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "base/log.hpp"
#include "fabric/connect.hpp"
#include "fabric/handshake.hpp"
#include "stream/api/listening.hpp"
#include "stream/api/open.hpp"
#include "stream/api/statistics_file.hpp"
#include "transport/planes.hpp"

namespace penstock::stream {

using wire::Kind;
using wire::Message;

LedgerSettings ledger_settings(const StreamOptions& options, std::uint32_t ranks, WriterUse use) {
  LedgerSettings settings;
  settings.ranks = ranks;
  settings.queue_steps = options.queue_steps;
  settings.reserve_steps = options.reserve_steps;
  settings.keep_first_step = options.keep_first_step;
  settings.when_full = options.when_full;
  settings.rendezvous_readers = options.rendezvous_readers;
  settings.keep_undelivered = use.keep_undelivered;
  if (options.queue_steps == 0) throw Error(Errc::invalid_argument, "queue_steps must be at least 1");
  if (std::uint64_t{options.queue_steps} + options.reserve_steps > max_queue_slots)
    throw Error(Errc::invalid_argument,
                "queue_steps + reserve_steps must be at most " + std::to_string(max_queue_slots));
  return settings;
}

// -------------------------------------------------------------------------------------------------------------- open

WriterNode::WriterNode(const EngineContext& context, const std::string& name, Cohort& cohort,
                       const StreamOptions& options, std::shared_ptr<memory::Arena> arena, WriterUse use)
    : name_(name),
      options_(options),
      use_(use),
      ranks_(static_cast<std::uint32_t>(cohort.size())),
      arena_(std::move(arena)),
      waiter_(context.progress, options.spin_us,
              on_every_rank(cohort,
                            [&] {
                              wanted_plane(options);  // else an error
                              return memory::Doorbell::create();
                            })),
      protocol_(static_cast<std::uint32_t>(cohort.rank()), ledger_settings(options, ranks_, use), *this) {
  if (ranks_ > 1 && protocol_.is_root()) protocol_.require_agreement();
  try {
    open(context, cohort);
  } catch (...) {
    unregister();
    shut_down();  // what calls in knows this
    throw;
  }
}

void WriterNode::open(const EngineContext& context, Cohort& cohort) {
  const base::Deadline deadline(Timeout(options_.open_timeout_ms));
  token_ = shared_token(cohort);
  const auto callers = use_.registered ? Callers::directory : use_.keep_undelivered ? Callers::anyone : Callers::ranks;
  const auto address = listening_address(context, name_, cohort, callers);
  auto endpoints = exchange_endpoints(cohort, [&] {
    server_ = std::make_unique<transport::BlockServer>(waiter_.progress(), arena_, plane_name(options_.data_plane));
    listener_ =
        std::make_unique<fabric::Listener>(waiter_.progress(), token_, name_, address,
                                           [this](std::shared_ptr<fabric::Connection> connection,
                                                  const wire::Hello& hello) { on_peer(std::move(connection), hello); });
    return listener_->endpoint();
  });
  {
    std::lock_guard lock(mutex_);  // the engine thread tells readers of them
    endpoints_ = std::move(endpoints);
  }
  // Rank 0 registers last, when every rank can be reached; the others wait for what comes of it, also those that could not
  // connect.
  std::exception_ptr own;
  try {
    if (cohort.rank() != 0) open_tree(cohort, deadline);
  } catch (const std::exception&) {
    own = std::current_exception();
  }
  try {
    share_outcome(cohort, [&] {
      open_tree(cohort, deadline);
      register_stream(context, endpoints_[0].unix_name, deadline);
    });
  } catch (const std::exception&) {
    if (!own) throw;
  }
  if (own) std::rethrow_exception(own);
}

WriterNode::~WriterNode() {
  unregister();
  shut_down();
}

void WriterNode::unregister() {
  const auto registration = std::exchange(registration_, std::nullopt);
  if (!registration) return;
  try {
    registry_->remove(*registration);
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a stream's registration could not be removed",
              {{"stream", name_}, {"why", e.what()}});
  }
}

void WriterNode::shut_down() {
  listener_.reset();
  waiter_.progress().call([this] {
    std::unique_lock lock(mutex_);
    for (auto& [id, link] : links_)
      if (link.connection()) link.connection()->close();
    links_.clear();
  });
  server_.reset();
}

void WriterNode::open_tree(Cohort& cohort, base::Deadline deadline) {
  if (cohort.size() == 1) return;
  const auto rank = protocol_.rank();
  if (rank != 0) {
    const auto parent = parent_of(rank, default_fan_out);
    auto connection = connect_tree(waiter_.progress(), endpoints_[parent], token_, name_, rank, deadline);
    std::unique_lock lock(mutex_);
    links_[parent_link].connect(connection);
    start_link(parent_link, connection);
  }
  std::unique_lock lock(mutex_);
  const auto first = first_child(rank, default_fan_out);
  const auto children = child_count(rank, ranks_, default_fan_out);
  std::uint32_t missing = 0;
  const bool all = waiter_.wait(
      lock,
      [&] {
        for (std::uint32_t c = first; c < first + children; ++c)
          if (!came_.contains(c)) {
            missing = c;
            return false;
          }
        return true;
      },
      deadline);
  if (!all)
    throw Error(Errc::timeout,
                "stream " + name_ + ": rank " + std::to_string(missing) + " of the writer did not connect in time");
}

void WriterNode::register_stream(const EngineContext& context, const std::string& listen_unix,
                                 base::Deadline deadline) {
  if (protocol_.rank() != 0) return;
  fabric::Registration registration;
  registration.stream = name_;
  registration.endpoint = endpoints_[0];
  registration.endpoint.unix_name = options_.data_plane == DataPlane::tcp ? "" : listen_unix;
  registration.token = token_;
  registration.pid = getpid();
  registration.host = fabric::host_name();
  registration.ranks = ranks_;
  registration.started = static_cast<std::int64_t>(std::time(nullptr));
  registration.launch = launch_;
  address_ = fabric::to_address(registration);
  advertised_ = registration.endpoint;
  if (!use_.registered) return;
  registry_ = open_registry(context.progress, context.directory);
  try {
    registry_->write(registration, deadline);
  } catch (const Error& e) {
    if (e.code() == Errc::wrong_state) warn_other_writer(waiter_.progress(), *registry_, registration);
    throw;
  }
  registration_ = std::move(registration);
}

// ------------------------------------------------------------------------------------------------------- engine thread

void WriterNode::on_peer(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello) {
  switch (hello.purpose) {
    case wire::Purpose::data:
    case wire::Purpose::segments: server_->adopt(std::move(connection), hello); return;
    case wire::Purpose::tree: accept_child(std::move(connection), hello.rank); return;
    case wire::Purpose::join:
      if (protocol_.is_root()) accept_reader(std::move(connection));
      else connection->close();
      return;
    case wire::Purpose::inspect: answer_inspection(*connection); return;
    case wire::Purpose::rpc:
    case wire::Purpose::bulk: connection->close(); return;
  }
}

void WriterNode::answer_inspection(fabric::Connection& connection) const {
  StreamStatistics statistics;
  add_statistics(statistics);
  statistics.memory_bytes = arena_->total_bytes();
  std::vector<std::byte> bytes;
  wire::encode(Message{.kind = Kind::statistics, .text = to_json(statistics, name_, "writer")}, bytes);
  connection.send(static_cast<std::uint16_t>(Kind::statistics), wire::name_of(Kind::statistics), bytes);
  connection.close();
}

void WriterNode::accept_child(std::shared_ptr<fabric::Connection> connection, std::uint32_t rank) {
  std::unique_lock lock(mutex_);
  if (rank == 0 || rank >= ranks_ || parent_of(rank, default_fan_out) != protocol_.rank() ||
      !came_.insert(rank).second) {
    base::log(base::Level::warn, "a connection claims to be a rank it cannot be", {{"stream", name_}, {"rank", rank}});
    connection->close();
    return;
  }
  links_[rank].connect(connection);
  start_link(rank, connection);
  waiter_.bell().ring();
}

void WriterNode::accept_reader(std::shared_ptr<fabric::Connection> connection) {
  std::unique_lock lock(mutex_);
  if (closed_ || protocol_.broken() || links_.size() > max_reader_cohorts) {
    connection->close();
    return;
  }
  const LinkId link = next_reader_++;
  links_.emplace(link, PeerLink(connection));
  admitted_[link] = false;
  start_link(link, connection);
}

void WriterNode::start_link(LinkId link, const std::shared_ptr<fabric::Connection>& connection) {
  connection->start([this, link](std::uint16_t kind, std::span<const std::byte> bytes,
                                 fabric::UniqueFd fd) { on_frame(link, kind, bytes, std::move(fd)); },
                    [this, link](const Error& why) { on_closed(link, why); });
}

void WriterNode::on_frame(LinkId link, std::uint16_t, std::span<const std::byte> bytes, fabric::UniqueFd fd) {
  std::unique_lock lock(mutex_);
  pump();
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  try {
    if (bytes.empty() && fd) {
      on_reader_frame(link, found->second, Message{}, fd.get());
    } else {
      const auto message = wire::decode_message(bytes);
      if (link >= first_reader_link) on_reader_frame(link, found->second, message, -1);
      else protocol_.on_message(link, message);
    }
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "a peer broke the protocol and was dropped",
              {{"stream", name_}, {"peer", found->second.connection()->peer_name()}, {"why", e.what()}});
    drop_link(link, e.what());
  }
  settle();
}

void WriterNode::on_reader_frame(LinkId link, PeerLink& peer, const Message& message, int fd) {
  if (message.kind == Kind::none) {  // descriptors: the mailbox, then the doorbell
    if (admitted_[link]) throw Error(Errc::protocol, "a descriptor after admission");
    if (!peer.has_mailbox()) peer.accept_mailbox(fd);
    else peer.accept_doorbell(fd);
  } else if (message.kind == Kind::lost && !admitted_[link]) {
    on_other_writer({message.text, static_cast<int>(message.ranks)});
    drop_link(link, "it is no reader");
  } else if (message.kind == Kind::join) {
    if (admitted_[link]) throw Error(Errc::protocol, "a second join");
    admit(link, peer, message);
  } else if (!admitted_[link]) {
    throw Error(Errc::protocol, "spoke before it joined");
  } else if (message.kind == Kind::poke) {
    // pump() has looked
  } else {
    protocol_.on_message(link, message);
    drop_if_left(link);
  }
}

// Another process wanted to write this stream. It is wrong here only if both are ranks of one launch, each taking itself for
// the whole cohort: then half of the data would be missing, and this rank fails as the other did.
void WriterNode::on_other_writer(const fabric::Launch& other) {
  const auto why = ranks_ == 1 ? fabric::forgotten_communicator(launch_, other) : "";
  if (why.empty()) throw Error(Errc::protocol, "it says that the stream is lost");
  protocol_.fail(why, Errc::wrong_state);
}

void WriterNode::admit(LinkId link, PeerLink& peer, const Message& join) {
  if (join.ranks == 0) throw Error(Errc::protocol, "a cohort of no ranks");
  if (use_.keep_undelivered) supersede(link);
  const bool local = peer.connection()->local();
  if (local && peer.ring_ready()) {
    peer.offer_ring(waiter_.bell());
    peer.set_poke(join.ranks > 1);
  }
  Message answer{.kind = Kind::admit,
                 .value = link - first_reader_link,
                 .slot = protocol_.ledger().settings().slots(),
                 .ranks = ranks_,
                 .flag = protocol_.ledger().on_demand(join.flag),
                 .text = fabric::process_name(),
                 .addresses = {}};
  for (const auto& endpoint : endpoints_)
    answer.addresses.push_back(transport::addresses_of(endpoint, use_.lends ? "tcp" : wanted_plane(options_)));
  // Rings carry what follows only once both sides have them; the reader attaches on the way to `admit`.
  peer.send(answer);
  admitted_[link] = true;
  base::log(base::Level::info, "reader joined", {{"stream", name_}, {"reader", join.text}, {"ranks", join.ranks}});
  protocol_.ledger().join(link, join.ranks, join.flag, join.text);
}

// What the consumers before this one have not released is kept for it.
void WriterNode::supersede(LinkId by) {
  std::vector<LinkId> before;
  for (const auto& [link, admitted] : admitted_)
    if (admitted && link != by) before.push_back(link);
  for (const auto link : before) {
    base::log(base::Level::info, "another consumer takes over", {{"stream", name_}});
    drop_link(link, "another consumer took over");
  }
}

void WriterNode::on_closed(LinkId link, const Error& why) {
  std::unique_lock lock(mutex_);
  pump();
  if (!links_.contains(link)) return;
  if (link >= first_reader_link && !closed_)
    base::log(base::Level::info, "reader gone", {{"stream", name_}, {"why", why.what()}});
  drop_link(link, why.what());
  settle();
}

// ----------------------------------------------------------------------------------------------------- with the lock held

void WriterNode::drop_link(LinkId link, const std::string& why) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  auto connection = found->second.connection();
  announcement_bytes_ += found->second.announcement_bytes();
  links_.erase(found);
  const bool was_admitted = link >= first_reader_link && admitted_[link];
  admitted_.erase(link);
  if (link < first_reader_link || was_admitted) protocol_.on_link_lost(link, why);
  if (connection) connection->close();
}

// A reader that left is told nothing more; its link stays as long as its views hold steps.
void WriterNode::drop_if_left(LinkId link) {
  if (!protocol_.ledger().has(link)) drop_link(link, "left");
}

void WriterNode::send(LinkId link, const Message& message) {
  if (link < first_reader_link) links_[link].send(message);  // kept until the rank has connected
  else if (const auto found = links_.find(link); found != links_.end()) found->second.send(message);
}

// What readers on this node said through their rings.
void WriterNode::pump() {
  Message message;
  for (auto it = links_.begin(); it != links_.end();) {
    const auto link = it->first;
    auto& peer = it->second;
    ++it;
    if (!peer.ring_ready() || (link >= first_reader_link && !admitted_[link])) continue;
    try {
      if (peer.failed()) throw Error(Errc::protocol, "its ring is full");
      while (peer.pop(message)) protocol_.on_message(link, message);
      if (link >= first_reader_link) drop_if_left(link);
    } catch (const std::exception& e) {
      base::log(base::Level::warn, "a reader broke the protocol and was dropped",
                {{"stream", name_}, {"why", e.what()}});
      drop_link(link, e.what());
    }
  }
}

// Gives slots that were granted again back to the arena.
void WriterNode::recycle_freed() {
  bool freed = false;
  while (const auto slot = protocol_.take_freed_slot()) {
    arena_->recycle(*slot);
    freed = true;
  }
  if (freed) recycled_.fetch_add(1, std::memory_order_release);
}

// Of a step that another rank gave up: once, at the root (all ranks' statistics count it).
void WriterNode::tell_voided() {
  const auto& voided = protocol_.voided();
  if (voided.count == voided_told_) return;
  voided_told_ = voided.count;
  if (voided.by != rank())
    base::log(protocol_.is_root() ? base::Level::warn : base::Level::debug,
              "a rank gave a step up, which is void for all",
              {{"stream", name_}, {"step", voided.step}, {"rank", voided.by}});
}

// After the protocol has moved on the engine thread: wakes the application if it waits.
void WriterNode::settle() {
  tell_voided();
  recycle_freed();
  waiter_.bell().ring();
}

// -------------------------------------------------------------------------------------------------- application thread

void WriterNode::throw_broken() const {
  throw Error(protocol_.broken_code(), "stream " + name_ + ": " + protocol_.broken_why());
}

// What readers have sent over sockets so far is received: no step is dropped for want of a release that is already here.
void WriterNode::hear_readers(std::unique_lock<std::mutex>& lock) {
  const auto by_socket = [](const auto& link) { return !link.second.ring_ready(); };
  if (std::none_of(links_.begin(), links_.end(), by_socket)) return;
  lock.unlock();
  auto& progress = waiter_.progress();
  for (int turn = 0; turn < 2; ++turn) {  // the first task may run before what the loop finds ready together with it
    progress.poll();
    progress.call([] {});
  }
  lock.lock();
}

std::optional<WriterNode::Grant> WriterNode::wait_grant(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (options_.when_full != WhenFull::block && !protocol_.has_grant()) hear_readers(lock);
  std::optional<Grant> grant;
  waiter_.wait(
      lock,
      [&] {
        pump();
        grant = protocol_.take_grant();
        if (!grant) {
          protocol_.want();
          grant = protocol_.take_grant();
        }
        recycle_freed();
        return grant.has_value() || protocol_.broken();
      },
      deadline);
  if (!grant && protocol_.broken()) throw_broken();
  return grant;
}

bool WriterNode::wait_recycled(std::uint64_t seen, base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool in_time = waiter_.wait(
      lock,
      [&] {
        pump();
        recycle_freed();
        return recycled() != seen || protocol_.broken();
      },
      deadline);
  if (protocol_.broken()) throw_broken();
  return in_time;
}

bool WriterNode::wait_over(std::uint32_t slot, base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool in_time = waiter_.wait(
      lock,
      [&] {
        pump();
        recycle_freed();
        return arena_->idle(slot) || protocol_.broken();
      },
      deadline);
  if (protocol_.broken()) throw_broken();
  return in_time;
}

bool WriterNode::wait_released(base::Deadline deadline) {
  if (!protocol_.is_root()) return true;
  std::unique_lock lock(mutex_);
  return waiter_.wait(
      lock,
      [&] {
        pump();
        return protocol_.ledger().steps_waiting() == 0 || protocol_.broken();
      },
      deadline);
}

void WriterNode::record(const Grant& grant, bool voided, std::shared_ptr<const std::string> layout) {
  std::unique_lock lock(mutex_);
  if (protocol_.broken()) throw_broken();
  protocol_.record(grant, voided, std::move(layout));
  tell_voided();
  if (protocol_.broken()) throw_broken();
}

bool WriterNode::finish(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (closed_) return true;
  if (!std::exchange(closing_, true)) protocol_.closing();
  return waiter_.wait(
      lock,
      [&] {
        pump();
        return protocol_.closed() || protocol_.broken();
      },
      deadline);
}

void WriterNode::close(base::Deadline deadline) {
  {
    std::unique_lock lock(mutex_);
    if (closed_) return;
  }
  const bool in_time = finish(deadline);
  std::unique_lock lock(mutex_);
  const auto awaited = in_time ? std::string() : protocol_.awaited().who;
  const bool broken = protocol_.broken();
  if (!in_time) protocol_.close_now();
  closed_ = true;
  lock.unlock();
  unregister();
  if (broken) throw_broken();
  if (!in_time)
    throw Error(Errc::timeout, "stream " + name_ + ": closed before every step was read; awaited: " + awaited);
}

void WriterNode::lose(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  protocol_.fail(why);
  closed_ = true;
}

void WriterNode::fail(const std::string& why, Errc code) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  protocol_.fail(why, code);
  settle();
}

std::string WriterNode::failure() const {
  std::unique_lock lock(mutex_);
  return protocol_.broken_why();
}

void WriterNode::check() const {
  std::unique_lock lock(mutex_);
  if (protocol_.broken()) throw_broken();
}

Awaited WriterNode::awaited() const {
  std::unique_lock lock(mutex_);
  return protocol_.awaited();
}

void WriterNode::add_statistics(StreamStatistics& statistics) const {
  std::unique_lock lock(mutex_);
  statistics.announcement_bytes = announcement_bytes_;
  for (const auto& [id, link] : links_) statistics.announcement_bytes += link.announcement_bytes();
  // A rank knows of its own before the root has had every record.
  statistics.steps_voided = std::max(statistics.steps_voided, protocol_.voided().count);
  if (!protocol_.is_root()) return;
  const auto& ledger = protocol_.ledger();
  statistics.steps = ledger.totals().committed;
  statistics.steps_dropped = ledger.totals().dropped;
  statistics.epochs = ledger.totals().epochs;
  statistics.queue_depth = ledger.steps_waiting();
  for (const auto& r : ledger.readers()) {
    const auto found = links_.find(r.link);
    const bool local = !use_.lends && found != links_.end() && found->second.connection()->local();
    const auto chosen = use_.lends && r.name == fabric::process_name() ? "insitu" : plane_name(options_.data_plane);
    statistics.peers.push_back({r.name, r.ranks,
                                !chosen.empty() ? std::string(chosen)
                                : local         ? "shm"
                                                : "tcp",
                                r.announced, r.released, r.dropped, r.held});
  }
}

}  // namespace penstock::stream
