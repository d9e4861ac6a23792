#include "pool/timeline.hpp"
#include "pool/json_text.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

namespace penstock::pool {

namespace {

using nlohmann::json;

// Traces come from anywhere: their times may be any numbers, which wrap around without harm.
std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t minus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

std::vector<std::int64_t> find_offsets(const std::vector<Trace>& traces) {
  std::map<std::string, std::vector<std::int64_t>> machines;
  const auto machine = [](const TraceHeader& header) {
    return header.boot.empty() ? "host " + header.host : header.boot;
  };
  for (const Trace& trace : traces)
    machines[machine(trace.header)].push_back(minus(trace.header.realtime_ns, trace.header.monotonic_ns));
  for (auto& [name, offsets] : machines) std::ranges::nth_element(offsets, offsets.begin() + offsets.size() / 2);
  std::vector<std::int64_t> found;
  for (const Trace& trace : traces) {
    const auto& offsets = machines[machine(trace.header)];
    found.push_back(offsets[offsets.size() / 2]);
  }
  return found;
}

json timeline_arguments(const Trace& trace, const TraceRecord& record) {
  json arguments = {{"outcome", name_of(record.outcome)}};
  if (!record.keys.empty()) {
    const Key key = trace.key(record.keys[0]);
    arguments["row"] = key.row;
    arguments["column"] = key.column;
  }
  if (is_of_stream(record.verb)) {
    if (record.version) arguments["step"] = *record.version;
    const bool opens = record.verb == Verb::write_open || record.verb == Verb::read_open;  // its options are long
    if (!opens && record.arguments > 0) arguments["what"] = trace.texts[record.arguments];
  }
  if (record.batch) arguments["keys"] = record.keys.size();
  if (record.failed > 0) arguments["failed"] = record.failed;
  std::uint64_t bytes = 0;
  for (const std::uint64_t size : record.sizes) bytes += size;
  if (!record.sizes.empty()) arguments["bytes"] = bytes;
  if (record.tag) arguments["tag"] = *record.tag;
  if (record.count > 0) arguments["count"] = record.count;
  if (record.function > 0) arguments["function"] = trace.texts[record.function];
  if (record.verb == Verb::put)
    arguments["acknowledge"] = record.acknowledge == Acknowledge::memory       ? "memory"
                               : record.acknowledge == Acknowledge::replicated ? "replicated"
                                                                               : "durable";
  return arguments;
}

}  // namespace

Timeline merge(std::vector<Trace> traces) {
  Timeline timeline;
  timeline.processes = std::move(traces);
  timeline.offsets_ns = find_offsets(timeline.processes);
  for (std::uint32_t process = 0; process < timeline.processes.size(); ++process) {
    const auto& records = timeline.processes[process].records;
    for (std::uint32_t record = 0; record < records.size(); ++record)
      timeline.items.push_back({process, record, plus(records[record].start_ns, timeline.offsets_ns[process])});
  }
  std::ranges::stable_sort(timeline.items, {}, &Timeline::Item::start_ns);
  if (timeline.items.empty()) return timeline;
  timeline.begin_ns = timeline.items.front().start_ns;
  for (auto& item : timeline.items) item.start_ns = minus(item.start_ns, timeline.begin_ns);
  return timeline;
}

void write_chrome_trace(const Timeline& timeline, std::ostream& out) {
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const char* between = "";
  const auto write = [&](const json& event) {
    out << between << json_text(event);
    between = ",\n";
  };
  for (std::size_t process = 0; process < timeline.processes.size(); ++process) {
    const TraceHeader& header = timeline.processes[process].header;
    write({{"ph", "M"},
           {"name", "process_name"},
           {"pid", process + 1},
           {"args", {{"name", header.program + " " + header.host + ":" + std::to_string(header.pid)}}}});
  }
  std::uint64_t number = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> busy_until;  // of each thread
  for (const auto& item : timeline.items) {
    const TraceRecord& record = timeline.record(item);
    std::int64_t& busy = busy_until.try_emplace({item.process, record.thread}, 0).first->second;
    json event = {{"name", name_of(record.verb)},
                  {"cat", is_of_stream(record.verb) ? "stream" : "pool"},
                  {"pid", item.process + 1},
                  {"tid", record.thread},
                  {"ts", static_cast<double>(item.start_ns) / 1e3},
                  {"args", timeline_arguments(timeline.processes[item.process], record)}};
    if (!record.asynchronous && item.start_ns >= busy) {
      busy = plus(item.start_ns, record.duration_ns);
      event["ph"] = "X";
      event["dur"] = static_cast<double>(record.duration_ns) / 1e3;
      write(event);
      continue;
    }
    event["ph"] = "b";
    event["id"] = ++number;
    write(event);
    event["ph"] = "e";
    event["ts"] = static_cast<double>(item.start_ns) / 1e3 + static_cast<double>(record.duration_ns) / 1e3;
    event.erase("args");
    write(event);
  }
  out << "\n]}\n";
}

}  // namespace penstock::pool
