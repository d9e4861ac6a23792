// Ranks that are threads: all decide alike, whatever the demand, the policy and the errors.
#include <array>
#include <mutex>
#include <random>

#include "analysis/coprocessor_test_support.hpp"

namespace penstock::analysis {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class CoprocessorRanksTest : public CoprocessorTest, public testing::WithParamInterface<int> {
 protected:
  static constexpr std::uint64_t rows = 2;
  // Runs body(coprocessor, field, rank) on each rank, on a mesh of rows x 3 nodes for each.
  template <class Body>
  void on_ranks(const StreamOptions& stream, const CoprocessorOptions& options, Body body) {
    const int ranks = GetParam();
    run_thread_cohort(ranks, [&](std::shared_ptr<Cohort> cohort) {
      Coprocessor coprocessor(context_, "heat", cohort, options, stream);
      coprocessor.set_mesh("grid", {UniformMesh{.shape = {rows * static_cast<std::uint64_t>(ranks), 3}}});
      const auto t = coprocessor.field<double>("grid", "T");
      coprocessor.declare("F", 0.5, 0.0, 1000.0);
      body(coprocessor, t, cohort->rank());
    });
  }
  static bool write(Coprocessor& coprocessor, Field<double> t, int rank, std::int64_t cycle) {
    auto step = coprocessor.request(cycle, static_cast<double>(cycle));
    if (!step) return false;
    std::array<double, rows * 3> values;
    values.fill(static_cast<double>(cycle * 10 + rank));
    step->put(t, {{rows * static_cast<std::uint64_t>(rank), 0}, {rows, 3}}, values.data());
    step->coprocess();
    return true;
  }
};

// A cycle that one rank publishes and another does not would hang the stream, or end in a step without a part.
TEST_P(CoprocessorRanksTest, DecideAlikeWhileDemandsChange) {
  constexpr int cycles = 400;
  std::mutex mutex;
  std::vector<std::vector<int>> published(static_cast<std::size_t>(GetParam()));
  std::vector<std::vector<double>> steered(published.size());
  std::optional<Requests> requests;
  requests.emplace(context_);
  std::mt19937 random(7);
  on_ranks(with([](auto& o) { o.engine = "direct"; }), {}, [&](Coprocessor& coprocessor, Field<double> t, int rank) {
    std::optional<Reader> reader;
    if (rank == 0) {
      auto options = with([](auto& o) { o.engine = "direct"; });
      options.delivery = Delivery::latest;
      reader.emplace(context_.open_stream("heat", solo(), options));
    }
    for (int cycle = 1; cycle <= cycles; ++cycle) {
      if (rank == 0 && cycle % 5 == 0)
        requests->ask(
            R"([{"fields": ["T"], "when": ["step", )" + std::to_string(1 + random() % 4) + R"(, "%", 0, "=="]}])",
            R"({"F": )" + std::to_string(cycle) + "}");
      const bool did = write(coprocessor, t, rank, cycle);
      std::lock_guard lock(mutex);
      if (did) published[static_cast<std::size_t>(rank)].push_back(cycle);
      steered[static_cast<std::size_t>(rank)].push_back(coprocessor.value<double>("F"));
      if (rank == 0)
        if (auto [outcome, step] = reader->try_begin_step(); step) {
          const auto all = step->read<double>("T");
          const auto at = static_cast<double>(cycle_of(*step));
          for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], at * 10 + static_cast<double>(i / (rows * 3)));
        }
    }
    if (rank == 0) reader->close();
    EXPECT_EQ(coprocessor.statistics().steps + coprocessor.statistics().skipped_trigger,
              static_cast<std::uint64_t>(cycles));
    coprocessor.finalize();
  });
  EXPECT_THAT(published, Each(published.front()));
  EXPECT_THAT(steered, Each(steered.front()));
  EXPECT_GT(published.front().size(), 20u);
}

TEST_P(CoprocessorRanksTest, AutomaticSkipsOnAllRanksOrNone) {
  std::vector<std::uint64_t> published(static_cast<std::size_t>(GetParam())), skipped(published.size());
  const auto options = with([](auto& o) { o.engine = "direct"; });
  on_ranks(options, {.wait = Wait::automatic}, [&](Coprocessor& coprocessor, Field<double> t, int rank) {
    std::optional<Reader> reader;
    if (rank == 0) reader.emplace(context_.open_stream("heat", solo(), options));
    std::optional<ReadStep> held;
    std::uint64_t read = 0;
    for (int cycle = 0; cycle < 300; ++cycle) {
      write(coprocessor, t, rank, cycle);
      if (rank == 0 && cycle % 3 == 0) {  // gives the one before back
        held.reset();
        if (auto [outcome, step] = reader->try_begin_step(); step) {
          held = std::move(step);
          ++read;
        }
      }
    }
    held.reset();
    if (rank == 0) reader->close();
    coprocessor.finalize();
    const auto statistics = coprocessor.statistics();
    published[static_cast<std::size_t>(rank)] = statistics.steps;
    skipped[static_cast<std::size_t>(rank)] = statistics.skipped_not_ready;
    EXPECT_GE(statistics.steps, read);
  });
  EXPECT_THAT(published, Each(published.front()));
  EXPECT_THAT(skipped, Each(skipped.front()));
  EXPECT_GE(published.front(), 1u);
  EXPECT_EQ(published.front() + skipped.front(), 300u);
}

TEST_P(CoprocessorRanksTest, WhatRankZeroCannotDoFailsOnAll) {
  const auto options = with([](auto& o) {
    o.rendezvous_readers = 1;
    o.open_timeout_ms = 1000;  // ranks open within it, too
    o.engine = "direct";
  });
  std::vector<std::string> texts(static_cast<std::size_t>(GetParam()));
  on_ranks(options, {.pipelines = {"a.yaml"}}, [&](Coprocessor& coprocessor, Field<double> t, int rank) {
    const auto [code, text] = error_of([&] { write(coprocessor, t, rank, 0); });
    EXPECT_EQ(code, Errc::timeout);
    texts[static_cast<std::size_t>(rank)] = text;
    coprocessor.lose();
  });
  EXPECT_THAT(texts, Each(HasSubstr("no analysis has asked for anything")));
}

TEST_P(CoprocessorRanksTest, AnAnalysisThatDoesNotStartOnOneRankFailsOnAll) {
  run_thread_cohort(GetParam(), [&](std::shared_ptr<Cohort> cohort) {
    const bool last = cohort->rank() == cohort->size() - 1;
    Coprocessor coprocessor(context_, "heat", cohort, {.pipelines = {"a.yaml"}}, with(),
                            [&](std::vector<std::string> words) -> std::unique_ptr<RunningAnalysis> {
                              EXPECT_EQ(words.at(6), std::to_string(cohort->rank()));
                              if (last) throw Error(Errc::not_found, "there is no Python");
                              return nullptr;
                            });
    EXPECT_THAT(error_of([&] { coprocessor.request(0, 0); }).second, HasSubstr("there is no Python"));
    coprocessor.lose();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CoprocessorRanksTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace penstock::analysis
