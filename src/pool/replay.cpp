#include "pool/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "pool/object_key.hpp"

namespace penstock::pool {

namespace {

using base::Clock;
using base::Deadline;

constexpr std::uint32_t max_lanes = 1024;
constexpr std::size_t max_differences = 100;
constexpr std::chrono::milliseconds stop_check_period{50};  // at whether it shall stop

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// One operation under way. Whoever needs its end first, be it its lane or a step that waits for it, brings it about.
struct Under {
  std::mutex mutex;  // held by whoever ends it
  std::function<ReplayOutcome()> finish;
  std::optional<ReplayOutcome> outcome;
};

class Executor {
 public:
  Executor(const Timeline& timeline, const ReplayPlan& plan, ReplayTarget& target, Timeout timeout,
           ReplayControl* control)
      : timeline_(timeline),
        plan_(plan),
        target_(target),
        deadline_(timeout),
        control_(control),
        steps_(plan.steps.size()) {}

  ReplayReport run() {
    std::vector<std::vector<std::uint32_t>> lanes(plan_.lanes);
    for (std::uint32_t step = 0; step < plan_.steps.size(); ++step) lanes[plan_.steps[step].lane].push_back(step);
    begin_ = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (const auto& lane : lanes) threads.emplace_back([this, &lane] { run_lane(lane); });
    }
    report_.duration_ns = nanoseconds(Clock::now() - begin_);
    for (const auto& item : timeline_.items)
      report_.recorded_ns = std::max(report_.recorded_ns, item.start_ns + timeline_.record(item).duration_ns);
    return std::move(report_);
  }

 private:
  void run_lane(const std::vector<std::uint32_t>& lane) {
    std::vector<std::uint32_t> detached;
    for (const std::uint32_t step : lane) {
      if (!wait_for(plan_.steps[step])) break;
      begin(step);
      if (plan_.steps[step].detached) detached.push_back(step);
      else end(step);
    }
    for (const std::uint32_t step : detached) end(step);
  }

  // False: the deadline passed, or an operation that it waits for was never begun.
  bool wait_for(const ReplayStep& step) {
    const auto at = begin_ + std::chrono::nanoseconds(step.at_ns);
    std::unique_lock lock(mutex_);
    while (!stopped_ && Clock::now() < at) {
      if (must_stop()) return stop();
      wake_.wait_until(lock, std::min(at, next_look()));
    }
    for (const std::uint32_t earlier : step.after) {
      while (!stopped_ && !steps_[earlier]) {
        if (must_stop()) return stop();
        wake_.wait_until(lock, next_look());
      }
      if (stopped_) return false;
      lock.unlock();
      end(earlier);
      lock.lock();
    }
    if (must_stop()) return stop();
    return !stopped_;
  }

  bool must_stop() const { return deadline_.passed() || (control_ != nullptr && control_->stop); }
  Clock::time_point next_look() const { return std::min(Clock::now() + stop_check_period, deadline_.when()); }

  // Holding mutex_.
  bool stop() {
    stopped_ = report_.stopped = true;
    wake_.notify_all();
    return false;
  }

  void begin(std::uint32_t step) {
    const auto& item = timeline_.items[plan_.steps[step].item];
    const Trace& trace = timeline_.processes[item.process];
    const TraceRecord& record = timeline_.record(item);
    ReplayOperation operation{timeline_, item, record, trace.ns(record), {}, trace.clients[record.client]};
    for (const TraceKey key : record.keys) operation.keys.push_back(trace.key(key));
    const auto now = Clock::now();
    auto under = std::make_shared<Under>();
    under->finish = target_.start(operation);
    const std::lock_guard lock(mutex_);
    if (plan_.steps[step].at_ns > 0)
      report_.most_late_ns = std::max(report_.most_late_ns, nanoseconds(now - begin_) - plan_.steps[step].at_ns);
    started_.resize(steps_.size());
    started_[step] = now;
    steps_[step] = std::move(under);
    wake_.notify_all();
  }

  void end(std::uint32_t step) {
    std::shared_ptr<Under> under;
    Clock::time_point started;
    {
      const std::lock_guard lock(mutex_);
      under = steps_[step];
      started = started_[step];
    }
    const std::lock_guard ending(under->mutex);
    if (under->outcome) return;
    under->outcome = under->finish();
    under->finish = nullptr;
    count(step, *under->outcome, nanoseconds(Clock::now() - started));
  }

  void count(std::uint32_t step, const ReplayOutcome& outcome, std::int64_t duration_ns) {
    const std::uint32_t item = plan_.steps[step].item;
    const TraceRecord& record = timeline_.record(timeline_.items[item]);
    const bool same = outcome.code == record.outcome && outcome.failed == record.failed;
    const std::lock_guard lock(mutex_);
    auto& verb = report_.verbs[static_cast<std::size_t>(record.verb)];
    ++report_.operations;
    ++verb.operations;
    ++(same ? report_.same : report_.different);
    verb.different += !same;
    report_.bytes += outcome.bytes;
    ++verb.outcomes[record.outcome].recorded;
    ++verb.outcomes[outcome.code].replayed;
    if (!plan_.steps[step].detached) {
      verb.recorded_ns += record.duration_ns, verb.replayed_ns += duration_ns;
      verb.durations_ns.push_back(duration_ns);
    }
    if (control_ != nullptr) ++control_->ended;
    if (!same && report_.differences.size() < max_differences) report_.differences.push_back({item, outcome});
  }

  const Timeline& timeline_;
  const ReplayPlan& plan_;
  ReplayTarget& target_;
  const Deadline deadline_;
  ReplayControl* const control_;  // null: nobody looks
  Clock::time_point begin_;

  std::mutex mutex_;  // guards all below; taken after Under::mutex where both are
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Under>> steps_;  // null: not begun
  std::vector<Clock::time_point> started_;
  bool stopped_ = false;
  ReplayReport report_;
};

}  // namespace

ReplayReport replay(const Timeline& timeline, const ReplayPlan& plan, ReplayTarget& target, Timeout timeout,
                    ReplayControl* control) {
  if (plan.lanes > max_lanes)
    throw Error(Errc::invalid_argument, "the recording is of " + std::to_string(plan.lanes) + " client threads; " +
                                            std::to_string(max_lanes) + " can be replayed at once");
  return Executor(timeline, plan, target, timeout, control).run();
}

std::string describe(const Timeline& timeline, const ReplayReport& report) {
  std::string text =
      fmt::format("{} operations in {:.3f} s (recorded: {:.3f} s), {} as recorded, {} not{}\n", report.operations,
                  static_cast<double>(report.duration_ns) / 1e9, static_cast<double>(report.recorded_ns) / 1e9,
                  report.same, report.different, report.stopped ? "; stopped by the deadline" : "");
  text +=
      fmt::format("{:14}{:>12}{:>12}{:>16}{:>16}\n", "verb", "operations", "different", "recorded us", "replayed us");
  for (std::size_t verb = 0; verb < verb_count; ++verb) {
    const auto& one = report.verbs[verb];
    if (one.operations == 0) continue;
    const auto mean = [&](std::int64_t sum) {
      return static_cast<double>(sum) / 1e3 / static_cast<double>(one.operations);
    };
    text += fmt::format("{:14}{:>12}{:>12}{:>16.1f}{:>16.1f}\n", name_of(static_cast<Verb>(verb)), one.operations,
                        one.different, mean(one.recorded_ns), mean(one.replayed_ns));
  }
  for (const auto& difference : report.differences) {
    const auto& item = timeline.items[difference.item];
    const TraceRecord& record = timeline.record(item);
    const Key key = record.keys.empty() ? Key{} : timeline.processes[item.process].key(record.keys[0]);
    text += fmt::format("{} {}|{} at {:.6f} s: recorded {} ({} failed), now {} ({} failed) {}\n", name_of(record.verb),
                        key.row, key.column, static_cast<double>(item.start_ns) / 1e9, name_of(record.outcome),
                        record.failed, name_of(difference.replayed.code), difference.replayed.failed,
                        difference.replayed.message);
  }
  return text;
}

// A xorshift from the key's text: different for each key, the same on every machine.
void fill_replayed(const Key& key, std::span<std::byte> bytes) {
  std::uint64_t state = 14695981039346656037u;
  for (const char c : pack_key({}, key.row, key.column))
    state = (state ^ static_cast<std::uint8_t>(c)) * 1099511628211u;
  state |= 1;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
    }
    bytes[i] = static_cast<std::byte>(state >> (8 * (i % 8)));
  }
}

}  // namespace penstock::pool
