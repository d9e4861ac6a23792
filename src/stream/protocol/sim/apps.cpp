// The applications of a simulated schedule: what an engine does with the protocol, and what a program does with an engine.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "penstock/error.hpp"
#include "stream/protocol/sim/world.hpp"

namespace penstock::stream::sim {

using wire::Kind;
using wire::Message;

// -------------------------------------------------------------------------------------------------------------- both

bool RankNode::alive() const { return world_.fabric.alive(id_); }

void RankNode::trace(const char* what, LinkId link, const Message& m) const {
  if (!world_.tracing) return;
  std::printf("%6llu %-10s %s %s link=%u step=%llu slot=%u epoch=%llu value=%llu flag=%d %s\n",
              static_cast<unsigned long long>(world_.fabric.now()), name().c_str(), what,
              std::string(wire::name_of(m.kind)).c_str(),
              link >= first_reader_link ? link - first_reader_link + 1000000 : link,
              static_cast<unsigned long long>(m.step), m.slot, static_cast<unsigned long long>(m.epoch),
              static_cast<unsigned long long>(m.value), m.flag, m.text.c_str());
}

void RankNode::send(LinkId link, const Message& message) {
  trace("->", link, message);
  observe(link, message);
  if (world_.bug == Bug::none) return world_.fabric.send(id_, link, message);
  auto copy = message;
  if (damage(link, copy)) world_.fabric.send(id_, link, copy);
}

void RankNode::on_message(LinkId link, const Message& message) {
  trace("<-", link, message);
  hear(link, message);
}

// Planted: what the first child says is taken for the second child's word too, which is passed over when it comes.
bool RankNode::forge_for_sibling(LinkId link, std::uint64_t step, std::uint32_t ranks, std::uint32_t fan_out) {
  const auto first = first_child(rank_, fan_out);
  if (link == first + 1) heard_.push_back(step);
  if (child_count(rank_, ranks, fan_out) < 2 || link != first || heard_sibling_leave_) return false;
  if (std::find(heard_.begin(), heard_.end(), step) != heard_.end()) return false;
  forged_.push_back({link + 1, step});
  return true;
}

bool RankNode::was_forged(LinkId link, std::uint64_t step) const {
  return std::find(forged_.begin(), forged_.end(), std::pair(link, step)) != forged_.end();
}

// ------------------------------------------------------------------------------------------------------------ writers

void WriterRank::open() {
  auto settings = world_.plan.writer;
  if (world_.bug == Bug::share_ignored) settings.least_share = settings.queue_steps;
  protocol_ = std::make_unique<WriterProtocol>(rank_, settings, *this, world_.plan.fan_out);
  world_.fabric.wake(id_, world_.random.below(20), Wake::next);
}

void WriterRank::settle(bool joined) {
  while (const auto slot = protocol_->take_freed_slot()) world_.oracle.recycled(*slot);
  if (rank_ == 0) world_.oracle.root_changed(*protocol_, joined);
}

void WriterRank::refuse(LinkId link, const std::string& why) {
  const bool expected = link >= first_reader_link && world_.oracle.is_tainted(link - first_reader_link);
  if (!expected) throw Violation(name() + " refused a message of a correct peer: " + why);
  world_.fabric.drop(id_, link);
  protocol_->on_link_lost(link, why);
}

void WriterRank::hear(LinkId link, const Message& message) {
  bool joined = false;
  try {
    if (link >= first_reader_link && message.kind == Kind::join) {
      admit(link, message);
      joined = true;
    } else if (link >= first_reader_link && message.kind == Kind::poke) {
      return;
    } else if (world_.bug == Bug::leave_ends_all && link >= first_reader_link && message.kind == Kind::leave) {
      world_.fabric.drop(id_, link);
      protocol_->on_link_lost(link, "left");
    } else {
      if (rank_ == 0 && message.kind == Kind::want && link < first_reader_link)
        world_.oracle.wanted_at_root(message.step);
      const bool early = world_.bug == Bug::record_early && message.kind == Kind::record;
      if (early && was_forged(link, message.step)) return;
      protocol_->on_message(link, message);
      if (early && forge_for_sibling(link, message.step, world_.writer_ranks(), world_.plan.fan_out)) {
        auto copy = message;
        copy.layouts.clear();
        protocol_->on_message(link + 1, copy);
      }
    }
    if (link >= first_reader_link && !protocol_->ledger().has(link)) world_.fabric.drop(id_, link);
  } catch (const Error& e) {
    refuse(link, e.what());
  }
  settle(joined);
  progress();
}

void WriterRank::admit(LinkId link, const Message& join) {
  // An ended writer may still let readers in, to tell them that it has ended.
  if ((protocol_->broken() || done()) && world_.random.chance(0.5)) {
    world_.fabric.drop(id_, link);
    world_.cohort_dropped(link - first_reader_link);
    return;
  }
  if (!world_.plan.cohorts.empty() && world_.oracle.is_tainted(link - first_reader_link))
    throw Error(Errc::protocol, "a second join");
  auto& ledger = protocol_->ledger();
  send(link, Message{.kind = Kind::admit,
                     .slot = ledger.settings().slots(),
                     .ranks = world_.writer_ranks(),
                     .flag = ledger.on_demand(join.flag)});
  world_.oracle.joined(link - first_reader_link, ledger);
  ledger.join(link, join.ranks, join.flag, join.text);
}

void WriterRank::observe(LinkId link, const Message& m) {
  auto& oracle = world_.oracle;
  if (m.kind == Kind::grant && rank_ == 0) oracle.granted({m.step, m.slot, m.flag});
  if (link < first_reader_link) return;
  if (m.kind == Kind::announce) oracle.announced(link - first_reader_link, m);
  if (m.kind == Kind::goodbye) oracle.goodbye(link - first_reader_link);
}

bool WriterRank::damage(LinkId, Message& m) {
  switch (world_.bug) {
    case Bug::grant_lost: return m.kind != Kind::grant || !world_.plant_once(m.step > 0 ? 0.1 : 0.0);
    case Bug::layout_left_out:
      if (m.kind == Kind::epoch && m.value != 0 && !m.layouts.empty()) m.layouts.pop_back();
      return true;
    case Bug::drops_untold: return m.kind != Kind::dropped;
    case Bug::goodbye_early:
      if (m.kind == Kind::goodbye && m.step > 0) --m.step;
      return true;
    default: return true;
  }
}

void WriterRank::on_link_lost(LinkId link, const std::string& why) {
  protocol_->on_link_lost(link, why);
  settle();
  progress();
}

void WriterRank::on_wake(std::uint64_t what) {
  switch (what) {
    case Wake::next:
      if (state_ == State::thinking) begin_step();
      return;
    case Wake::written: end_step(); return;
    case Wake::deadline:
      if (state_ != State::closing) return;
      protocol_->close_now();
      settle();
      progress();
      return;
    case Wake::end_process: world_.fabric.exit(id_); return;
  }
}

void WriterRank::give_up() {
  if (state_ == State::waiting) close();
}

void WriterRank::progress() {
  if (state_ == State::waiting) begin_step();
  if (state_ == State::closing && (protocol_->closed() || protocol_->broken())) finish();
}

void WriterRank::begin_step() {
  if (protocol_->broken()) return finish();
  if (next_step_ == world_.plan.steps || world_.expired) return close();
  auto grant = protocol_->take_grant();
  if (!grant) {
    if (rank_ == 0) world_.oracle.wanted_at_root(next_step_);
    protocol_->want();
    settle();
    grant = protocol_->take_grant();
  }
  if (!grant) {
    state_ = State::waiting;
    return;
  }
  if (grant->step != next_step_)
    throw Violation(name() + " was granted step " + std::to_string(grant->step) + " instead of " +
                    std::to_string(next_step_));
  world_.oracle.granted(*grant);
  ++next_step_;
  grant_ = *grant;
  if (grant_.dropped) {
    state_ = State::thinking;
    world_.fabric.wake(id_, 1 + world_.random.below(world_.plan.write_time), Wake::next);
  } else {
    state_ = State::writing;
    world_.fabric.wake(id_, world_.random.below(world_.plan.write_time), Wake::written);
  }
}

void WriterRank::end_step() {
  if (protocol_->broken()) return finish();
  auto& random = world_.random;
  const bool voided = random.chance(world_.plan.void_chance);
  if (!layout_ || random.chance(world_.plan.layout_chance)) {
    layout_ = std::make_shared<const std::string>("layout " + std::to_string(rank_) + "." +
                                                  std::to_string(++layout_version_));
    layout_changed_ = true;
  }
  const auto changed = layout_changed_ ? layout_ : nullptr;
  layout_changed_ = false;
  world_.oracle.recorded(rank_, grant_, voided, changed);
  protocol_->record(grant_, voided, changed);
  settle();
  state_ = State::thinking;
  world_.fabric.wake(id_, random.below(world_.plan.write_time), Wake::next);
}

void WriterRank::close() {
  state_ = State::closing;
  protocol_->closing();
  settle();
  if (rank_ == 0 && world_.plan.close_deadline != never)
    world_.fabric.wake(id_, world_.plan.close_deadline, Wake::deadline);
  progress();
}

void WriterRank::finish() {
  state_ = State::done;
  if (world_.random.chance(0.7)) world_.fabric.wake(id_, world_.random.below(20), Wake::end_process);
}

std::string WriterRank::waits_for() const {
  static constexpr const char* doing[] = {"computes", "waits to begin step ", "writes", "closes", "is done"};
  return name() + " " + doing[static_cast<int>(state_)] + (state_ == State::waiting ? std::to_string(next_step_) : "") +
         ", awaited: " + protocol_->awaited().who;
}

// ------------------------------------------------------------------------------------------------------------ readers

const CohortPlan& ReaderRank::plan() const { return world_.plan.cohorts[cohort_]; }

void ReaderRank::join_later(Time delay) { world_.fabric.wake(id_, delay, Wake::join); }

void ReaderRank::open(const Message& admit) {
  if (!alive()) return;
  protocol_ =
      std::make_unique<ReaderProtocol>(rank_, plan().ranks, admit.ranks, admit.slot, admit.flag, *this, plan().fan_out);
  state_ = State::thinking;
  world_.oracle.opened(cohort_, rank_);
  world_.fabric.wake(id_, world_.random.below(plan().think), Wake::next);
  for (const auto& [link, message] : std::exchange(early_, {})) hear(link, message);
}

void ReaderRank::refuse(LinkId link, const std::string& why) {
  if (!world_.oracle.is_tainted(cohort_)) throw Violation(name() + " refused a message of a correct peer: " + why);
  world_.fabric.drop(id_, link);
  protocol_->on_link_lost(link, why);
}

void ReaderRank::hear(LinkId link, const Message& message) {
  if (!protocol_) {
    if (message.kind == Kind::admit && rank_ == 0) world_.open_cohort(cohort_, message);
    else early_.push_back({link, message});
    return;
  }
  if (message.kind == Kind::poke) return;
  try {
    const bool early = world_.bug == Bug::release_early && message.kind == Kind::release;
    if (early && was_forged(link, message.step)) return;
    protocol_->on_message(link, message);
    if (message.kind == Kind::leave) heard_sibling_leave_ = true;
    if (early && forge_for_sibling(link, message.step, plan().ranks, plan().fan_out))
      protocol_->on_message(link + 1, message);
  } catch (const Error& e) {
    refuse(link, e.what());
  }
  progress();
}

bool ReaderRank::damage(LinkId link, Message& m) {
  if (m.kind != Kind::release) return true;
  if (world_.bug == Bug::release_lost) return !world_.plant_once(0.2);
  if (world_.bug == Bug::release_twice && rank_ == 0 && world_.plant_once(0.2)) world_.fabric.send(id_, link, m);
  return true;
}

void ReaderRank::on_link_lost(LinkId link, const std::string& why) {
  if (!protocol_) return world_.not_opened(cohort_);
  protocol_->on_link_lost(link, why);
  progress();
}

void ReaderRank::on_wake(std::uint64_t what) {
  const auto slot = static_cast<std::uint32_t>(what >> 4 & 0xfff);
  switch (what & 0xf) {
    case Wake::join:
      send(parent_link, Message{.kind = Kind::join, .ranks = plan().ranks, .flag = plan().latest, .text = name()});
      return;
    case Wake::next:
      if (state_ == State::thinking) begin_step();
      return;
    case Wake::step_read:
      if (!keeps_ || !world_.random.chance(plan().keep)) return release(what >> 16, slot);
      kept_.push_back({what >> 16, slot});
      world_.lease_kept();
      return;
    case Wake::end_process:
      // Its own leases end with the process, and all with rank 0's.
      if (rank_ == 0) world_.unprotect_below(cohort_, rank_);
      else world_.oracle.unprotect(cohort_, rank_);
      world_.fabric.exit(id_);
      return;
  }
}

void ReaderRank::let_go() {
  keeps_ = false;
  for (const auto& [step, slot] : std::exchange(kept_, {}))
    world_.fabric.wake(id_, world_.random.below(20), wake_of(Wake::step_read, step, slot));
}

void ReaderRank::release(std::uint64_t step, std::uint32_t slot) {
  --leases_;
  world_.oracle.released(cohort_, rank_, slot);
  try {
    protocol_->release(step, slot);
  } catch (const Error& e) {
    if (!world_.oracle.is_tainted(cohort_)) throw Violation(name() + " may not release what it took: " + e.what());
  }
  if (world_.bug == Bug::leave_late && state_ == State::done && leases_ == 0) protocol_->leave();
  progress();
}

void ReaderRank::progress() {
  if (state_ == State::waiting) begin_step();
  if (state_ == State::done && protocol_ && protocol_->all_left() && !ending_) {
    ending_ = true;
    if (!world_.random.chance(plan().linger)) world_.fabric.wake(id_, world_.random.below(20), Wake::end_process);
  }
}

void ReaderRank::begin_step() {
  auto& random = world_.random;
  if (state_ == State::thinking && random.chance(plan().leave)) return leave();
  auto step = protocol_->take();
  if (!step && protocol_->ended()) {
    world_.oracle.ended(cohort_, rank_, *protocol_);
    return leave();
  }
  if (!step && protocol_->lost()) {
    world_.oracle.lost(cohort_, rank_, *protocol_);
    return leave();
  }
  if (!step) {
    state_ = State::waiting;
    protocol_->want();
    return;
  }
  world_.oracle.took(cohort_, rank_, *step);
  ++leases_;
  const Time until = random.below(plan().think);
  world_.fabric.wake(id_, until, wake_of(Wake::step_read, step->step, step->slot));
  state_ = State::thinking;
  // Views may outlive the step; otherwise the release comes first.
  world_.fabric.wake(id_, random.chance(plan().pin) ? random.below(until + 1) : until, Wake::next);
}

void ReaderRank::leave() {
  state_ = State::done;
  world_.oracle.left(cohort_, rank_);
  protocol_->stop();
  if (world_.bug != Bug::leave_late || leases_ == 0) protocol_->leave();
  if (plan().ranks == 1) world_.fabric.forget_rings(id_);  // nobody calls that would look into it
  progress();
}

std::string ReaderRank::waits_for() const {
  static constexpr const char* doing[] = {"waits to be admitted", "computes", "waits for a step", "is done"};
  return name() + " " + doing[static_cast<int>(state_)] +
         (protocol_ ? " after " + std::to_string(protocol_->taken()) + " steps" : "");
}

}  // namespace penstock::stream::sim
