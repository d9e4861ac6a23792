// Regions on streams, of each engine that needs no servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/test_support.hpp"
#include "mesh/mesh_test_support.hpp"
#include "mesh/model_text.hpp"
#include "penstock/error.hpp"
#include "penstock/penstock.hpp"

namespace penstock::mesh {
namespace {

using testing::HasSubstr;

class StreamDatabase : public testing::Test {
 protected:
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = folder_.path();
    options.listen = "127.0.0.1";
    return options;
  }
  TestFolder folder_;
  const Context context_{context_options()};
};

TEST(ModelText, ComesBack) {
  for (const auto dtype : {DType::int32, DType::int64}) {
    auto model = every_entity(dtype).model(0);
    model.properties["limits"] = std::vector<double>{0.1, -0.0, std::numeric_limits<double>::infinity(), std::nan("1")};
    model.properties["missing"] = std::nan("2");
    model.properties["sizes"] = std::vector<std::int64_t>{INT64_MIN, INT64_MAX};
    EXPECT_EQ(model_from_text(to_text(model)), model);
  }
}

TEST(ModelText, StructuredBlocksComeBack) {
  const auto model = structured_blocks().model(0);
  EXPECT_EQ(model_from_text(to_text(model)), model);
}

TEST(ModelText, AnythingElseIsRefused) {
  const auto text = to_text(every_entity(DType::int32).model(0));
  for (std::size_t length = 0; length < text.size(); length += 97)
    EXPECT_THROW(static_cast<void>(model_from_text(text.substr(0, length))), Error);
  for (const auto* bad : {"", "{}", "[]", "null", "{\"title\":3}"})
    EXPECT_THROW(static_cast<void>(model_from_text(bad)), Error);
}

// Each rank writes a part, one reader reads all.
TEST_F(StreamDatabase, PartsComeBack) {
  const std::string text = "4x3x6|parts:3|times:4|nodal:2|element:1|global:1|nodeset:xzZ|sideset:XZ";
  std::thread writers([&] {
    run_thread_cohort(3, [&](const std::shared_ptr<Cohort>& cohort) {
      const auto own = generated(text);
      copy_part(*own, static_cast<std::uint32_t>(cohort->rank()), *create_region(context_, "results", cohort));
    });
  });
  const auto source = open_region(context_, "results");
  ASSERT_EQ(source->parts(), 3U);
  const auto whole = generated(text);
  for (std::uint32_t part = 0; part < 3; ++part) EXPECT_EQ(source->model(part), whole->model(part));
  for (double time = 0; time < 4; ++time) {
    const auto state = source->next_state(Timeout(20'000));
    ASSERT_EQ(state.kind, StateOutcome::Kind::state);
    EXPECT_EQ(state.time, time);
    static_cast<void>(whole->next_state(Timeout(0)));
    for (std::uint32_t part = 0; part < 3; ++part) {
      const auto same = [&](Slot slot) { EXPECT_EQ(read_whole(*source, part, slot), read_whole(*whole, part, slot)); };
      each_model_field(whole->model(part), same);
      each_state_field(whole->model(part), same);
    }
  }
  EXPECT_EQ(source->next_state(Timeout(20'000)).kind, StateOutcome::Kind::end);
  writers.join();
}

// Two ranks with the same blocks; their parts are kept, but neither joined nor spread, and files have no place for them.
TEST_F(StreamDatabase, StructuredBlocksComeBack) {
  std::thread writers([&] {
    run_thread_cohort(2, [&](const std::shared_ptr<Cohort>& cohort) {
      auto own = structured_blocks();
      copy_part(own, 0, *create_region(context_, "results", cohort));
    });
  });
  const std::shared_ptr<Source> source = open_region(context_, "results");
  for (std::uint32_t part = 0; part < 2; ++part) EXPECT_EQ(source->model(part), structured_blocks().model(0));
  const auto refusal = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Errc::unsupported);
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal([&] { static_cast<void>(join(source)); }), HasSubstr("structured_block 'left': the parts of"));
  auto own = structured_blocks();
  const auto assign = [](const Model& model) { return assign_linear(model, 2); };
  EXPECT_THAT(refusal([&] { static_cast<void>(spread(std::make_shared<MemorySource>(own), assign, 2)); }),
              HasSubstr("is not spread over parts"));
  auto second = structured_blocks();
  expect_same_from_here(*source, 1, second, 0);
  writers.join();
  MeshOptions file;
  file.database = "exodus";
  EXPECT_THAT(refusal([&] { create_region(context_, folder_ / "a.e", solo(), file)->define(own.model(0)); }),
              HasSubstr("database exodus has no place for structured_block 'left'; these have: stream, null"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.e.writing"));
  copy_part(own, 0, *create_region(context_, "nowhere", solo(), {.database = "null"}));
}

// All ranks give up the first state, and one alone the next: readers see neither.
TEST_F(StreamDatabase, AStateThatIsGivenUpIsNotSeen) {
  std::thread writers([&] {
    run_thread_cohort(2, [&](const std::shared_ptr<Cohort>& cohort) {
      const auto sink = create_region(context_, "results", cohort);
      Model model;
      model.add({.type = EntityType::region,
                 .name = "region",
                 .count = 1,
                 .fields = {{.name = "energy", .role = Role::reduction}}});
      sink->define(model);
      for (double time = 0; time < 4; ++time) {
        sink->begin_state(time);
        if (time == 0) {
          sink->abandon_state();
          continue;
        }
        sink->write({0, 0}, &time);
        if (time == 2 && cohort->rank() == 1) sink->abandon_state();
        else sink->end_state();
      }
      sink->close();
    });
  });
  const auto source = open_region(context_, "results");
  static_cast<void>(source->model(1));
  const auto expect = [&](double time) {
    const auto state = source->next_state(Timeout(20'000));
    ASSERT_EQ(state.kind, StateOutcome::Kind::state);
    EXPECT_EQ(state.time, time);
    if (time == 1) {
      EXPECT_EQ(state.number, 0U);
    }
    double energy = 0;
    source->read(1, {0, 0}, {0, 1}, &energy);
    EXPECT_EQ(energy, time);
  };
  expect(1);
  expect(3);
  EXPECT_EQ(source->next_state(Timeout(20'000)).kind, StateOutcome::Kind::end);
  writers.join();
}

// Two readers of their own, each with what three others are to have.
TEST_F(StreamDatabase, AnyPartOfEveryEntity) {
  std::thread writer([&] {
    auto own = every_entity(DType::int64);
    copy_part(own, 0, *create_region(context_, "results", solo()));
  });
  const auto source = std::shared_ptr<Source>(open_region(context_, "results"));
  auto whole = std::make_shared<MemorySource>(every_entity(DType::int64));
  const Assignment assignment{2, 0, 1, 2};
  const auto theirs = join(spread(source, assignment, 3));
  EXPECT_EQ(theirs->model(0), whole->model(0));
  for (int state = 0; state < 3; ++state) {
    ASSERT_EQ(theirs->next_state(Timeout(20'000)).kind, StateOutcome::Kind::state);
    static_cast<void>(whole->next_state(Timeout(0)));
    const auto same = [&](Slot slot) { EXPECT_EQ(read_whole(*theirs, 0, slot), read_whole(*whole, 0, slot)); };
    each_model_field(whole->model(0), same);
    each_state_field(whole->model(0), same);
  }
  EXPECT_EQ(theirs->next_state(Timeout(20'000)).kind, StateOutcome::Kind::end);
  writer.join();
}

TEST_F(StreamDatabase, AStreamThatIsNoMeshIsRefused) {
  auto writer = context_.create_stream("heat", solo(), {.rendezvous_readers = 0, .keep_first_step = true});
  const auto T = writer.define<double>("T", {4});
  auto step = writer.begin_step();
  const std::vector<double> values(4);
  step.put(T, values.data());
  step.end();
  try {
    static_cast<void>(open_region(context_, "heat"));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("holds no model"));
  }
}

TEST_F(StreamDatabase, TheWordOfTheEnvironmentWins) {
  ::setenv("PENSTOCK_MESH_RESULTS", "null", 1);
  auto own = every_entity(DType::int32);
  copy_part(own, 0, *create_region(context_, "results", solo(), {.database = "stream"}));
  ::setenv("PENSTOCK_MESH_RESULTS", "exodos", 1);
  try {
    static_cast<void>(create_region(context_, "results"));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean 'exodus'"));
  }
  ::unsetenv("PENSTOCK_MESH_RESULTS");
}

}  // namespace
}  // namespace penstock::mesh
