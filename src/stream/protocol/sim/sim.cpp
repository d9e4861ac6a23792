#include "stream/protocol/sim/world.hpp"

#include <algorithm>

namespace penstock::stream::sim {

using wire::Kind;
using wire::Message;

namespace {

constexpr std::uint64_t max_events = 20'000'000;

Message random_message(Random& random, const LedgerSettings& writer) {
  const auto number = [&] { return random.chance(0.7) ? random.below(6) : random.next(); };
  Message m;
  m.kind = static_cast<Kind>(1 + random.below(wire::kind_count - 1));
  m.step = number();
  m.epoch = number();
  m.value = number();
  m.slot = static_cast<std::uint32_t>(random.below(random.chance(0.8) ? writer.slots() : wire::max_slots + 1));
  m.ranks = static_cast<std::uint32_t>(random.below(wire::max_ranks));
  m.flag = random.chance(0.5);
  if (random.chance(0.3)) m.text = "garbage";
  for (auto n = random.below(3); n > 0; --n)
    m.layouts.push_back({static_cast<std::uint32_t>(random.below(random.chance(0.8) ? writer.ranks : wire::max_ranks)),
                         std::make_shared<const std::string>("garbage")});
  return m;
}

}  // namespace

const char* name_of(Bug bug) {
  switch (bug) {
    case Bug::none: return "none";
    case Bug::release_lost: return "a release is lost";
    case Bug::release_twice: return "a lease is released twice";
    case Bug::release_early: return "a release is joined one child too early";
    case Bug::record_early: return "a record is joined one child too early";
    case Bug::grant_lost: return "a child is forgotten when a grant is passed on";
    case Bug::layout_left_out: return "a delta of an epoch misses a rank";
    case Bug::drops_untold: return "dropped steps are not reported";
    case Bug::goodbye_early: return "the end is told one step too early";
    case Bug::leave_late: return "a reader leaves only when its views are gone";
    case Bug::leave_ends_all: return "a reader that leaves is taken to hold nothing";
    case Bug::share_ignored: return "a reader may hold more than its share";
  }
  return "?";
}

// ------------------------------------------------------------------------------------------------------------- build

World::World(const Plan& p, Bug planted, bool trace)
    : plan(p), bug(planted), tracing(trace), random(p.seed ^ 0xa99), fabric(p.fabric), oracle(p), faults_(p.faults) {
  std::sort(faults_.begin(), faults_.end(), [](const auto& a, const auto& b) { return a.at_event < b.at_event; });
  build();
}

void World::connect_tree(std::uint32_t ranks, std::uint32_t fan_out, const std::function<NodeId(std::uint32_t)>& node) {
  for (std::uint32_t r = 1; r < ranks; ++r) fabric.connect(node(r), parent_link, node(parent_of(r, fan_out)), r, false);
}

void World::build() {
  for (std::uint32_t r = 0; r < plan.writer.ranks; ++r) {
    writers_.push_back(std::make_unique<WriterRank>(*this, r));
    writers_.back()->id_ = fabric.add(*writers_.back());
  }
  connect_tree(plan.writer.ranks, plan.fan_out, [&](auto r) { return writers_[r]->id(); });
  for (std::uint32_t c = 0; c < plan.cohorts.size(); ++c) {
    readers_.emplace_back();
    for (std::uint32_t r = 0; r < plan.cohorts[c].ranks; ++r) {
      readers_[c].push_back(std::make_unique<ReaderRank>(*this, c, r));
      readers_[c].back()->id_ = fabric.add(*readers_[c].back());
    }
    connect_tree(plan.cohorts[c].ranks, plan.cohorts[c].fan_out, [&](auto r) { return readers_[c][r]->id(); });
    fabric.connect(readers_[c][0]->id(), parent_link, writers_[0]->id(), first_reader_link + c, plan.cohorts[c].ring);
    readers_[c][0]->join_later(plan.cohorts[c].join_at);
  }
  for (auto& w : writers_) w->open();
}

void World::open_cohort(std::uint32_t cohort, const Message& admit) {
  for (auto& r : readers_[cohort]) r->open(admit);
}

// ------------------------------------------------------------------------------------------------------------- faults

void World::unprotect_below(std::uint32_t cohort, std::uint32_t rank) {
  oracle.unprotect(cohort, rank);
  const auto& c = plan.cohorts[cohort];
  const auto first = first_child(rank, c.fan_out);
  for (std::uint32_t i = 0; i < child_count(rank, c.ranks, c.fan_out); ++i) unprotect_below(cohort, first + i);
}

void World::cohort_dropped(std::uint32_t cohort) {
  oracle.damaged(cohort);
  unprotect_below(cohort, 0);
}

void World::crash_reader(std::uint32_t cohort, std::uint32_t rank) {
  auto& node = reader(cohort, rank);
  if (!node.alive() || (rank != 0 && !node.opened())) return;
  oracle.damaged(cohort);
  unprotect_below(cohort, rank);
  fabric.crash(node.id());
}

void World::inject_garbage(RankNode& from, LinkId link, std::uint32_t cohort) {
  if (!reader(cohort, 0).opened() || !from.alive() || !fabric.linked(from.id(), link)) return;
  oracle.tainted(cohort);
  garbage = true;
  for (auto n = random.between(1, 3); n > 0; --n) fabric.send(from.id(), link, random_message(random, plan.writer));
}

void World::apply(const Fault& fault) {
  const auto c = fault.cohort;
  auto& target = reader(c, fault.rank < plan.cohorts[c].ranks ? fault.rank : 0);
  switch (fault.kind) {
    case FaultKind::crash_writer:
      if (plan.fabric.crash_loses_unsent) oracle.messages_lost();
      fabric.crash(writer(fault.rank).id());
      return;
    case FaultKind::crash_reader: crash_reader(c, fault.rank); return;
    case FaultKind::cut_reader:
      if (!reader(c, 0).opened()) return;
      cohort_dropped(c);
      fabric.cut(reader(c, 0).id(), parent_link);
      return;
    case FaultKind::cut_reader_tree:
      if (fault.rank == 0 || !target.opened()) return;
      oracle.damaged(c);
      unprotect_below(c, fault.rank);
      fabric.cut(target.id(), parent_link);
      return;
    case FaultKind::garbage_to_writer: inject_garbage(reader(c, 0), parent_link, c); return;
    case FaultKind::garbage_to_reader: inject_garbage(writer(0), first_reader_link + c, c); return;
    case FaultKind::garbage_in_reader_tree:
      if (fault.rank != 0) inject_garbage(target, parent_link, c);
      return;
    case FaultKind::stall_reader: fabric.stall(target.id(), fabric.now() + random.below(500)); return;
    case FaultKind::stop_reader:
      fabric.stall(target.id(), never);
      stopped_ = true;
      return;
    case FaultKind::stall_writer: fabric.stall(writer(fault.rank).id(), fabric.now() + random.below(500)); return;
  }
}

// --------------------------------------------------------------------------------------------------------------- run

bool World::unfinished_readers(std::uint32_t cohort) const {
  return std::any_of(readers_[cohort].begin(), readers_[cohort].end(),
                     [](const auto& r) { return r->alive() && !r->done(); });
}

// Ranks below a rank that has gone may hold views that only the end of rank 0's process gives back.
bool World::end_roots_of_severed() {
  bool ended = false;
  for (std::uint32_t c = 0; c < readers_.size(); ++c) {
    const auto& cohort = plan.cohorts[c];
    bool severed = false;
    for (std::uint32_t r = 1; r < cohort.ranks; ++r)
      severed |= child_count(r, cohort.ranks, cohort.fan_out) > 0 && !fabric.linked(readers_[c][r]->id(), parent_link);
    if (!severed || !readers_[c][0]->alive() || !readers_[c][0]->opened()) continue;
    crash_reader(c, 0);
    ended = true;
  }
  return ended;
}

bool World::move_on() {
  const bool writing =
      std::any_of(writers_.begin(), writers_.end(), [](const auto& w) { return w->alive() && !w->done(); });
  if (stopped_) {
    stopped_ = false;
    const bool waits_for_reader = std::any_of(writers_.begin(), writers_.end(),
                                              [](const auto& w) { return w->alive() && !w->done() && !w->closing(); });
    if (waits_for_reader && plan.writer.when_full != WhenFull::block && writer(0).protocol().ledger().rendezvous_met())
      throw Violation("a stopped reader stops a writer that may discard");
    fabric.resume_all();
    return true;
  }
  if (end_roots_of_severed()) return true;
  if (keepers_ && !garbage) check_kept();
  if (keepers_) {
    keepers_ = false;
    for (auto& cohort : readers_)
      for (auto& r : cohort) r->let_go();
    return true;
  }
  if (writing && !expired && !writer(0).protocol().ledger().rendezvous_met()) {
    expired = true;
    for (auto& w : writers_)
      if (w->alive()) w->give_up();
    return true;
  }
  if (!killed_) {  // readers that were fed garbage may wait for ever for what they were told
    killed_ = true;
    for (std::uint32_t c = 0; c < readers_.size(); ++c) {
      if (!oracle.is_tainted(c)) continue;
      for (auto& r : readers_[c]) fabric.crash(r->id());
    }
    return true;
  }
  bool over = !writing;
  for (std::uint32_t c = 0; c < readers_.size(); ++c) over &= oracle.is_tainted(c) || !unfinished_readers(c);
  if (!over) throw Violation("nothing happens any more: " + who_waits());
  return false;
}

// Nothing happens any more but what kept leases hold up: only a writer whose queue is full of those may wait for them.
void World::check_kept() const {
  for (const auto& w : writers_) {
    if (!w->alive() || w->done() || !writer(0).alive()) continue;
    const auto& ledger = writer(0).protocol().ledger();
    if (w->closing() && ledger.finishing() && !writer(0).done())
      throw Violation("the end of the stream waits for views of readers");
    if (w->closing() || !ledger.rendezvous_met()) continue;
    if (plan.writer.when_full != WhenFull::block) throw Violation("kept leases stop a writer that may discard");
    if (oracle.slots_taken() < plan.writer.queue_steps)
      throw Violation("the writer waits for room though views hold only " + std::to_string(oracle.slots_taken()) +
                      " steps");
  }
}

std::string World::who_waits() const {
  std::string text;
  for (const auto& w : writers_)
    if (w->alive() && !w->done()) text += "\n  " + w->waits_for();
  for (const auto& cohort : readers_)
    for (const auto& r : cohort)
      if (r->alive() && !r->done()) text += "\n  " + r->waits_for();
  return text;
}

void World::play() {
  std::size_t next_fault = 0;
  do {
    while (true) {
      while (next_fault < faults_.size() && fabric.events() >= faults_[next_fault].at_event)
        apply(faults_[next_fault++]);
      if (!fabric.step()) break;
      if (fabric.events() > max_events) throw Violation("it does not end");
    }
  } while (move_on());
  const std::size_t bound = 2 * std::size_t{plan.writer.slots()} + 4;
  if (!garbage && fabric.longest_ring() > bound)
    throw Violation(std::to_string(fabric.longest_ring()) + " records in a ring, more than " + std::to_string(bound));
}

Result World::run() {
  Result result;
  try {
    play();
  } catch (const std::exception& e) {
    result.failure = e.what();
  }
  result.events = fabric.events();
  result.messages = fabric.messages();
  result.steps_taken = oracle.steps_taken();
  result.longest_ring = fabric.longest_ring();
  result.committed = writer(0).protocol().ledger().totals().committed;
  for (std::uint16_t k = 0; k < wire::kind_count; ++k) result.by_kind[k] = fabric.messages(static_cast<Kind>(k));
  return result;
}

Result run_schedule(const Plan& plan, Bug bug, bool trace) { return World(plan, bug, trace).run(); }

}  // namespace penstock::stream::sim
