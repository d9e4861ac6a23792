#include "pool/replay_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "penstock/error.hpp"
#include "pool/object_key.hpp"

namespace penstock::pool {

namespace {

bool changes(Verb verb) { return verb == Verb::put || verb == Verb::drop || verb == Verb::drop_pattern; }
// Touches whatever its namespace holds.
bool is_wide(Verb verb) {
  return verb == Verb::list || verb == Verb::drop_pattern || verb == Verb::wait_row || verb == Verb::subscribe ||
         verb == Verb::compute;
}

struct Span {
  std::uint32_t step;
  std::int64_t start, end;
};

// Operations on one key, or of one namespace: barriers are ordered against everything, others against barriers.
class Precedence {
 public:
  // Adds what an operation that begins now has to wait for. Returns the newest barrier that had ended. Operations come in
  // the order of their starts, so what the newest ended barrier has waited for need not be remembered.
  std::optional<std::uint32_t> find(const Span& now, bool barrier, std::vector<std::uint32_t>& after) {
    const Span* newest = nullptr;
    for (const Span& one : barriers_)
      if (one.end <= now.start && (newest == nullptr || one.start > newest->start)) newest = &one;
    if (newest != nullptr && newest->step != cut_) {
      const Span cut = *newest;
      cut_ = cut.step;
      const auto covered = [&](const Span& one) { return one.end <= cut.start && one.step < cut.step; };
      std::erase_if(barriers_, covered);
      std::erase_if(others_, covered);
    }
    std::optional<std::uint32_t> found;
    std::int64_t found_start = 0;
    for (const Span& one : barriers_) {
      if (one.end > now.start) continue;
      after.push_back(one.step);
      if (!found || one.start > found_start) found = one.step, found_start = one.start;
    }
    if (barrier)
      for (const Span& one : others_)
        if (one.end <= now.start) after.push_back(one.step);
    return found;
  }
  void add(const Span& now, bool barrier) { (barrier ? barriers_ : others_).push_back(now); }

 private:
  std::vector<Span> barriers_, others_;
  std::optional<std::uint32_t> cut_;  // what this barrier covers has been left out
};

struct KeyState {
  Precedence order;
  std::vector<Span> puts;  // that succeeded
};

class Planner {
 public:
  Planner(const Timeline& timeline, ReplayPace pace) : timeline_(timeline), pace_(pace) {}

  ReplayPlan plan() {
    plan_.steps.resize(timeline_.items.size());
    for (std::uint32_t step = 0; step < plan_.steps.size(); ++step) make(step);
    for (const Read& read : early_reads_) {
      // Whoever begins after a detached read in its lane might have to end before the put: no order would do.
      if (plan_.steps[read.span.step].detached) continue;
      // The first put that was under way, if any was: then it must have been early enough.
      for (const Span& put : read.key->puts) {
        if (put.start >= read.span.end) break;
        if (put.end > read.span.start) {
          plan_.steps[read.span.step].after.push_back(put.step);
          break;
        }
      }
    }
    for (std::uint32_t step = 0; step < plan_.steps.size(); ++step) {
      auto& after = plan_.steps[step].after;
      std::ranges::sort(after);
      after.erase(std::unique(after.begin(), after.end()), after.end());
      std::erase(after, step);
    }
    return std::move(plan_);
  }

 private:
  struct Lane {
    std::uint32_t number;
    std::optional<Span> last;
    std::vector<Span> detached;  // under way
  };
  struct Read {
    Span span;
    const KeyState* key;
  };

  void make(std::uint32_t number) {
    const auto& item = timeline_.items[number];
    const TraceRecord& record = timeline_.record(item);
    ReplayStep& step = plan_.steps[number];
    // Times of a trace may be any numbers; they count for what they say within bounds.
    const std::int64_t start = std::clamp<std::int64_t>(item.start_ns, 0, std::numeric_limits<std::int64_t>::max() / 2);
    const std::int64_t length =
        std::clamp<std::int64_t>(record.duration_ns, 0, std::numeric_limits<std::int64_t>::max() / 2);
    const Span span{number, start, start + length};
    step.item = number;
    step.at_ns = pace_.factor == 0 ? 0 : to_ns(static_cast<double>(start) / pace_.factor);
    into_lane(item, record, span, step);
    const Trace& trace = timeline_.processes[item.process];
    if (is_of_stream(record.verb)) order_stream(item, record, trace, span, step);
    else order_keys(record, trace, span, step);
  }

  static std::int64_t to_ns(double ns) {
    return ns < 9e18 ? static_cast<std::int64_t>(ns) : std::int64_t{9'000'000'000'000'000'000};
  }

  void into_lane(const Timeline::Item& item, const TraceRecord& record, const Span& span, ReplayStep& step) {
    auto [found, fresh] = lanes_.try_emplace({item.process, record.thread}, Lane{plan_.lanes, {}, {}});
    Lane& lane = found->second;
    if (fresh) ++plan_.lanes;
    step.lane = lane.number;
    step.detached = record.asynchronous;
    // A call that the next one did not wait for was asynchronous, whatever it says.
    if (lane.last && lane.last->end > span.start && !plan_.steps[lane.last->step].detached) {
      plan_.steps[lane.last->step].detached = true;
      lane.detached.push_back(*lane.last);
    }
    std::erase_if(lane.detached, [&](const Span& one) {
      if (one.end > span.start) return false;
      step.after.push_back(one.step);
      return true;
    });
    if (step.detached) lane.detached.push_back(span);
    lane.last = span;
  }

  // One call after the other of each Writer and Reader, whatever threads made them. And what readers find: nobody opens a
  // stream, ends a step or closes before the looks that found nothing yet have ended.
  void order_stream(const Timeline::Item& item, const TraceRecord& record, const Trace& trace, const Span& span,
                    ReplayStep& step) {
    Precedence& own = clients_[{item.process, record.client}];
    own.find(span, true, step.after);
    own.add(span, true);
    const bool looks = record.verb == Verb::read_open || record.verb == Verb::read_begin;
    const bool shows =
        record.verb == Verb::write_open || record.verb == Verb::write_end || record.verb == Verb::write_close;
    if ((!looks && !shows) || record.keys.empty()) return;
    Precedence& stream = streams_[trace.key(record.keys[0]).row];
    stream.find(span, shows, step.after);
    stream.add(span, shows);
  }

  void order_keys(const TraceRecord& record, const Trace& trace, const Span& span, ReplayStep& step) {
    if (record.verb == Verb::status) return;
    const Namespace ns = trace.ns(record);
    const bool wide = is_wide(record.verb), change = changes(record.verb);
    Precedence& all = namespaces_[ns];
    all.find(span, wide, step.after);
    all.add(span, wide);
    if (wide) return;
    const bool done = record.outcome == Errc::ok;
    for (const TraceKey& named : record.keys) {
      const Key key = trace.key(named);
      KeyState& state = keys_[pack_key(ns, key.row, key.column)];
      const auto before = state.order.find(span, change, step.after);
      state.order.add(span, change);
      if (record.verb == Verb::put && done) state.puts.push_back(span);
      const bool there = before && timeline_.record(timeline_.items[*before]).verb == Verb::put;
      if ((record.verb == Verb::get || record.verb == Verb::info) && done && !there)
        early_reads_.push_back({span, &state});
    }
  }

  const Timeline& timeline_;
  const ReplayPace pace_;
  ReplayPlan plan_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Lane> lanes_;
  std::map<Namespace, Precedence> namespaces_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Precedence> clients_;  // of streams: process, client
  std::map<std::string, Precedence> streams_;
  std::unordered_map<std::string, KeyState> keys_;  // stable addresses
  std::vector<Read> early_reads_;
};

// An object's name in a timeline: an object that was put with a tag is found by that tag only.
std::string name_of_object(const Trace& trace, const TraceRecord& record, TraceKey named) {
  const Key key = trace.key(named);
  std::string name = pack_key(trace.ns(record), key.row, key.column);
  return record.tag ? name + "#" + std::to_string(*record.tag) : name;
}

std::uint64_t end_of(std::uint64_t offset, std::uint64_t size) {
  return size > std::numeric_limits<std::uint64_t>::max() - offset ? 0 : offset + size;
}

// Whether the operation says that its i-th key was there when it began or came to be.
bool found(const TraceRecord& record, std::size_t i) {
  switch (record.verb) {
    case Verb::put: return record.outcome == Errc::already_exists && record.failed == record.keys.size();
    case Verb::get:
    case Verb::need:
    case Verb::want:
    case Verb::info: return !record.version && (record.failed == 0 || (i < record.sizes.size() && record.sizes[i] > 0));
    default: return false;
  }
}

}  // namespace

std::vector<ReplayObject> objects_before(const Timeline& timeline) {
  std::unordered_map<std::string, std::int64_t> first_puts;  // when the first that may have succeeded began
  for (const auto& item : timeline.items) {
    const TraceRecord& record = timeline.record(item);
    if (record.verb != Verb::put || (record.failed > 0 && record.failed == record.keys.size())) continue;
    for (const TraceKey key : record.keys)
      first_puts.try_emplace(name_of_object(timeline.processes[item.process], record, key), item.start_ns);
  }
  std::vector<ReplayObject> objects;
  std::unordered_map<std::string, std::size_t> known;
  for (std::uint32_t number = 0; number < timeline.items.size(); ++number) {
    const auto& item = timeline.items[number];
    const TraceRecord& record = timeline.record(item);
    const Trace& trace = timeline.processes[item.process];
    for (std::size_t i = 0; i < record.keys.size(); ++i) {
      if (!found(record, i)) continue;
      const std::string name = name_of_object(trace, record, record.keys[i]);
      const auto put = first_puts.find(name);
      const auto began_after = [&](std::int64_t other) {  // as doubles: times may be any numbers
        return static_cast<double>(other) - static_cast<double>(item.start_ns) >=
               static_cast<double>(record.duration_ns);
      };
      if (put != first_puts.end() && !began_after(put->second)) continue;
      const auto [place, fresh] = known.try_emplace(name, objects.size());
      if (fresh) objects.push_back({number, trace.ns(record), trace.key(record.keys[i]), record.tag, 0});
      if (record.verb == Verb::put || i >= record.sizes.size()) continue;
      auto& bytes = objects[place->second].bytes;
      bytes = std::max(bytes, end_of(record.offset, record.sizes[i]));
    }
  }
  return objects;
}

ReplayPlan plan_replay(const Timeline& timeline, ReplayPace pace) {
  if (!(pace.factor >= 0)) throw Error(Errc::invalid_argument, "a replay's speed is a number from 0 up");
  return Planner(timeline, pace).plan();
}

}  // namespace penstock::pool
