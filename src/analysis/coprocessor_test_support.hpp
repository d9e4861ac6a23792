// What the tests of coprocessors share: a channel in a folder of its own, and an analysis that sends requests as a test says.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/test_support.hpp"
#include "penstock/penstock.hpp"

namespace penstock::analysis {

using Json = nlohmann::json;

inline std::int64_t cycle_of(const ReadStep& step) { return step.attribute("cycle")->as<std::int64_t>(); }

// The requests of an analysis of the channel "heat", as the package sends them.
class Requests {
 public:
  explicit Requests(const Context& context)
      : writer_(context.create_stream(
            "heat.requests", solo(),
            {.queue_steps = 8, .when_full = WhenFull::discard_newest, .rendezvous_readers = 0, .reserve_steps = 1})),
        text_(writer_.define_value<std::string>("request")) {}
  void send(const std::string& text) {
    auto step = writer_.begin_step();
    step.put(text_, text);
    step.end();
  }
  // rules: JSON, a list. Returns the request's number.
  std::uint64_t ask(const std::string& rules, const std::string& steering = "{}") {
    send(R"({"version": 1, "number": )" + std::to_string(++number_) + R"(, "rules": )" + rules + R"(, "steering": )" +
         steering + "}");
    return number_;
  }
  void close() { writer_.close(Timeout(0)); }
  void lose() { writer_.lose(); }

 private:
  Writer writer_;
  Variable<std::string> text_;
  std::uint64_t number_ = 0;
};

class CoprocessorTest : public testing::Test {
 protected:
  static constexpr const char* never = R"([{"fields": null, "when": [0]}])";
  static constexpr const char* every_tenth = R"([{"fields": ["T"], "when": ["step", 10, "%", 0, "=="]}])";

  // Nobody is waited for; end returns when functions of readers in this process have returned.
  static StreamOptions with(const std::function<void(StreamOptions&)>& change = [](auto&) {}) {
    StreamOptions options;
    options.engine = "insitu";
    options.rendezvous_readers = 0;
    options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 20'000;
    change(options);
    return options;
  }
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = folder_.path();
    options.listen = "127.0.0.1";
    options.config_file = config_;
    return options;
  }
  // Calls request, and publishes nothing, until the condition holds. False: never. cycle: of these requests.
  template <class Condition>
  static bool until(Coprocessor& coprocessor, Condition condition, std::int64_t cycle = 1) {
    for (const auto end = soon(); !end.passed();) {
      coprocessor.request(cycle, 0);
      if (condition()) return true;
    }
    return false;
  }
  static bool until_demand(Coprocessor& coprocessor, std::uint64_t number, std::int64_t cycle = 1) {
    return until(
        coprocessor, [&] { return coprocessor.statistics().demand_number == number; }, cycle);
  }

  SilentLog silent_;
  TestFolder folder_;
  std::string config_;
  Context context_{context_options()};
};

}  // namespace penstock::analysis
