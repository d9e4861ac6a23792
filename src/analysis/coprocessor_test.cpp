// One rank: fields and meshes on the stream, demands, policies, steering, and analyses that come and go.
#include "penstock/coprocessor.hpp"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "analysis/coprocessor_test_support.hpp"

namespace penstock::analysis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What a reader in this process finds in each step.
class Watcher {
 public:
  explicit Watcher(const Context& context, const StreamOptions& options)
      : reader_(context.open_stream("heat", solo(), options)) {
    reader_.on_step([this](ReadStep& step) {
      cycles.push_back(cycle_of(step));
      times.push_back(step.attribute("time")->as<double>());
      names.clear();
      for (const auto& v : step.variables()) names.push_back(v.name);
      std::ranges::sort(names);
      if (const auto meshes = step.attribute("meshes")) this->meshes = Json::parse(meshes->as<std::string>())["meshes"];
      answer = Json::parse(step.attribute("coprocessing")->as<std::string>());
      if (look) look(step);
    });
  }
  std::vector<std::int64_t> cycles;
  std::vector<double> times;
  std::vector<std::string> names;  // of the last step's variables
  Json meshes, answer;
  std::function<void(ReadStep&)> look;

 private:
  Reader reader_;
};

// A channel with the fields T and v of a mesh of 4 x 3 nodes.
struct Heat {
  Coprocessor coprocessor;
  Field<double> t;
  Field<float> v;
  std::vector<double> temperature;
  std::vector<float> velocity;

  Heat(const Context& context, const StreamOptions& stream, CoprocessorOptions options = {}, StartAnalysis start = {})
      : coprocessor(context, "heat", solo(), std::move(options), stream, std::move(start)),
        temperature(12),
        velocity(12) {
    coprocessor.set_mesh("grid", {UniformMesh{.shape = {4, 3}, .axes = "yx"}});
    t = coprocessor.field<double>("grid", "T", {.units = "K"});
    v = coprocessor.field<float>("grid", "v", {.association = Association::element, .components = 2});
    std::iota(temperature.begin(), temperature.end(), 0);
    std::iota(velocity.begin(), velocity.end(), 100.0F);
  }
  // True when it was published.
  bool write(std::int64_t cycle) {
    auto step = coprocessor.request(cycle, 0.5 * static_cast<double>(cycle));
    if (!step) return false;
    step->lend(t, {}, temperature.data());
    step->put(v, {{0, 0}, {3, 2}}, velocity.data());  // 3 x 2 elements of 2 components
    step->coprocess();
    return true;
  }
};

TEST_F(CoprocessorTest, EverythingIsWrittenWhileNobodyAsks) {
  Heat heat(context_, with());
  Watcher seen(context_, with());
  const void* where = nullptr;
  seen.look = [&](ReadStep& step) {
    where = step.view(step.variable("T").id)[0].bytes().data();
    EXPECT_EQ(step.read<float>("v"), heat.velocity);
    EXPECT_EQ(step.variable("v").shape, (Dims{3, 2, 2}));
  };
  for (int cycle = 0; cycle < 3; ++cycle) EXPECT_TRUE(heat.write(cycle));
  EXPECT_THAT(seen.cycles, ElementsAre(0, 1, 2));
  EXPECT_THAT(seen.times, ElementsAre(0, 0.5, 1));
  EXPECT_EQ(where, heat.temperature.data());  // it was not copied
  EXPECT_EQ(seen.meshes["grid"]["shape"], Json({4, 3}));
  EXPECT_EQ(seen.meshes["grid"]["fields"]["T"]["units"], "K");
  EXPECT_EQ(seen.answer["number"], 0);
  const auto statistics = heat.coprocessor.statistics();
  EXPECT_EQ(statistics.steps, 3u);
  EXPECT_EQ(statistics.requests, 3u);
  EXPECT_GT(statistics.request_s + statistics.put_s + statistics.end_s, 0);
  EXPECT_EQ(heat.coprocessor.finalize(), 0);
  EXPECT_EQ(heat.coprocessor.finalize(), 0);
  EXPECT_EQ(code_of([&] { heat.coprocessor.request(3, 0); }), Errc::wrong_state);
}

TEST_F(CoprocessorTest, TheDemandDecidesWhichCyclesAndFields) {
  Heat heat(context_, with());
  Watcher seen(context_, with());
  Requests requests(context_);
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask(every_tenth)));
  seen.cycles.clear();
  for (int cycle = 0; cycle <= 25; ++cycle) EXPECT_EQ(heat.write(cycle), cycle % 10 == 0);
  EXPECT_THAT(seen.cycles, ElementsAre(0, 10, 20));
  EXPECT_THAT(seen.names, ElementsAre("T"));
  EXPECT_EQ(seen.answer["number"], 1);
  EXPECT_GE(seen.answer["skipped"]["trigger"], 18);

  const auto second = requests.ask(
      R"([{"fields": ["grid/v"], "when": ["time", 6, ">="]}, {"fields": ["T"], "when": ["step", 14, "=="]}])");
  ASSERT_TRUE(until_demand(heat.coprocessor, second));
  seen.cycles.clear();
  EXPECT_FALSE(heat.write(11));
  EXPECT_TRUE(heat.write(12));
  EXPECT_THAT(seen.names, ElementsAre("v"));
  EXPECT_TRUE(heat.write(14));
  EXPECT_THAT(seen.names, ElementsAre("T", "v"));
  EXPECT_EQ(seen.answer["number"], 2);

  // A step of no fields is a step.
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask(R"([{"fields": [], "when": [1]}])")));
  EXPECT_TRUE(heat.write(15));
  EXPECT_THAT(seen.names, IsEmpty());
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask("[]")));
  EXPECT_FALSE(heat.write(16));
  requests.close();
}

TEST_F(CoprocessorTest, WhatIsNotWantedCostsNothing) {
  Heat heat(context_, with());
  Requests requests(context_);
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask(R"([{"fields": ["v"], "when": [1]}])")));
  auto step = heat.coprocessor.request(1, 0);
  ASSERT_TRUE(step);
  EXPECT_FALSE(step->wants(heat.t));
  EXPECT_TRUE(step->wants(heat.v));
  step->put(heat.t, {}, static_cast<const double*>(nullptr));  // is not looked at
  EXPECT_THAT(step->put_span(heat.t, {}), IsEmpty());
  EXPECT_EQ(step->put_span(heat.v, {{0, 0}, {3, 2}}).size(), 12u);
  EXPECT_EQ(code_of([&] { step->wants(17u); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { heat.coprocessor.request(2, 0); }), Errc::wrong_state);
  step->coprocess();
  EXPECT_EQ(code_of([&] { step->coprocess(); }), Errc::wrong_state);
}

TEST_F(CoprocessorTest, ARequestThatSaysNoIsCheap) {
  Heat heat(context_, with());
  Requests requests(context_);
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask(never)));
  constexpr int calls = 20'000;
  const auto before = heat.coprocessor.statistics().requests - heat.coprocessor.statistics().skipped_trigger;
  const auto start = base::Clock::now();
  for (int i = 0; i < calls; ++i) EXPECT_FALSE(heat.coprocessor.request(i, i));
  const double each_us = base::seconds_since(start) / calls * 1e6;
  RecordProperty("us", std::to_string(each_us));
  const auto moved = heat.coprocessor.writer().statistics();
  EXPECT_EQ(moved.bytes + moved.copies, 0u);
  EXPECT_EQ(heat.coprocessor.statistics().skipped_trigger, heat.coprocessor.statistics().requests - before);
  EXPECT_LT(each_us, sanitized ? 100 : 20);  // 0.2 where nobody else runs
}

TEST_F(CoprocessorTest, AStepThatIsGivenUpIsNotSeen) {
  Heat heat(context_, with());
  Watcher seen(context_, with());
  { auto step = heat.coprocessor.request(1, 0); }
  EXPECT_TRUE(heat.write(2));
  EXPECT_THAT(seen.cycles, ElementsAre(2));
  EXPECT_EQ(heat.coprocessor.statistics().steps, 1u);
}

// ---------------------------------------------------------------------------------------------------------- meshes

TEST_F(CoprocessorTest, AMeshMayGrow) {
  Heat heat(context_, with());
  Watcher seen(context_, with());
  EXPECT_TRUE(heat.write(0));
  heat.coprocessor.set_mesh("grid", {UniformMesh{.shape = {5, 3}, .axes = "yx", .origin = {1, 0, 0}}});
  Dims shape;
  seen.look = [&](ReadStep& step) { shape = step.variable("T").shape; };
  const std::vector<double> larger(15);
  const auto put = [&](std::int64_t cycle) {
    auto step = heat.coprocessor.request(cycle, 0);
    step->put(heat.t, {}, larger.data());
    return step;
  };
  { auto given_up = put(1); }
  for (int cycle = 2; cycle < 4; ++cycle) {
    put(cycle)->coprocess();
    EXPECT_EQ(shape, (Dims{5, 3}));
    EXPECT_EQ(seen.meshes["grid"]["origin"], Json({1, 0, 0}));
  }
  EXPECT_THAT(error_of([&] { heat.coprocessor.set_mesh("grid", {UniformMesh{{5}}}); }).second,
              HasSubstr("number of dimensions"));
  EXPECT_THAT(error_of([&] { heat.coprocessor.set_mesh("grid", {ParticleMesh{{"p"}}}); }).second,
              HasSubstr("another kind"));
}

TEST_F(CoprocessorTest, StructureAndGhostsGoWithAnyFieldOfTheirMesh) {
  Coprocessor coprocessor(context_, "heat", solo(), {}, with());
  Watcher seen(context_, with());
  coprocessor.set_mesh("body", {UnstructuredMesh{{"points"}, {{"all", 1, "tet4", "tets"}}}, "ghost"});
  coprocessor.set_mesh("atoms", {ParticleMesh{{"x", "y", "z"}}, "", "", "id"});
  const auto points = coprocessor.structure<double>("body", "points");
  const auto tets = coprocessor.structure<std::int64_t>("body", "tets");
  const auto ghost = coprocessor.field<std::uint8_t>("body", "ghost", {.association = Association::element});
  const auto p = coprocessor.field<double>("body", "p");
  const auto q = coprocessor.field<double>("body", "q");
  const auto x = coprocessor.structure<double>("atoms", "x");
  const auto id = coprocessor.structure<std::int64_t>("atoms", "id");
  const auto vx = coprocessor.field<double>("atoms", "v", {.association = Association::element, .variable = "vx"});
  const auto vy = coprocessor.field<double>("atoms", "v", {.association = Association::element, .variable = "vy"});
  EXPECT_EQ(code_of([&] { coprocessor.structure<double>("body", "w"); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { coprocessor.field<double>("body", "p"); }), Errc::already_exists);
  EXPECT_THAT(error_of([&] { coprocessor.field<double>("bdy", "r"); }).second, HasSubstr("did you mean 'body'"));
  Requests requests(context_);
  std::string got;
  const auto asking = [&](const std::string& fields) {
    EXPECT_TRUE(until_demand(coprocessor, requests.ask(R"([{"fields": )" + fields + R"(, "when": [1]}])")));
    auto step = coprocessor.request(1, 0);
    got.clear();
    const std::pair<std::uint32_t, const char*> all[] = {
        {points.id, "points "}, {tets.id, "tets "}, {ghost.id, "ghost "}, {p.id, "p "},  {q.id, "q "},
        {x.id, "x "},           {id.id, "id "},     {vx.id, "vx "},       {vy.id, "vy "}};
    for (const auto& [field, name] : all)
      if (step->wants(field)) got += name;
    const double values[3] = {1, 2, 3};
    step->put(points, {{0, 0}, {1, 3}}, values);
    EXPECT_EQ(code_of([&] { step->put(p, {}, values); }), step->wants(p) ? Errc::invalid_argument : Errc::ok);
    step->coprocess();
    return got;
  };
  EXPECT_EQ(asking(R"(["p"])"), "points tets ghost p ");
  EXPECT_EQ(asking(R"(["v"])"), "x id vx vy ");
  EXPECT_EQ(asking(R"(["atoms/v", "body/q"])"), "points tets ghost q x id vx vy ");
  EXPECT_EQ(asking(R"(["body"])"), "points tets ghost ");
  EXPECT_EQ(asking(R"(["vy"])"), "x id vy ");
  EXPECT_EQ(asking(R"(["body/v", "/p", "p/", "nothing"])"), "");
  EXPECT_EQ(asking("null"), "points tets ghost p q x id vx vy ");
  EXPECT_EQ(seen.meshes["atoms"]["fields"]["v"]["variables"], Json({"vx", "vy"}));
  EXPECT_EQ(seen.meshes["body"]["ghosts"]["variables"], Json({"ghost"}));
}

TEST_F(CoprocessorTest, MeshesThatDoNotFitTogetherAreRefusedBeforeTheStep) {
  Heat heat(context_, with());
  heat.coprocessor.set_mesh("all", {MultiblockMesh{{"grid", "pipe"}}});
  EXPECT_THAT(error_of([&] { heat.write(0); }).second, HasSubstr("no mesh 'pipe'"));
  heat.coprocessor.set_mesh("pipe", {UniformMesh{{2}}});
  EXPECT_TRUE(heat.write(1));
}

// ---------------------------------------------------------------------------------------------------------- steering

TEST_F(CoprocessorTest, SteeringIsAppliedAndAcknowledged) {
  Heat heat(context_, with());
  auto& coprocessor = heat.coprocessor;
  Watcher seen(context_, with());
  coprocessor.declare("F", 0.02, 0.0, 0.1);
  coprocessor.declare("n", 5, 1, 9);
  coprocessor.declare("on", false);
  coprocessor.declare("name", "red");
  EXPECT_EQ(coprocessor.value<double>("F"), 0.02);
  EXPECT_EQ(coprocessor.value<std::int64_t>("n"), 5);
  Requests requests(context_);
  const auto everything = R"([{"fields": null, "when": [1]}])";
  ASSERT_TRUE(until_demand(coprocessor,
                           requests.ask(everything, R"({"F": 0.05, "n": 12, "on": true, "name": "blue", "G": 1})")));
  EXPECT_EQ(coprocessor.value<double>("F"), 0.05);
  EXPECT_EQ(coprocessor.value<std::int64_t>("n"), 5);
  EXPECT_TRUE(coprocessor.value<bool>("on"));
  EXPECT_EQ(coprocessor.value<std::string>("name"), "blue");
  EXPECT_EQ(code_of([&] { coprocessor.value<double>("n"); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { coprocessor.value<double>("f"); }), Errc::not_found);
  ASSERT_TRUE(heat.write(1));
  EXPECT_EQ(seen.answer["steering"], Json::parse(R"({"F": 0.05, "n": 5, "on": true, "name": "blue"})"));
  EXPECT_EQ(seen.answer["parameters"]["F"],
            Json::parse(R"({"type": "number", "default": 0.02, "min": 0.0, "max": 0.1})"));
  EXPECT_THAT(seen.answer["refused"]["n"].get<std::string>(), HasSubstr("12 is greater than 9"));
  EXPECT_THAT(seen.answer["refused"]["G"].get<std::string>(), HasSubstr("unknown parameter 'G'"));
  // Values stay when a later request does not name them.
  ASSERT_TRUE(until_demand(coprocessor, requests.ask(everything)));
  ASSERT_TRUE(heat.write(2));
  EXPECT_EQ(seen.answer["steering"]["F"], 0.05);
  EXPECT_FALSE(seen.answer.contains("refused"));
}

TEST_F(CoprocessorTest, WhatCannotBeReadLeavesTheDemandBefore) {
  Heat heat(context_, with());
  Watcher seen(context_, with());
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level level, std::string_view line) {
    if (level == base::Level::warn) lines.emplace_back(line);
  });
  Requests requests(context_);
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask(every_tenth)));
  for (const char* bad : {"{", "{ ", "not a request"}) {
    const auto refused = heat.coprocessor.statistics().demands_refused;
    requests.send(bad);
    ASSERT_TRUE(until(heat.coprocessor, [&] { return heat.coprocessor.statistics().demands_refused > refused; }));
  }
  base::set_log_sink([](base::Level, std::string_view) {});
  EXPECT_FALSE(heat.write(5));
  EXPECT_TRUE(heat.write(10));
  EXPECT_EQ(seen.answer["number"], 1);
  EXPECT_THAT(seen.answer["refused_request"].get<std::string>(), HasSubstr("no JSON"));
  EXPECT_THAT(lines, testing::Each(HasSubstr("a request is refused")));
  EXPECT_FALSE(lines.empty());
  ASSERT_TRUE(until_demand(heat.coprocessor, requests.ask(every_tenth)));
  EXPECT_TRUE(heat.write(20));
  EXPECT_FALSE(seen.answer.contains("refused_request"));
}

TEST_F(CoprocessorTest, AnAnalysisLeavesAndAnotherComes) {
  Heat heat(context_, with());
  std::optional<Requests> requests;
  requests.emplace(context_);
  ASSERT_TRUE(until_demand(heat.coprocessor, requests->ask(every_tenth)));
  requests->close();
  requests.reset();
  // Its demand stays in force.
  EXPECT_FALSE(heat.write(11));
  EXPECT_TRUE(heat.write(20));
  requests.emplace(context_);
  requests->ask(R"([{"fields": ["v"], "when": ["step", 7, "%", 0, "=="]}])");  // its first one, too
  ASSERT_TRUE(until(heat.coprocessor, [&] { return heat.coprocessor.statistics().demands == 2; }));
  EXPECT_TRUE(heat.write(21));
  EXPECT_FALSE(heat.write(20));
  requests->lose();
  EXPECT_TRUE(heat.write(28));
  requests.emplace(context_);
  requests->ask(every_tenth);
  ASSERT_TRUE(until(heat.coprocessor, [&] { return heat.coprocessor.statistics().demands == 3; }));
  EXPECT_FALSE(heat.write(28));
}

// ---------------------------------------------------------------------------------------------------------- policies

TEST_F(CoprocessorTest, EveryTenthRequest) {
  Heat heat(context_, with(), {.every = 10});
  std::vector<int> written;
  for (int cycle = 5; cycle < 40; ++cycle)
    if (heat.write(cycle)) written.push_back(cycle);
  EXPECT_THAT(written, ElementsAre(5, 15, 25, 35));
  EXPECT_EQ(heat.coprocessor.statistics().skipped_every, 31u);
}

TEST_F(CoprocessorTest, AutomaticTransfersIfAndOnlyIfTheAnalysisIsReady) {
  Heat heat(context_, with([](auto& o) { o.engine = "direct"; }), {.wait = Wait::automatic});
  EXPECT_FALSE(heat.write(0));  // nobody is there
  auto reader = context_.open_stream("heat", solo(), with([](auto& o) { o.engine = "direct"; }));
  ASSERT_TRUE(heat.write(1));
  for (int cycle = 2; cycle < 10; ++cycle) EXPECT_FALSE(heat.write(cycle));  // it has not read that
  {
    auto step = reader.begin_step();
    EXPECT_FALSE(heat.write(10));
    EXPECT_EQ(cycle_of(step), 1);
  }
  std::int64_t cycle = 11;
  for (const auto end = soon(); !heat.write(cycle) && !end.passed();) ++cycle;
  EXPECT_EQ(cycle_of(reader.begin_step()), cycle);
  reader.close();
  const auto gone = [&] { return heat.coprocessor.writer().statistics().peers.empty(); };
  for (const auto end = soon(); !gone() && !end.passed();) std::this_thread::yield();
  EXPECT_FALSE(heat.write(cycle + 1));
  EXPECT_EQ(heat.coprocessor.statistics().skipped_not_ready, heat.coprocessor.statistics().requests - 2);
}

// The analysis keeps each step for some cycles of the simulation.
TEST_F(CoprocessorTest, InAutomaticEachCycleIsDeliveredOrCountedWithItsReason) {
  const auto options = with([](auto& o) { o.engine = "direct"; });
  Heat heat(context_, options, {.wait = Wait::automatic});
  std::atomic<std::int64_t> cycles = 0, delivered = 0;
  std::atomic<bool> over = false;
  std::thread analysis([&] {
    auto reader = context_.open_stream("heat", solo(), options);
    while (true) {
      auto [outcome, step] = reader.try_begin_step(patience);
      if (outcome != Outcome::ready) break;
      const auto skipped = Json::parse(step->attribute("coprocessing")->as<std::string>())["skipped"];
      // Of the cycles so far, this one and those delivered before it are the ones that were not skipped.
      EXPECT_EQ(skipped["not_ready"], cycle_of(*step) - delivered);
      for (const char* other : {"every", "trigger", "dropped", "replaced"}) EXPECT_EQ(skipped[other], 0);
      ++delivered;
      for (const auto until = cycle_of(*step) + 7; cycles <= until && !over;) std::this_thread::yield();
    }
  });
  for (const auto end = soon(); delivered < 10 && !end.passed(); ++cycles) heat.write(cycles);
  over = true;
  heat.coprocessor.finalize();
  analysis.join();
  const auto statistics = heat.coprocessor.statistics();
  EXPECT_GE(delivered, 10);
  EXPECT_EQ(statistics.steps, static_cast<std::uint64_t>(delivered));
  EXPECT_EQ(statistics.skipped_not_ready, static_cast<std::uint64_t>(cycles - delivered));
  EXPECT_EQ(statistics.requests, static_cast<std::uint64_t>(cycles));
}

TEST_F(CoprocessorTest, DropAndLatestAreTheStreamsPolicies) {
  for (const auto wait : {Wait::drop, Wait::latest}) {
    auto options = with([](auto& o) {
      o.engine = "direct";
      o.queue_steps = 2;
    });
    Heat heat(context_, options, {.wait = wait});
    auto reader = context_.open_stream("heat", solo(), options);
    for (int cycle = 0; cycle < 6; ++cycle) heat.write(cycle);
    const auto statistics = heat.coprocessor.statistics();
    EXPECT_EQ(statistics.steps + statistics.skipped_dropped, 6u);
    EXPECT_EQ(statistics.skipped_dropped, wait == Wait::drop ? 4u : 0u);
    EXPECT_EQ(statistics.replaced, wait == Wait::latest ? 4u : 0u);
    EXPECT_EQ(cycle_of(reader.begin_step()), wait == Wait::drop ? 0 : 4);
    reader.close();
    heat.coprocessor.finalize();
  }
}

TEST_F(CoprocessorTest, FilesHoldEverythingAndNobodyIsAwaited) {
  constexpr int cycles = 10;
  for (const auto wait : {Wait::drop, Wait::automatic}) {
    StreamOptions options;  // with rendezvous_readers, as by default
    options.engine = "file";
    options.folder = folder_ / ("steps" + std::to_string(static_cast<int>(wait)));
    options.queue_steps = 1;
    try {
      Heat heat(context_, options, {.wait = wait, .pipelines = {"later.yaml"}});
      for (int cycle = 0; cycle < cycles; ++cycle) EXPECT_TRUE(heat.write(cycle));
      EXPECT_EQ(heat.coprocessor.finalize(), 0);
    } catch (const Error& error) {
      if (error.code() == Errc::unsupported) GTEST_SKIP() << error.what();  // it was built without HDF5
      throw;
    }
    auto reader = context_.open_stream("heat", solo(), options);
    for (int cycle = 0; cycle < cycles; ++cycle) {
      auto step = reader.begin_step();
      EXPECT_EQ(cycle_of(step), cycle);
      EXPECT_EQ(step.read<double>("T")[11], 11);
      EXPECT_TRUE(step.attribute("meshes").has_value());
    }
  }
}

TEST_F(CoprocessorTest, ConfigurationChoosesAtRunTime) {
  config_ = folder_ / "penstock.yaml";
  std::ofstream(config_)
      << "coprocessing:\n  \"*\": {every: 7}\n  heat: {wait: automatic, pipelines: [a.yaml, b.yaml]}\n"
      << "streams:\n  heat: {queue_steps: 3}\n";
  const Context context(context_options());
  auto options = context.coprocessor_options_for("heat", {.wait = Wait::drop, .every = 3});
  EXPECT_EQ(options.wait, Wait::automatic);
  EXPECT_EQ(options.every, 7u);
  EXPECT_THAT(options.pipelines, ElementsAre("a.yaml", "b.yaml"));
  ::setenv("PENSTOCK_COPROCESSING_HEAT", "latest,pipelines=c.yaml;d e.yaml", 1);
  options = context.coprocessor_options_for("heat");
  ::unsetenv("PENSTOCK_COPROCESSING_HEAT");
  EXPECT_EQ(options.wait, Wait::latest);
  EXPECT_THAT(options.pipelines, ElementsAre("c.yaml", "d e.yaml"));
  EXPECT_EQ(coprocessor_options_to_yaml(options),
            "wait: latest\nevery: 7\npipelines: c.yaml;d e.yaml\noutput: output\n");
  const std::pair<const char*, const char*> wrong[] = {
      {"coprocessing: {heat: {wiat: drop}}", "did you mean 'wait'"},
      {"coprocessing: {heat: {wait: blok}}", "did you mean 'block'"},
      {"coprocessing: {heat: {every: 0}}", "every"},
      {"coprocessing: {heat: {wait: [drop]}}", "takes one value"},
      {"coprocesing: {}", "did you mean 'coprocessing'"},
  };
  for (const auto& [text, message] : wrong) {
    std::ofstream(config_) << text;
    EXPECT_THAT(error_of([&] { Context refused(context_options()); }).second, HasSubstr(message));
  }
  EXPECT_EQ(code_of([&] { Coprocessor(context_, "heat", solo(), {.every = 0}, with()); }), Errc::invalid_argument);
}

// ---------------------------------------------------------------------------------------------------------- the first demand

TEST_F(CoprocessorTest, TheFirstRequestWaitsForAnAnalysisThatIsExpected) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 1; });
  Heat heat(context_, options, {.pipelines = {"a.yaml"}}, [](auto) { return nullptr; });
  std::thread analysis([&] {
    Requests requests(context_);
    requests.ask(every_tenth);
    auto reader = context_.open_stream("heat", solo(), options);
    EXPECT_EQ(cycle_of(reader.begin_step(patience)), 10);
    EXPECT_EQ(reader.try_begin_step(patience).outcome, Outcome::end_of_stream);
  });
  for (int cycle = 1; cycle < 15; ++cycle) EXPECT_EQ(heat.write(cycle), cycle == 10);
  heat.coprocessor.finalize();
  analysis.join();
}

TEST_F(CoprocessorTest, AnAnalysisThatDoesNotComeIsNamed) {
  const auto options = with([](auto& o) {
    o.rendezvous_readers = 1;
    o.open_timeout_ms = 50;
  });
  Heat heat(context_, options, {}, [](auto) { return nullptr; });
  heat.coprocessor.add_pipeline("a.yaml");
  const auto [code, text] = error_of([&] { heat.write(0); });
  EXPECT_EQ(code, Errc::timeout);
  EXPECT_THAT(text, HasSubstr("open_timeout_ms=50; awaited: the stream heat.requests"));
  EXPECT_THAT(error_of([&] { heat.coprocessor.add_pipeline("b.yaml"); }).second, HasSubstr("before the first request"));
}

// ---------------------------------------------------------------------------------------------------------- in this process

struct FakeAnalysis : RunningAnalysis {
  explicit FakeAnalysis(int status, int looks = 0) : status_(status), looks_(looks) {}
  int wait(Timeout deadline) override {
    if (deadline == Timeout(0) && looks_-- > 0) throw Error(Errc::timeout, "it runs");
    return status_;
  }
  int status_, looks_;
};

TEST_F(CoprocessorTest, InSituTheAnalysisIsStartedOnceWithAllPipelines) {
  std::vector<std::string> arguments;
  int starts = 0;
  Heat heat(context_, with(), {.pipelines = {"a.yaml"}}, [&](std::vector<std::string> words) {
    ++starts;
    arguments = std::move(words);
    return std::make_unique<FakeAnalysis>(7);
  });
  heat.coprocessor.add_pipeline("b.yaml");
  EXPECT_EQ(starts, 0);
  for (int cycle = 0; cycle < 3; ++cycle) EXPECT_TRUE(heat.write(cycle));
  EXPECT_EQ(starts, 1);
  EXPECT_THAT(arguments,
              ElementsAre("a.yaml", "b.yaml", "--channel", "heat", "--output", "output", "--rank", "0", "--size", "1"));
  EXPECT_EQ(heat.coprocessor.finalize(), 7);
}

TEST_F(CoprocessorTest, AnAnalysisThatEndsBeforeItAsksIsNotAwaited) {
  const auto options = with([](auto& o) { o.rendezvous_readers = 1; });
  Heat heat(context_, options, {.pipelines = {"a.yaml"}}, [&](auto) { return std::make_unique<FakeAnalysis>(3, 2); });
  const auto [code, text] = error_of([&] { heat.write(0); });
  EXPECT_EQ(code, Errc::peer_lost);
  EXPECT_THAT(text, HasSubstr("ended with status 3 before its first request"));
}

TEST_F(CoprocessorTest, WithoutAnInterpreterThePipelineIsRefused) {
  Heat heat(context_, with());
  const auto [code, text] = error_of([&] { heat.coprocessor.add_pipeline("a.yaml"); });
  EXPECT_EQ(code, Errc::unsupported);
  EXPECT_THAT(text, HasSubstr("libpenstock_python_program.so"));
  EXPECT_EQ(code_of([&] { Heat(context_, with(), {.pipelines = {"a.yaml"}}); }),
            Errc::wrong_state);  // the name is taken
}

}  // namespace
}  // namespace penstock::analysis
