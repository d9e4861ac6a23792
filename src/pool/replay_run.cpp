// penstock::Replay: copies of a recording done to pools at once, what they need beforehand, and what they leave.
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "pool/recording.hpp"
#include "pool/replay.hpp"
#include "pool/replay_stream.hpp"

namespace penstock {

namespace {

using nlohmann::json;
using pool::ReplayReport;
using pool::Timeline;
using pool::Verb;

constexpr std::uint32_t max_threads = 1024;
constexpr std::size_t batch_bytes = std::size_t{16} << 20, batch_objects = 1000;

std::string random_name() {
  std::random_device device;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name;
  for (int i = 0; i < 8; ++i) name.push_back(digits[device() % digits.size()]);
  return name;
}

struct Place {
  std::string pool;
  Namespace recorded;
  friend auto operator<=>(const Place&, const Place&) = default;
};

// Objects of one namespace of one copy, put in batches before it begins.
class Preparation {
 public:
  explicit Preparation(Pool& pool) : pool_(pool) {}
  void add(const pool::ReplayObject& object) {
    if (object.tag != tag_ || bytes_ + object.bytes > batch_bytes || keys_.size() == batch_objects) flush();
    tag_ = object.tag;
    bytes_ += object.bytes;
    keys_.push_back(object.key);
    contents_.emplace_back(object.bytes);
    pool::fill_replayed(object.key, contents_.back());
  }
  void flush() {
    std::vector<Pool::PutItem> items;
    for (std::size_t i = 0; i < keys_.size(); ++i) items.push_back({keys_[i], contents_[i]});
    PutOptions options;
    options.tag = tag_;
    if (!items.empty())
      for (const auto& result : pool_.put(items, options))
        if (!result) throw Error(result.code, "what was there before the recording cannot be put: " + result.message);
    keys_.clear();
    contents_.clear();
    bytes_ = 0;
  }

 private:
  Pool& pool_;
  std::optional<std::uint64_t> tag_;
  std::vector<Key> keys_;
  std::vector<std::vector<std::byte>> contents_;
  std::size_t bytes_ = 0;
};

// One copy of the recording.
class Copy {
 public:
  Copy(const Context& context, const Timeline& timeline, const ReplayOptions& options)
      : context_(context), timeline_(timeline), options_(options), run_(random_name()) {}

  void prepare(const std::vector<pool::ReplayObject>& before, base::Deadline deadline,
               const pool::ReplayControl& control) {
    bool streams = false;
    for (const auto& item : timeline_.items) {
      if (pool::is_of_stream(timeline_.record(item).verb)) streams = true;
      else open(place_of(item));
    }
    if (streams) streams_ = std::make_shared<pool::StreamReplay>(context_, timeline_, options_.pool.pool, run_);
    std::map<Place, Preparation> preparations;
    for (const auto& object : before) {
      if (deadline.passed() || control.stop) break;
      const Place place = place_of(timeline_.items[object.item]);
      preparations.try_emplace(place, *pools_.at(place)).first->second.add(object);
    }
    for (auto& [place, preparation] : preparations) preparation.flush();
    if (streams_) streams_->prepare(deadline, control);
    target_ = pool::make_pool_target(context_, options_.pool, run_, streams_);
  }
  void run(const pool::ReplayPlan& plan, base::Deadline deadline, pool::ReplayControl& control) {
    report_ = pool::replay(timeline_, plan, *target_, deadline.remaining(), &control);
  }
  // Also after a copy that failed.
  void clean() {
    target_.reset();
    for (auto& [place, pool] : pools_) {
      try {
        if (!options_.keep) pool->drop_matching({});
      } catch (const Error& error) {
        base::log(base::Level::warn, "a replay's objects stay in the pool",
                  {{"namespace", std::string_view(namespace_of(place))}, {"why", std::string_view(error.what())}});
      }
    }
    if (!streams_) return;
    made_ = streams_->made();
    streams_.reset();
    if (!options_.keep)
      for (const auto& [pool, stream] : made_) drop(pool, stream);
  }
  const ReplayReport& report() const { return report_; }
  std::vector<std::string> namespaces() const {
    std::vector<std::string> names;
    for (const auto& [place, pool] : pools_) names.push_back(namespace_of(place));
    return names;
  }
  std::vector<std::string> streams() const {
    std::vector<std::string> names;
    for (const auto& one : made_) names.push_back(one.stream);
    return names;
  }

 private:
  Place place_of(const Timeline::Item& item) const {
    const auto& trace = timeline_.processes[item.process];
    const auto& record = timeline_.record(item);
    return {options_.pool.pool.empty() ? trace.clients[record.client] : options_.pool.pool, trace.ns(record)};
  }
  std::string namespace_of(const Place& place) const { return pool::replay_namespace(place.recorded, run_); }
  void open(const Place& place) {
    auto& pool = pools_[place];
    if (pool) return;
    PoolOptions options = options_.pool;
    options.pool = place.pool;
    options.ns = namespace_of(place);
    options.trace = "off";
    pool = std::make_unique<Pool>(context_, std::move(options));
  }

  void drop(const std::string& pool_name, const std::string& stream) {
    try {
      PoolOptions options = options_.pool;
      options.pool = pool_name;
      options.trace = "off";
      Pool(context_, std::move(options)).drop_stream(stream);
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) return;  // it was never opened
      base::log(base::Level::warn, "a replay's stream stays in the pool",
                {{"stream", std::string_view(stream)}, {"why", std::string_view(error.what())}});
    }
  }

  const Context& context_;
  const Timeline& timeline_;
  const ReplayOptions& options_;
  const std::string run_;
  std::map<Place, std::unique_ptr<Pool>> pools_;
  std::shared_ptr<pool::StreamReplay> streams_;  // null: none were recorded
  std::vector<pool::StreamReplay::Made> made_;
  std::unique_ptr<pool::ReplayTarget> target_;
  ReplayReport report_;
};

json describe_verb(Verb verb, std::vector<std::int64_t> recorded_ns,
                   const std::vector<const ReplayReport::PerVerb*>& copies) {
  std::uint64_t operations = 0, different = 0;
  std::vector<std::int64_t> replayed_ns;
  std::map<Errc, ReplayReport::PerVerb::Count> outcomes;
  for (const auto* copy : copies) {
    operations += copy->operations;
    different += copy->different;
    replayed_ns.insert(replayed_ns.end(), copy->durations_ns.begin(), copy->durations_ns.end());
    for (const auto& [code, count] : copy->outcomes) {
      outcomes[code].recorded += count.recorded;
      outcomes[code].replayed += count.replayed;
    }
  }
  json counts = json::object();
  for (const auto& [code, count] : outcomes)
    counts[std::string(name_of(code))] = {{"recorded", count.recorded}, {"replayed", count.replayed}};
  return {{"verb", name_of(verb)},
          {"operations", operations},
          {"different", different},
          {"outcomes", counts},
          {"recorded", pool::describe_durations(std::move(recorded_ns))},
          {"replayed", pool::describe_durations(std::move(replayed_ns))}};
}

json describe_difference(const Timeline& timeline, std::size_t client, const ReplayReport::Difference& difference) {
  const auto& item = timeline.items[difference.item];
  const auto& record = timeline.record(item);
  const Key key = record.keys.empty() ? Key{} : timeline.processes[item.process].key(record.keys[0]);
  return {{"client", client},
          {"at_s", static_cast<double>(item.start_ns) / 1e9},
          {"verb", name_of(record.verb)},
          {"row", key.row},
          {"column", key.column},
          {"recorded", name_of(record.outcome)},
          {"recorded_failed", record.failed},
          {"replayed", name_of(difference.replayed.code)},
          {"replayed_failed", difference.replayed.failed},
          {"message", difference.replayed.message}};
}

}  // namespace

struct Replay::Impl {
  Recording recording;
  ReplayOptions options;
  pool::ReplayPlan plan;
  std::vector<std::unique_ptr<Copy>> copies;
  std::size_t prepared = 0;  // objects that had been there before
  pool::ReplayControl control;
  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr error;
  std::jthread thread;  // the last member: joined first

  const Timeline& timeline() const { return recording.impl().timeline; }

  void note(std::exception_ptr failure) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(failure);
    control.stop = true;
  }
  // What each copy does, at once.
  template <class Do>
  void for_copies(Do what) {
    std::vector<std::jthread> threads;
    for (auto& copy : copies)
      threads.emplace_back([this, &copy, &what] {
        try {
          what(*copy);
        } catch (...) {
          note(std::current_exception());
        }
      });
  }
  void run() {
    const base::Deadline deadline(options.timeout);
    const auto before = pool::objects_before(timeline());
    prepared = before.size();
    for_copies([&](Copy& copy) { copy.prepare(before, deadline, control); });
    if (!control.stop) for_copies([&](Copy& copy) { copy.run(plan, deadline, control); });
    for_copies([](Copy& copy) { copy.clean(); });
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }
  json report() const;
};

json Replay::Impl::report() const {
  ReplayReport sum;
  json differences = json::array(), namespaces = json::array(), streams = json::array(), verbs = json::array();
  for (std::size_t client = 0; client < copies.size(); ++client) {
    const ReplayReport& one = copies[client]->report();
    sum.operations += one.operations;
    sum.same += one.same;
    sum.different += one.different;
    sum.bytes += one.bytes;
    sum.stopped |= one.stopped;
    sum.duration_ns = std::max(sum.duration_ns, one.duration_ns);
    sum.recorded_ns = std::max(sum.recorded_ns, one.recorded_ns);
    sum.most_late_ns = std::max(sum.most_late_ns, one.most_late_ns);
    for (const auto& difference : one.differences)
      if (differences.size() < 100) differences.push_back(describe_difference(timeline(), client, difference));
    for (const auto& name : copies[client]->namespaces()) namespaces.push_back(name);
    for (const auto& name : copies[client]->streams()) streams.push_back(name);
  }
  std::map<Verb, std::vector<std::int64_t>> recorded;
  for (const auto& item : timeline().items) {
    const auto& record = timeline().record(item);
    recorded[record.verb].push_back(record.duration_ns);
  }
  for (auto& [verb, durations] : recorded) {
    std::vector<const ReplayReport::PerVerb*> each;
    for (const auto& copy : copies) each.push_back(&copy->report().verbs[static_cast<std::size_t>(verb)]);
    verbs.push_back(describe_verb(verb, std::move(durations), each));
  }
  json report = {{"clients", copies.size()},
                 {"speed", options.speed},
                 {"operations", sum.operations},
                 {"same", sum.same},
                 {"different", sum.different},
                 {"bytes", sum.bytes},
                 {"seconds", static_cast<double>(sum.duration_ns) / 1e9},
                 {"recorded_seconds", static_cast<double>(sum.recorded_ns) / 1e9},
                 {"most_late_seconds", static_cast<double>(sum.most_late_ns) / 1e9},
                 {"prepared_objects", prepared},
                 {"stopped", sum.stopped || control.stop},
                 {"verbs", verbs},
                 {"differences", differences}};
  if (options.keep) report["namespaces"] = namespaces;
  if (options.keep && !streams.empty()) report["streams"] = streams;
  return report;
}

Replay::Replay(const Context& context, Recording recording, ReplayOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->recording = std::move(recording);
  impl_->options = std::move(options);
  if (impl_->options.clients == 0) throw Error(Errc::invalid_argument, "a replay by 0 clients");
  impl_->plan = pool::plan_replay(impl_->timeline(), {impl_->options.speed});
  if (std::uint64_t{impl_->plan.lanes} * impl_->options.clients > max_threads)
    throw Error(Errc::invalid_argument, std::to_string(impl_->options.clients) + " copies of a recording of " +
                                            std::to_string(impl_->plan.lanes) + " client threads are more than " +
                                            std::to_string(max_threads) + " threads");
  for (std::uint32_t i = 0; i < impl_->options.clients; ++i)
    impl_->copies.push_back(std::make_unique<Copy>(context, impl_->timeline(), impl_->options));
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
}

Replay::Replay(Replay&&) noexcept = default;
Replay::~Replay() {
  if (impl_) stop();
}

std::pair<std::uint64_t, std::uint64_t> Replay::progress() const {
  return {impl_->control.ended, impl_->timeline().items.size() * impl_->options.clients};
}

void Replay::stop() { impl_->control.stop = true; }

bool Replay::wait(Timeout timeout) {
  const base::Deadline deadline(timeout);
  const auto ended = [this] { return impl_->ended; };
  std::unique_lock lock(impl_->mutex);
  if (!deadline.is_never()) return impl_->changed.wait_until(lock, deadline.when(), ended);
  impl_->changed.wait(lock, ended);
  return true;
}

std::string Replay::report() {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->ended) throw Error(Errc::wrong_state, "the replay has not ended");
  if (impl_->error) std::rethrow_exception(impl_->error);
  return impl_->report().dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace penstock
