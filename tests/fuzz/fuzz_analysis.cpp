// Requests of analyses, as rank 0 of a simulation reads them.
#include "analysis/demand.hpp"
#include "analysis/steering.hpp"
#include "fuzz.hpp"

using namespace penstock;

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<fuzz::Bytes> out;
  for (
      const std::string_view text :
      {R"({"version": 1, "number": 1, "rules": []})",
       R"({"version": 1, "number": 2, "rules": [{"fields": null, "when": ["step", 10, "%", 0, "=="]}], "steering": {}})",
       R"({"version": 1, "number": 3, "rules": [{"fields": ["U", "grid/V"], "when": ["time", 1.5, ">=", "maybe", "and"]}],
            "steering": {"F": 0.05, "n": 7, "on": true, "name": "x"}})",
       R"({"version": 1, "number": 4, "rules": [{"fields": [], "when": ["step", 2, "//", "step", 3, "**", "/", "abs"]},
            {"fields": ["p"], "when": ["step", "time", "min", "step", "max", "not", 1, "-", 2, "+", 3, "*", 4, "<"]}]})"}) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    out.emplace_back(first, first + text.size());
  }
  return out;
}

// What was accepted holds within its bounds, and can be evaluated and applied.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  analysis::Request request;
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  if (!fuzz::refuses_with({Errc::invalid_argument}, [&] { request = analysis::parse_request(text); })) return 0;
  fuzz::check(request.rules.size() <= analysis::max_rules);
  for (const auto& rule : request.rules) {
    fuzz::check(!rule.all || rule.fields.empty());
    for (const double value : {0.0, 7.0, -1e300, 0.1}) rule.when.holds(value, -value);
  }
  analysis::Steering steering;
  steering.declare("F", 0.5, analysis::Value(0.0), analysis::Value(1.0));
  steering.declare("n", std::int64_t{5}, analysis::Value(std::int64_t{1}), analysis::Value(std::int64_t{9}));
  steering.declare("on", false);
  steering.declare("name", std::string());
  steering.apply(request.steering);
  const double F = std::get<double>(steering.value("F"));
  const auto n = std::get<std::int64_t>(steering.value("n"));
  fuzz::check(F >= 0 && F <= 1 && n >= 1 && n <= 9);
  return 0;
}
