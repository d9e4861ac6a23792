// Does again what traces recorded, according to a plan, and compares the outcomes.
//
// Objects' bytes are not in a trace: what is put again has the recorded sizes and bytes that follow from the key. Everything
// happens in namespaces of its own ("replay/<run>/<hex of the recorded one>"), so that a recording of a pool can be replayed on
// it, by several at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/pool.hpp"
#include "pool/replay_plan.hpp"

namespace penstock::pool {

struct ReplayOperation {
  const Timeline& timeline;
  const Timeline::Item& item;
  const TraceRecord& record;
  Namespace ns;
  std::vector<Key> keys;
  const std::string& pool;  // the recorded one
  const std::string& text(std::uint32_t number) const { return timeline.processes[item.process].texts[number]; }
};

struct ReplayOutcome {
  Errc code = Errc::ok;
  std::uint32_t failed = 0;
  std::uint64_t bytes = 0;  // moved
  std::string message;
};

// What operations are done to. start is called by the operation's lane (a thread of its own) and must not throw; it begins
// the operation, and the function it returns ends it (called once, by any thread).
class ReplayTarget {
 public:
  virtual ~ReplayTarget() = default;
  virtual std::function<ReplayOutcome()> start(const ReplayOperation& operation) = 0;
};

class StreamReplay;

struct ReplayReport {
  std::uint64_t operations = 0, same = 0, different = 0;  // outcome and number of failures
  std::uint64_t bytes = 0;
  std::int64_t duration_ns = 0, recorded_ns = 0;
  std::int64_t most_late_ns = 0;  // behind the recorded time
  struct PerVerb {
    std::uint64_t operations = 0, different = 0;
    std::int64_t recorded_ns = 0, replayed_ns = 0;  // sums of durations; replayed: of those that the lane waited for
    std::vector<std::int64_t> durations_ns;         // the latter, in no order
    struct Count {
      std::uint64_t recorded = 0, replayed = 0;
    };
    std::map<Errc, Count> outcomes;
  };
  std::array<PerVerb, verb_count> verbs{};
  struct Difference {
    std::uint32_t item = 0;
    ReplayOutcome replayed;
  };
  std::vector<Difference> differences;  // the first hundred
  bool stopped = false;                 // by the deadline or by ReplayControl: the rest was not begun
};

// Looks at a replay and ends it, from other threads. Several replays may share one.
struct ReplayControl {
  std::atomic<std::uint64_t> ended{0};  // operations
  std::atomic<bool> stop{false};        // nothing more is begun, from some milliseconds later on
};

// Throws Error(invalid_argument): a plan of too many lanes (each is a thread). Returns when everything that was begun has
// ended; after the deadline nothing more is begun.
ReplayReport replay(const Timeline& timeline, const ReplayPlan& plan, ReplayTarget& target, Timeout timeout,
                    ReplayControl* control = nullptr);

// The report as text for people, one line a verb, and the differences.
std::string describe(const Timeline& timeline, const ReplayReport& report);

// The name of the namespace in which what was done in this one is done again. run: "", or what keeps one replay's apart.
std::string replay_namespace(const Namespace& recorded, const std::string& run = {});

// Operations done to pools. pool: "" for the recorded names. Each recorded client has a Pool of its own, opened when it is
// first used; subscriptions last as long as the target. Nothing of it is recorded. streams: does what was done to streams;
// null: that is unsupported.
std::unique_ptr<ReplayTarget> make_pool_target(const Context& context, PoolOptions options, std::string run = {},
                                               std::shared_ptr<StreamReplay> streams = nullptr);

// The bytes that a replay puts: they depend on the key and the size alone.
void fill_replayed(const Key& key, std::span<std::byte> bytes);

}  // namespace penstock::pool
