// Replayed operations, done to pools by their public interface.
#include <deque>
#include <map>
#include <mutex>

#include "base/bytes.hpp"
#include "pool/replay.hpp"
#include "pool/replay_stream.hpp"

namespace penstock::pool {

namespace {

using Finish = std::function<ReplayOutcome()>;

Finish ended(ReplayOutcome outcome) {
  return [outcome = std::move(outcome)] { return outcome; };
}

// Runs what may throw and says how it went.
template <class Call>
ReplayOutcome outcome_of(std::size_t keys, Call call) {
  ReplayOutcome outcome;
  try {
    call(outcome);
  } catch (const Error& error) {
    outcome.code = error.code();
    outcome.failed = static_cast<std::uint32_t>(keys);
    outcome.message = error.what();
  } catch (const std::exception& error) {
    outcome.code = Errc::internal;
    outcome.message = error.what();
  }
  return outcome;
}

template <class T>
void count_failures(const std::vector<Result<T>>& results, ReplayOutcome& outcome) {
  for (const auto& result : results) {
    if (result) continue;
    ++outcome.failed;
    if (outcome.code == Errc::ok) outcome.code = result.code, outcome.message = result.message;
  }
}

void count_bytes(const std::vector<Result<Object>>& results, ReplayOutcome& outcome) {
  for (const auto& result : results)
    if (result) outcome.bytes += result.value->bytes().size();
}

GetOptions get_options(const TraceRecord& record) {
  GetOptions options;
  options.version = record.version;
  options.tag = record.tag;
  options.offset = record.offset;
  options.bytes = record.part_bytes;
  options.timeout = record.timeout;
  return options;
}

std::vector<std::vector<std::byte>> make_bytes(const ReplayOperation& operation) {
  std::vector<std::vector<std::byte>> all;
  for (std::size_t i = 0; i < operation.keys.size(); ++i) {
    all.emplace_back(i < operation.record.sizes.size() ? operation.record.sizes[i] : 0);
    fill_replayed(operation.keys[i], all.back());
  }
  return all;
}

class PoolTarget final : public ReplayTarget {
 public:
  PoolTarget(const Context& context, PoolOptions options, std::string run, std::shared_ptr<StreamReplay> streams)
      : context_(context), options_(std::move(options)), run_(std::move(run)), streams_(std::move(streams)) {}

  Finish start(const ReplayOperation& operation) override {
    if (is_of_stream(operation.record.verb)) {
      if (!streams_) return ended({Errc::unsupported, 0, 0, "streams are not replayed here"});
      return [this, operation] { return streams_->run(operation); };
    }
    try {
      Pool& pool = pool_of(operation);
      if (operation.record.asynchronous && operation.keys.size() == 1) {
        if (operation.record.verb == Verb::put) return start_put(pool, operation);
        if (operation.record.verb == Verb::want || operation.record.verb == Verb::need)
          return start_want(pool, operation);
      }
      // Everything else is done where its end is waited for, which is at once for calls that block.
      return [this, &pool, operation] {
        return outcome_of(operation.keys.size(), [&](ReplayOutcome& outcome) { run(pool, operation, outcome); });
      };
    } catch (const Error& error) {
      return ended({error.code(), static_cast<std::uint32_t>(operation.keys.size()), 0, error.what()});
    } catch (const std::exception& error) {
      return ended({Errc::internal, static_cast<std::uint32_t>(operation.keys.size()), 0, error.what()});
    }
  }

 private:
  Pool& pool_of(const ReplayOperation& operation) {
    const std::lock_guard lock(mutex_);
    auto& pool = pools_[{operation.item.process, operation.record.client, operation.ns}];
    if (!pool) {
      PoolOptions options = options_;
      if (options.pool.empty()) options.pool = operation.pool;
      options.ns = replay_namespace(operation.ns, run_);
      options.trace = "off";
      pool = std::make_unique<Pool>(context_, std::move(options));
    }
    return *pool;
  }

  static PutOptions put_options(const ReplayOperation& operation) {
    PutOptions options;
    options.if_exists = operation.record.if_exists;
    options.acknowledge = operation.record.acknowledge;
    options.tag = operation.record.tag;
    options.metadata = operation.text(operation.record.metadata);
    options.timeout = operation.record.timeout;
    return options;
  }

  static Finish start_put(Pool& pool, const ReplayOperation& operation) {
    auto bytes = std::make_shared<std::vector<std::vector<std::byte>>>(make_bytes(operation));
    auto pending = pool.start_put(operation.keys[0], (*bytes)[0], put_options(operation));
    return [bytes, pending = std::move(pending)]() mutable {
      return outcome_of(1, [&](ReplayOutcome& outcome) {
        pending.get();
        outcome.bytes = (*bytes)[0].size();
      });
    };
  }

  static Finish start_want(Pool& pool, const ReplayOperation& operation) {
    auto pending = pool.want(operation.keys[0], get_options(operation.record));
    return [pending = std::move(pending)]() mutable {
      return outcome_of(1, [&](ReplayOutcome& outcome) { outcome.bytes = pending.get().bytes().size(); });
    };
  }

  void run(Pool& pool, const ReplayOperation& operation, ReplayOutcome& outcome) {
    const TraceRecord& record = operation.record;
    const Key key = operation.keys.empty() ? Key{} : operation.keys[0];
    const Pattern pattern{key.row, key.column};
    switch (record.verb) {
      case Verb::put: put(pool, operation, outcome); break;
      case Verb::get:
      case Verb::need:
      case Verb::want: read(pool, operation, outcome); break;
      case Verb::info:
        if (record.batch) count_failures(pool.info(operation.keys, get_options(record)), outcome);
        else pool.info(key, get_options(record));
        break;
      case Verb::list: pool.list(pattern, record.count == 0 ? 1000 : record.count); break;
      case Verb::drop:
        if (record.batch) count_failures(pool.drop(operation.keys, get_options(record)), outcome);
        else pool.drop(key, get_options(record));
        break;
      case Verb::drop_pattern: pool.drop_matching(pattern); break;
      case Verb::wait_row: pool.wait_row(key.row, record.count, key.column, record.timeout); break;
      case Verb::subscribe: {
        auto subscription = pool.subscribe(
            pattern, [](const ObjectEvent&) {}, record.existing);
        const std::lock_guard lock(mutex_);
        subscriptions_.push_back(std::move(subscription));
        break;
      }
      case Verb::compute: compute(pool, operation, outcome); break;
      case Verb::status: pool.status(); break;
      default: throw Error(Errc::internal, "a stream's call");
    }
  }

  static void put(Pool& pool, const ReplayOperation& operation, ReplayOutcome& outcome) {
    const auto bytes = make_bytes(operation);
    for (const auto& one : bytes) outcome.bytes += one.size();
    if (!operation.record.batch && bytes.size() == 1) {
      pool.put(operation.keys[0], bytes[0], put_options(operation));
      return;
    }
    std::vector<Pool::PutItem> items;
    for (std::size_t i = 0; i < bytes.size(); ++i) items.push_back({operation.keys[i], bytes[i]});
    count_failures(pool.put(items, put_options(operation)), outcome);
  }

  static void read(Pool& pool, const ReplayOperation& operation, ReplayOutcome& outcome) {
    const auto options = get_options(operation.record);
    const bool waits = operation.record.verb != Verb::get;
    if (operation.record.batch) {
      const auto results = waits ? pool.need(operation.keys, options) : pool.get(operation.keys, options);
      count_failures(results, outcome);
      count_bytes(results, outcome);
    } else if (!operation.keys.empty()) {
      const Object object = waits ? pool.need(operation.keys[0], options) : pool.get(operation.keys[0], options);
      outcome.bytes = object.bytes().size();
    }
  }

  static void compute(Pool& pool, const ReplayOperation& operation, ReplayOutcome& outcome) {
    ComputeOptions options;
    if (operation.record.arguments != 0) options.arguments = operation.text(operation.record.arguments);
    if (operation.record.count > 0) options.time_ms = static_cast<std::uint32_t>(operation.record.count);
    if (operation.record.memory_bytes > 0) options.memory_bytes = operation.record.memory_bytes;
    options.wait = operation.record.wait;
    options.timeout = operation.record.timeout;
    outcome.bytes = pool.compute(operation.text(operation.record.function), operation.keys, options).bytes().size();
  }

  const Context& context_;
  const PoolOptions options_;
  const std::string run_;
  const std::shared_ptr<StreamReplay> streams_;
  std::mutex mutex_;  // guards what follows
  std::map<std::tuple<std::uint32_t, std::uint32_t, Namespace>, std::unique_ptr<Pool>> pools_;
  std::deque<std::unique_ptr<Subscription>> subscriptions_;  // end before their pools
};

}  // namespace

std::string replay_namespace(const Namespace& recorded, const std::string& run) {
  return "replay/" + (run.empty() ? run : run + "/") +
         base::to_hex({reinterpret_cast<const char*>(recorded.bytes.data()), recorded.bytes.size()});
}

std::unique_ptr<ReplayTarget> make_pool_target(const Context& context, PoolOptions options, std::string run,
                                               std::shared_ptr<StreamReplay> streams) {
  return std::make_unique<PoolTarget>(context, std::move(options), std::move(run), std::move(streams));
}

}  // namespace penstock::pool
