// Readers as programs use them: steps in a loop, and variables by their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <iterator>
#include <ranges>

#include "base/test_support.hpp"
#include "penstock/penstock.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

static_assert(std::ranges::input_range<Reader>);

class ReaderTest : public testing::Test {
 protected:
  ReaderTest() {
    ContextOptions options;
    options.directory = folder_.path();
    options.listen = "127.0.0.1";
    Context context(options);
    StreamOptions stream;
    stream.queue_steps = 2;  // a step is written while another one is read, and no third one
    stream.open_timeout_ms = stream.step_timeout_ms = stream.close_timeout_ms = 20'000;
    writer_.emplace(context.create_stream("s", solo(), stream));
    reader_.emplace(context.open_stream("s", solo(), stream));
    v_ = writer_->define<double>("v", {3});
  }
  void write(double value) {
    const std::vector<double> data(3, value);
    auto step = writer_->begin_step();
    step.put(v_, data.data());
    step.end();
  }

  TestFolder folder_;
  std::optional<Writer> writer_;
  std::optional<Reader> reader_;
  Variable<double> v_;
};

TEST_F(ReaderTest, ALoopOverStepsEndsThemAndEndsWithTheStream) {
  std::vector<double> out(3, -1);
  double next = 0;
  std::future<void> closing;
  write(next);
  for (auto& step : *reader_) {
    EXPECT_EQ(out, std::vector<double>(3, next - 1)) << "what was enqueued is performed when a step ends";
    EXPECT_EQ(step.number(), static_cast<std::uint64_t>(next));
    step.get("v", Selection::all(), out.data());
    if (next == 2) step.end();  // a program may end it itself
    if (++next < 4) write(next);
    else closing = std::async([&] { writer_->close(); });  // which waits for the readers
  }
  closing.get();
  EXPECT_EQ(next, 4);
  EXPECT_EQ(out, std::vector<double>(3, 3));
  EXPECT_EQ(std::ranges::distance(reader_->begin(), reader_->end()), 0) << "the stream is still at its end";
}

TEST_F(ReaderTest, ALoopThatIsLeftEndsItsStepAndCanGoOn) {
  write(0);
  write(1);
  for (auto& step : *reader_) {
    EXPECT_EQ(step.number(), 0u);
    break;
  }
  for (auto& step : *reader_) {
    EXPECT_EQ(step.number(), 1u);
    break;
  }
  reader_->close();
  writer_->close();
}

TEST_F(ReaderTest, ALoopThrowsWhenTheWriterIsLost) {
  write(0);
  int steps = 0;
  const auto loop = [&] {
    for ([[maybe_unused]] auto& step : *reader_) {
      ++steps;
      writer_->lose();
    }
  };
  EXPECT_EQ(code_of(loop), Errc::writer_lost);
  EXPECT_EQ(steps, 1);
}

TEST_F(ReaderTest, VariablesByName) {
  const auto mask = writer_->define<bool>("mask", {5}, {.min_max = true});
  const auto text = writer_->define_value<std::string>("text");
  const bool bits[] = {true, false, false, true, true};
  {
    auto step = writer_->begin_step();
    step.put(mask, bits);
    step.put(text, std::string("hot"));
    step.end();
  }
  auto step = reader_->begin_step();
  EXPECT_THAT(step.read<bool>("mask"), ElementsAre(true, false, false, true, true));
  EXPECT_THAT(step.read<bool>("mask", Selection::box({2}, {2})), ElementsAre(false, true));
  EXPECT_EQ(code_of([&] { step.read<std::uint8_t>("mask"); }), Errc::invalid_argument);
  EXPECT_THAT(step.read_strings("text"), ElementsAre("hot"));
  EXPECT_EQ(step.view("mask").front().bytes().size(), 5u);
  EXPECT_EQ(step.blocks("mask").front().box, whole({5}));
  EXPECT_EQ(step.shape_of("mask", Selection::all()), Dims({5}));
  EXPECT_EQ(step.min_max("mask").has_value(), step.min_max(step.variable("mask").id).has_value());
  const auto [code, why] = error_of([&] { step.view("mark"); });
  EXPECT_EQ(code, Errc::not_found);
  EXPECT_THAT(why, HasSubstr("mask"));
  step.end();
  writer_->close();
}

}  // namespace
}  // namespace penstock
