#include "stream/protocol/sim/oracle.hpp"

#include <algorithm>

namespace penstock::stream::sim {
namespace {

std::string name_of(std::uint32_t cohort, std::uint32_t rank) {
  return "rank " + std::to_string(rank) + " of cohort " + std::to_string(cohort);
}
std::string name_of(std::uint64_t step) { return "step " + std::to_string(step); }

}  // namespace

Oracle::Oracle(const Plan& plan)
    : plan_(plan), current_(plan.writer.ranks), in_slot_(plan.writer.slots()), holders_(plan.writer.slots()) {
  for (const auto& c : plan.cohorts) {
    cohorts_.emplace_back();
    cohorts_.back().ranks.resize(c.ranks);
    for (auto& r : cohorts_.back().ranks) {
      r.held.resize(plan.writer.slots());
      r.taken_in.resize(plan.writer.slots());
    }
  }
}

Oracle::Step& Oracle::step(std::uint64_t number) {
  if (number >= steps_.size()) steps_.resize(number + 1);
  return steps_[number];
}

// ----------------------------------------------------------------------------------------------------------- writers

void Oracle::granted(const Ledger::Grant& grant) {
  auto& s = step(grant.step);
  if (s.sighted) {
    if (s.dropped != grant.dropped || (!s.dropped && s.slot != grant.slot))
      fail(name_of(grant.step) + " was granted in two ways");
    return;
  }
  if (grant.step != sighted_++) fail(name_of(grant.step) + " was granted out of order");
  s.sighted = true;
  s.dropped = grant.dropped;
  sighted_drops_ += grant.dropped;
  s.slot = grant.slot;
  if (grant.dropped) return;
  s.layouts.resize(plan_.writer.ranks);
  check_unread(grant.slot, "granted to " + name_of(grant.step));
  in_slot_[grant.slot] = grant.step + 1;
}

void Oracle::check_unread(std::uint32_t slot, const std::string& what) const {
  if (holders_[slot] == 0) return;
  for (std::uint32_t c = 0; c < cohorts_.size(); ++c)
    for (std::uint32_t r = 0; r < cohorts_[c].ranks.size(); ++r)
      if (const auto held = cohorts_[c].ranks[r].held[slot])
        fail("slot " + std::to_string(slot) + " was " + what + " while " + name_of(c, r) +
             (cohorts_[c].ranks[r].taken_in[slot] ? " reads " : " is to read ") + name_of(held - 1) + " in it");
}

void Oracle::recorded(std::uint32_t rank, const Ledger::Grant& grant, bool voided, const Layout& layout) {
  auto& s = step(grant.step);
  if (layout) current_[rank] = layout;
  s.layouts[rank] = current_[rank];
  s.voided |= voided;
  ++s.recorded;
}

void Oracle::wanted_at_root(std::uint64_t step) { wanted_ = wanted_ == never ? step : std::max(wanted_, step); }

void Oracle::root_changed(const WriterProtocol& root, bool joined) {
  const auto& ledger = root.ledger();
  for (std::uint32_t c = 0; c < cohorts_.size(); ++c)
    if (cohorts_[c].goodbye_due) check_goodbye(c, ledger);
  if (ledger.finished() || root.broken()) return;
  check_commits(ledger);
  check_shares(ledger, joined);
  check_queue(ledger, joined);
}

void Oracle::check_commits(const Ledger& ledger) {
  const auto& totals = ledger.totals();
  while (committed_ + voided_ < totals.committed + totals.voided) {
    while (step(cursor_).dropped) ++cursor_;
    auto& s = step(cursor_);
    if (s.recorded < plan_.writer.ranks)
      fail(name_of(cursor_) + " was committed with " + std::to_string(s.recorded) + " of " +
           std::to_string(plan_.writer.ranks) + " records");
    s.index = committed_;
    if (!s.voided) last_committed_ = cursor_;
    (s.voided ? voided_ : committed_) += 1;
    ++cursor_;
  }
  if (committed_ != totals.committed || voided_ != totals.voided)
    fail("a step that a rank voided was committed, or the reverse, before " + name_of(cursor_));
}

void Oracle::check_queue(const Ledger& ledger, bool joined) {
  const auto depth = ledger.queue_depth();
  const auto bound = plan_.writer.queue_steps;
  if (depth > bound && depth > last_depth_ && !joined)
    fail(std::to_string(depth) + " steps are written or needed, more than queue_steps=" + std::to_string(bound));
  last_depth_ = depth;
  if (ledger.retained_steps() > plan_.writer.slots()) fail("more steps are retained than there are slots");
  if (wanted_ != ledger.next_step() || !ledger.rendezvous_met()) return;
  if (depth < bound)
    fail("ranks wait for " + name_of(wanted_) + " with " + std::to_string(depth) + " steps in the queue");
  const auto being_written = sighted_ - sighted_drops_ - committed_ - voided_;
  if (plan_.writer.when_full != WhenFull::block && sighted_ == ledger.next_step() && being_written == 0)
    fail("ranks wait for " + name_of(wanted_) + " though policy may discard");
}

// The share is worked out here once more, as docs/concepts/queues.md says it.
void Oracle::check_shares(const Ledger& ledger, bool joined) {
  if (plan_.writer.when_full == WhenFull::block) return;
  const auto accounts = ledger.readers();
  const auto steps = plan_.writer.queue_steps;
  std::uint64_t share = steps;
  if (steps >= 3 && !accounts.empty()) share = std::clamp<std::uint64_t>(steps / accounts.size(), 2, steps - 1);
  const bool being_written = sighted_ - sighted_drops_ - committed_ - voided_ > 0;
  const bool fair = !joined && !being_written && last_depth_ <= steps && share * accounts.size() <= steps &&
                    std::all_of(accounts.begin(), accounts.end(), [&](const auto& a) { return a.held <= share; });
  for (const auto& a : accounts) {
    auto& c = cohorts_[a.link - first_reader_link];
    if (a.held > c.held_before && a.held > share && !ledger.finishing())
      fail("a reader holds " + std::to_string(a.held) + " steps, more than its share of " + std::to_string(share));
    if (fair && !ledger.finishing() && a.dropped > c.dropped_before && a.needed + 1 < share)
      fail("a step was dropped for a reader that needs " + std::to_string(a.needed) + " of its share of " +
           std::to_string(share));
    c.held_before = a.held;
    c.dropped_before = a.dropped;
  }
}

std::uint32_t Oracle::slots_taken() const {
  std::uint32_t taken = 0;
  for (std::uint32_t s = 0; s < holders_.size(); ++s) {
    const auto reads = [&](const Rank& r) { return r.held[s] != 0 && r.taken_in[s]; };
    taken += std::any_of(cohorts_.begin(), cohorts_.end(),
                         [&](const auto& c) { return std::any_of(c.ranks.begin(), c.ranks.end(), reads); });
  }
  return taken;
}

// ----------------------------------------------------------------------------------------------------------- readers

void Oracle::hold(Rank& rank, std::uint32_t slot, std::uint64_t step) {
  if (rank.held[slot] == 0) ++holders_[slot];
  rank.held[slot] = step + 1;
  rank.taken_in[slot] = false;
}

void Oracle::unhold(Rank& rank, std::uint32_t slot) {
  if (rank.held[slot] == 0) return;
  rank.held[slot] = 0;
  --holders_[slot];
}

void Oracle::joined(std::uint32_t cohort, const Ledger& before) {
  auto& c = cohorts_[cohort];
  c.joined = true;
  c.retained_at_join = before.finished() ? 0 : before.retained_steps();
  c.committed_at_join = before.totals().committed;
  c.step_at_join = before.next_step();
}

void Oracle::announced(std::uint32_t cohort, const wire::Message& message) {
  auto& c = cohorts_[cohort];
  if (c.goodbye_sent)
    fail(name_of(message.step) + " was announced to cohort " + std::to_string(cohort) + " after the goodbye");
  ++c.announced;
  c.last_announced = message.step;
  const auto& s = step(message.step);
  if (!s.sighted || s.dropped || s.slot != message.slot || in_slot_[message.slot] != message.step + 1)
    fail(name_of(message.step) + " was announced in slot " + std::to_string(message.slot) + ", which does not hold it");
  if (s.recorded < plan_.writer.ranks || s.voided)
    fail(name_of(message.step) + " was announced, which is " + (s.voided ? "void" : "not complete"));
  for (auto& r : c.ranks)
    if (!r.gone && !r.unheard) hold(r, message.slot, message.step);
}

void Oracle::took(std::uint32_t cohort, std::uint32_t rank, const ReaderProtocol::Step& taken) {
  auto& c = cohorts_[cohort];
  auto& r = c.ranks[rank];
  ++steps_taken_;
  if (c.is_tainted) return;
  const auto who = name_of(cohort, rank) + " took " + name_of(taken.step);
  const auto& s = step(taken.step);
  if (r.took_any && taken.step <= r.last_step) fail(who + " after " + name_of(r.last_step));
  if (!s.sighted || s.dropped || s.voided || s.recorded < plan_.writer.ranks) fail(who + ", which was not committed");
  if (!r.unheard && r.held[taken.slot] != taken.step + 1) fail(who + ", which it does not hold");
  // What was announced to a reader that the writer cannot hear may already be overwritten; its epoch is right all the same.
  if (taken.epoch->layouts.size() != plan_.writer.ranks) fail(who + " with layouts of another number of ranks");
  for (std::uint32_t w = 0; w < plan_.writer.ranks; ++w) {
    const auto& got = taken.epoch->layouts[w];
    const auto& put = s.layouts[w];
    if (got != put && (!got || !put || *got != *put))
      fail(who + " with layout " + (got ? *got : "nothing") + " of rank " + std::to_string(w) + " instead of " +
           (put ? *put : "nothing"));
  }
  const bool all = !plan_.cohorts[cohort].latest && plan_.writer.when_full == WhenFull::block;
  // What was retained when the cohort joined may have gaps.
  const auto first = r.took_any ? std::max(r.last_index + 1, c.committed_at_join) : c.committed_at_join;
  if (all && s.index > first) fail(who + " and missed one before it");
  r.took_any = true;
  r.last_step = taken.step;
  r.last_index = s.index;
  ++r.taken;
  r.taken_in[taken.slot] = true;
}

void Oracle::released(std::uint32_t cohort, std::uint32_t rank, std::uint32_t slot) {
  unhold(rank_of(cohort, rank), slot);
}

void Oracle::left(std::uint32_t cohort, std::uint32_t rank) {
  auto& r = rank_of(cohort, rank);
  r.gone = true;
  for (std::uint32_t s = 0; s < r.held.size(); ++s)
    if (!r.taken_in[s]) unhold(r, s);
}

void Oracle::check_goodbye(std::uint32_t cohort, const Ledger& ledger) {
  auto& c = cohorts_[cohort];
  c.goodbye_due = false;
  c.goodbye_sent = true;
  if (c.is_tainted) return;
  for (const auto& account : ledger.readers()) {
    if (account.link != first_reader_link + cohort) continue;
    c.dropped = account.dropped;
    std::uint64_t expected = c.retained_at_join + ledger.totals().committed - c.committed_at_join;
    for (auto n = c.step_at_join; n < steps_.size(); ++n) expected += steps_[n].sighted && steps_[n].dropped;
    const auto told = account.announced + account.dropped;
    if (account.announced != c.announced || told > expected || (told < expected && !account.latest))
      fail("cohort " + std::to_string(cohort) + " was told of " + std::to_string(account.announced) + " steps and " +
           std::to_string(account.dropped) + " dropped ones, of " + std::to_string(expected));
    // Without voided steps and discarding, who reads the latest ends with the last.
    const bool all_kept =
        plan_.void_chance == 0 && plan_.close_deadline == never && plan_.writer.when_full == WhenFull::block;
    if (all_kept && committed_ > c.committed_at_join && c.last_announced != last_committed_)
      fail("cohort " + std::to_string(cohort) + " was not told of the last step");
  }
}

void Oracle::ended(std::uint32_t cohort, std::uint32_t rank, const ReaderProtocol& reader) {
  auto& c = cohorts_[cohort];
  if (c.is_tainted) return;
  const auto& r = c.ranks[rank];
  if (!c.goodbye_sent) fail(name_of(cohort, rank) + " saw the end of a stream that goes on");
  if (r.taken != c.announced)
    fail(name_of(cohort, rank) + " took " + std::to_string(r.taken) + " of " + std::to_string(c.announced) + " steps");
  if (reader.dropped() != c.dropped)
    fail(name_of(cohort, rank) + " knows of " + std::to_string(reader.dropped()) + " dropped steps of " +
         std::to_string(c.dropped));
}

void Oracle::lost(std::uint32_t cohort, std::uint32_t rank, const ReaderProtocol&) {
  auto& c = cohorts_[cohort];
  const auto& r = c.ranks[rank];
  if (!c.intact || c.is_tainted || !nothing_lost_) return;
  if (r.taken != c.announced)
    fail(name_of(cohort, rank) + " lost the writer after " + std::to_string(r.taken) + " of " +
         std::to_string(c.announced) + " announced steps");
}

void Oracle::unprotect(std::uint32_t cohort, std::uint32_t rank) {
  auto& r = rank_of(cohort, rank);
  r.unheard = true;
  for (std::uint32_t s = 0; s < r.held.size(); ++s) unhold(r, s);
}

void Oracle::tainted(std::uint32_t cohort) {
  cohorts_[cohort].is_tainted = true;
  damaged(cohort);
  for (std::uint32_t r = 0; r < cohorts_[cohort].ranks.size(); ++r) unprotect(cohort, r);
}

}  // namespace penstock::stream::sim
