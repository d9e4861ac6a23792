// Functions that the writer's end calls: no thread beside the simulation's, errors of the function, views that it keeps.
#include <stdexcept>
#include <thread>

#include "stream/insitu/insitu_fixture.hpp"

namespace penstock::stream {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class AnalysisTest : public InsituTest {};

TEST_F(AnalysisTest, OneThreadIsEnough) {
  auto writer = context_.create_stream("s", solo(), with());
  auto reader = context_.open_stream("s", solo(), with());
  Halo halo({4, 3});
  const auto v = writer.define<double>("v", halo.inside);
  const auto w = writer.define<double>("w", {2});
  const void* seen = nullptr;
  std::vector<std::uint64_t> numbers;
  std::vector<double> read, put;
  std::int64_t row = 0;
  std::string unit;
  reader.on_step([&](ReadStep& step) {
    numbers.push_back(step.number());
    const auto views = step.view(step.variable("v").id);
    ASSERT_EQ(views.size(), 1u);
    seen = views[0].bytes().data();
    row = views[0].strides()[0];
    read = step.read<double>("v", Selection::box({1, 1}, {2, 2}));
    put = step.read<double>("w");
    unit = step.attribute("unit")->as<std::string>();
  });
  for (std::uint64_t t = 0; t < 20; ++t) {
    halo.data()[0] = static_cast<double>(t);
    auto step = writer.begin_step();
    step.lend(v, whole(halo.inside), halo.data(), halo.strides());
    const std::vector<double> values{1.0 + static_cast<double>(t), 2};
    step.put(w, values.data());
    step.put_attribute("unit", std::string("K"));
    step.end();
    ASSERT_EQ(numbers.size(), t + 1);
    EXPECT_EQ(numbers.back(), t);
    EXPECT_EQ(seen, halo.data());
    EXPECT_EQ(row, halo.strides()[0]);
    EXPECT_THAT(read, ElementsAre(halo.at(1, 1), halo.at(1, 2), halo.at(2, 1), halo.at(2, 2)));
    EXPECT_EQ(put[0], 1.0 + static_cast<double>(t));
    EXPECT_EQ(unit, "K");
  }
  EXPECT_EQ(writer.statistics().epochs, 1u);
  EXPECT_EQ(writer.statistics().bytes_copied, 20 * 2 * sizeof(double));
  EXPECT_EQ(reader.statistics().analysis_errors, 0u);
  writer.close();
  EXPECT_EQ(reader.try_begin_step(20s).outcome, Outcome::end_of_stream);
}

TEST_F(AnalysisTest, TheReaderMayCloseFirstAndInItsFunction) {
  auto writer = context_.create_stream("s", solo(), with());
  auto reader = context_.open_stream("s", solo(), with());
  Halo halo({2, 2});
  const auto v = writer.define<double>("v", halo.inside);
  int calls = 0;
  reader.on_step([&](ReadStep&) {
    if (++calls == 2) reader.close();
  });
  for (int t = 0; t < 4; ++t) write(writer, v, halo);
  EXPECT_EQ(calls, 2);
  writer.close();
}

TEST_F(AnalysisTest, SeveralAreCalledAsTheyWereOpened) {
  auto writer = context_.create_stream("s", solo(), with());
  std::vector<Reader> readers;
  for (int r = 0; r < 3; ++r) readers.push_back(context_.open_stream("s", solo(), with()));
  std::string order;
  for (const int r : {2, 0, 1})
    readers[static_cast<std::size_t>(r)].on_step([&order, r](ReadStep& step) {
      order += std::to_string(r);
      if (r == 1) step.end();
    });
  Halo halo({2, 2});
  const auto v = writer.define<double>("v", halo.inside);
  write(writer, v, halo);
  write(writer, v, halo);
  EXPECT_EQ(order, "012012");
  EXPECT_EQ(code_of([&] { readers[0].on_step([](ReadStep&) {}); }), Errc::wrong_state);
}

TEST_F(AnalysisTest, WhatItThrowsIsReportedAndTheSimulationGoesOn) {
  auto writer = context_.create_stream("s", solo(), with());
  auto failing = context_.open_stream("s", solo(), with());
  auto good = context_.open_stream("s", solo(), with());
  int calls = 0, good_calls = 0;
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level level, std::string_view line) {
    if (level == base::Level::warn) lines.emplace_back(line);
  });
  failing.on_step([&](ReadStep& step) {
    ++calls;
    const auto view = step.view(0);
    throw std::runtime_error("no such isovalue");
  });
  good.on_step([&](ReadStep&) { ++good_calls; });
  Halo halo({2, 2});
  const auto v = writer.define<double>("v", halo.inside);
  for (int t = 0; t < 3; ++t) write(writer, v, halo);
  base::set_log_sink([](base::Level, std::string_view) {});
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(good_calls, 3);
  EXPECT_EQ(failing.statistics().analysis_errors, 3u);
  EXPECT_EQ(good.statistics().analysis_errors, 0u);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("no such isovalue")));
}

TEST_F(AnalysisTest, WhatItThrowsComesOutOfTheEndWhereAsked) {
  auto writer = context_.create_stream("s", solo(), with());
  auto failing = context_.open_stream("s", solo(), with());
  auto good = context_.open_stream("s", solo(), with());
  int good_calls = 0;
  failing.on_step(
      [&](ReadStep& step) {
        if (step.number() == 1) throw std::out_of_range("diverged");
      },
      OnStepError::raise);
  good.on_step([&](ReadStep&) { ++good_calls; });
  Halo halo({2, 2});
  const auto v = writer.define<double>("v", halo.inside);
  writer.put_attribute("run", Attribute::of(7));
  write(writer, v, halo);
  EXPECT_THROW(write(writer, v, halo), std::out_of_range);
  write(writer, v, halo);
  EXPECT_EQ(good_calls, 3);
  const auto statistics = writer.statistics();
  EXPECT_EQ(statistics.steps, 3u);
  EXPECT_EQ(statistics.steps_voided, 0u);
  EXPECT_EQ(statistics.queue_depth, 0u);
  writer.close();
}

TEST_F(AnalysisTest, AViewOfLentMemoryThatIsKeptIsAnError) {
  auto writer = context_.create_stream("s", solo(), with());
  auto reader = context_.open_stream("s", solo(), with());
  std::vector<Views> kept;
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level level, std::string_view line) {
    if (level == base::Level::warn) lines.emplace_back(line);
  });
  reader.on_step([&](ReadStep& step) { kept.push_back(step.view(step.variable("temperature").id)); });
  Halo halo({2, 2});
  const auto v = writer.define<double>("temperature", halo.inside);
  for (int t = 0; t < 10; ++t) write(writer, v, halo);  // more than queue_steps
  base::set_log_sink([](base::Level, std::string_view) {});
  EXPECT_EQ(reader.statistics().analysis_errors, 10u);
  EXPECT_THAT(lines,
              ElementsAre(testing::AllOf(HasSubstr("kept a view"), HasSubstr("temperature"), HasSubstr("copy"))));
  EXPECT_EQ(writer.statistics().queue_depth, 0u);
  writer.close();
}

TEST_F(AnalysisTest, AViewOfWhatWasPutMayBeKept) {
  auto writer = context_.create_stream("s", solo(), with());
  auto reader = context_.open_stream("s", solo(), with());
  std::vector<Views> kept;
  reader.on_step([&](ReadStep& step) {
    if (step.number() < 2) kept.push_back(step.view(0));
  });
  const auto v = writer.define<double>("v", {2});
  for (int t = 0; t < 10; ++t) {
    auto step = writer.begin_step();
    const std::vector<double> values{static_cast<double>(t), 0};
    step.put(v, values.data());
    step.end();
  }
  EXPECT_EQ(reader.statistics().analysis_errors, 0u);
  ASSERT_EQ(kept.size(), 2u);
  for (std::size_t t = 0; t < 2; ++t) EXPECT_EQ(kept[t][0].as<double>()[0], static_cast<double>(t));
  writer.close();
  EXPECT_EQ(kept[1][0].as<double>()[0], 1.0);
}

TEST_F(AnalysisTest, AViewOfWhatWasPutBesideLentMemoryIsAnErrorToo) {
  auto writer = context_.create_stream("s", solo(), with());
  auto reader = context_.open_stream("s", solo(), with());
  std::vector<Views> kept;
  reader.on_step([&](ReadStep& step) { kept.push_back(step.view(step.variable("p").id)); }, OnStepError::raise);
  Halo halo({2, 2});
  const auto v = writer.define<double>("v", halo.inside);
  const auto p = writer.define<double>("p", {2});
  const std::vector<double> values{1, 2};
  for (int t = 0; t < 6; ++t) {  // more than queue_steps
    auto step = writer.begin_step();
    step.lend(v, whole(halo.inside), halo.data(), halo.strides());
    step.put(p, values.data());
    const auto [code, text] = error_of([&] { step.end(); });
    EXPECT_EQ(code, Errc::wrong_state);
    EXPECT_THAT(text, HasSubstr("a step with memory that the simulation lent"));
  }
  writer.close();
}

TEST_F(AnalysisTest, TheWriterCannotBeUsedInsideItsEnd) {
  auto writer = context_.create_stream("s", solo(), with());
  auto reader = context_.open_stream("s", solo(), with());
  Errc begun = Errc::ok, closed = Errc::ok;
  reader.on_step([&](ReadStep&) {
    begun = code_of([&] { writer.begin_step(); });
    closed = code_of([&] { writer.close(); });
  });
  Halo halo({2, 2});
  const auto v = writer.define<double>("v", halo.inside);
  write(writer, v, halo);
  write(writer, v, halo);
  EXPECT_EQ(begun, Errc::wrong_state);
  EXPECT_EQ(closed, Errc::wrong_state);
}

TEST_F(AnalysisTest, RanksAreCalledByTheirOwn) {
  constexpr std::uint64_t ranks = 3;
  std::vector<int> calls(ranks);
  run_thread_cohort(ranks, [&](std::shared_ptr<Cohort> cohort) {
    const auto rank = static_cast<std::uint64_t>(cohort->rank());
    auto writer = context_.create_stream("s", cohort, with());
    auto reader = context_.open_stream("s", cohort, with());
    const auto here = std::this_thread::get_id();
    Halo halo({2, 4}, 100.0 * static_cast<double>(rank));
    const auto v = writer.define<double>("v", {2 * ranks, 4});
    reader.on_step([&](ReadStep& step) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      ++calls[rank];
      const auto all = step.read<double>("v");
      for (std::uint64_t r = 0; r < ranks; ++r)
        EXPECT_EQ(all[8 * r], Halo({2, 4}, 100.0 * static_cast<double>(r)).at(0, 0));
    });
    for (int t = 0; t < 5; ++t) {
      // The others' end comes to nothing where a rank gives its step up.
      if (t == 2 && rank == 1) writer.begin_step().abandon();
      else write(writer, v, halo, Box{{2 * rank, 0}, {2, 4}});
    }
    reader.close();
    writer.close();
  });
  EXPECT_THAT(calls, ElementsAre(4, 4, 4));
}

TEST_F(AnalysisTest, WhereNobodyWouldCallItIsRefused) {
  auto options = with([](auto& o) { o.engine = "direct"; });
  auto writer = context_.create_stream("d", solo(), options);
  auto direct = context_.open_stream("d", solo(), options);
  const auto [code, text] = error_of([&] { direct.on_step([](ReadStep&) {}); });
  EXPECT_EQ(code, Errc::unsupported);
  EXPECT_THAT(text, HasSubstr("loop over the steps"));
  auto one = context_.create_stream("s", solo(), with());
  run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
    auto reader = context_.open_stream("s", cohort, with());
    const auto [on_step, why] = error_of([&] { reader.on_step([](ReadStep&) {}); });
    EXPECT_EQ(on_step, cohort->rank() == 0 ? Errc::ok : Errc::unsupported) << why;
  });
}

TEST_F(AnalysisTest, PoliciesLeaveItItsSteps) {
  for (const auto policy : {WhenFull::discard_newest, WhenFull::discard_oldest}) {
    for (const auto delivery : {Delivery::every, Delivery::latest}) {
      const auto name = "s" + std::to_string(static_cast<int>(policy)) + std::to_string(static_cast<int>(delivery));
      auto writer = context_.create_stream(name, solo(), with([&](auto& o) {
                                             o.when_full = policy;
                                             o.queue_steps = 1;
                                           }));
      auto reader = context_.open_stream(name, solo(), with([&](auto& o) { o.delivery = delivery; }));
      std::vector<std::uint64_t> numbers;
      reader.on_step([&](ReadStep& step) { numbers.push_back(step.number()); });
      Halo halo({2, 2});
      const auto v = writer.define<double>("v", halo.inside);
      for (int t = 0; t < 4; ++t) write(writer, v, halo);
      EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3)) << name;
      writer.close();
    }
  }
}

}  // namespace
}  // namespace penstock::stream
