#include "pool/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace penstock::pool {
namespace {

constexpr std::int64_t second = 1'000'000'000;

Trace process(std::string host, std::string boot, std::int64_t realtime, std::int64_t monotonic,
              std::vector<std::int64_t> starts) {
  Trace trace;
  trace.header = {realtime, monotonic, 17, std::move(host), std::move(boot), "sim"};
  trace.clients = {"heat"};
  trace.texts = {"", std::string(16, '\0'), "row \xff", "T"};
  for (const std::int64_t start : starts) {
    TraceRecord record;
    record.start_ns = start;
    record.duration_ns = 1000;
    record.ns = 1;
    record.keys = {{2, 3}};
    record.sizes = {100};
    trace.records.push_back(record);
  }
  return trace;
}

std::vector<std::uint32_t> processes(const Timeline& timeline) {
  std::vector<std::uint32_t> order;
  for (const auto& item : timeline.items) order.push_back(item.process);
  return order;
}

// On one machine the steady clock decides, however the real-time clock was set between the starts of the processes.
TEST(Timeline, ProcessesOfAMachineShareItsClock) {
  const auto timeline = merge({process("node", "boot", 1000 * second, 10 * second, {20 * second, 40 * second}),
                               process("container", "boot", 1005 * second, 11 * second, {30 * second}),
                               process("node", "boot", 1000 * second, 10 * second, {35 * second})});
  EXPECT_THAT(processes(timeline), testing::ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(timeline.items[0].start_ns, 0);
  EXPECT_EQ(timeline.items[1].start_ns, 10 * second);
  EXPECT_EQ(timeline.items[3].start_ns, 20 * second);
  EXPECT_EQ(timeline.begin_ns, 1010 * second);
}

TEST(Timeline, MachinesAreAlignedByRealTime) {
  const auto timeline = merge({process("a", "boot-a", 1000 * second, 5 * second, {6 * second, 8 * second}),
                               process("b", "boot-b", 1000 * second, 777 * second, {779 * second})});
  EXPECT_THAT(processes(timeline), testing::ElementsAre(0, 1, 0));
  EXPECT_EQ(timeline.items[1].start_ns, second);
}

TEST(Timeline, HostsWithoutABootIdAreToldApartByName) {
  const auto timeline = merge({process("a", "", 1000 * second, 5 * second, {6 * second}),
                               process("b", "", 1000 * second, 6 * second, {8 * second})});
  EXPECT_EQ(timeline.items[1].start_ns, second);
  EXPECT_TRUE(merge({}).items.empty());
}

TEST(Timeline, AnyTimesDoNoHarm) {
  constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  const auto timeline = merge({process("a", "", most, least, {least, most, 0}), process("b", "", least, most, {most})});
  EXPECT_EQ(timeline.items.size(), 4u);
  std::ostringstream out;
  write_chrome_trace(timeline, out);
  EXPECT_TRUE(nlohmann::json::accept(out.str()));
}

TEST(Timeline, ChromeTrace) {
  Trace trace = process("node", "boot", 0, 0, {1000, 1500, 5000});
  trace.records[2].asynchronous = true;
  trace.records[2].verb = Verb::want;
  trace.records[2].outcome = Errc::timeout;
  std::ostringstream out;
  write_chrome_trace(merge({std::move(trace)}), out);
  const auto json = nlohmann::json::parse(out.str());
  std::string phases;
  for (const auto& event : json.at("traceEvents")) phases += event.at("ph").get<std::string>();
  EXPECT_EQ(phases, "MXbebe");  // the second began before the first had ended
  const auto& put = json["traceEvents"][1];
  EXPECT_EQ(put["name"], "put");
  EXPECT_EQ(put["ts"], 0.0);
  EXPECT_EQ(put["dur"], 1.0);
  EXPECT_EQ(put["args"]["column"], "T");
  EXPECT_EQ(put["args"]["bytes"], 100);
  const auto& want = json["traceEvents"][4];
  EXPECT_EQ(want["name"], "want");
  EXPECT_EQ(want["ts"], 4.0);
  EXPECT_EQ(want["args"]["outcome"], "timeout");
}

}  // namespace
}  // namespace penstock::pool
