// One schedule at work: the nodes, their applications, the faults. Internal to the simulation (sim.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stream/protocol/sim/fabric.hpp"
#include "stream/protocol/sim/oracle.hpp"
#include "stream/protocol/sim/sim.hpp"

namespace penstock::stream::sim {

class World;

// What both kinds of ranks do with the network; the planted bugs sit in damage() and hear().
class RankNode : public Node, public Sink {
 public:
  RankNode(World& world, std::uint32_t rank) : world_(world), rank_(rank) {}
  NodeId id() const { return id_; }
  bool alive() const;
  void on_message(LinkId link, const wire::Message& message) final;
  void send(LinkId link, const wire::Message& message) final;

 protected:
  virtual void hear(LinkId link, const wire::Message& message) = 0;
  virtual void observe(LinkId, const wire::Message&) {}
  virtual bool damage(LinkId link, wire::Message& message) = 0;  // planted bugs; false: the message is swallowed
  bool forge_for_sibling(LinkId link, std::uint64_t step, std::uint32_t ranks, std::uint32_t fan_out);
  bool was_forged(LinkId link, std::uint64_t step) const;
  void trace(const char* what, LinkId link, const wire::Message& message) const;
  virtual std::string name() const = 0;

  World& world_;
  std::uint32_t rank_;
  NodeId id_ = 0;
  std::vector<std::pair<LinkId, std::uint64_t>> forged_;  // planted bugs: (link, step)
  std::vector<std::uint64_t> heard_;                      // and steps that the second child spoke of itself
  bool heard_sibling_leave_ = false;
  friend class World;
};

class WriterRank final : public RankNode {
 public:
  WriterRank(World& world, std::uint32_t rank) : RankNode(world, rank) {}
  void open();
  void on_link_lost(LinkId link, const std::string& why) override;
  void on_wake(std::uint64_t what) override;
  void give_up();  // the deadline of begin_step passed
  bool done() const { return state_ == State::done; }
  bool closing() const { return state_ == State::closing; }
  std::string waits_for() const;
  const WriterProtocol& protocol() const { return *protocol_; }

 private:
  enum class State { thinking, waiting, writing, closing, done };
  enum Wake : std::uint64_t { next, written, deadline, end_process };
  void hear(LinkId link, const wire::Message& message) override;
  void observe(LinkId link, const wire::Message& message) override;
  bool damage(LinkId link, wire::Message& message) override;
  std::string name() const override { return "writer " + std::to_string(rank_); }
  void admit(LinkId link, const wire::Message& join);
  void refuse(LinkId link, const std::string& why);
  void settle(bool joined = false);
  void progress();
  void begin_step();
  void end_step();
  void close();
  void finish();

  std::unique_ptr<WriterProtocol> protocol_;
  State state_ = State::thinking;
  std::uint64_t next_step_ = 0;
  Ledger::Grant grant_;
  std::shared_ptr<const std::string> layout_;
  std::uint32_t layout_version_ = 0;
  bool layout_changed_ = false;
};

class ReaderRank final : public RankNode {
 public:
  ReaderRank(World& world, std::uint32_t cohort, std::uint32_t rank) : RankNode(world, rank), cohort_(cohort) {}
  void join_later(Time delay);
  void open(const wire::Message& admit);
  void on_link_lost(LinkId link, const std::string& why) override;
  void on_wake(std::uint64_t what) override;
  bool opened() const { return protocol_ != nullptr; }
  void not_opened() { state_ = State::done; }
  bool done() const { return state_ == State::done; }
  void let_go();  // of what was kept; and nothing is kept from now on
  std::string waits_for() const;

 private:
  enum class State { unopened, thinking, waiting, done };
  enum Wake : std::uint64_t { join, next, step_read, end_process };
  static std::uint64_t wake_of(Wake what, std::uint64_t step, std::uint32_t slot) {
    return step << 16 | slot << 4 | what;
  }
  void hear(LinkId link, const wire::Message& message) override;
  bool damage(LinkId link, wire::Message& message) override;
  std::string name() const override { return "reader " + std::to_string(cohort_) + "." + std::to_string(rank_); }
  const CohortPlan& plan() const;
  void refuse(LinkId link, const std::string& why);
  void progress();
  void begin_step();
  void release(std::uint64_t step, std::uint32_t slot);
  void leave();

  std::uint32_t cohort_;
  std::unique_ptr<ReaderProtocol> protocol_;
  State state_ = State::unopened;
  bool ending_ = false;
  std::uint32_t leases_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> kept_;  // step, slot
  bool keeps_ = true;
  std::vector<std::pair<LinkId, wire::Message>> early_;  // in the ring before the admission was read
};

class World {
 public:
  World(const Plan& plan, Bug bug, bool trace);
  Result run();

  const Plan& plan;
  const Bug bug;
  const bool tracing;
  Random random;
  Fabric fabric;
  Oracle oracle;
  // For bugs that strike once in a schedule.
  bool plant_once(double chance) {
    if (bug_done || !random.chance(chance)) return false;
    return bug_done = true;
  }
  bool bug_done = false;
  bool expired = false;  // writers give up waiting
  bool garbage = false;
  void lease_kept() { keepers_ = true; }

  std::uint32_t writer_ranks() const { return plan.writer.ranks; }
  WriterRank& writer(std::uint32_t rank) { return *writers_[rank]; }
  const WriterRank& writer(std::uint32_t rank) const { return *writers_[rank]; }
  ReaderRank& reader(std::uint32_t cohort, std::uint32_t rank) { return *readers_[cohort][rank]; }
  void open_cohort(std::uint32_t cohort, const wire::Message& admit);
  void not_opened(std::uint32_t cohort) {
    for (auto& r : readers_[cohort]) r->not_opened();
  }
  // The rank and those below it can no longer be heard by the writer.
  void unprotect_below(std::uint32_t cohort, std::uint32_t rank);
  void cohort_dropped(std::uint32_t cohort);

 private:
  void build();
  void connect_tree(std::uint32_t ranks, std::uint32_t fan_out, const std::function<NodeId(std::uint32_t)>& node);
  void play();
  void apply(const Fault& fault);
  void crash_reader(std::uint32_t cohort, std::uint32_t rank);
  void inject_garbage(RankNode& from, LinkId link, std::uint32_t cohort);
  bool unfinished_readers(std::uint32_t cohort) const;
  void check_kept() const;
  bool end_roots_of_severed();
  bool move_on();  // when nothing happens any more: ends what is allowed to wait. False when all is over.
  std::string who_waits() const;

  std::vector<std::unique_ptr<WriterRank>> writers_;
  std::vector<std::vector<std::unique_ptr<ReaderRank>>> readers_;
  std::vector<Fault> faults_;
  bool stopped_ = false;
  bool killed_ = false;
  bool keepers_ = false;  // leases are kept until nothing else happens
};

}  // namespace penstock::stream::sim
