// What a step contains and what it does not, scenario by scenario, over every plane (C++ API). Names are those of the
// scenario table.
#include <gmock/gmock.h>

#include <cstdlib>

#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::code_of;
using scenario::numbered;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ContentsScenario : public scenario::Scenario {};
PENSTOCK_SCENARIOS(ContentsScenario);

// Of engines whose writers learn of each other.
class TaughtScenario : public ContentsScenario {};
PENSTOCK_SCENARIOS(TaughtScenario, "direct", "pool", "insitu");

template <class Body>
std::string error_of(Body body, Errc expected) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

std::vector<std::string> names_in(ReadStep& step) {
  std::vector<std::string> names;
  for (const auto& info : step.variables()) names.push_back(info.name);
  return names;
}

void expect_absent(ReadStep& step, std::uint32_t id, const std::string& name, const std::string& last) {
  double out[8];
  const std::vector<std::function<void()>> calls = {
      [&] { step.variable(name); },
      [&] { step.blocks(id); },
      [&] { step.shape_of(id, Selection::all()); },
      [&] { step.get(id, Selection::all(), out); },
      [&] { step.view(id); },
      [&] { step.min_max(id); },
      [&] { step.read_strings(id); },
  };
  EXPECT_EQ(step.find(name), nullptr);
  for (const auto& call : calls)
    EXPECT_THAT(error_of(call, Errc::not_found), AllOf(HasSubstr("'" + name + "'"), HasSubstr(last)));
}

TEST_P(ContentsScenario, variables_that_a_step_lacks) {
  pair(
      [](Writer& writer) {
        const auto T = writer.define<double>("T", {8});
        const auto U = writer.define<double>("U", {8});
        const auto label = writer.define_value<std::string>("label");
        writer.define_value<double>("never");
        for (std::uint64_t t = 0; t < 5; ++t) {
          auto step = writer.begin_step();
          step.put(T, numbered(8, t).data());
          if (t < 2 || t == 4) step.put(U, numbered(8, t).data());
          if (t == 0) step.put_string(label.id, "first");
          step.end();
        }
      },
      [](Reader& reader) {
        std::uint32_t U = 0, label = 0;
        for (std::uint64_t t = 0; t < 5; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.read<double>("T"), numbered(8, t));
          if (t == 0) {
            EXPECT_THAT(names_in(step), ElementsAre("T", "U", "label"));
            U = step.variable("U").id;
            label = step.variable("label").id;
            EXPECT_THAT(error_of([&] { step.variable("never"); }, Errc::not_found),
                        AllOf(HasSubstr("'never'"), HasSubstr("no step that this reader has seen")));
          }
          if (t == 1) expect_absent(step, label, "label", "is step 0");
          if (t == 2 || t == 3) {
            EXPECT_THAT(names_in(step), ElementsAre("T"));
            expect_absent(step, U, "U", "is step 1");
            expect_absent(step, label, "label", "is step 0");
          }
          if (t == 4) {
            EXPECT_EQ(step.read<double>("U"), numbered(8, t));
          }
        }
      });
}

// What some ranks put is there, with their blocks. A rank that puts nothing may still have another shape in mind.
TEST_P(ContentsScenario, variables_that_some_ranks_put) {
  cohorts(
      2, 1,
      [](Writer& writer, int rank) {
        const auto v = writer.define<double>("v", Dims{rank == 0 ? 8u : 4u});
        const auto n = writer.define_value<std::int32_t>("n", Kind::local_value);
        for (std::uint64_t t = 0; t < 3; ++t) {
          auto step = writer.begin_step();
          if (rank == 0 && t < 2) step.put(v, {{2}, {3}}, numbered(3, t).data());
          if (rank == 1 && t == 1) step.put(n, 7);
          step.end();
        }
      },
      [](Reader& reader, int) {
        for (std::uint64_t t = 0; t < 3; ++t) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.find("n") != nullptr, t == 1);
          ASSERT_EQ(step.find("v") != nullptr, t < 2);
          if (t == 2) continue;
          EXPECT_EQ(step.variable("v").shape, (Dims{8}));
          std::vector<double> out(8, -1);
          step.get("v", Selection::all(), out.data());
          step.wait();
          const double first = 1000.0 * static_cast<double>(t);
          EXPECT_EQ(out, (std::vector<double>{-1, -1, first, first + 1, first + 2, -1, -1, -1}));
          const auto uncovered = step.read<double>("v", Selection::box({6}, {2}));
          EXPECT_EQ(uncovered, std::vector<double>(2, 0.0));
        }
      });
}

TEST_P(ContentsScenario, an_abandoned_step_leaves_nothing) {
  pair(
      [](Writer& writer) {
        const auto v = writer.define<double>("v", {8});
        writer.put_attribute("kept", Attribute::of(std::int64_t{1}));
        for (std::uint64_t t = 0; t < 5; ++t) {
          auto step = writer.begin_step();
          if (t == 1 || t == 3) {  // given up by call, and by leaving it
            step.put_attribute("kept", std::int64_t{2});
            step.put_attribute("own", "of step " + std::to_string(t));
            step.set_shape(v, {4});
            writer.put_attribute("title", Attribute::of("from " + std::to_string(t)));
            step.put(v, numbered(4).data());
            if (t == 1) step.abandon();
            continue;
          }
          step.put(v, numbered(8, t).data());
          step.put_attribute("time", static_cast<std::int64_t>(t));
          step.end();
        }
      },
      [](Reader& reader) {
        for (const std::uint64_t t : {0, 2, 4}) {
          auto step = reader.begin_step();
          EXPECT_EQ(step.number(), t);
          EXPECT_EQ(step.read<double>("v"), numbered(8, t));
          EXPECT_EQ(step.attribute("kept")->as<std::int64_t>(), 1);
          EXPECT_EQ(step.attribute("time")->as<std::int64_t>(), static_cast<std::int64_t>(t));
          EXPECT_FALSE(step.attribute("own").has_value());
          ASSERT_EQ(step.attribute("title").has_value(), t > 0);
          if (t > 0) {
            EXPECT_EQ(step.attribute("title")->as<std::string>(), "from " + std::to_string(t - 1));
          }
        }
      });
}

TEST_P(ContentsScenario, empty_blocks_have_numbers) {
  cohorts(
      2, 1,
      [](Writer& writer, int rank) {
        const auto p = writer.define_local<double>("p");
        const auto lone = writer.define_local<double>("lone");
        const auto g = writer.define<double>("g", {8}, {.min_max = true});
        for (std::uint64_t t = 0; t < 2; ++t) {
          auto step = writer.begin_step();
          const auto values = numbered(8, t);
          if (rank == 0) {
            step.put(p, {{0}, {2}}, values.data());
            step.put(p, {{0, 0}, {0, 3}}, values.data());
            step.put(lone, {{0}, {0}}, values.data());
          }
          step.put(p, {{0}, {static_cast<std::uint64_t>(1 + rank)}}, values.data() + 4);
          step.put(g, {{4}, {rank == 0 ? 0u : 4u}}, values.data() + 4);
          step.end();
        }
      },
      [](Reader& reader, int) {
        for (std::uint64_t t = 0; t < 2; ++t) {
          auto step = reader.begin_step();
          const auto p = step.variable("p").id;
          std::vector<Dims> counts;
          for (const auto& block : step.blocks(p)) counts.push_back(block.box.count);
          EXPECT_EQ(counts, (std::vector<Dims>{{2}, {0, 3}, {1}, {2}}));
          EXPECT_TRUE(step.read<double>("p", Selection::block(1)).empty());
          EXPECT_EQ(step.read<double>("p", Selection::block(2)).front(), numbered(8, t)[4]);
          EXPECT_EQ(step.read<double>("p", Selection::block(3)).back(), numbered(8, t)[5]);
          const auto views = step.view(p, Selection::block(1));
          ASSERT_EQ(views.size(), 1u);
          EXPECT_TRUE(views[0].bytes().empty());
          EXPECT_EQ(views[0].box().count, (Dims{0, 3}));
          EXPECT_EQ(step.shape_of(step.variable("lone").id, Selection::all()), (Dims{0}));
          EXPECT_TRUE(step.read<double>("lone").empty());
          EXPECT_EQ(step.view(step.variable("lone").id).size(), 1u);
          const auto g = step.variable("g").id;
          EXPECT_EQ(step.blocks(g).size(), 2u);
          EXPECT_EQ(step.view(g).size(), 1u) << "the empty block is touched by no box";
          EXPECT_FALSE(step.min_max(g, 0).has_value());
          EXPECT_EQ(step.min_max(g, 1)->as<double>().first, numbered(8, t)[4]);
          EXPECT_EQ(step.read<double>("g", Selection::box({4}, {4})).back(), numbered(8, t)[7]);
        }
      });
}

TEST_P(ContentsScenario, ranks_disagree_on_a_shape) {
  Context context(context_options());
  auto writer_options = options();
  writer_options.queue_steps = 1;  // the second step begins when the first was read, or is in the pool
  const auto expected =
      AllOf(HasSubstr("'v'"), HasSubstr("rank 0"), HasSubstr("10x8"), HasSubstr("rank 1"), HasSubstr("11x8"));
  together({[&] {
              run_thread_cohort(2, [&](std::shared_ptr<Cohort> cohort) {
                auto writer = context.create_stream("s", cohort, writer_options);
                const std::uint64_t rows = 10 + static_cast<std::uint64_t>(cohort->rank());
                const auto v = writer.define<double>("v", {10, 8});
                const auto write = [&] {
                  for (int t = 0; t < 2; ++t) {
                    auto step = writer.begin_step();
                    if (t == 1) step.set_shape(v, {rows, 8});
                    step.put(v, {{0, 0}, {5, 8}}, numbered(40).data());
                    step.end();
                  }
                  writer.close();
                };
                EXPECT_THAT(error_of(write, Errc::invalid_argument), expected) << "rank " << cohort->rank();
              });
            },
            [&] {
              auto reader = context.open_stream("s", solo(), options());
              EXPECT_EQ(reader.begin_step().number(), 0u);
              EXPECT_THAT(error_of([&] { reader.begin_step(); }, Errc::writer_lost), expected);
            }});
}

// Two ranks of one launch, as the launcher's variables say, that open the stream each on its own.
class Rank {
 public:
  explicit Rank(int rank) {
    setenv("PMIX_NAMESPACE", "scenario", 1);
    setenv("PMIX_RANK", std::to_string(rank).c_str(), 1);
  }
  ~Rank() {
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMIX_RANK");
  }
};

TEST_P(TaughtScenario, a_forgotten_communicator) {
  Context context(context_options());
  const auto open_as = [&](int rank, const std::string& name) {
    const Rank as(rank);
    return context.create_stream(name, solo(), options());
  };
  const auto expected = AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("comm="), HasSubstr("mpi_cohort"));
  auto member = open_as(1, "another");  // an ensemble's members have streams of their own
  auto first = open_as(0, "s");
  auto reader = context.open_stream("s", solo(), options());
  EXPECT_THAT(error_of([&] { open_as(1, "s"); }, Errc::wrong_state), expected);
  const auto write = [&] {
    const auto v = first.define<double>("v", {8});
    for (;;) {
      auto step = first.begin_step();
      step.put(v, numbered(8).data());
      step.end();
    }
  };
  EXPECT_THAT(error_of(write, on("pool") ? Errc::peer_lost : Errc::wrong_state), expected);
  const auto read = [&] {
    for (;;) reader.begin_step();
  };
  EXPECT_THAT(error_of(read, Errc::writer_lost), expected);
  reader.close();
  member.close();
}

}  // namespace
}  // namespace penstock
