// One reader rank's place in the network: its link towards the writer (rank 0: to the writer's root, others: to their
// parent), its children, and the protocol. Lives as long as any lease of a step does, of this rank or of one below it.
//
// A rank leaves when it closes, and when it has read the last step of a stream that has ended. Views may keep leases then;
// the writer does not wait for those at its end, for this process maps their memory.
//
// Public functions are called by application threads (leases may be dropped on any); connections call in on the engine
// thread. One lock (mutex_) guards the protocol and the links; it is never held while copying or waiting.
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
#include "stream/api/engine.hpp"
#include "stream/api/open.hpp"
#include "stream/direct/peer_link.hpp"
#include "stream/direct/waiter.hpp"
#include "stream/protocol/reader_protocol.hpp"

namespace penstock::stream {

// What the writer's root told this cohort when it admitted it.
struct Admission {
  std::uint64_t cohort = 0;
  std::uint32_t slots = 0;
  std::uint32_t writer_ranks = 0;
  bool demand = false;
  std::string writer;                  // host:pid
  std::vector<std::string> addresses;  // of the writer's ranks, for transport/planes.hpp
  fabric::Token token;
};

class ReaderNode final : public std::enable_shared_from_this<ReaderNode>, private Sink {
 public:
  // Collective. Finds the stream, joins it (rank 0) and connects the cohort's control tree.
  static std::shared_ptr<ReaderNode> open(const EngineContext& context, const std::string& name, Cohort& cohort,
                                          const StreamOptions& options);
  ~ReaderNode() override;

  const Admission& admission() const { return admission_; }
  const std::string& stream() const { return stream_; }
  bool local() const { return local_; }  // rank 0: the writer's root is on this node

  // ready, end_of_stream, writer_lost, or not_ready after the deadline.
  Outcome wait_step(ReaderProtocol::Step& step, base::Deadline deadline);
  std::string why(Outcome outcome) const;
  // The step that wait_step gave is not read any more; views may keep its lease.
  void step_ended();
  void release(std::uint64_t step, std::uint32_t slot);
  // Leases held by views may outlive this.
  void close();
  void add_statistics(StreamStatistics& statistics) const;
  void count_lease();

 private:
  struct KeptNodes;
  ReaderNode(const EngineContext& context, const StreamOptions& options, Cohort& cohort);
  void send(LinkId link, const wire::Message& message) override;
  void join(const EngineContext& context, const std::string& name, base::Deadline deadline);
  bool try_join(const fabric::Registration& registration, base::Deadline deadline);
  void share_admission(Cohort& cohort);
  void open_tree(const EngineContext& context, Cohort& cohort, base::Deadline deadline);
  void connect_ranks(const std::vector<fabric::Endpoint>& endpoints, const fabric::Token& token,
                     base::Deadline deadline);
  void start_link(LinkId link, const std::shared_ptr<fabric::Connection>& connection);
  void on_frame(LinkId link, std::uint16_t kind, std::span<const std::byte> bytes, fabric::UniqueFd fd);
  void on_admit(const wire::Message& message);
  void on_closed(LinkId link, const Error& why);
  void accept_child(std::shared_ptr<fabric::Connection> connection, std::uint32_t rank);
  void pump();
  void drop_link(LinkId link, const std::string& why);
  void leave_if_done();
  bool needed() const;
  void end_if_released();
  void keep();
  std::shared_ptr<ReaderNode> stop_keeping();
  void shut_down();

  const StreamOptions options_;
  const std::uint32_t rank_, ranks_;
  std::string stream_;
  mutable Waiter waiter_;
  Admission admission_;
  bool local_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::map<LinkId, PeerLink> links_;
  std::set<std::uint32_t> came_;  // children that connected, whether or not they are still there
  std::optional<ReaderProtocol> protocol_;
  std::string join_failed_;
  std::uint64_t leases_ = 0;
  std::uint64_t last_step_ = 0;
  bool any_step_ = false;
  bool reading_ = false;  // a step
  bool closing_ = false;
  bool left_ = false;
  bool kept_ = false;  // among KeptNodes: after close, while this rank or ranks below hold leases
  std::uint64_t announcement_bytes_ = 0;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace penstock::stream
