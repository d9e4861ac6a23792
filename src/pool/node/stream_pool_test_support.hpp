// Pools with their servers in this process, a writer and a reader of their streams.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/keys/stream_keys.hpp"
#include "pool/node/server.hpp"
#include "stream/api/step_builder.hpp"
#include "stream/api/step_reader.hpp"

namespace penstock::pool {

// Servers of one pool, the first of which keeps the directory.
class Servers {
 public:
  explicit Servers(std::uint32_t count, std::uint32_t replication = 1,
                   std::uint64_t rebalance_bytes_per_s = ServerOptions{}.rebalance_bytes_per_s)
      : replication_(replication), rebalance_bytes_per_s_(rebalance_bytes_per_s) {
    for (std::uint32_t i = 0; i < count; ++i) starting_.push_back(make(count));
    std::vector<std::thread> threads;  // the first view waits for all of them
    starting_[0]->directory_first.store(true);
    for (std::uint32_t i = 1; i < count; ++i) threads.emplace_back([this, i] { start_later(i); });
    starting_[0]->server->start(patience);
    for (auto& t : threads) t.join();
  }
  ~Servers() {
    for (auto it = starting_.rbegin(); it != starting_.rend(); ++it)
      if ((*it)->server) (*it)->server->stop(Timeout(2000));
    starting_.clear();
  }
  const std::string& folder() const { return folder_.path(); }
  stream::EngineContext context() { return {client_, folder_.path(), "127.0.0.1"}; }
  PoolServer& operator[](std::size_t i) { return *starting_[i]->server; }
  void stop(std::size_t i) { starting_[i]->server->stop(Timeout(2000)); }
  void add() {
    starting_.push_back(make(static_cast<std::uint32_t>(starting_.size())));
    starting_.back()->server->start(patience);
  }
  std::size_t size() const { return starting_.size(); }
  // Until each server has a view that names all of them and has settled.
  void wait_settled() {
    const base::Deadline deadline(patience);
    for (std::size_t i = 0; i < size(); ++i) {
      bool settled = false;
      while (!settled && !deadline.passed()) {
        const auto placement = (*this)[i].core().placement();
        settled = placement->view().settled && placement->view().members.size() == size();
      }
      EXPECT_TRUE(settled) << "server " << i;
    }
  }

 private:
  struct Running {
    std::shared_ptr<fabric::Progress> progress = fabric::Progress::create();
    std::unique_ptr<PoolServer> server;
    std::atomic<bool> directory_first{false};
  };
  std::unique_ptr<Running> make(std::uint32_t count) {
    auto running = std::make_unique<Running>();
    PoolServerOptions options;
    options.server.listen = "127.0.0.1";
    options.server.servers = count;
    options.server.replication = replication_;
    options.server.rebalance_bytes_per_s = rebalance_bytes_per_s_;
    options.server.id = 1 + starting_.size();
    options.server.name = "\"server\" " + std::to_string(starting_.size());
    options.server.store.memory_bytes = 256u << 20;
    options.directory = starting_.empty() ? "embedded" : "registered";
    options.registration_directory = folder_.path();
    running->server = std::make_unique<PoolServer>(running->progress, options);
    return running;
  }
  void start_later(std::uint32_t i) {
    const base::Deadline deadline(patience);
    for (;;) {  // until the directory is registered
      try {
        starting_[i]->server->start(patience);
        return;
      } catch (const Error&) {
        if (deadline.passed()) throw;
      }
    }
  }

  const std::uint32_t replication_;
  const std::uint64_t rebalance_bytes_per_s_;
  TestFolder folder_;
  std::vector<std::unique_ptr<Running>> starting_;
  const std::shared_ptr<fabric::Progress> client_ = fabric::Progress::create();
};

inline StreamOptions pool_options() {
  StreamOptions options;
  options.engine = "pool";
  options.step_timeout_ms = options.open_timeout_ms = options.close_timeout_ms = 20'000;
  return options;
}

inline std::unique_ptr<stream::StepBuilder> write_in_pool(const stream::EngineContext& context, const std::string& name,
                                                          const std::shared_ptr<Cohort>& cohort,
                                                          const StreamOptions& options) {
  return std::make_unique<stream::StepBuilder>(create_in_pool(context, name, *cohort, options), *cohort, options);
}
inline std::unique_ptr<stream::StepReader> read_from_pool(const stream::EngineContext& context, const std::string& name,
                                                          const std::shared_ptr<Cohort>& cohort,
                                                          const StreamOptions& options) {
  return std::make_unique<stream::StepReader>(open_in_pool(context, name, *cohort, options), options, cohort->rank());
}

// One writer rank of a vector whose values follow from the step.
class TestWriter {
 public:
  TestWriter(Servers& servers, const std::string& name, std::uint64_t elements, StreamOptions options = pool_options())
      : elements_(elements), engine_(write_in_pool(servers.context(), name, solo(), options)) {
    x_ = engine_->define("x", DType::float64, {elements}, {});
  }
  void write() {
    ASSERT_TRUE(engine_->begin_step(patience)) << engine_->awaited();
    std::vector<double> values(elements_);
    std::iota(values.begin(), values.end(), 1000.0 * static_cast<double>(engine_->step()));
    engine_->put(x_, Box{{0}, {elements_}}, values.data(), {});
    engine_->put_attribute("step", Attribute::of(static_cast<std::int64_t>(engine_->step())),
                           stream::AttributeOf::step);
    engine_->end_step();
  }
  stream::StepBuilder* operator->() { return engine_.get(); }

 private:
  std::uint64_t elements_;
  std::unique_ptr<stream::StepBuilder> engine_;
  std::uint32_t x_ = 0;
};

class TestReader {
 public:
  TestReader(Servers& servers, const std::string& name, StreamOptions options = pool_options())
      : engine_(read_from_pool(servers.context(), name, solo(), options)) {}
  // Reads the next step and checks it; its number, or -1 at the end.
  std::int64_t read(Timeout deadline = patience) {
    const auto outcome = engine_->begin_step(deadline);
    if (outcome != Outcome::ready) {
      last = outcome;
      return -1;
    }
    const auto& info = engine_->variable("x");
    std::vector<double> values(info.shape[0]), expected(info.shape[0]);
    engine_->get(info.id, Selection::all(), values.data(), Order::row, {});
    engine_->wait(patience);
    std::iota(expected.begin(), expected.end(), 1000.0 * static_cast<double>(engine_->step()));
    EXPECT_EQ(values, expected);
    EXPECT_EQ(engine_->attribute("step")->as<std::int64_t>(), static_cast<std::int64_t>(engine_->step()));
    const auto step = static_cast<std::int64_t>(engine_->step());
    engine_->end_step();
    return step;
  }
  std::vector<std::int64_t> rest() {
    std::vector<std::int64_t> steps;
    for (auto step = read(); step >= 0; step = read()) steps.push_back(step);
    return steps;
  }
  stream::StepReader* operator->() { return engine_.get(); }
  Outcome last = Outcome::ready;

 private:
  std::unique_ptr<stream::StepReader> engine_;
};

// An object of 100 bytes in the streams' namespace.
inline void put_at_owner(Servers& servers, const std::string& row, const std::string& column,
                         std::optional<std::uint64_t> tag) {
  const base::Deadline deadline(patience);
  for (std::size_t i = 0; i < servers.size(); ++i) {
    auto& core = servers[i].core();
    if (!core.is_primary(*core.placement(), streams_namespace(), row, tag)) continue;
    std::vector<ServerCore::Put> puts(1);
    puts[0].ns = streams_namespace();
    puts[0].row = row;
    puts[0].column = column;
    puts[0].tag = tag;
    puts[0].blob = fabric::run_task(*core.progress(), core.store().reserve(100, deadline), deadline);
    puts[0].checksum = storage::checksum(puts[0].blob->bytes());
    const auto results = fabric::run_task(
        *core.progress(), core.put(std::move(puts), IfExists::refuse, Acknowledge::memory, deadline), deadline);
    ASSERT_FALSE(results[0].error);
  }
}

// Objects of the streams' namespace that servers hold, whose rows begin so. seen: called with each, on its server's engine.
inline std::size_t objects_of(
    Servers& servers, const std::string& rows,
    const std::function<void(const StoredObject&)>& seen = [](const StoredObject&) {}) {
  Pattern pattern;
  pattern.row = rows + "*";
  const KeyPattern keys(pattern);
  std::size_t found = 0;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    auto& core = servers[i].core();
    core.progress()->call([&] {
      core.store().table().scan(streams_namespace(), keys, "", ~std::size_t{0}, [&](const ObjectTable::Entry& entry) {
        seen(entry.object);
        ++found;
        return true;
      });
    });
  }
  return found;
}

}  // namespace penstock::pool
