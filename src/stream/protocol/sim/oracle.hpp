// What must hold in every schedule, checked against what the applications really did. Throws Violation.
//
//   a slot is not granted again while a reader rank that can still be heard holds a step in it
//   an announced step was recorded by every rank and voided by none; its epoch has the layouts of that step, rank by rank
//   each rank takes steps in increasing order; where policy does not discard, and without latest, it takes every committed
//   one since its first; announced + dropped (+ skipped, with latest) is what was committed or dropped since the cohort joined
//   granted + needed steps stay within queue_steps (beyond it only late joiners' reserve), retained ones within slots()
//   where policy discards, no rank waits when only needed steps fill the queue; no rank waits while a slot is free
//   where policy discards, a cohort is announced nothing while it holds its share of the queue, and no step is dropped for
//   a cohort that needs less than its share
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "stream/protocol/reader_protocol.hpp"
#include "stream/protocol/sim/plan.hpp"
#include "stream/protocol/writer_protocol.hpp"

namespace penstock::stream::sim {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Oracle {
 public:
  using Layout = std::shared_ptr<const std::string>;

  explicit Oracle(const Plan& plan);

  // ------ what the writers' applications did
  void granted(const Ledger::Grant& grant);  // seen on its way or taken; again for each rank
  void recorded(std::uint32_t rank, const Ledger::Grant& grant, bool voided, const Layout& layout);
  void recycled(std::uint32_t slot) const { check_unread(slot, "taken back"); }  // its memory
  void wanted_at_root(std::uint64_t step);
  // After every event at the root. joined: a cohort was admitted in it.
  void root_changed(const WriterProtocol& root, bool joined);

  // ------ what the readers' applications did
  void joined(std::uint32_t cohort, const Ledger& before);
  void announced(std::uint32_t cohort, const wire::Message& message);
  void goodbye(std::uint32_t cohort) { cohorts_[cohort].goodbye_due = true; }
  void opened(std::uint32_t cohort, std::uint32_t rank) { rank_of(cohort, rank).opened = true; }
  void took(std::uint32_t cohort, std::uint32_t rank, const ReaderProtocol::Step& step);
  void released(std::uint32_t cohort, std::uint32_t rank, std::uint32_t slot);
  // The rank's application left; steps it took are still held until released.
  void left(std::uint32_t cohort, std::uint32_t rank);
  // Saw the end: what it got must be all of it.
  void ended(std::uint32_t cohort, std::uint32_t rank, const ReaderProtocol& reader);
  void lost(std::uint32_t cohort, std::uint32_t rank, const ReaderProtocol& reader);

  // ------ faults
  // Nobody can hear this rank any more: its leases end.
  void unprotect(std::uint32_t cohort, std::uint32_t rank);
  void damaged(std::uint32_t cohort) { cohorts_[cohort].intact = false; }
  void tainted(std::uint32_t cohort);  // it says what it likes
  bool is_tainted(std::uint32_t cohort) const { return cohorts_[cohort].is_tainted; }
  void messages_lost() { nothing_lost_ = false; }

  std::uint64_t steps_taken() const { return steps_taken_; }
  std::uint32_t slots_taken() const;  // whose steps are read, or kept

 private:
  struct Step {
    bool sighted = false, dropped = false, voided = false;
    std::uint32_t slot = 0;
    std::uint32_t recorded = 0;
    std::uint64_t index = 0;  // among committed steps
    std::vector<Layout> layouts;
  };
  struct Rank {
    bool opened = false, gone = false, unheard = false;
    bool took_any = false;
    std::uint64_t last_step = 0, last_index = 0, taken = 0;
    std::vector<std::uint64_t> held;  // by slot: step + 1
    std::vector<bool> taken_in;       // by slot
  };
  struct Cohort {
    bool joined = false, intact = true, is_tainted = false, goodbye_due = false, goodbye_sent = false;
    std::uint64_t retained_at_join = 0, committed_at_join = 0, step_at_join = 0;
    std::uint64_t announced = 0, dropped = 0, last_announced = 0;
    std::uint64_t held_before = 0, dropped_before = 0;  // the root's account, after the event before
    std::vector<Rank> ranks;
  };

  [[noreturn]] void fail(const std::string& what) const { throw Violation(what); }
  Step& step(std::uint64_t number);
  Rank& rank_of(std::uint32_t cohort, std::uint32_t rank) { return cohorts_[cohort].ranks[rank]; }
  void check_unread(std::uint32_t slot, const std::string& what) const;
  void hold(Rank& rank, std::uint32_t slot, std::uint64_t step);
  void unhold(Rank& rank, std::uint32_t slot);
  void check_commits(const Ledger& ledger);
  void check_queue(const Ledger& ledger, bool joined);
  void check_shares(const Ledger& ledger, bool joined);
  void check_goodbye(std::uint32_t cohort, const Ledger& ledger);

  const Plan& plan_;
  std::vector<Step> steps_;
  std::vector<Layout> current_;         // by writer rank
  std::vector<std::uint64_t> in_slot_;  // step + 1 that the slot was last granted for
  std::vector<std::uint32_t> holders_;  // by slot
  std::vector<Cohort> cohorts_;
  std::uint64_t cursor_ = 0;  // steps below are committed, voided or dropped
  std::uint64_t committed_ = 0, voided_ = 0, sighted_ = 0, sighted_drops_ = 0;
  std::uint64_t last_committed_ = 0;
  std::uint64_t wanted_ = never;
  std::uint32_t last_depth_ = 0;
  std::uint64_t steps_taken_ = 0;
  bool nothing_lost_ = true;
};

}  // namespace penstock::stream::sim
