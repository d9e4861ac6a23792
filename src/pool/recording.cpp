#include "pool/recording.hpp"
#include "pool/json_text.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

namespace penstock {

namespace {

using nlohmann::json;
using pool::Timeline;
using pool::Trace;
using pool::TraceRecord;
using pool::Verb;

constexpr double ns_per_us = 1e3, ns_per_s = 1e9;

std::uint64_t total_bytes(const TraceRecord& record) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t size : record.sizes) bytes += size;
  return bytes;
}

struct VerbSummary {
  std::uint64_t operations = 0, keys = 0, failed_keys = 0, bytes = 0;
  std::map<Errc, std::uint64_t> errors;
  std::vector<std::int64_t> durations_ns;
};

json describe(Verb verb, VerbSummary& summary) {
  json errors = json::object();
  for (const auto& [code, count] : summary.errors) errors[std::string(name_of(code))] = count;
  return {{"verb", name_of(verb)},  {"operations", summary.operations},
          {"keys", summary.keys},   {"failed_keys", summary.failed_keys},
          {"bytes", summary.bytes}, {"durations", pool::describe_durations(std::move(summary.durations_ns))},
          {"errors", errors}};
}

json describe(const Trace& trace) {
  json process = {{"host", trace.header.host},          {"pid", trace.header.pid},
                  {"program", trace.header.program},    {"clients", trace.clients.size()},
                  {"operations", trace.records.size()}, {"lost_bytes", trace.lost_bytes}};
  if (!trace.problem.empty()) process["problem"] = trace.problem;
  return process;
}

json describe(const Timeline& timeline, const Timeline::Item& item) {
  const Trace& trace = timeline.processes[item.process];
  const TraceRecord& record = timeline.record(item);
  json line = {{"at_s", static_cast<double>(item.start_ns) / ns_per_s},
               {"us", static_cast<double>(record.duration_ns) / ns_per_us},
               {"process", item.process},
               {"thread", record.thread},
               {"pool", trace.clients[record.client]},
               {"verb", name_of(record.verb)},
               {"outcome", name_of(record.outcome)}};
  json keys = json::array();
  for (const auto named : record.keys) {
    const Key key = trace.key(named);
    keys.push_back({key.row, key.column});
  }
  line["keys"] = std::move(keys);
  if (!record.sizes.empty()) line["bytes"] = record.sizes;
  if (record.failed > 0) line["failed"] = record.failed;
  if (record.tag) line["tag"] = *record.tag;
  if (record.function > 0) line["function"] = trace.texts[record.function];
  if (!pool::is_of_stream(record.verb)) return line;
  const bool opens = record.verb == Verb::write_open || record.verb == Verb::read_open;
  if (record.version) line[opens ? "cohort" : "step"] = *record.version;
  if (record.arguments > 0) line["what"] = trace.texts[record.arguments];
  return line;
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream out(path, std::ios::binary);
  if (out) write(out);
  out.close();
  if (!out) throw Error(Errc::system, "cannot write " + path);
}

}  // namespace

nlohmann::json pool::describe_durations(std::vector<std::int64_t> durations_ns) {
  if (durations_ns.empty()) return nullptr;
  const auto at = [&](double share) {
    const auto place =
        durations_ns.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(durations_ns.size() - 1));
    std::ranges::nth_element(durations_ns, place);
    return static_cast<double>(*place) / ns_per_us;
  };
  return {{"median_us", at(0.5)}, {"p99_us", at(0.99)}};
}

Recording Recording::read(const std::vector<std::string>& paths) {
  std::vector<Trace> traces;
  for (const auto& path : paths)
    for (auto& trace : pool::read_traces(path)) traces.push_back(std::move(trace));
  auto impl = std::make_shared<Impl>();
  impl->timeline = pool::merge(std::move(traces));
  Recording recording;
  recording.impl_ = std::move(impl);
  return recording;
}

std::uint64_t Recording::operations() const { return impl_->timeline.items.size(); }

std::string Recording::summary() const {
  const Timeline& timeline = impl_->timeline;
  std::array<VerbSummary, pool::verb_count> verbs;
  std::int64_t end_ns = 0;
  for (const auto& item : timeline.items) {
    const TraceRecord& record = timeline.record(item);
    auto& verb = verbs[static_cast<std::size_t>(record.verb)];
    ++verb.operations;
    verb.keys += record.keys.size();
    verb.failed_keys += record.failed;
    verb.bytes += total_bytes(record);
    if (record.outcome != Errc::ok) ++verb.errors[record.outcome];
    verb.durations_ns.push_back(record.duration_ns);
    end_ns = std::max(end_ns, item.start_ns + record.duration_ns);
  }
  json summary = {{"operations", timeline.items.size()},
                  {"begin_s", static_cast<double>(timeline.begin_ns) / ns_per_s},
                  {"seconds", static_cast<double>(end_ns) / ns_per_s},
                  {"processes", json::array()},
                  {"verbs", json::array()}};
  for (const auto& trace : timeline.processes) summary["processes"].push_back(describe(trace));
  for (std::size_t verb = 0; verb < verbs.size(); ++verb)
    if (verbs[verb].operations > 0) summary["verbs"].push_back(describe(static_cast<Verb>(verb), verbs[verb]));
  return pool::json_text(summary);
}

std::string Recording::lines(std::uint64_t first, std::uint64_t count) const {
  const auto& items = impl_->timeline.items;
  std::string text;
  for (std::uint64_t i = first; i < items.size() && i - first < count; ++i)
    text += pool::json_text(describe(impl_->timeline, items[i])) + "\n";
  return text;
}

void Recording::write_lines(const std::string& path) const {
  write_file(path, [this](std::ostream& out) {
    for (const auto& item : impl_->timeline.items) out << pool::json_text(describe(impl_->timeline, item)) << '\n';
  });
}

void Recording::write_chrome_trace(const std::string& path) const {
  write_file(path, [this](std::ostream& out) { pool::write_chrome_trace(impl_->timeline, out); });
}

}  // namespace penstock
