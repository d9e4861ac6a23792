// What holds for writers and readers themselves, scenario by scenario, over every plane (C++ API): options that they take, ends
// without close, and fork.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "scenario.hpp"

namespace penstock {
namespace {

using scenario::code_of;
using scenario::numbered;
using namespace std::chrono_literals;

class HandleScenario : public scenario::Scenario {
 protected:
  static void write_step(Writer& writer, Variable<double> v, std::uint64_t t) {
    auto step = writer.begin_step();
    step.put(v, {{0}, {8}}, numbered(8, t).data());
    step.end();
  }
  static void expect_step(Reader& reader, std::uint64_t t) {
    auto step = reader.begin_step();
    EXPECT_EQ(step.number(), t);
    EXPECT_EQ(step.read<double>("v"), numbered(8, t));
  }
};
PENSTOCK_SCENARIOS(HandleScenario);

TEST_P(HandleScenario, writer_not_closed_is_lost) {
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  auto reader = context.open_stream("s", solo(), options());
  write_step(writer, writer.define<double>("v", {8}), 0);
  expect_step(reader, 0);
  {
    auto step = writer.begin_step();  // open, and given up with the stream
    writer.lose();
  }
  EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::writer_lost);
  EXPECT_EQ(code_of([&] { reader.begin_step(); }), Errc::writer_lost);
  EXPECT_EQ(code_of([&] { writer.begin_step(); }), Errc::stream_closed);
  EXPECT_NO_THROW(writer.lose());
  EXPECT_NO_THROW(writer.close());
}

TEST_P(HandleScenario, options_without_effect_are_refused) {
  Context context(context_options());
  const auto refused = [](auto open) -> std::string {
    try {
      open();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Errc::invalid_argument) << e.what();
      return e.what();
    }
    return "";
  };
  auto reading = options(), writing = options();
  if (on("pool")) {
    writing.keep_first_step = true;
    EXPECT_THAT(refused([&] { context.create_stream("s", solo(), writing); }),
                testing::HasSubstr("keep_first_step is an option of writers of engine direct"));
    reading.keep_first_step = true;  // the writer's: one struct may serve both sides
    reading.start = "newest";
  } else {
    reading.start = "5";
    if (!on("file")) {
      EXPECT_THAT(refused([&] { context.open_stream("s", solo(), reading); }),
                  testing::HasSubstr("start is an option of readers of engine pool"));
    }
    writing.acknowledge = Acknowledge::durable;
    EXPECT_THAT(refused([&] { context.create_stream("s", solo(), writing); }), testing::HasSubstr("acknowledge"));
    reading.start = "oldest";
    reading.keep_first_step = true;
  }
  writing = options();
  writing.start = "5";
  auto writer = context.create_stream("s", solo(), writing);
  auto reader = context.open_stream("s", solo(), reading);
  write_step(writer, writer.define<double>("v", {8}), 0);
  expect_step(reader, 0);
}

TEST_P(HandleScenario, nothing_works_after_fork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer refuses to start threads after fork";
#endif
  Context context(context_options());
  auto writer = context.create_stream("s", solo(), options());
  auto reader = context.open_stream("s", solo(), options());
  const auto v = writer.define<double>("v", {8});
  write_step(writer, v, 0);
  auto read = std::optional(reader.begin_step());
  auto views = std::optional(read->view(read->variable("v").id));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const auto refused = [](auto call) { return code_of(call) == Errc::wrong_state; };
    const bool all = refused([&] { writer.statistics(); }) && refused([&] { reader.statistics(); }) &&
                     refused([&] { writer.begin_step(); }) && refused([&] { reader.begin_step(); }) &&
                     refused([&] { read->read<double>("v"); }) && refused([&] { read->number(); }) &&
                     refused([&] { writer.close(); }) && refused([&] { reader.close(); });
    // Nothing that is destroyed here may end, release or say anything for the parent.
    views.reset();
    read.reset();
    { const Reader gone = std::move(reader); }
    { const Writer gone = std::move(writer); }
    { const Context gone = std::move(context); }
    _exit(all ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_EQ(read->read<double>("v"), numbered(8, 0));
  EXPECT_EQ(views->front().as<double>()[7], numbered(8, 0)[7]);
  views.reset();
  read.reset();
  for (std::uint64_t t = 1; t < 8; ++t) {
    write_step(writer, v, t);
    expect_step(reader, t);
  }
  writer.close();
  EXPECT_EQ(reader.try_begin_step(10s).outcome, Outcome::end_of_stream);
}

}  // namespace
}  // namespace penstock
