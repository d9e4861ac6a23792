// Streams in a pool of real servers while they are killed: nothing that was acknowledged is lost, no step is seen in part,
// everything ends within its deadline. PENSTOCK_FAULT_SEEDS: how many seeds (3 in the suite).
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "scenario.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class PoolFaults : public testing::Test {
 protected:
  static constexpr std::uint64_t elements = 40'000, steps = 40;

  void start(std::uint32_t count, std::uint32_t replication) {
    for (std::uint32_t i = 0; i < count; ++i) {
      std::vector<std::string> words{"servers=" + std::to_string(count), "replication=" + std::to_string(replication),
                                     "lease_ms=700"};
      if (i > 0) words.push_back("directory=registered");
      servers_.push_back(std::make_unique<scenario::ServerProcess>(scratch_.path(), words, false));
    }
    for (auto& server : servers_) server->wait_ready();
  }
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = scratch_.path();
    options.listen = "127.0.0.1";
    return options;
  }
  static StreamOptions options() {
    StreamOptions options;
    options.engine = "pool";
    options.acknowledge = Acknowledge::replicated;
    options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 30'000;
    return options;
  }
  // Every element says its step, so that a mixture is seen.
  static void write(Context& context, const std::function<void(std::uint64_t)>& at) {
    auto writer = context.create_stream("s", solo(), options());
    const auto v = writer.define<double>("v", {elements});
    for (std::uint64_t t = 0; t < steps; ++t) {
      at(t);
      auto step = writer.begin_step();
      const std::vector<double> values(elements, static_cast<double>(t));
      step.put(v, values.data());
      step.end();
    }
    writer.close();
  }
  static std::vector<std::uint64_t> read(Context& context) {
    auto reader = context.open_stream("s", solo(), options());
    std::vector<std::uint64_t> seen;
    for (;;) {
      auto next = reader.try_begin_step(30s);
      if (next.outcome != Outcome::ready) {
        EXPECT_EQ(next.outcome, Outcome::end_of_stream);
        return seen;
      }
      const auto t = next.step->number();
      EXPECT_EQ(next.step->read<double>("v"), std::vector<double>(elements, static_cast<double>(t)));
      seen.push_back(t);
    }
  }
  static std::vector<std::uint64_t> all() {
    std::vector<std::uint64_t> numbers(steps);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }

  scenario::ScratchDirectory scratch_;
  std::vector<std::unique_ptr<scenario::ServerProcess>> servers_;
};

TEST_F(PoolFaults, AServerIsKilledWhileStepsComeAndGo) {
  const char* asked = std::getenv("PENSTOCK_FAULT_SEEDS");
  const int seeds = asked ? std::atoi(asked) : 3;
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    servers_.clear();
    start(3, 2);
    const auto victim = 1 + random() % 2;  // the first keeps the directory
    const auto when = 2 + random() % (steps - 4);
    Context writing(context_options()), reading(context_options());
    auto concurrent = std::async(std::launch::async, [&] { return read(reading); });
    write(writing, [&](std::uint64_t t) {
      if (t == when) servers_[victim].reset();  // SIGKILL
    });
    EXPECT_EQ(concurrent.get(), all());
    EXPECT_EQ(read(reading), all()) << "after its writer has ended";
  }
}

// A reader that is stopped in the middle and never comes back holds nobody.
TEST_F(PoolFaults, AReaderThatVanishesHoldsNobody) {
  start(1, 1);
  Context writing(context_options());
  auto bounded = options();
  bounded.retain_steps = 4;
  auto writer = writing.create_stream("s", solo(), bounded);
  const auto v = writer.define<double>("v", {elements});
  const std::vector<double> values(elements, 1);
  {
    Context vanishing(context_options());
    auto reader = vanishing.open_stream("s", solo(), options());
    for (std::uint64_t t = 0; t < steps; ++t) {
      auto step = writer.begin_step();
      step.put(v, values.data());
      step.end();
      if (t == 1) reader.begin_step();
    }
  }
  writer.close();
  Context reading(context_options());
  auto reader = reading.open_stream("s", solo(), options());
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (reader.steps().size() > 4 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(reader.steps().size(), 4u);
}

}  // namespace
}  // namespace penstock
