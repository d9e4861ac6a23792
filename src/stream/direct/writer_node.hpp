// One writer rank's place in the network: its listener, its links to the control tree and to readers, and the protocol.
//
// Everything public is called by the application's thread; connections call in on the engine thread. One lock (mutex_)
// guards the protocol and the links; it is held for microseconds and never while copying or waiting.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/listener.hpp"
#include "fabric/registration.hpp"
#include "memory/arena.hpp"
#include "stream/api/engine.hpp"
#include "stream/api/registry.hpp"
#include "stream/direct/peer_link.hpp"
#include "stream/direct/waiter.hpp"
#include "stream/protocol/writer_protocol.hpp"
#include "transport/block_server.hpp"

namespace penstock::stream {

// What a direct writer is for, other than being read by whoever finds it in the directory.
struct WriterUse {
  bool registered = true;
  // One consumer at a time; a later one takes over. Steps that it has not released wait for the next (ledger.hpp).
  bool keep_undelivered = false;
  // Parts of steps lie in memory that other processes cannot map: they read all of it over tcp.
  bool lends = false;
};

class WriterNode final : private Sink {
 public:
  using Grant = WriterProtocol::Grant;

  // Collective: listens, exchanges endpoints, connects the control tree, and registers the stream (rank 0).
  WriterNode(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options,
             std::shared_ptr<memory::Arena> arena, WriterUse use = {});
  ~WriterNode() override;

  // The next step to write. Empty when the deadline passes. Throws Error(peer_lost) when the cohort is broken.
  std::optional<Grant> wait_grant(base::Deadline deadline);
  // Until a slot has been recycled since `seen` (as recycled() gave it), or the deadline. Throws as wait_grant does.
  bool wait_recycled(std::uint64_t seen, base::Deadline deadline);
  // Until the step that this rank committed into the slot is over, for every reader and rank, or the deadline. Throws likewise.
  bool wait_over(std::uint32_t slot, base::Deadline deadline);
  // Root: until no committed step waits for a reader or its release, or the deadline; others: at once.
  bool wait_released(base::Deadline deadline);
  std::uint64_t recycled() const { return recycled_.load(std::memory_order_acquire); }
  void record(const Grant& grant, bool voided, std::shared_ptr<const std::string> layout);

  // Begins to close; true once every rank has and no reader needs a step, or the cohort is broken. May be called again.
  bool finish(base::Deadline deadline);
  // Throws Error(timeout) naming who holds steps; closed all the same.
  void close(base::Deadline deadline);
  void lose(const std::string& why);
  // From now on every rank's calls throw Error(code, why). Any thread.
  void fail(const std::string& why, Errc code = Errc::peer_lost);

  std::string failure() const;  // why, after fail or lose of any rank; else empty
  void check() const;           // throws what every rank's calls throw, after fail or lose of any rank
  Awaited awaited() const;
  const std::string& address() const { return address_; }
  // Where rank 0 can be joined, and the token for that; rank 0 only.
  const fabric::Endpoint& endpoint() const { return advertised_; }
  const fabric::Token& token() const { return token_; }
  void add_statistics(StreamStatistics& statistics) const;
  std::uint32_t rank() const { return protocol_.rank(); }

 private:
  void send(LinkId link, const wire::Message& message) override;
  void open(const EngineContext& context, Cohort& cohort);
  void unregister();
  void shut_down();
  void open_tree(Cohort& cohort, base::Deadline deadline);
  void register_stream(const EngineContext& context, const std::string& listen_unix, base::Deadline deadline);
  void on_peer(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello);
  void accept_child(std::shared_ptr<fabric::Connection> connection, std::uint32_t rank);
  void answer_inspection(fabric::Connection& connection) const;
  void accept_reader(std::shared_ptr<fabric::Connection> connection);
  void start_link(LinkId link, const std::shared_ptr<fabric::Connection>& connection);
  void on_frame(LinkId link, std::uint16_t kind, std::span<const std::byte> bytes, fabric::UniqueFd fd);
  void on_reader_frame(LinkId link, PeerLink& peer, const wire::Message& message, int fd);
  void admit(LinkId link, PeerLink& peer, const wire::Message& join);
  void supersede(LinkId by);
  void on_other_writer(const fabric::Launch& other);
  void on_closed(LinkId link, const Error& why);
  void drop_link(LinkId link, const std::string& why);
  void drop_if_left(LinkId link);
  void pump();
  void hear_readers(std::unique_lock<std::mutex>& lock);
  void recycle_freed();
  void tell_voided();
  void settle();
  [[noreturn]] void throw_broken() const;

  const std::string name_;
  const StreamOptions options_;
  const WriterUse use_;
  std::uint32_t ranks_;
  std::shared_ptr<memory::Arena> arena_;
  mutable Waiter waiter_;
  fabric::Token token_;
  std::string address_;
  fabric::Endpoint advertised_;
  std::vector<fabric::Endpoint> endpoints_;  // by rank
  const fabric::Launch launch_ = fabric::launch_of_environment();
  std::unique_ptr<Registry> registry_;
  std::optional<fabric::Registration> registration_;

  mutable std::mutex mutex_;  // guards what follows
  std::map<LinkId, PeerLink> links_;
  std::set<std::uint32_t> came_;     // children that connected, whether or not they are still there
  std::map<LinkId, bool> admitted_;  // reader links
  LinkId next_reader_ = first_reader_link;
  WriterProtocol protocol_;
  std::uint64_t announcement_bytes_ = 0;
  std::uint64_t voided_told_ = 0;
  bool closing_ = false;
  bool closed_ = false;

  std::atomic<std::uint64_t> recycled_{0};
  std::unique_ptr<transport::BlockServer> server_;
  std::unique_ptr<fabric::Listener> listener_;  // last: it calls in
};

// The ledger's settings of a stream's options. Throws Error(invalid_argument).
LedgerSettings ledger_settings(const StreamOptions& options, std::uint32_t ranks, WriterUse use = {});

}  // namespace penstock::stream
