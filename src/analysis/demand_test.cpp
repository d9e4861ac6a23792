// Requests and their programs: a table, random expressions against their own tree, and everything malformed.
#include "analysis/demand.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "analysis/steering.hpp"
#include "base/test_support.hpp"

namespace penstock::analysis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string request_with(const std::string& rules, const std::string& steering = "{}") {
  return R"({"version": 1, "number": 3, "rules": )" + rules + R"(, "steering": )" + steering + "}";
}
Program program(const std::string& words) {
  return parse_request(request_with(R"([{"fields": null, "when": )" + words + "}]")).rules.front().when;
}

struct Case {
  const char* words;
  double step, time;
  bool holds;
};

TEST(Program, Table) {
  const Case cases[] = {
      {"[1]", 0, 0, true},
      {"[0]", 0, 0, false},
      {"[\"maybe\"]", 0, 0, true},
      {"[\"maybe\", \"not\"]", 0, 0, false},
      {"[\"step\"]", 7, 0, true},
      {"[\"step\", 10, \"%\", 0, \"==\"]", 20, 0, true},
      {"[\"step\", 10, \"%\", 0, \"==\"]", 21, 0, false},
      {"[\"time\", 1.5, \">=\"]", 0, 1.5, true},
      {"[\"time\", 1.5, \">\"]", 0, 1.5, false},
      {"[-7, 3, \"%\", 2, \"==\"]", 0, 0, true},  // Python's: the divisor's sign
      {"[7, -3, \"%\", -2, \"==\"]", 0, 0, true},
      {"[-7, 3, \"//\", -3, \"==\"]", 0, 0, true},
      {"[7, -2, \"//\", -4, \"==\"]", 0, 0, true},
      {"[6, -3, \"%\", 0, \"==\"]", 0, 0, true},
      {"[0.7, 0.1, \"//\", 6, \"==\"]", 0, 0, true},
      {"[2, 10, \"**\", 1024, \"==\"]", 0, 0, true},
      {"[3, 4, \"-\", -1, \"==\"]", 0, 0, true},
      {"[3, 4, \"/\", 0.75, \"==\"]", 0, 0, true},
      {"[3, 4, \"min\", 3, \"!=\"]", 0, 0, false},
      {"[3, 4, \"max\", 4, \"<=\"]", 0, 0, true},
      {"[-3, \"abs\", 3, \"<\"]", 0, 0, false},
      {"[5, 2, \"and\", 1, \"==\"]", 0, 0, true},  // logic gives 1 and 0
      {"[0, 2, \"or\", 1, \"==\"]", 0, 0, true},
      {"[0, 0, \"or\"]", 0, 0, false},
      // A value on the way that is no number leaves it to the analysis.
      {"[1, 0, \"/\", 0, \"*\"]", 0, 0, true},
      {"[0, 0, \"/\", 1, \">\"]", 0, 0, true},
      {"[1, 0, \"%\", 1, \">\"]", 0, 0, true},
      {"[1, 0, \"//\", 1, \"<\"]", 0, 0, true},
      {"[-8, 0.5, \"**\", 0, \"*\"]", 0, 0, true},
      {"[0, -1, \"**\", 0, \"*\"]", 0, 0, true},
      {"[10, 400, \"**\", 0, \"*\"]", 0, 0, true},
      {"[\"time\", 0, \"*\"]", 0, std::numeric_limits<double>::quiet_NaN(), true},
      {"[\"time\", 0, \"*\"]", 0, std::numeric_limits<double>::infinity(), true},
  };
  for (const auto& c : cases) EXPECT_EQ(program(c.words).holds(c.step, c.time), c.holds) << c.words;
}

TEST(Program, AsDeepAsItIsLong) {
  std::string deep = "[0", chain = "[1";
  for (std::size_t i = 1; i < max_words / 2; ++i) deep += ", 0";
  for (std::size_t i = 1; i < max_words / 2; ++i) deep += ", \"+\"";
  EXPECT_FALSE(program(deep + "]").holds(0, 0));
  EXPECT_THAT(error_of([&] { program(deep + ", 1, 1]"); }).second, HasSubstr("at most 256"));
  for (std::size_t i = 1; i < max_words; ++i) chain += ", \"not\"";
  EXPECT_FALSE(program(chain + "]").holds(0, 0));
}

// ------ random expressions, evaluated by their tree

struct Node {
  std::string word;
  double number = 0;
  std::vector<std::unique_ptr<Node>> operands;
};

struct NotFinite {};

double finite(double value) {
  if (!std::isfinite(value)) throw NotFinite();
  return value;
}

// In the terms of the mathematics, not of the evaluator: the remainder is what the floor of the quotient leaves.
double value_of(const Node& node, double step, double time) {
  std::vector<double> v;
  for (const auto& operand : node.operands) v.push_back(value_of(*operand, step, time));
  const auto& w = node.word;
  if (w.empty()) return node.number;
  if (w == "step") return finite(step);
  if (w == "time") return finite(time);
  if (w == "maybe") return 1;
  if (w == "not") return v[0] == 0 ? 1 : 0;
  if (w == "abs") return v[0] < 0 ? -v[0] : v[0];
  if (w == "+") return finite(v[0] + v[1]);
  if (w == "-") return finite(v[0] - v[1]);
  if (w == "*") return finite(v[0] * v[1]);
  if (w == "/" || w == "%" || w == "//") {
    if (v[1] == 0) throw NotFinite();
    if (w == "/") return finite(v[0] / v[1]);
    const auto quotient = std::floor(static_cast<long double>(v[0]) / static_cast<long double>(v[1]));
    if (w == "//") return finite(static_cast<double>(quotient));
    return finite(static_cast<double>(static_cast<long double>(v[0]) - quotient * static_cast<long double>(v[1])));
  }
  if (w == "**") return finite(std::pow(v[0], v[1]));
  if (w == "==") return v[0] == v[1];
  if (w == "!=") return v[0] != v[1];
  if (w == "<") return v[0] < v[1];
  if (w == "<=") return v[0] <= v[1];
  if (w == ">") return v[0] > v[1];
  if (w == ">=") return v[0] >= v[1];
  if (w == "and") return v[0] != 0 ? v[1] != 0 : 0;
  if (w == "or") return v[0] != 0 ? 1 : v[1] != 0;
  if (w == "min") return v[1] < v[0] ? v[1] : v[0];
  if (w == "max") return v[1] > v[0] ? v[1] : v[0];
  ADD_FAILURE() << w;
  return 0;
}

void write(const Node& node, std::string& out) {
  for (const auto& operand : node.operands) write(*operand, out);
  if (!out.empty()) out += ", ";
  out += node.word.empty() ? std::to_string(node.number) : "\"" + node.word + "\"";
}

// Whole numbers of a few digits: quotients are exact enough for both ways to compute them.
std::unique_ptr<Node> random_tree(std::mt19937_64& random, int depth) {
  static const std::vector<std::string> two{"+",  "-", "*",  "%",   "//", "==",  "!=", "<",
                                            "<=", ">", ">=", "and", "or", "min", "max"};
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  auto node = std::make_unique<Node>();
  if (depth == 0 || pick(6) == 0) {
    const std::string leaves[] = {"step", "time", "maybe", "", "", ""};
    node->word = leaves[pick(6)];
    node->number = static_cast<double>(pick(15)) - 7;
    return node;
  }
  const bool one = pick(5) == 0;
  node->word = one ? (pick(2) ? "not" : "abs") : two[pick(two.size())];
  for (int i = 0; i < (one ? 1 : 2); ++i) node->operands.push_back(random_tree(random, depth - 1));
  return node;
}

TEST(Program, RandomAgainstTheTree) {
  const auto seed = number_from("PENSTOCK_SEED", std::random_device()());
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  int yes = 0, no = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto tree = random_tree(random, 1 + static_cast<int>(random() % 4));
    std::string words;
    write(*tree, words);
    const auto made = program("[" + words + "]");
    const double step = static_cast<double>(random() % 100), time = static_cast<double>(random() % 40) / 4;
    bool expected = true;
    try {
      expected = value_of(*tree, step, time) != 0;
    } catch (const NotFinite&) {
    }
    ASSERT_EQ(made.holds(step, time), expected) << "seed " << seed << ": " << words << " at " << step << ", " << time;
    ++(expected ? yes : no);
  }
  EXPECT_GT(yes, 1000);
  EXPECT_GT(no, 1000);
}

TEST(Program, TakesNanoseconds) {
  const auto made = program(R"(["step", 10, "%", 0, "==", "time", 1.5, ">=", "and"])");
  const auto start = base::Clock::now();
  int held = 0;
  for (int i = 0; i < 100'000; ++i) held += made.holds(i, i);
  EXPECT_EQ(held, 9'999);
  EXPECT_LT(base::seconds_since(start), sanitized ? 10 : 1);  // 10 us each, where it takes 0.05
}

// ------ requests

TEST(Request, IsRead) {
  const auto request = parse_request(request_with(
      R"([{"fields": ["U", "grid/V"], "when": ["step", 2, "%"]}, {"fields": null, "when": [1]}, {"fields": [], "when": [0]}])",
      R"({"F": 0.05, "n": 7, "on": true, "name": "ü", "big": 9223372036854775807, "huge": 18446744073709551615})"));
  EXPECT_EQ(request.number, 3u);
  ASSERT_EQ(request.rules.size(), 3u);
  EXPECT_THAT(request.rules[0].fields, ElementsAre("U", "grid/V"));
  EXPECT_FALSE(request.rules[0].all);
  EXPECT_TRUE(request.rules[1].all);
  EXPECT_FALSE(request.rules[2].all);
  std::vector<std::string> types;
  for (const auto& [name, value] : request.steering) types.push_back(name + " " + std::string(type_of(value)));
  EXPECT_THAT(types, ElementsAre("F number", "big integer", "huge number", "n integer", "name string", "on boolean"));
  EXPECT_TRUE(parse_request(R"({"version": 1, "number": 0, "rules": []})").steering.empty());
}

TEST(Request, RefusesWhatItCannotRead) {
  const auto when = [](const std::string& words) {
    return request_with(R"([{"fields": null, "when": )" + words + "}]");
  };
  std::string long_list = "[1";
  for (std::size_t i = 0; i < max_rules; ++i) long_list += ", 1";
  long_list += "]";
  const std::string deep(200'000, '[');
  const std::string rule = R"({"fields": null, "when": [1)" + [] {
    std::string words;
    for (int i = 0; i < 8; ++i) words += R"(, 1, "+")";
    return words + "]}";
  }();
  std::string costly = "[" + rule;  // 241 rules of 17 words
  for (int i = 0; i < 240; ++i) costly += ", " + rule;
  costly += "]";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no JSON"},
      {"{", "no JSON"},
      {deep, "no JSON"},
      {deep + std::string(deep.size(), ']'), "a request is an object"},
      {std::string(max_request_bytes + 1, ' '), "1048577 bytes"},
      {"[]", "a request is an object"},
      {R"({"number": 1, "rules": []})", "'version' is missing"},
      {R"({"version": 2, "number": 1, "rules": []})", "version 2, and this is 1"},
      {R"({"version": "1", "number": 1, "rules": []})", "version \"1\""},
      {R"({"version": 1, "rules": []})", "'number' is missing"},
      {R"({"version": 1, "number": -1, "rules": []})", "number is a whole number, not -1"},
      {R"({"version": 1, "number": 1.5, "rules": []})", "not 1.5"},
      {R"({"version": 1, "number": 18446744073709551615, "rules": []})", "whole number"},
      {R"({"version": 1, "number": 1})", "'rules' is missing"},
      {R"({"version": 1, "number": 1, "rules": {}})", "rules is a list of at most 256"},
      {R"({"version": 1, "number": 1, "rules": [], "sterring": {}})", "did you mean 'steering'"},
      {request_with(long_list), "rules is a list of at most 256"},
      {request_with("[1]"), "rule 0: a rule is an object"},
      {request_with(R"([{"fields": null}])"), "'when' is missing"},
      {request_with(R"([{"when": [1]}])"), "'fields' is missing"},
      {request_with(R"([{"fields": "U", "when": [1]}])"), "fields (or null) is a list"},
      {request_with(R"([{"fields": [1], "when": [1]}])"), "a field is a string"},
      {request_with(R"([{"fields": null, "when": [1], "wen": 1}])"), "did you mean 'when'"},
      {when("1"), "when: it is a list"},
      {when("[]"), "1 to 256 words, not 0"},
      {when(long_list), "a list of at most 256"},
      {request_with(costly), "4097 words together; at most 4096"},
      {when("[1, 2]"), "leaves 2 values"},
      {when(R"(["+"])"), "word 0 of the program lacks an operand"},
      {when(R"([1, "+"])"), "word 1 of the program lacks an operand"},
      {when(R"([1, 2, "+", "+", 3])"), "word 3"},
      {when(R"(["not"])"), "word 0"},
      {when(R"(["U"])"), "'U' is no word of a program"},
      {when("[true]"), "a word is a number or a string, not true"},
      {when("[[1]]"), "not a value of type array"},
      {when("[1e999]"), "no JSON"},
      {when("[NaN]"), "no JSON"},
      {when("[" + std::string(100'000, '[') + std::string(100'000, ']') + "]"), "not a value of type array"},
      {request_with("[]", "[]"), "steering is an object"},
      {request_with("[]", R"({"F": null})"), "steering 'F': a value"},
      {request_with("[]", R"({"F": [1]})"), "steering 'F': a value"},
      {request_with("[]", R"({"F": ")" + std::string(max_text + 1, 'a') + R"("})"), "at most 4096 bytes"},
  };
  for (const auto& [text, message] : cases) {
    const auto [code, said] = error_of([&] { parse_request(text); });
    EXPECT_EQ(code, Errc::invalid_argument) << text.substr(0, 100);
    EXPECT_THAT(said, HasSubstr(message)) << text.substr(0, 100);
    EXPECT_LT(said.size(), 400u);
  }
}

// ------ steering

TEST(SteeringValues, AreCheckedOneByOne) {
  Steering steering;
  steering.declare("F", 0.02, Value(0.0), Value(0.1));
  steering.declare("n", std::int64_t{5}, Value(std::int64_t{1}), Value(std::int64_t{9}));
  steering.declare("on", false);
  steering.declare("name", std::string("red"));
  steering.apply({{"F", 0.05}, {"n", 7.0}, {"on", true}, {"name", std::string("blue")}});
  EXPECT_TRUE(steering.refused().empty());
  EXPECT_EQ(std::get<double>(steering.value("F")), 0.05);
  EXPECT_EQ(std::get<std::int64_t>(steering.value("n")), 7);
  EXPECT_TRUE(std::get<bool>(steering.value("on")));
  EXPECT_EQ(std::get<std::string>(steering.value("name")), "blue");
  // An integer is a number; everything else that does not fit leaves the value as it was.
  steering.apply({{"F", std::int64_t{0}}, {"n", 2.5}, {"on", std::int64_t{1}}, {"name", true}, {"G", 1.0}});
  EXPECT_EQ(std::get<double>(steering.value("F")), 0.0);
  EXPECT_EQ(std::get<std::int64_t>(steering.value("n")), 7);
  std::vector<std::string> names;
  for (const auto& [name, why] : steering.refused()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("G", "n", "name", "on"));
  EXPECT_THAT(steering.refused().at("n"), HasSubstr("of type integer, and 2.5 is of type number"));
  steering.apply({{"F", 0.2}, {"n", std::int64_t{0}}, {"F2", std::nan("")}});
  EXPECT_THAT(steering.refused().at("F"), HasSubstr("0.2 is greater than 0.1"));
  EXPECT_THAT(steering.refused().at("n"), HasSubstr("0 is less than 1"));
  steering.apply({});
  EXPECT_TRUE(steering.refused().empty());
  EXPECT_THAT(error_of([&] { steering.value("nme"); }).second, HasSubstr("did you mean 'name'"));
}

TEST(SteeringValues, DeclarationsAreChecked) {
  Steering steering;
  steering.declare("F", 1.0);
  EXPECT_EQ(code_of([&] { steering.declare("F", 1.0); }), Errc::already_exists);
  EXPECT_EQ(code_of([&] { steering.declare("", 1.0); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { steering.declare("x", 2.0, Value(0.0), Value(1.0)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { steering.declare("x", 2.0, Value(std::int64_t{0})); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { steering.declare("x", true, Value(false)); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { steering.declare("x", std::nan("")); }), Errc::invalid_argument);
  EXPECT_EQ(steering.parameters().size(), 1u);
}

}  // namespace
}  // namespace penstock::analysis
