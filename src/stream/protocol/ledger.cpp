#include "stream/protocol/ledger.hpp"

#include <algorithm>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::stream {

using wire::Kind;
using wire::Message;

Ledger::Ledger(LedgerSettings settings, Sink& sink, std::function<void(const Grant&)> on_grant)
    : settings_(settings),
      sink_(sink),
      on_grant_(std::move(on_grant)),
      slots_(settings.slots()),
      layouts_(settings.ranks) {
  retained_.reserve(slots_.size());
  grant_free_slots();
}

// ------------------------------------------------------------------------------------------------------------ grants

std::uint32_t Ledger::queue_depth() const {
  std::uint32_t depth = 0;
  for (std::uint32_t s = 0; s < slots_.size(); ++s)
    depth += slots_[s].state == State::granted || (slots_[s].state == State::committed && marked(s));
  return depth;
}

std::uint32_t Ledger::steps_waiting() const {
  return static_cast<std::uint32_t>(
      std::count_if(retained_.begin(), retained_.end(), [&](auto s) { return marked(s); }));
}

std::uint32_t Ledger::steps_kept() const {
  return static_cast<std::uint32_t>(
      std::count_if(retained_.begin(), retained_.end(), [&](auto s) { return slots_[s].kept; }));
}

void Ledger::grant(bool dropped, std::uint32_t slot) {
  const Grant grant{next_step_++, dropped ? 0 : slot, dropped};
  if (!dropped) slots_[slot] = {State::granted, grant.step, nullptr};
  on_grant_(grant);
}

void Ledger::grant_free_slots() {
  if (!rendezvous_met() || finishing_) return;
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].state != State::idle) continue;
    if (queue_depth() >= settings_.queue_steps) return;
    grant(false, s);
  }
}

void Ledger::want(std::uint64_t step) {
  wanted_step_ = std::max(wanted_step_, step);
  if (step != next_step_ || !rendezvous_met() || finishing_) return;
  while (step == next_step_ && skip_oldest()) {
  }
  if (step != next_step_ || settings_.when_full == WhenFull::block) return;
  // A full queue is the readers' doing only if a committed step is in it; else a slow rank of ours is awaited.
  const bool readers_behind = std::any_of(retained_.begin(), retained_.end(), [&](auto s) { return marked(s); });
  if (!readers_behind) return;
  // More than one may have to give way: late joiners' marks on the reserve come on top of a full queue.
  const bool oldest = settings_.when_full == WhenFull::discard_oldest;
  while (step == next_step_ && (oldest ? drop_oldest() : drop_surplus())) {
  }
  if (step != next_step_) return;
  ++totals_.dropped;
  drop_for_readers(next_step_);
  grant(true, 0);
}

// A step that only readers of the latest have still to begin gives way to the next, which is later.
bool Ledger::skip_oldest() {
  for (const auto s : retained_) {
    const auto needs = [&](const auto& r) {
      return r->marks[s] == Mark::announced || (r->marks[s] == Mark::pending && !r->account.latest);
    };
    if (!marked(s) || slots_[s].kept || std::any_of(readers_.begin(), readers_.end(), needs)) continue;
    for (auto& r : readers_) r->marks[s] = Mark::none;
    collect();
    return true;
  }
  return false;
}

bool Ledger::drop_oldest() {
  for (const auto s : retained_) {
    if (!marked(s) || leased(s)) continue;
    drop_pending(s);
    return true;
  }
  return false;
}

// The newest step that waits only for cohorts which need more than their share, unless all do.
bool Ledger::drop_surplus() {
  const auto within = [&](const auto& r) { return r->present() && needed_by(*r) <= share(); };
  if (std::none_of(readers_.begin(), readers_.end(), within)) return false;
  for (std::size_t i = retained_.size(); i-- > 0;) {
    const auto s = retained_[i];
    if (!marked(s) || leased(s) || slots_[s].kept) continue;
    const auto claims = [&](const auto& r) { return r->marks[s] != Mark::none && within(r); };
    if (std::any_of(readers_.begin(), readers_.end(), claims)) continue;
    drop_pending(s);
    return true;
  }
  return false;
}

// Nobody has begun this step.
void Ledger::drop_pending(std::uint32_t slot) {
  slots_[slot].kept = false;
  for (auto& r : readers_) {
    if (r->marks[slot] != Mark::pending) continue;
    r->marks[slot] = Mark::none;
    ++r->account.dropped;
    ++r->unreported_drops;
    r->last_drop = slots_[slot].step;
  }
  ++totals_.dropped;
  collect();
}

void Ledger::drop_for_readers(std::uint64_t step) {
  for (auto& r : readers_) {
    if (!r->present()) continue;
    ++r->account.dropped;
    ++r->unreported_drops;
    r->last_drop = step;
  }
}

// ------------------------------------------------------------------------------------------------------------- steps

void Ledger::commit(std::uint32_t slot, bool voided, const std::vector<wire::RankBlob>& changed) {
  for (const auto& blob : changed) layouts_.at(blob.rank) = blob.layout;
  layouts_changed_ |= !changed.empty();
  if (voided || finished_) {
    ++(voided ? totals_.voided : totals_.dropped);
    slots_[slot] = {};
    grant_free_slots();
    maybe_goodbye();
    if (wanted_step_ == next_step_) want(next_step_);
    return;
  }
  if (layouts_changed_ || !epoch_) {
    epoch_ = std::make_shared<const EpochBlobs>(EpochBlobs{++totals_.epochs, layouts_});
    layouts_changed_ = false;
  }
  slots_[slot].state = State::committed;
  slots_[slot].epoch = epoch_;
  retained_.push_back(slot);
  ++totals_.committed;
  first_committed_ = std::min(first_committed_, slots_[slot].step);
  slots_[slot].kept = settings_.keep_undelivered && readers_.empty();
  for (auto& r : readers_) {
    mark_pending(*r, slot);
    serve(*r);
  }
  collect();
  if (wanted_step_ == next_step_) want(next_step_);  // what was held up by a slow rank is now held up by readers
}

bool Ledger::marked(std::uint32_t slot) const {
  return slots_[slot].kept ||
         std::any_of(readers_.begin(), readers_.end(), [&](const auto& r) { return r->marks[slot] != Mark::none; });
}

bool Ledger::leased(std::uint32_t slot) const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const auto& r) { return r->marks[slot] == Mark::announced; });
}

std::uint32_t Ledger::needed_by(const Reader& r) const {
  return static_cast<std::uint32_t>(
      std::count_if(retained_.begin(), retained_.end(), [&](auto s) { return r.marks[s] != Mark::none; }));
}

void Ledger::free_slot(std::uint32_t slot) { slots_[slot] = {}; }

// Frees released steps beyond the reserve, then grants what became free.
void Ledger::collect() {
  std::uint32_t reserve = settings_.reserve_steps;
  for (std::size_t i = retained_.size(); i-- > 0;) {
    const auto s = retained_[i];
    if (marked(s)) continue;
    if (settings_.keep_first_step && slots_[s].step == first_committed_) continue;
    if (reserve > 0) {  // also while closing: who comes before the end still finds it
      --reserve;
      continue;
    }
    free_slot(s);
    retained_.erase(retained_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  grant_free_slots();
  maybe_goodbye();
}

// ----------------------------------------------------------------------------------------------------------- readers

Ledger::Reader& Ledger::reader(LinkId link) {
  for (auto& r : readers_)
    if (r->account.link == link) return *r;
  throw Error(Errc::protocol, "a reader that was not admitted spoke");
}

bool Ledger::has(LinkId link) const {
  return std::any_of(readers_.begin(), readers_.end(), [&](const auto& r) { return r->account.link == link; });
}

std::uint32_t Ledger::share() const {
  const auto steps = settings_.queue_steps;
  if (steps < 3 || readers_.empty()) return steps;
  const auto equal = steps / static_cast<std::uint32_t>(readers_.size());
  return std::min(std::max(equal, settings_.least_share), steps - 1);
}

void Ledger::join(LinkId link, std::uint32_t ranks, bool latest, std::string name) {
  auto r = std::make_unique<Reader>();
  r->account.link = link;
  r->account.name = std::move(name);
  r->account.ranks = ranks;
  r->account.latest = latest;
  r->demand = on_demand(latest);
  r->marks.assign(slots_.size(), Mark::none);
  readers_.push_back(std::move(r));
  ++joined_;
  auto& joined = *readers_.back();
  if (finished_) {
    joined.told_end = true;
    sink_.send(link,
               broken_why_.empty() ? Message{.kind = Kind::goodbye} : Message{.kind = Kind::lost, .text = broken_why_});
    return;
  }
  for (const auto s : retained_) {
    if (settings_.keep_undelivered && !std::exchange(slots_[s].kept, false)) continue;
    mark_pending(joined, s);
    if (!joined.demand) serve(joined);
  }
  collect();
}

void Ledger::mark_pending(Reader& r, std::uint32_t slot) {
  if (!r.present()) return;
  if (r.account.latest) {
    for (const auto s : retained_) {
      if (s == slot || r.marks[s] != Mark::pending) continue;
      r.marks[s] = Mark::none;  // superseded: skipped by the reader's own choice, not dropped
    }
  }
  r.marks[slot] = Mark::pending;
}

void Ledger::serve(Reader& r) {
  if (!r.present()) return;  // what it was told, or said, is final
  for (const auto s : retained_) {
    if (r.marks[s] != Mark::pending) continue;
    if (r.demand && r.wanted <= r.account.announced) return;
    if (may_discard() && !finishing_ && r.account.held >= share()) return;
    announce(r, s);
  }
}

// What a cohort may hold has changed.
void Ledger::serve_all() {
  for (auto& r : readers_) serve(*r);
}

void Ledger::announce(Reader& r, std::uint32_t slot) {
  auto& account = r.account;
  report_drops(r);
  send_epoch(r, slots_[slot].epoch);
  r.marks[slot] = Mark::announced;
  ++account.announced;
  ++account.held;
  sink_.send(
      account.link,
      Message{.kind = Kind::announce, .step = slots_[slot].step, .epoch = slots_[slot].epoch->number, .slot = slot});
}

// Drops are told with the next announcement, so that their number in flight is bounded by the number of slots.
void Ledger::report_drops(Reader& r) {
  if (r.unreported_drops == 0) return;
  sink_.send(r.account.link, Message{.kind = Kind::dropped, .step = r.last_drop, .value = r.unreported_drops});
  r.unreported_drops = 0;
}

void Ledger::send_epoch(Reader& r, const std::shared_ptr<const EpochBlobs>& epoch) {
  if (r.known == epoch) return;
  Message message{.kind = Kind::epoch, .epoch = epoch->number, .value = r.known ? r.known->number : 0};
  for (std::uint32_t rank = 0; rank < epoch->layouts.size(); ++rank) {
    const auto& layout = epoch->layouts[rank];
    if (!layout || (r.known && r.known->layouts[rank] == layout)) continue;
    message.layouts.push_back({rank, layout});
  }
  message.ranks = settings_.ranks;
  r.known = epoch;
  const auto layouts = std::exchange(message.layouts, {});
  split_layouts(layouts, [&](auto first, auto last, bool more) {
    message.layouts.assign(first, last);
    message.flag = more;
    sink_.send(r.account.link, message);
  });
}

void Ledger::on_reader(LinkId link, const Message& message) {
  auto& r = reader(link);
  switch (message.kind) {
    case Kind::want:
      if (!r.demand || message.step > r.account.announced) throw Error(Errc::protocol, "a want that was not due");
      r.wanted = std::max(r.wanted, message.step + 1);
      serve(r);
      maybe_goodbye();
      return;
    case Kind::release:
      if (message.slot >= slots_.size() || r.marks[message.slot] != Mark::announced ||
          slots_[message.slot].step != message.step)
        throw Error(Errc::protocol, "release of step " + std::to_string(message.step) + ", which it does not hold");
      r.marks[message.slot] = Mark::none;
      ++r.account.released;
      --r.account.held;
      if (r.account.left && r.account.held == 0 && !r.told_end) return remove(link);
      serve(r);
      collect();
      return;
    case Kind::leave: leave(r, message.value); return;
    default: throw Error(Errc::protocol, "a reader sent " + std::string(wire::name_of(message.kind)));
  }
}

// heard: the cohort keeps leases of steps below this alone; of later ones it was not told.
void Ledger::leave(Reader& r, std::uint64_t heard) {
  if (r.account.left) throw Error(Errc::protocol, "a reader left twice");
  if (heard > next_step_) throw Error(Errc::protocol, "a reader left that heard of a step that is not there");
  if (settings_.keep_undelivered) return remove(r.account.link);
  r.account.left = true;
  for (const auto s : retained_) {
    if (r.marks[s] == Mark::announced && slots_[s].step < heard) continue;
    if (r.marks[s] == Mark::announced) --r.account.held;
    r.marks[s] = Mark::none;
  }
  if (r.account.held == 0 && !r.told_end) return remove(r.account.link);
  collect();
}

void Ledger::remove(LinkId link) {
  if (settings_.keep_undelivered && readers_.size() == 1 && readers_.front()->account.link == link)
    keep_for_next(*readers_.front());
  std::erase_if(readers_, [&](const auto& r) { return r->account.link == link; });
  serve_all();
  collect();
}

void Ledger::keep_for_next(const Reader& gone) {
  if (finished_) return;
  for (const auto s : retained_) slots_[s].kept = gone.marks[s] != Mark::none;
}

std::vector<Ledger::ReaderAccount> Ledger::readers() const {
  std::vector<ReaderAccount> accounts;
  for (const auto& r : readers_) {
    accounts.push_back(r->account);
    accounts.back().needed = needed_by(*r);
  }
  return accounts;
}

// --------------------------------------------------------------------------------------------------------------- end

void Ledger::finish() {
  finishing_ = true;
  serve_all();
  collect();
}

void Ledger::maybe_goodbye() {
  if (!finishing_ || finished_) return;
  for (auto& r : readers_) {
    // One that may be followed by another (keep_undelivered) has announced steps only when it has released them.
    if (!r->account.left && needed_by(*r) == (settings_.keep_undelivered ? 0 : r->account.held)) say_goodbye(*r);
  }
  if (!steps_awaited()) finish_now();
}

// Readers still need some of the steps, or steps are kept for one to come.
bool Ledger::steps_awaited() const {
  return steps_kept() > 0 || std::any_of(readers_.begin(), readers_.end(),
                                         [&](const auto& r) { return !r->account.left && needed_by(*r) > 0; });
}

void Ledger::say_goodbye(Reader& r) {
  if (!r.present()) return;
  report_drops(r);
  r.told_end = true;
  sink_.send(r.account.link, Message{.kind = Kind::goodbye, .step = r.account.announced});
}

void Ledger::finish_now() {
  finishing_ = true;
  if (finished_) return;
  // Whoever takes steps over for others must not tell them that the stream is complete.
  const bool incomplete = settings_.keep_undelivered && steps_awaited();
  for (auto& slot : slots_) slot.kept = false;
  for (auto& r : readers_) {
    for (const auto s : retained_) {
      if (r->marks[s] != Mark::pending) continue;
      r->marks[s] = Mark::none;
      ++r->account.dropped;
      ++r->unreported_drops;
      r->last_drop = slots_[s].step;
    }
  }
  if (incomplete) return break_stream("it was closed before every step was taken over");
  finished_ = true;
  for (auto& r : readers_) say_goodbye(*r);
}

void Ledger::break_stream(const std::string& why) {
  finishing_ = true;
  if (finished_) return;
  finished_ = true;
  broken_why_ = why;
  for (auto& r : readers_) {
    if (!r->present()) continue;
    r->told_end = true;
    sink_.send(r->account.link, Message{.kind = Kind::lost, .text = why});
  }
}

}  // namespace penstock::stream
