#include "base/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "base/test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::base {
namespace {

using testing::HasSubstr;

// Sets variables of the environment for one test.
class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    for (const char* name : {"PENSTOCK_CONFIG", "PENSTOCK_DIRECTORY", "PENSTOCK_LISTEN", "XDG_RUNTIME_DIR"})
      unset(name);
  }
  ~ConfigTest() override {
    for (const auto& [name, value] : saved_) {
      if (value) setenv(name.c_str(), value->c_str(), 1);
      else unsetenv(name.c_str());
    }
  }

  std::string write(const std::string& text) {
    const auto path = folder_ / "penstock.yaml";
    std::ofstream(path) << text;
    return path;
  }
  void set(const std::string& name, const std::string& value) {
    save(name);
    setenv(name.c_str(), value.c_str(), 1);
  }
  void unset(const std::string& name) {
    save(name);
    unsetenv(name.c_str());
  }

  TestFolder folder_;

 private:
  void save(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    saved_.try_emplace(name, value ? std::optional<std::string>(value) : std::nullopt);
  }
  std::map<std::string, std::optional<std::string>> saved_;
};

void expect_error(Errc code, const std::string& part, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST_F(ConfigTest, EveryOptionGoesThereAndBack) {
  StreamOptions options{.engine = "other",
                        .data_plane = DataPlane::tcp,
                        .queue_steps = 7,
                        .queue_bytes = 12345,
                        .when_full = WhenFull::discard_oldest,
                        .rendezvous_readers = 0,
                        .reserve_steps = 3,
                        .keep_first_step = true,
                        .min_max = true,
                        .step_bytes = 1 << 20,
                        .delivery = Delivery::latest,
                        .resume = "append",
                        .folder = "a b.steps",
                        .compression = 9,
                        .sync = true,
                        .trace = "off",
                        .spin_us = 5,
                        .open_timeout_ms = 1,
                        .step_timeout_ms = 2,
                        .close_timeout_ms = 3};
  const std::string yaml = to_yaml(options);
  EXPECT_EQ(std::ranges::count(yaml, '\n'), 29);
  EXPECT_EQ(to_yaml(penstock::from_yaml(yaml)), yaml);
  // What is printed can be put into the file as it is.
  std::string section = "streams:\n  heat:\n";
  std::istringstream again(yaml);
  for (std::string line; std::getline(again, line);) section += "    " + line + "\n";
  EXPECT_EQ(to_yaml(options_for_stream("heat", {}, write(section))), yaml);
}

TEST_F(ConfigTest, WhatIsGivenWithTheDefaultsValueCountsAsGiven) {
  StreamOptions options;
  set_option(options, "open_timeout_ms", "60000");
  options.queue_steps = 5;
  EXPECT_TRUE(is_given(options, "open_timeout_ms"));
  EXPECT_TRUE(is_given(options, "queue_steps"));
  EXPECT_FALSE(is_given(options, "spin_us"));
  const auto file = write("streams: {heat: {spin_us: 20}}");
  EXPECT_TRUE(is_given(options_for_stream("heat", options, file), "spin_us"));
  for (const auto& option : describe_stream("heat", options, "")) {
    const bool given = option.name == "open_timeout_ms" || option.name == "queue_steps";
    EXPECT_EQ(option.from, given ? "code" : "default") << option.name;
  }
  EXPECT_FALSE(is_given(penstock::from_yaml(to_yaml(options)), "open_timeout_ms"));
}

TEST_F(ConfigTest, RefusesNonsenseToListenOn) {
  for (const char* fine : {"", "::", "10.0.0.1", "fe80::1%eth0", "node-7.cluster"})
    EXPECT_EQ(settings({.listen = fine}).listen, fine);
  for (const char* nonsense : {"*", "10.0.0.1:80", "http://here", "a b"})
    expect_error(Errc::invalid_argument, "listen (from code): '" + std::string(nonsense) + "'",
                 [&] { settings({.listen = nonsense}); });
}

TEST_F(ConfigTest, TextOfAnotherVersionIsReadAsFarAsItIsUnderstood) {
  const std::string text = "queue_steps: 7\nqueue_stars: 3\nresume: sideways\n\nspin_us:  5 \ntrace: \"\"\n";
  expect_error(Errc::unknown_option, "unknown option 'queue_stars'; did you mean 'queue_steps'?",
               [&] { penstock::from_yaml(text); });
  std::vector<Errc> refused;
  const StreamOptions options = from_yaml(text, [&](const Error& error) { refused.push_back(error.code()); });
  EXPECT_EQ(to_yaml(options), to_yaml({.queue_steps = 7, .spin_us = 5}));
  EXPECT_THAT(refused, testing::ElementsAre(Errc::unknown_option, Errc::invalid_argument));
}

TEST_F(ConfigTest, PrintsUnits) {
  EXPECT_THAT(to_yaml({}), HasSubstr("queue_bytes: 2GiB\n"));
  EXPECT_THAT(to_yaml({}), HasSubstr("when_full: block\n"));
}

TEST_F(ConfigTest, RefusesUnknownNamesAndValues) {
  StreamOptions options;
  expect_error(Errc::unknown_option, "did you mean 'queue_steps'?", [&] { set_option(options, "queue_step", "1"); });
  expect_error(Errc::invalid_argument, "queue_steps: ", [&] { set_option(options, "queue_steps", "0"); });
  expect_error(Errc::invalid_argument, "did you mean 'discard_oldest'?",
               [&] { set_option(options, "when_full", "discard_old"); });
  expect_error(Errc::invalid_argument, "min_max: ", [&] { set_option(options, "min_max", "2"); });
  expect_error(Errc::invalid_argument, "spin_us: ", [&] { set_option(options, "spin_us", "4294967296"); });
}

TEST_F(ConfigTest, ChecksOptionsFilledInCode) {
  EXPECT_NO_THROW(check({}));
  expect_error(Errc::invalid_argument, "queue_steps", [] { check({.queue_steps = 0}); });
  expect_error(Errc::invalid_argument, "when_full", [] { check({.when_full = static_cast<WhenFull>(9)}); });
  expect_error(Errc::invalid_argument, "engine", [] { check({.engine = ""}); });
  expect_error(Errc::invalid_argument, "engine", [] { check({.engine = "direct\nheat: {}"}); });
}

TEST_F(ConfigTest, LaterWins) {
  const std::string file = write(
      "streams:\n"
      "  heat: {queue_steps: 3, when_full: discard_oldest}\n"
      "  '*':\n"
      "    queue_steps: 9\n"
      "    spin_us: 0\n");
  const StreamOptions in_code{.queue_steps = 2, .reserve_steps = 5};
  StreamOptions heat = options_for_stream("heat", in_code, file);
  EXPECT_EQ(heat.queue_steps, 3u);    // its own section over "*"
  EXPECT_EQ(heat.spin_us, 0u);        // "*" over the default
  EXPECT_EQ(heat.reserve_steps, 5u);  // code stays where nothing else speaks
  EXPECT_EQ(heat.when_full, WhenFull::discard_oldest);
  EXPECT_EQ(options_for_stream("wake", in_code, file).queue_steps, 9u);

  set("PENSTOCK_STREAM_HEAT", "file, queue_steps = 1");
  heat = options_for_stream("heat", in_code, file);
  EXPECT_EQ(heat.engine, "file");
  EXPECT_EQ(heat.queue_steps, 1u);
  EXPECT_EQ(heat.when_full, WhenFull::discard_oldest);
}

TEST_F(ConfigTest, TheEnvironmentNeedsNoFile) {
  EXPECT_EQ(environment_name("heat-2d/Wide"), "PENSTOCK_STREAM_HEAT_2D_WIDE");
  set("PENSTOCK_STREAM_HEAT_2D", "queue_bytes=64MiB,min_max=on");
  const StreamOptions options = options_for_stream("heat-2d", {}, "");
  EXPECT_EQ(options.queue_bytes, std::uint64_t{64} << 20);
  EXPECT_TRUE(options.min_max);
  EXPECT_EQ(options.engine, "automatic");

  set("PENSTOCK_STREAM_HEAT_2D", "queue_byte=1");
  expect_error(Errc::unknown_option, "PENSTOCK_STREAM_HEAT_2D: unknown option",
               [] { options_for_stream("heat-2d", {}, ""); });
  set("PENSTOCK_STREAM_HEAT_2D", "direct,fast");
  expect_error(Errc::invalid_argument, "'fast' is not key=value", [] { options_for_stream("heat-2d", {}, ""); });
}

TEST_F(ConfigTest, AnOptionWithoutEffectIsAnErrorThatNamesWhoTakesIt) {
  const auto opening = [](Side side, const StreamOptions& in_code, const std::string& file = "") {
    return [=] { options_in_effect("heat", side, in_code, file); };
  };
  expect_error(Errc::invalid_argument,
               "start is an option of readers of engine pool or file or space, and this is a stream of engine direct",
               opening(Side::reader, {.engine = "direct", .start = "5"}));
  expect_error(Errc::invalid_argument, "acknowledge is an option of writers of engine pool",
               opening(Side::writer, {.acknowledge = Acknowledge::durable}));
  expect_error(Errc::invalid_argument, "pool is an option of streams of engine pool",
               opening(Side::writer, {.pool = "stage"}));
  for (const StreamOptions& idle :
       {StreamOptions{.data_plane = DataPlane::shm}, {.reserve_steps = 1}, {.pool = "stage"}}) {
    auto insitu = idle;
    insitu.engine = "insitu";
    expect_error(Errc::invalid_argument, "and this is a stream of engine insitu", opening(Side::writer, insitu));
  }
  EXPECT_NO_THROW(opening(Side::writer, {.engine = "insitu", .queue_steps = 2, .rendezvous_readers = 0})());
  EXPECT_NO_THROW(opening(Side::reader, {.engine = "insitu", .delivery = Delivery::latest})());
  expect_error(Errc::invalid_argument, "keep_first_step is an option of writers of engine direct",
               opening(Side::writer, {.engine = "pool", .keep_first_step = true}));
  // Of the other side, and what a pool does anyway.
  EXPECT_NO_THROW(opening(Side::writer, {.delivery = Delivery::latest, .start = "5"})());
  EXPECT_NO_THROW(opening(Side::reader, {.engine = "pool", .queue_steps = 2, .reserve_steps = 1})());
  EXPECT_NO_THROW(opening(Side::writer, {.engine = "pool", .rendezvous_readers = 0})());
  EXPECT_NO_THROW(opening(Side::reader, {.engine = "pool", .group = "plots", .start = "5"})());
  EXPECT_NO_THROW(opening(Side::writer, {.trace = "off"})());

  set("PENSTOCK_STREAM_HEAT", "direct,start=5");
  expect_error(Errc::invalid_argument, "PENSTOCK_STREAM_HEAT: start is an option of readers of engine pool",
               opening(Side::reader, {}));
  EXPECT_NO_THROW(opening(Side::writer, {})());
  set("PENSTOCK_STREAM_HEAT", "pool,start=5");
  EXPECT_NO_THROW(opening(Side::reader, {})());
}

TEST_F(ConfigTest, AnOptionWithoutEffectInTheFileIsAWarning) {
  std::vector<std::string> warned;
  set_log_sink([&](Level, std::string_view text) { warned.emplace_back(text); });
  const std::string file = write("streams: {heat: {start: 5, queue_steps: 3}}\n");
  EXPECT_EQ(options_in_effect("heat", Side::reader, {}, file, "direct").queue_steps, 3u);
  EXPECT_THAT(warned, testing::ElementsAre(testing::AllOf(HasSubstr("engine=direct"), HasSubstr("options=start"))));
  options_in_effect("heat", Side::writer, {}, file);
  EXPECT_EQ(warned.size(), 1u);
  // The file has chosen another engine than the code: its options stay, without effect.
  options_in_effect("heat", Side::writer, {.reserve_steps = 2}, write("streams: {heat: pool}\n"));
  EXPECT_THAT(warned.back(), testing::AllOf(HasSubstr("engine=pool"), HasSubstr("options=reserve_steps")));
  set_log_sink({});
}

TEST_F(ConfigTest, AnOptionInCodeWithoutEffectIsAWarningWhenTheConfigurationChoseTheEngine) {
  std::vector<std::string> warned;
  set_log_sink([&](Level, std::string_view text) { warned.emplace_back(text); });
  const StreamOptions in_code{.retain_steps = 3};  // names no engine
  const auto engine = [&](const std::string& file) {
    return options_in_effect("heat", Side::writer, in_code, file).engine;
  };
  const auto warning = [](const std::string& chosen_by) {
    return testing::AllOf(HasSubstr("engine=direct"), HasSubstr("engine_from=" + chosen_by),
                          HasSubstr("options=retain_steps"));
  };

  // One word in the file moves the stream both ways.
  EXPECT_EQ(engine(write("streams: {heat: pool}\n")), "pool");
  EXPECT_THAT(warned, testing::IsEmpty());
  const std::string direct = write("streams: {heat: direct}\n");
  EXPECT_EQ(engine(direct), "direct");
  EXPECT_THAT(warned, testing::ElementsAre(warning(direct)));
  EXPECT_EQ(engine(write("streams: {'*': {engine: direct}}\n")), "direct");
  EXPECT_EQ(warned.size(), 2u);

  // So does one word in the environment, which wins over the file.
  const std::string pool = write("streams: {heat: pool}\n");
  set("PENSTOCK_STREAM_HEAT", "direct");
  EXPECT_EQ(engine(""), "direct");
  EXPECT_EQ(engine(pool), "direct");
  EXPECT_EQ(warned.size(), 4u);
  EXPECT_THAT(warned.back(), warning("PENSTOCK_STREAM_HEAT"));
  set("PENSTOCK_STREAM_HEAT", "queue_steps=2");  // does not name an engine: the file's stays
  EXPECT_EQ(engine(pool), "pool");
  EXPECT_EQ(engine(write("streams: {heat: direct}\n")), "direct");
  EXPECT_THAT(warned.back(), warning(direct));

  // Without the word the engine is the code's.
  expect_error(Errc::invalid_argument, "retain_steps is an option of writers of engine pool",
               [&] { engine(write("streams: {heat: {queue_steps: 2}}\n")); });

  // The same with an engine that the code names: the configuration repeats it or says nothing.
  warned.clear();
  const StreamOptions names_pool{.engine = "pool", .reserve_steps = 2};
  unset("PENSTOCK_STREAM_HEAT");
  expect_error(Errc::invalid_argument, "reserve_steps is an option of writers of engine direct",
               [&] { options_in_effect("heat", Side::writer, names_pool, ""); });
  set("PENSTOCK_STREAM_HEAT", "pool");
  EXPECT_EQ(options_in_effect("heat", Side::writer, names_pool, "").engine, "pool");
  EXPECT_THAT(warned, testing::ElementsAre(testing::AllOf(HasSubstr("engine=pool"), HasSubstr("options=reserve_steps"),
                                                          HasSubstr("engine_from=PENSTOCK_STREAM_HEAT"))));

  // An option in the environment is an error, whoever chose the engine.
  set("PENSTOCK_STREAM_HEAT", "direct,retain_steps=2");
  expect_error(Errc::invalid_argument, "PENSTOCK_STREAM_HEAT: retain_steps is an option of writers of engine pool",
               [] { options_in_effect("heat", Side::writer, {}, ""); });
  set_log_sink({});
}

TEST_F(ConfigTest, AutomaticIsDirectForAWriterAndWhereTheStreamIsForAReader) {
  EXPECT_EQ(options_in_effect("heat", Side::writer, {}, "").engine, "direct");
  EXPECT_EQ(options_in_effect("heat", Side::reader, {}, "", "pool").engine, "pool");
  // A word that somebody says counts, wherever the stream was found.
  EXPECT_EQ(options_in_effect("heat", Side::reader, {.engine = "file"}, "", "pool").engine, "file");
  const std::string file = write("streams: {heat: direct}\n");
  EXPECT_EQ(options_in_effect("heat", Side::reader, {}, file, "pool").engine, "direct");
  set("PENSTOCK_STREAM_HEAT", "automatic");
  EXPECT_EQ(options_in_effect("heat", Side::reader, {}, file, "pool").engine, "pool");

  // The code that opened a stream of one engine opens it of another: what has no effect there is a warning.
  std::vector<std::string> warned;
  set_log_sink([&](Level, std::string_view text) { warned.emplace_back(text); });
  EXPECT_EQ(options_in_effect("heat", Side::reader, {.group = "plots"}, "", "direct").engine, "direct");
  EXPECT_THAT(warned,
              testing::ElementsAre(testing::AllOf(HasSubstr("options=group"), HasSubstr("where it was found"))));
  set("PENSTOCK_STREAM_HEAT", "start=5");
  expect_error(Errc::invalid_argument, "PENSTOCK_STREAM_HEAT: start is an option of readers of engine pool",
               [] { options_in_effect("heat", Side::reader, {}, "", "direct"); });
  set_log_sink({});
}

TEST_F(ConfigTest, OptionsByNameAreOfTheirSide) {
  StreamOptions options;
  expect_error(Errc::invalid_argument,
               "queue_steps is an option of writers of engine direct or pool or insitu or file, and this is a reader",
               [&] { set_option(options, "queue_steps", "1", Side::reader); });
  expect_error(Errc::invalid_argument, "delivery is an option of readers, and this is a writer",
               [&] { apply_text(options, "queue_steps=1,delivery=latest", Side::writer); });
  EXPECT_NO_THROW(apply_text(options, "pool,queue_steps=1,resume=append", Side::writer));
  EXPECT_NO_THROW(apply_text(options, "pool,data_plane=tcp,start=newest", Side::reader));
}

TEST_F(ConfigTest, AStreamMayBeOneLineOfText) {
  const std::string file = write("streams: {heat: 'direct,queue_steps=6', wake: file}\n");
  EXPECT_EQ(options_for_stream("heat", {}, file).queue_steps, 6u);
  EXPECT_EQ(options_for_stream("wake", {}, file).engine, "file");
}

TEST_F(ConfigTest, ErrorsNameFileAndLine) {
  const struct {
    const char* text;
    Errc code;
    const char* part;
  } cases[] = {
      {"streams:\n  heat:\n    queue_step: 2\n", Errc::unknown_option, "penstock.yaml:3: unknown option 'queue_step'"},
      {"streams:\n  heat: {queue_steps: many}\n", Errc::invalid_argument, "penstock.yaml:2: queue_steps: 'many'"},
      {"stream:\n  heat: {}\n", Errc::unknown_option, "penstock.yaml:1: unknown key 'stream'; did you mean 'streams'?"},
      {"streams:\n  heat: {}\n  heat: {}\n", Errc::invalid_argument, "penstock.yaml:3: 'heat' is given twice"},
      {"\nstreams: [heat]\n", Errc::invalid_argument, "penstock.yaml:2: streams must be a map"},
      {"streams: {heat: [1]}\n", Errc::invalid_argument, "a stream must be a map"},
      {"streams: {heat: {spin_us: [1]}}\n", Errc::invalid_argument, "spin_us takes one value"},
      {"log: loud\n", Errc::invalid_argument, "penstock.yaml:1: unknown log level"},
      {"streams: {heat\n", Errc::invalid_argument, "penstock.yaml:"},
      {"just words\n", Errc::invalid_argument, "the configuration must be a map"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.text);
    const std::string file = write(each.text);
    expect_error(each.code, each.part, [&] { settings({.config_file = file}); });
  }
  expect_error(Errc::not_found, "nowhere.yaml", [] { settings({.config_file = "nowhere.yaml"}); });
}

// "engine=direct (default)" and so on, of the options that somebody gave.
std::vector<std::string> given(const std::vector<OptionValue>& all) {
  std::vector<std::string> out;
  for (const auto& option : all)
    if (option.source != Source::builtin) out.push_back(option.name + "=" + option.value + " (" + option.from + ")");
  return out;
}

TEST_F(ConfigTest, EveryOptionSaysWhereItCameFrom) {
  const std::string file = write(
      "streams:\n"
      "  '*': {spin_us: 0}\n"
      "  heat:\n"
      "    queue_steps: 3\n"
      "    reserve_steps: 1\n");
  set("PENSTOCK_STREAMS", "spin_us=1,reserve_steps=2,step_bytes=8");
  set("PENSTOCK_STREAM_HEAT", "reserve_steps=4");
  const auto all = describe_stream("heat", {.queue_steps = 2, .min_max = true}, file);
  EXPECT_THAT(given(all), testing::ElementsAre("queue_steps=3 (" + file + ":4)",
                                               "reserve_steps=4 (PENSTOCK_STREAM_HEAT)", "min_max=true (code)",
                                               "step_bytes=8 (PENSTOCK_STREAMS)", "spin_us=1 (PENSTOCK_STREAMS)"));
  EXPECT_EQ(all.at(0).from, "default");
  EXPECT_EQ(all.size(), stream_option_names().size());
}

TEST_F(ConfigTest, WhatCodeFixesStaysWithAWarningThatNamesWhoTried) {
  std::vector<std::string> warned;
  set_log_sink([&](Level, std::string_view text) { warned.emplace_back(text); });
  const std::string file = write("streams: {heat: {queue_steps: 3, min_max: true}}\n");
  set("PENSTOCK_STREAM_HEAT", "when_full=block,spin_us=7");
  const StreamOptions in_code{.queue_steps = 2, .fixed = "queue_steps,when_full"};
  const auto options = options_in_effect("heat", Side::writer, in_code, file);
  EXPECT_EQ(options.queue_steps, 2u);
  EXPECT_TRUE(options.min_max);
  EXPECT_EQ(options.spin_us, 7u);
  EXPECT_THAT(warned, testing::ElementsAre(testing::AllOf(HasSubstr("option=queue_steps"), HasSubstr(file + ":1"))));
  EXPECT_THAT(given(describe_stream("heat", in_code, file)), testing::Contains("queue_steps=2 (fixed in code)"));
  set_log_sink({});

  StreamOptions text;
  apply_text(text, "queue_steps=2,fixed=queue_steps+engine");
  EXPECT_EQ(text.fixed, "queue_steps,engine");
  expect_error(Errc::unknown_option, "fixed: unknown option 'queue_step'; did you mean 'queue_steps'?",
               [] { check({.fixed = "queue_step"}); });
  set("PENSTOCK_STREAM_HEAT", "fixed=spin_us");
  expect_error(Errc::invalid_argument, "PENSTOCK_STREAM_HEAT: fixed is given in code only",
               [] { options_for_stream("heat", {}, ""); });
  expect_error(Errc::invalid_argument, "penstock.yaml:1: fixed is given in code only",
               [&] { settings({.config_file = write("streams: {heat: {fixed: spin_us}}\n")}); });
}

TEST_F(ConfigTest, AVariableForTwoNamesIsRefused) {
  const std::string file = write("streams: {wind-2d: {spin_us: 1}, wind_2d: {spin_us: 2}}\n");
  EXPECT_EQ(options_for_stream("wind-2d", {}, file).spin_us, 1u);
  set("PENSTOCK_STREAM_WIND_2D", "queue_steps=2");
  expect_error(Errc::invalid_argument, "PENSTOCK_STREAM_WIND_2D is set, and may be for 'wind-2d' or for 'wind_2d'",
               [&] { options_for_stream("wind-2d", {}, file); });
  EXPECT_EQ(options_for_stream("wind_2d", {}, "").queue_steps, 2u) << "who only looks takes no name";
  EXPECT_EQ(options_in_effect("wind-2d", Side::writer, {}, "").queue_steps, 2u);
  expect_error(Errc::invalid_argument, "may be for 'Wind.2d' or for 'wind-2d', which this process has opened",
               [] { options_in_effect("Wind.2d", Side::writer, {}, ""); });
}

TEST_F(ConfigTest, AFileMayLackAnySection) {
  const std::string file = write("directory: /tmp/x\n");
  EXPECT_EQ(settings({.config_file = file}).directory, "/tmp/x");
  EXPECT_EQ(options_in_effect("heat", Side::writer, {.queue_steps = 3}, file).queue_steps, 3u);
  EXPECT_EQ(options_for_pool({.pool = "stage", .timeout_ms = 9}, file).timeout_ms, 9u);
  EXPECT_EQ(options_for_coprocessor("heat", {.every = 2}, file).every, 2u);
  EXPECT_EQ(options_for_mesh("plate", {.path = "p.e"}, file).path, "p.e");
}

TEST_F(ConfigTest, PoolsHaveASectionAndAVariable) {
  const std::string file =
      write("pools: {'*': {role: read}, stage: {timeout_ms: 5, directory: 'tcp://a:1/directory'}}\n");
  EXPECT_EQ(options_for_pool({.timeout_ms = 9}, file).timeout_ms, 9u);
  set("PENSTOCK_POOL_STAGE", "timeout_ms=7");
  const auto stage = options_for_pool({.pool = "stage", .timeout_ms = 9, .fixed = "role"}, file);
  EXPECT_EQ(stage.timeout_ms, 7u);
  EXPECT_EQ(stage.directory, "tcp://a:1/directory");
  EXPECT_EQ(stage.role, "");
  expect_error(Errc::unknown_option, "penstock.yaml:1: unknown option 'timeout'",
               [&] { settings({.config_file = write("pools: {stage: {timeout: 5}}\n")}); });
}

TEST_F(ConfigTest, SettingsComeFromDefaultsCodeFileEnvironment) {
  EXPECT_EQ(settings({.config_file = write("")}).directory, "/tmp/penstock-" + std::to_string(getuid()));
  set("XDG_RUNTIME_DIR", "/run/user/7");
  EXPECT_EQ(settings({.config_file = write("streams:\n")}).directory, "/run/user/7/penstock");
  EXPECT_EQ(settings({.directory = "/from/code"}).directory, "/from/code");

  const std::string file =
      write("directory: /from/file\nlisten: 10.0.0.1\nlog: debug\ntrace: traces\nstreams: {heat: {queue_steps: 2}}\n");
  set("PENSTOCK_CONFIG", file);
  Settings result = settings({.config_file = "elsewhere.yaml", .directory = "/from/code"});
  EXPECT_EQ(result.config_file, file);
  EXPECT_EQ(result.directory, "/from/file");
  EXPECT_EQ(result.listen, "10.0.0.1");
  EXPECT_EQ(result.log, "debug");
  EXPECT_EQ(result.trace, "traces");

  set("PENSTOCK_DIRECTORY", "/from/environment");
  EXPECT_EQ(settings({.directory = "/from/code"}).directory, "/from/environment");
  EXPECT_THAT(given(settings({}).described),
              testing::IsSupersetOf(std::vector<std::string>{"config_file=" + file + " (PENSTOCK_CONFIG)",
                                                             "directory=/from/environment (PENSTOCK_DIRECTORY)",
                                                             "listen=10.0.0.1 (" + file + ":2)"}));
  result = settings({.directory = "/from/code", .fixed = "directory,listen"});
  EXPECT_EQ(result.directory, "/from/code");
  EXPECT_EQ(result.listen, "");
  EXPECT_EQ(result.ignored.size(), 3u);
  expect_error(Errc::unknown_option, "fixed: unknown option 'directroy'; did you mean 'directory'?",
               [] { settings({.fixed = "directroy"}); });
  set("PENSTOCK_TRACE", "/elsewhere");
  EXPECT_EQ(settings({}).trace, "/elsewhere");
}

}  // namespace
}  // namespace penstock::base
