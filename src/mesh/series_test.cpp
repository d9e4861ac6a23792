// Regions whose topology changes, series of files, and regions that are resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/test_support.hpp"
#include "mesh/checked_sink.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/mesh_test_support.hpp"
#include "penstock/cohort.hpp"
#include "penstock/error.hpp"
#include "penstock/penstock.hpp"

namespace penstock::mesh {
namespace {

using testing::HasSubstr;

// Three topologies, the second without a state.
std::shared_ptr<Source> refined(const std::string& parts = "|parts:2") {
  return std::make_shared<Sequence>(
      std::vector<std::shared_ptr<Source>>{generated("2x2x2|times:2|nodal:2" + parts), generated("2x3x2" + parts),
                                           generated("3x3x4|times:3|element:1|nodeset:x" + parts)});
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

class Series : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (penstock_exodus_part == nullptr) GTEST_SKIP() << "built without netCDF (Debian: libnetcdf-dev)";
  }
  DatabaseRequest request(const std::map<std::string, std::string>& options = {},
                          std::shared_ptr<Cohort> cohort = solo()) const {
    DatabaseRequest request{path(), {}, std::move(cohort)};
    set_option(request.options, "format", GetParam());
    set_option(request.options, "integers", is_narrow() ? "32" : "as_given");
    for (const auto& [key, value] : options) set_option(request.options, key, value);
    return request;
  }
  static std::unique_ptr<Sink> create(const DatabaseRequest& request) {
    return create_checked(database_named("exodus"), request);
  }
  void write(Source& source, const std::map<std::string, std::string>& options = {}) const {
    copy_part(source, 0, *create(request(options)));
  }
  std::unique_ptr<Source> open() const { return open_exodus({path(), {}, solo()}); }
  bool is_narrow() const { return std::string(GetParam()) == "offset64"; }
  bool is_classic() const { return std::string(GetParam()) != "netcdf4"; }
  std::string path(const std::string& more = "") const { return folder_.path() + "/mesh.e" + more; }
  // Of files, in their order.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& each : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(each.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  TestFolder folder_;
};

TEST_P(Series, ATopologyThatChangesBeginsAFile) {
  if (is_narrow()) GTEST_SKIP() << "the generated mesh has integers of 64 bits";
  const auto source = refined("");
  write(*source);
  EXPECT_THAT(files(), testing::ElementsAre("mesh.e", "mesh.e-s0002", "mesh.e-s0003"));
  source->seek(0);
  const auto file = open();
  EXPECT_EQ(file->times(), (std::vector<double>{0, 1, 0, 1, 2}));
  expect_same_from_here(*source, 0, *file, 0);
  file->seek(1);  // backwards, to another model
  EXPECT_EQ(file->next_state(Timeout(0)).kind, StateOutcome::Kind::model);
  EXPECT_EQ(file->model(0).count_of(EntityType::element_block), 8U);
  EXPECT_EQ(file->next_state(Timeout(0)).time, 1);
  file->seek(4);
  file->seek(0);  // the one before counts no more
  EXPECT_EQ(file->next_state(Timeout(0)).kind, StateOutcome::Kind::state);
  EXPECT_THAT(message([&] { file->seek(5); }), HasSubstr("there is no state 5; there are 5"));
}

// Before each state another one is begun, half written and given up.
void copy_with_abandoned_states(Source& source, std::uint32_t part, Sink& sink) {
  const auto write = [&](Slot slot) { sink.write(slot, read_whole(source, part, slot).data()); };
  sink.define(source.model(part));
  each_model_field(source.model(part), write);
  for (;;) {
    const auto state = source.next_state(Timeout(0));
    if (state.kind != StateOutcome::Kind::state) break;
    sink.begin_state(state.time + 0.25);
    std::size_t fields = 0;
    each_state_field(source.model(part), [&](Slot slot) {
      if (++fields % 2 == 0) write(slot);
    });
    EXPECT_THROW(sink.end_state(), Error);
    sink.abandon_state();
    sink.begin_state(state.time);
    each_state_field(source.model(part), write);
    sink.end_state();
  }
  sink.begin_state(99);
  sink.abandon_state();
  EXPECT_THAT(message([&] { sink.abandon_state(); }), HasSubstr("abandon_state between states"));
  sink.close();
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(Series, AStateThatIsGivenUpLeavesNoTrace) {
  auto source = every_entity(is_narrow() ? DType::int32 : DType::int64, {1, 2, 3});
  write(source);
  const auto as_written = bytes_of(path());
  source.seek(0);
  copy_with_abandoned_states(source, 0, *create(request()));
  EXPECT_THAT(files(), testing::ElementsAre("mesh.e"));
  if (is_classic()) {
    EXPECT_TRUE(bytes_of(path()) == as_written);
  }
  source.seek(0);
  expect_same(source, 0, *open(), 0);
  auto more = every_entity(is_narrow() ? DType::int32 : DType::int64, {4, 5});
  copy_with_abandoned_states(more, 0, *create(request({{"resume", "append"}})));
  EXPECT_EQ(open()->times(), (std::vector<double>{1, 2, 3, 4, 5}));
}

TEST_P(Series, AStateThatOneRankGivesUpAloneIsNotRead) {
  const auto write = [&](bool alone) {
    run_thread_cohort(2, [&](const std::shared_ptr<Cohort>& cohort) {
      const auto sink = create(request({}, cohort));
      Model model;
      model.add({.type = EntityType::region,
                 .name = "region",
                 .count = 1,
                 .fields = {{.name = "energy", .role = Role::reduction}}});
      sink->define(model);
      for (double time = 0; time < 4; ++time) {
        sink->begin_state(time);
        sink->write({0, 0}, &time);
        if (time == 1 && (!alone || cohort->rank() == 1)) sink->abandon_state();
        else sink->end_state();
      }
      sink->close();
    });
  };
  write(false);
  EXPECT_EQ(open()->times(), (std::vector<double>{0, 2, 3}));
  write(true);
  EXPECT_THAT(message([&] { static_cast<void>(open()->times()); }),
              HasSubstr("state 1 has time 1 in part 0, and 2 in part 1: all ranks write the same states"));
}

TEST_P(Series, PartsChangeTogether) {
  if (is_narrow()) GTEST_SKIP() << "the generated mesh has integers of 64 bits";
  run_thread_cohort(2, [&](const std::shared_ptr<Cohort>& cohort) {
    copy_part(*refined(), static_cast<std::uint32_t>(cohort->rank()), *create(request({}, cohort)));
  });
  EXPECT_THAT(files(), testing::Contains("mesh.e-s0003.2.1"));
  for (std::uint32_t part = 0; part < 2; ++part) expect_same_from_here(*refined(), part, *open(), part);
  expect_same_from_here(*join(refined()), 0, *join(open()), 0);
}

TEST_P(Series, SoManyStatesAreInAFile) {
  auto source = every_entity(is_narrow() ? DType::int32 : DType::int64, {1, 2, 3, 4, 5});
  write(source, {{"states_per_file", "2"}});
  source.seek(0);
  EXPECT_THAT(files(), testing::ElementsAre("mesh.e", "mesh.e-s0002", "mesh.e-s0003"));
  const auto file = open();
  expect_same(source, 0, *file, 0);
  for (const std::uint64_t state : {4U, 0U, 3U, 2U, 1U}) {
    file->seek(state);
    source.seek(state);
    EXPECT_EQ(file->next_state(Timeout(0)).time, source.next_state(Timeout(0)).time);
    each_state_field(source.model(0), [&](Slot slot) { expect_same_values(source, 0, *file, 0, slot); });
  }
}

TEST_P(Series, AnAttributeThatIsNotANumberIsTheSameInEachFile) {
  Model model;
  model.add({.type = EntityType::region,
             .name = "region",
             .count = 1,
             .properties = {{"netcdf/depth", std::string("float64/y=2")}, {"netcdf/depth/missing_value", std::nan("")}},
             .fields = {{.name = "netcdf/depth", .role = Role::mesh, .count = 2}}});
  MemorySource source(model, {1, 2, 3});
  write(source, {{"states_per_file", "1"}});
  const auto file = open();
  EXPECT_TRUE(std::isnan(std::get<double>(file->model(0).entities.at(0).properties.at("netcdf/depth/missing_value"))));
  for (const double time : {1.0, 2.0, 3.0}) {
    const auto state = file->next_state(Timeout(0));
    EXPECT_EQ(state.kind, StateOutcome::Kind::state);
    EXPECT_EQ(state.time, time);
  }
}

// A reader takes the states as their files are closed; what was closed stays readable.
TEST_P(Series, StatesOfClosedFilesAreReadWhileItGrows) {
  auto source = every_entity(DType::int32, {1, 2, 3});
  std::unique_ptr<Source> file;
  {
    const auto sink = create(request({{"states_per_file", "1"}}));
    sink->define(source.model(0));
    const auto write = [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); };
    each_model_field(source.model(0), write);
    for (const double time : {1.0, 2.0, 3.0}) {
      sink->begin_state(time);
      static_cast<void>(source.next_state(Timeout(0)));
      each_state_field(source.model(0), write);
      if (time == 3) break;  // it is never ended
      sink->end_state();
      if (!file) file = open();
      EXPECT_EQ(file->next_state(Timeout(0)).time, time);
      each_state_field(source.model(0), [&](Slot slot) { expect_same_values(source, 0, *file, 0, slot); });
      EXPECT_EQ(file->next_state(Timeout(0)).kind, StateOutcome::Kind::end);
    }
  }
  EXPECT_EQ(open()->times(), (std::vector<double>{1, 2}));
}

TEST_P(Series, FilesOfEarlierRunsGo) {
  auto source = every_entity(DType::int32, {1, 2, 3, 4});
  write(source, {{"states_per_file", "1"}});
  source.seek(0);
  write(source, {{"states_per_file", "2"}});
  EXPECT_THAT(files(), testing::ElementsAre("mesh.e", "mesh.e-s0002"));
  source.seek(0);
  write(source);
  EXPECT_THAT(files(), testing::ElementsAre("mesh.e"));
}

TEST_P(Series, AFileIsResumed) {
  auto all = every_entity(DType::int32, {1, 2, 3, 4});
  auto first = every_entity(DType::int32, {1, 2});
  write(first);
  all.seek(2);
  write(all, {{"resume", "append"}});
  all.seek(0);
  // HDF5 promises nothing for a file that is open: a netCDF-4 file is not opened again.
  EXPECT_EQ(files().size(), is_classic() ? 1U : 2U);
  expect_same(all, 0, *open(), 0);
  auto later = every_entity(DType::int32, {5});
  write(later, {{"resume", "append"}, {"states_per_file", "2"}});  // a file that is there counts as full
  EXPECT_EQ(files().size(), is_classic() ? 2U : 3U);
  EXPECT_EQ(open()->times(), (std::vector<double>{1, 2, 3, 4, 5}));
}

TEST_P(Series, ARestartDropsWhatIsLater) {
  auto all = every_entity(DType::int32, {1, 2, 3, 4});
  write(all);
  all.seek(2);
  const auto resumed = message([&] { write(all, {{"resume", "2.5"}}); });
  if (is_classic()) {
    EXPECT_EQ(resumed, "accepted");
    all.seek(0);
    expect_same(all, 0, *open(), 0);
    EXPECT_THAT(message([&] {
                  write(all, {{"resume", "0.5"}});
                }),
                HasSubstr("cannot resume after 0.5: all of its states are later"));
  } else {
    EXPECT_THAT(resumed, HasSubstr("a netCDF-4 file cannot drop states"));
  }
  EXPECT_EQ(open()->times(), (std::vector<double>{1, 2, 3, 4}));
}

// The time may lie in any file; a file with a model and no state yet counts for none.
TEST_P(Series, ARestartGoesBackByFiles) {
  auto all = every_entity(DType::int32, {1, 2, 3, 4, 5});
  write(all, {{"states_per_file", "1"}});
  all.seek(0);
  create(request({{"resume", "append"}}))->define(all.model(0));  // a crash before a state
  for (const auto* time : {"4.5", "2"}) {
    const std::uint64_t kept = time[0] - '0';
    all.seek(kept);
    write(all, {{"resume", time}, {"states_per_file", "1"}});
    all.seek(0);
    expect_same(all, 0, *open(), 0);
    EXPECT_EQ(files().size(), 5U);
  }
}

TEST_P(Series, AModelThatIsRefusedLeavesTheStates) {
  auto source = every_entity(DType::int32, {1, 2, 3});
  write(source);
  source.seek(0);
  const auto before = files();
  const auto sink = create(request({{"resume", "1.5"}}));
  const auto& model = source.model(0);
  if (is_classic()) {
    sink->define(model);
    each_model_field(model, [&](Slot slot) {
      auto values = read_whole(source, 0, slot);
      if (model.entities[slot.entity].fields[slot.field].name == "coordinates") values[0] ^= std::byte{1};
      sink->write(slot, values.data());
    });
    EXPECT_THAT(message([&] { sink->begin_state(2); }), HasSubstr("'coordinates' of node_block"));
  } else {
    EXPECT_THAT(message([&] { sink->define(model); }), HasSubstr("cannot drop states"));
  }
  EXPECT_EQ(files(), before);
  EXPECT_EQ(open()->times(), (std::vector<double>{1, 2, 3}));
}

TEST_P(Series, ANumberOfStatesIsItsPlaceInTheRegion) {
  auto source = every_entity(DType::int32, {1, 2, 3, 4, 5});
  write(source, {{"states_per_file", "2"}});
  const auto file = open();
  for (std::uint64_t state = 0; state < 5; ++state) EXPECT_EQ(file->next_state(Timeout(0)).number, state);
  for (const std::uint64_t state : {3U, 0U, 4U}) {
    file->seek(state);
    EXPECT_EQ(file->next_state(Timeout(0)).number, state);
  }
}

// Whatever the writer does: a reader sees a whole model or none, and no error.
TEST_P(Series, AReaderBesideTheWriterSeesNoErrors) {
  auto source = every_entity(DType::int32, {1, 2, 3, 4, 5, 6, 7, 8});
  std::atomic<bool> done = false;
  std::thread writer([&] {
    write(source, {{"states_per_file", "1"}});
    done = true;
  });
  std::unique_ptr<Source> file;
  std::vector<double> seen;
  while (true) {
    const bool last = done;
    if (!file && std::filesystem::exists(path())) file = open();
    const auto state = file ? file->next_state(Timeout(0)) : StateOutcome{};
    if (state.kind == StateOutcome::Kind::state) seen.push_back(state.time);
    else if (last) break;
  }
  writer.join();
  EXPECT_EQ(seen, source.times());
}

TEST_P(Series, OnlyTheSameModelIsResumed) {
  auto source = every_entity(DType::int32, {1});
  write(source);
  const auto refused = [&](const std::function<void(Model&)>& change) {
    auto model = source.model(0);
    change(model);
    return message([&] { create(request({{"resume", "append"}}))->define(model); });
  };
  EXPECT_EQ(refused([](Model&) {}), "accepted");
  EXPECT_THAT(refused([](Model& m) { m.entities.pop_back(); }), HasSubstr("and the model has not"));
  EXPECT_THAT(refused([](Model& m) { m.entities.back().name += "x"; }), HasSubstr("and the model has not"));
  EXPECT_THAT(refused([](Model& m) { m.entities[1].count += 1; }), HasSubstr("members there"));
  EXPECT_THAT(refused([](Model& m) { m.entities[1].fields.push_back({.name = "added"}); }),
              HasSubstr("field 'added' is not there"));
  EXPECT_THAT(refused([](Model& m) { m.entities[1].fields.pop_back(); }), HasSubstr("and not in the model"));
  EXPECT_EQ(open()->times(), std::vector<double>{1});
}

TEST_P(Series, PartsAreResumed) {
  if (is_narrow()) GTEST_SKIP() << "the generated mesh has integers of 64 bits";
  const auto write = [&](int ranks, const char* times, std::uint64_t first, const std::string& resume) {
    run_thread_cohort(ranks, [&](const std::shared_ptr<Cohort>& cohort) {
      const auto own = generated("2x2x4|nodal:1|parts:" + std::to_string(ranks) + "|times:" + times);
      if (first > 0) own->seek(first);
      copy_part(*own, static_cast<std::uint32_t>(cohort->rank()), *create(request({{"resume", resume}}, cohort)));
    });
  };
  write(2, "2", 0, "append");
  write(2, "4", 2, "append");
  EXPECT_EQ(open()->times(), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_THAT(message([&] { write(2, "4", 2, "append"); }), HasSubstr("time 2 is not after the last state"));
  EXPECT_THAT(message([&] { write(3, "2", 0, "append"); }),
              HasSubstr("there are files of 2 parts, and this run has 3 ranks"));
  run_thread_cohort(1, [&](const std::shared_ptr<Cohort>& cohort) {
    EXPECT_THAT(message([&] {
                  create(request({{"resume", "append"}}, cohort))->define(generated("2x2x4|times:4")->model(0));
                }),
                HasSubstr("there are files of 2 parts, and this run has 1 ranks"));
  });
  if (is_classic()) {
    write(2, "4", 2, "1");
    for (std::uint32_t part = 0; part < 2; ++part)
      expect_same(*generated("2x2x4|nodal:1|parts:2|times:4"), part, *open(), part);
  }
  write(1, "4", 0, "no");
  EXPECT_THAT(message([&] { write(2, "4", 0, "append"); }), HasSubstr("it is one file, and this run has 2 ranks"));
  EXPECT_EQ(open()->times().size(), 4U);
}

// A file keeps what parts share by part, whatever order it was written in; a rank with another list ends all.
TEST_P(Series, WhatPartsShareIsComparedInAnyOrder) {
  if (is_narrow()) GTEST_SKIP() << "the generated mesh has integers of 64 bits";
  const auto write = [&](double time, bool wrong) {
    std::atomic<int> refused = 0;
    run_thread_cohort(3, [&](const std::shared_ptr<Cohort>& cohort) {
      const auto rank = static_cast<std::uint32_t>(cohort->rank());
      const auto own = generated("2x2x6|parts:3");
      const auto& model = own->model(rank);
      const auto sink = create(request({{"resume", "append"}}, cohort));
      sink->define(model);
      each_model_field(model, [&](Slot slot) {
        auto values = read_whole(*own, rank, slot);
        if (model.entities[slot.entity].type == EntityType::comm_set) {
          auto* pairs = reinterpret_cast<std::array<std::int64_t, 2>*>(values.data());
          std::reverse(pairs, pairs + values.size() / sizeof *pairs);
          if (wrong && rank == 1) pairs[0][0] += 1;
        }
        sink->write(slot, values.data());
      });
      const auto said = message([&] { sink->begin_state(time); });
      refused += said.find("cannot resume: field 'entity_processor'") != std::string::npos;
      if (said != "accepted") return;
      sink->end_state();
      sink->close();
    });
    return refused.load();
  };
  EXPECT_EQ(write(0, false), 0);
  EXPECT_EQ(write(1, false), 0);
  EXPECT_EQ(write(2, true), 3);
  EXPECT_EQ(open()->times(), (std::vector<double>{0, 1}));
}

INSTANTIATE_TEST_SUITE_P(All, Series, testing::Values("offset64", "cdf5", "netcdf4"));

class ChangingStream : public testing::Test {
 protected:
  static ContextOptions in(const TestFolder& folder) {
    ContextOptions options;
    options.directory = folder.path();
    options.listen = "127.0.0.1";
    return options;
  }
  TestFolder folder_;
  const Context context_{in(folder_)};
};

TEST_F(ChangingStream, TheTopologyChangesForAllParts) {
  std::thread writers([&] {
    run_thread_cohort(2, [&](const std::shared_ptr<Cohort>& cohort) {
      copy_part(*refined(), static_cast<std::uint32_t>(cohort->rank()), *create_region(context_, "results", cohort));
    });
  });
  const auto parts = [](const Model& model) { return assign_linear(model, 3); };
  expect_same_from_here(*join(spread(join(refined()), parts, 3)), 0,
                        *join(spread(join(open_region(context_, "results")), parts, 3)), 0);
  writers.join();
}

TEST_F(ChangingStream, PartsThatWereGivenForOneModelAreRefusedForTheNext) {
  const auto source = spread(join(refined()), Assignment(8, 0), 1);
  EXPECT_EQ(source->next_state(Timeout(0)).kind, StateOutcome::Kind::state);
  EXPECT_EQ(source->next_state(Timeout(0)).kind, StateOutcome::Kind::state);
  EXPECT_THAT(message([&] { static_cast<void>(source->next_state(Timeout(0))); }),
              HasSubstr("the parts of its elements were given for the old one"));
}

// Engine direct keeps the first step for it, not that of the present model.
TEST_F(ChangingStream, AReaderThatComesAfterAChangeIsTold) {
  const auto source = refined("");
  const auto sink = create_region(context_, "results");
  std::thread early([&] {
    const auto reader = open_region(context_, "results");
    while (reader->next_state(Timeout(20'000)).kind != StateOutcome::Kind::end) continue;
  });
  const auto write = [&](Slot slot) { sink->write(slot, read_whole(*source, 0, slot).data()); };
  const auto define = [&] {
    sink->define(source->model(0));
    each_model_field(source->model(0), write);
  };
  const auto write_state = [&](double time) {
    sink->begin_state(time);
    each_state_field(source->model(0), write);
    sink->end_state();
  };
  define();
  for (int i = 0; i < 5; ++i) {  // two states, two models, a state
    const auto next = source->next_state(Timeout(0));
    if (next.kind == StateOutcome::Kind::model) define();
    else write_state(next.time);
  }
  // As long as the other reader has not read the last model, one that comes is given it as well.
  std::string said = "accepted";
  const base::Deadline deadline(Timeout(20'000));
  for (double time = 1; said == "accepted" && !deadline.passed(); time += 2) {
    const auto late = open_region(context_, "results");
    for (int i = 0; i < 2; ++i) write_state(time + i);
    for (int i = 0; i < 2 && said == "accepted"; ++i)
      said = message([&] { static_cast<void>(late->next_state(Timeout(20'000))); });
  }
  sink->close();
  early.join();
  EXPECT_THAT(said, HasSubstr("was skipped"));
}

}  // namespace
}  // namespace penstock::mesh
