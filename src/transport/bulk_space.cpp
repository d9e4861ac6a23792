#include <cstring>
#include <map>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "fabric/handshake.hpp"
#include "memory/kind.hpp"
#include "transport/bulk_exposures.hpp"
#include "transport/carrier.hpp"
#include "transport/planes.hpp"
#include "transport/served_link.hpp"
#include "transport/shm/bulk_sharing.hpp"
#include "transport/socket_loop.hpp"

namespace penstock::transport {

namespace {

constexpr Timeout open_time{10'000};
constexpr std::uint64_t part_bytes = std::uint64_t{1} << 20;  // of a transfer by the socket: others have their turn

// The host's memory that a transfer reads or fills: the caller's own, or one in its place where that is on a device.
struct Staged {
  Staged(const std::byte* callers, std::uint64_t bytes) : host(const_cast<std::byte*>(callers)) {
    if (!memory::on_device(callers)) return;
    owned = std::make_unique_for_overwrite<std::byte[]>(bytes);
    host = owned.get();
  }
  std::unique_ptr<std::byte[]> owned;
  std::byte* host;
};

// Of the peer's memory, in parts, to or from what lies packed here.
TransferPtr transfer_of(const WireBulk& bulk, bool write, std::span<const BulkSpace::Range> ranges, std::byte* memory) {
  auto transfer = std::make_shared<Transfer>();
  transfer->write = write;
  transfer->region = bulk.id;
  for (const auto& range : ranges) {
    for (std::uint64_t at = 0; at < range.bytes;) {
      const std::uint64_t bytes = std::min(part_bytes, range.bytes - at);
      transfer->parts.push_back({model::byte_piece(0, 0, range.offset + at, bytes), memory});
      memory += bytes;
      at += bytes;
    }
  }
  return transfer;
}

// A transfer's end, whatever ends it: nothing touches the caller's memory afterwards.
struct DropAtEnd {
  TransferPtr transfer;
  ~DropAtEnd() { transfer->drop(); }
};

class Space final : public LinkEnd {
 public:
  explicit Space(Carrier& carrier)
      : carrier_(carrier),
        exposures_(std::make_shared<Exposures>()),
        sharing_(carrier),
        link_changed_(*carrier.engine()) {
    exposures_->on_stuck = [weak = carrier.weak()] {
      const auto alive = weak.lock();
      if (!alive) return;
      alive->engine()->post([weak] {
        if (const auto again = weak.lock())
          again->fail(Error(Errc::protocol, again->peer_name() + " does not let go of bulk memory"));
      });
    };
  }

  Exposure expose(std::span<std::byte> memory, Access access) override { return expose(memory, access, nullptr); }
  Exposure expose(std::span<const std::byte> memory, std::shared_ptr<const void> owner) override {
    return expose(std::span(const_cast<std::byte*>(memory.data()), memory.size()), Access::read, std::move(owner));
  }
  Task<void> pull(BulkDescriptor from, std::uint64_t offset, std::span<std::byte> into, base::Deadline deadline,
                  std::shared_ptr<const void> owner) override {
    const Range range{offset, into.size()};
    std::vector<Range> ranges(1, range);
    co_await gather(from, std::move(ranges), into, deadline, std::move(owner));
  }
  Task<void> push(BulkDescriptor to, std::uint64_t offset, std::span<const std::byte> bytes,
                  base::Deadline deadline) override;
  Task<void> gather(BulkDescriptor from, std::vector<Range> ranges, std::span<std::byte> into, base::Deadline deadline,
                    std::shared_ptr<const void> owner) override;
  std::optional<Mapped> map(BulkDescriptor from, base::Deadline deadline) override;
  Task<std::uint64_t> fetch_add(BulkDescriptor on, std::uint64_t offset, std::uint64_t value,
                                base::Deadline deadline) override {
    BulkMessage atomic{BulkMessageKind::fetch_add};
    atomic.b = offset;
    atomic.c = value;
    co_return co_await do_atomic(on, atomic, deadline);
  }
  Task<std::uint64_t> compare_swap(BulkDescriptor on, std::uint64_t offset, std::uint64_t expected,
                                   std::uint64_t desired, base::Deadline deadline) override {
    BulkMessage atomic{BulkMessageKind::compare_swap};
    atomic.b = offset;
    atomic.c = expected;
    atomic.d = desired;
    co_return co_await do_atomic(on, atomic, deadline);
  }
  std::string_view plane() const override { return shares() ? "shm" : link_plane().name; }
  std::uint64_t bytes_pulled() const override { return pulled_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_pushed() const override { return pushed_.load(std::memory_order_relaxed); }

  void on_message(std::span<const std::byte> bytes, memory::UniqueFd fd) override;
  void end(const Error& error) override;
  Ticket make_ticket(bool refused) override;
  void attach(memory::UniqueFd socket) override;
  void set_door(BulkDoor door) override { door_ = std::move(door); }

 private:
  Exposure expose(std::span<std::byte> memory, Access access, std::shared_ptr<const void> owner);
  bool shares() const { return carrier_.local() && carrier_.plane() == nullptr; }
  const Plane& link_plane() const { return carrier_.plane() != nullptr ? *carrier_.plane() : plane_named("tcp"); }

  using PendingAtomic = std::shared_ptr<fabric::Promise<std::uint64_t>>;

  std::shared_ptr<void> keep() const {
    auto kept = carrier_.keep();
    if (!kept) throw Error(Errc::peer_lost, carrier_.peer_name() + " is gone");
    return kept;
  }
  void pass(const BulkMessage& message, std::string_view name = "bulk", int fd = -1, std::string_view text = {}) {
    carrier_.pass(name, encode(message, text), fd);
  }
  Task<void> by_socket(TransferPtr transfer, base::Deadline deadline);
  Task<std::shared_ptr<ServedLink>> open_link(base::Deadline deadline);
  void use(std::shared_ptr<ServedLink> link);
  static fabric::detail::Detached connect_link(Space& self, std::shared_ptr<void> kept);
  Task<std::uint64_t> do_atomic(BulkDescriptor on, BulkMessage atomic, base::Deadline deadline);
  static std::uint64_t act(std::uint64_t* where, const BulkMessage& atomic);
  void on_atomic(const BulkMessage& message);

  Carrier& carrier_;  // owns this
  const std::shared_ptr<Exposures> exposures_;

  BulkSharing sharing_;

  // The engine's own.
  std::shared_ptr<ServedLink> link_;
  std::shared_ptr<ServedLink> admitted_link_;  // until the peer says that it has it
  bool opening_ = false;
  std::optional<Error> open_error_;
  fabric::Signal link_changed_;
  std::optional<BulkDoor> door_;
  std::optional<Ticket> ticket_;  // shown by the side that connects
  bool accepting_ = false;        // the peer connects
  std::map<std::uint64_t, PendingAtomic> atomics_;
  std::uint64_t next_atomic_ = 1;

  std::atomic<std::uint64_t> pulled_{0}, pushed_{0};
};

// ------------------------------------------------------------------------------------------------------------ exposing

Exposure Space::expose(std::span<std::byte> memory, Access access, std::shared_ptr<const void> owner) {
  if (memory::on_device(memory.data()))
    throw Error(Errc::unsupported, "memory on a device cannot be exposed: copy it to a BulkBuffer");
  auto buffer = shares() ? find_buffer(memory) : nullptr;
  std::shared_ptr<Leases> leases;
  if (buffer) leases = sharing_.give(*buffer, access != Access::read);
  if (!leases) buffer = nullptr;
  return exposure_of(exposures_->add(memory, access, std::move(buffer), std::move(leases), std::move(owner)));
}

// -------------------------------------------------------------------------------------------------------------- moving

Task<void> Space::gather(BulkDescriptor from, std::vector<Range> ranges, std::span<std::byte> into,
                         base::Deadline deadline, std::shared_ptr<const void> owner) {
  const auto kept = keep();
  const WireBulk bulk = to_wire(from);
  std::uint64_t bytes = 0;
  for (const Range& range : ranges) {
    check_bulk(bulk, Access::read, range.offset, range.bytes);
    bytes += range.bytes;
    if (bytes > into.size()) break;
  }
  if (bytes != into.size()) throw Error(Errc::invalid_argument, "ranges and memory are not equally long");
  if (bytes == 0) co_return;
  const Staged staged(into.data(), bytes);
  if (auto memory = sharing_.find(bulk, false)) {
    std::vector<CopyJob::Piece> pieces;
    std::byte* to = staged.host;
    for (const Range& range : ranges) {
      pieces.push_back({to, memory->data + range.offset, range.bytes});
      to += range.bytes;
    }
    co_await sharing_.copy(std::move(*memory), std::move(pieces), bytes, deadline);
  } else {
    auto transfer = transfer_of(bulk, false, ranges, staged.host);
    if (!staged.owned) transfer->owner = std::move(owner);
    co_await by_socket(std::move(transfer), deadline);
  }
  if (staged.owned) memory::copy_out(into.data(), staged.host, bytes);
  pulled_.fetch_add(bytes, std::memory_order_relaxed);
}

Task<void> Space::push(BulkDescriptor to, std::uint64_t offset, std::span<const std::byte> bytes,
                       base::Deadline deadline) {
  const auto kept = keep();
  const WireBulk bulk = to_wire(to);
  check_bulk(bulk, Access::write, offset, bytes.size());
  if (bytes.empty()) co_return;
  const Staged staged(bytes.data(), bytes.size());
  if (staged.owned) memory::copy_in(staged.host, bytes.data(), bytes.size());
  if (auto memory = sharing_.find(bulk, true)) {
    const CopyJob::Piece piece{memory->data + offset, staged.host, bytes.size()};
    std::vector<CopyJob::Piece> pieces(1, piece);
    co_await sharing_.copy(std::move(*memory), std::move(pieces), bytes.size(), deadline);
  } else {
    const Range range{offset, bytes.size()};
    std::vector<Range> ranges(1, range);
    co_await by_socket(transfer_of(bulk, true, ranges, staged.host), deadline);
  }
  pushed_.fetch_add(bytes.size(), std::memory_order_relaxed);
}

std::optional<BulkSpace::Mapped> Space::map(BulkDescriptor from, base::Deadline) {
  const WireBulk bulk = to_wire(from);
  check_bulk(bulk, Access::read, 0, bulk.bytes);
  const auto memory = sharing_.find(bulk, false);
  if (!memory) return std::nullopt;
  return Mapped{{memory->data, bulk.bytes}, memory->owner};
}

Task<void> Space::by_socket(TransferPtr transfer, base::Deadline deadline) {
  struct Done {
    explicit Done(std::shared_ptr<fabric::Progress> engine) : progress(std::move(engine)), promise(*progress) {}
    const std::shared_ptr<fabric::Progress> progress;  // outlives the promise
    fabric::Promise<void> promise;
  };
  const auto done = std::make_shared<Done>(carrier_.engine());
  transfer->on_done = [done](const Error* why) {
    if (why != nullptr) done->promise.set_error(*why);
    else done->promise.set();
  };
  auto future = done->promise.future();
  const DropAtEnd end{transfer};
  auto link = link_;
  if (!link) link = co_await open_link(deadline);
  fabric::Timer timer;
  if (!deadline.is_never()) {
    timer = carrier_.engine()->after(deadline.remaining(), [done] {
      done->promise.set_error(Error(Errc::timeout, "a bulk transfer was not finished in time"));
    });
  }
  link->submit(transfer);
  co_await std::move(future);
}

// ------------------------------------------------------------------------------------------------ the bulk connection

Ticket Space::make_ticket(bool refused) {
  accepting_ = true;
  Ticket ticket{};
  const std::string bytes = base::random_bytes(ticket.size());
  std::copy(bytes.begin(), bytes.end(), ticket.begin());
  BulkMessage welcome{BulkMessageKind::welcome};
  if (refused) welcome.code = static_cast<std::uint32_t>(Errc::unsupported);
  std::memcpy(&welcome.a, ticket.data(), sizeof welcome.a);
  std::memcpy(&welcome.b, ticket.data() + sizeof welcome.a, sizeof welcome.b);
  pass(welcome);
  return ticket;
}

void Space::attach(memory::UniqueFd socket) {
  const auto lost = [weak = carrier_.weak()](const Error& error) {
    const auto alive = weak.lock();
    if (!alive) return;
    alive->engine()->post([weak, error] {
      if (const auto again = weak.lock()) again->fail(error);
    });
  };
  auto link = link_plane().link({std::move(socket), exposures_, carrier_.peer_name(), lost, accepting_});
  exposures_->set_cut([weak = std::weak_ptr(link)] {
    SocketLoop::shared()->call([&] {
      if (const auto there = weak.lock()) there->end(Error(Errc::peer_lost, "does not take what it has asked for"));
    });
  });
  link->start();
  if (accepting_) {
    // The peer reads frames until it has seen that it is admitted; nothing else may come behind that.
    admitted_link_ = std::move(link);
    return;
  }
  use(std::move(link));
  pass({.kind = BulkMessageKind::want_link});
}

void Space::use(std::shared_ptr<ServedLink> link) {
  link_ = std::move(link);
  opening_ = false;
  link_changed_.notify_all();
}

Task<std::shared_ptr<ServedLink>> Space::open_link(base::Deadline deadline) {
  if (!door_ && !accepting_)
    throw Error(Errc::unsupported, "a channel that was not made by a Server or connect moves shared memory only");
  while (!link_) {
    if (!opening_) {
      opening_ = true;
      open_error_.reset();
      if (door_) connect_link(*this, carrier_.keep());
      else pass({.kind = BulkMessageKind::want_link});
      if (link_) break;
    }
    const bool changed = co_await link_changed_.wait(deadline);
    if (carrier_.ended()) throw Error(Errc::peer_lost, carrier_.peer_name() + " is gone");
    if (!link_ && open_error_) throw Error(*open_error_);
    if (!changed && !link_) {
      if (!door_) opening_ = false;
      throw Error(Errc::timeout, carrier_.peer_name() + ": no bulk connection in time");
    }
  }
  co_return link_;
}

// kept: the carrier, and with it `self`.
fabric::detail::Detached Space::connect_link(Space& self, std::shared_ptr<void> kept) {
  if (!kept) co_return;
  fabric::Progress& progress = *self.carrier_.engine();
  const base::Deadline deadline(open_time);
  try {
    while (!self.ticket_) {
      const bool changed = co_await self.link_changed_.wait(deadline);
      if (!changed || self.carrier_.ended()) throw Error(Errc::timeout, "no ticket for a bulk connection");
    }
    auto connected = std::make_shared<fabric::Promise<std::shared_ptr<fabric::Connection>>>(progress);
    auto future = connected->future();
    wire::Hello hello;
    hello.purpose = wire::Purpose::bulk;
    hello.stream = self.door_->name;
    hello.plane = self.link_plane().name;
    const auto reach = self.carrier_.local() ? fabric::Reach::unix_only : fabric::Reach::tcp_only;
    fabric::connect_async(progress, self.door_->endpoint, self.door_->token, hello, reach, deadline,
                          [connected](std::shared_ptr<fabric::Connection> connection, std::optional<Error> error) {
                            if (connection) connected->set(std::move(connection));
                            else connected->set_error(*error);
                          });
    connected.reset();
    const std::shared_ptr<fabric::Connection> connection = co_await std::move(future);
    auto admitted = std::make_shared<fabric::Promise<void>>(progress);
    auto answer = admitted->future();
    connection->start(
        [admitted, raw = connection.get()](std::uint16_t kind, std::span<const std::byte>, memory::UniqueFd) {
          if (kind != static_cast<std::uint16_t>(LinkFrame::admitted))
            throw Error(Errc::protocol, "expected admission");
          raw->pause();
          admitted->set();
        },
        [admitted](const Error& error) { admitted->set_error(error); });
    const fabric::Timer timer = progress.after(deadline.remaining(), [admitted] {
      admitted->set_error(Error(Errc::timeout, "no admission of the bulk connection in time"));
    });
    const Ticket& ticket = *self.ticket_;
    connection->send(static_cast<std::uint16_t>(LinkFrame::ticket), "bulk-ticket", std::as_bytes(std::span(ticket)));
    co_await std::move(answer);
    if (!self.carrier_.ended()) self.attach(connection->release());
  } catch (const Error& error) {
    self.opening_ = false;
    self.open_error_ = error.in("the bulk connection");
    self.link_changed_.notify_all();
  }
}

// ------------------------------------------------------------------------------------------------------------- atomics

std::uint64_t Space::act(std::uint64_t* where, const BulkMessage& atomic) {
  std::atomic_ref<std::uint64_t> word(*where);
  if (atomic.kind == BulkMessageKind::fetch_add) return word.fetch_add(atomic.c);
  std::uint64_t expected = atomic.c;
  word.compare_exchange_strong(expected, atomic.d);
  return expected;
}

Task<std::uint64_t> Space::do_atomic(BulkDescriptor on, BulkMessage atomic, base::Deadline deadline) {
  const auto kept = keep();
  const WireBulk bulk = to_wire(on);
  check_bulk(bulk, Access::read_write, atomic.b, sizeof(std::uint64_t));
  if (atomic.b % sizeof(std::uint64_t) != 0) throw Error(Errc::invalid_argument, "an atomic at an odd place");
  if (const auto memory = sharing_.find(bulk, true)) {
    std::byte* const where = memory->data + atomic.b;
    if (reinterpret_cast<std::uintptr_t>(where) % sizeof(std::uint64_t) != 0)
      throw Error(Errc::invalid_argument, "an atomic at an odd place");
    if (!memory->leases->enter(memory->lease))
      throw Error(Errc::invalid_argument, "bulk memory that is not exposed any more");
    const std::uint64_t before = act(reinterpret_cast<std::uint64_t*>(where), atomic);
    memory->leases->leave(memory->lease);
    co_return before;
  }
  atomic.a = bulk.id;
  const std::uint64_t id = atomic.id = next_atomic_++;
  auto promise = std::make_shared<fabric::Promise<std::uint64_t>>(*carrier_.engine());
  auto future = promise->future();
  atomics_.emplace(id, promise);
  struct Forget {
    std::map<std::uint64_t, PendingAtomic>& all;
    std::uint64_t id;
    ~Forget() { all.erase(id); }
  };
  const Forget forget{atomics_, id};
  fabric::Timer timer;
  if (!deadline.is_never())
    timer = carrier_.engine()->after(deadline.remaining(), [promise] {
      promise->set_error(Error(Errc::timeout, "no answer to an atomic in time"));
    });
  pass(atomic);
  co_return co_await std::move(future);
}

void Space::on_atomic(const BulkMessage& message) {
  try {
    const auto state = exposures_->find(message.a, Access::read_write, message.b, sizeof(std::uint64_t));
    std::byte* const where = state->memory.data() + message.b;
    if (reinterpret_cast<std::uintptr_t>(where) % sizeof(std::uint64_t) != 0)
      throw Error(Errc::invalid_argument, "an atomic at an odd place");
    const std::lock_guard lock(state->mutex);
    if (state->withdrawn) throw Error(Errc::invalid_argument, "bulk memory that is not exposed any more");
    const std::uint64_t before = act(reinterpret_cast<std::uint64_t*>(where), message);
    pass({.kind = BulkMessageKind::atomic_reply, .id = message.id, .a = before});
  } catch (const Error& error) {
    const auto code = static_cast<std::uint32_t>(error.code());
    pass({.kind = BulkMessageKind::atomic_failure, .code = code, .id = message.id}, "bulk", -1,
         fabric::process_name() + ": " + error.what());
  }
}

// -------------------------------------------------------------------------------------------------------------- events

void Space::on_message(std::span<const std::byte> bytes, memory::UniqueFd fd) {
  std::string_view text;
  const auto message = decode_bulk_message(bytes, text);
  switch (message.kind) {
    case BulkMessageKind::segment: sharing_.on_segment(message, fd); return;
    case BulkMessageKind::leases: sharing_.on_leases(message, fd); return;
    case BulkMessageKind::forget: sharing_.on_forget(message); return;
    case BulkMessageKind::welcome: {
      if (message.code != 0 && carrier_.plane() != nullptr) {
        const std::string plane(carrier_.plane()->name);
        carrier_.fail(Error(Errc::unsupported, carrier_.peer_name() + " does not offer the data plane " + plane +
                                                   "; start it with data_plane=" + plane));
        return;
      }
      auto& ticket = ticket_.emplace();
      std::memcpy(ticket.data(), &message.a, sizeof message.a);
      std::memcpy(ticket.data() + sizeof message.a, &message.b, sizeof message.b);
      link_changed_.notify_all();
      return;
    }
    case BulkMessageKind::want_link:
      if (admitted_link_) use(std::move(admitted_link_));
      if (!door_ || link_ || opening_) return;
      opening_ = true;
      connect_link(*this, carrier_.keep());
      return;
    case BulkMessageKind::fetch_add:
    case BulkMessageKind::compare_swap: on_atomic(message); return;
    case BulkMessageKind::atomic_reply:
      if (const auto found = atomics_.find(message.id); found != atomics_.end()) found->second->set(message.a);
      return;
    case BulkMessageKind::atomic_failure:
      if (const auto found = atomics_.find(message.id); found != atomics_.end())
        found->second->set_error(Error(static_cast<Errc>(message.code), std::string(text)));
      return;
  }
}

void Space::end(const Error& error) {
  exposures_->end();
  if (link_) link_->close();
  if (admitted_link_) admitted_link_->close();
  for (const auto& [id, promise] : std::map(atomics_)) promise->set_error(error);
  open_error_ = error;
  link_changed_.notify_all();
}

}  // namespace

const Plane* bulk_plane(std::string_view name) {
  if (name.empty()) return nullptr;
  const Plane& plane = plane_named(name);
  if (plane.link == nullptr)
    throw Error(Errc::unsupported, "bulk memory does not move on the data plane " + std::string(name));
  return &plane;
}

const Plane* bulk_plane(std::string_view named, const Plane* offered) {
  if (!named.empty()) offered_plane(named, offered != nullptr ? offered->name : std::string_view());
  return bulk_plane(named);
}

std::unique_ptr<LinkEnd> make_link_end(Carrier& carrier) { return std::make_unique<Space>(carrier); }

}  // namespace penstock::transport
