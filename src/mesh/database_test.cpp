// What each database that is written and read must do, and what is special to one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/test_support.hpp"
#include "mesh/checked_sink.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/mesh_test_support.hpp"
#include "penstock/cohort.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using testing::HasSubstr;

struct Format {
  const char* name;
  bool wide;  // holds integers of 64 bits
};
void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

std::unique_ptr<Sink> create(const DatabaseRequest& request) {
  return create_checked(database_named("exodus"), request);
}

class ExodusFormats : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    if (penstock_exodus_part == nullptr) GTEST_SKIP() << "built without netCDF (Debian: libnetcdf-dev)";
  }
  DatabaseRequest request(const std::string& file = "mesh.e") const {
    DatabaseRequest request{folder_ / file, {}, solo()};
    set_option(request.options, "format", GetParam().name);
    return request;
  }
  std::unique_ptr<Source> written(Source& source) const {
    const auto sink = create(request());
    copy_part(source, 0, *sink);
    if (!source.times().empty()) source.seek(0);
    return open_exodus({request().name, {}, solo()});
  }
  TestFolder folder_;
};

TEST_P(ExodusFormats, EveryEntityComesBack) {
  auto source = every_entity(GetParam().wide ? DType::int64 : DType::int32);
  const auto file = written(source);
  expect_same(source, 0, *file, 0);
}

TEST_P(ExodusFormats, AMeshWithoutStates) {
  auto source = every_entity(DType::int32, {});
  const auto file = written(source);
  expect_same(source, 0, *file, 0);
}

TEST_P(ExodusFormats, AnEmptyRegion) {
  Model model{.title = "empty"};
  model.add({.type = EntityType::region, .name = "region", .count = 1});
  model.add({.type = EntityType::node_block, .name = "nodeblock_1", .id = 1});
  MemorySource source(model, {});
  const auto file = written(source);
  expect_same(source, 0, *file, 0);
}

TEST_P(ExodusFormats, RowsAreReadByRange) {
  const auto source = generated("4x3x2|times:2|nodal:2|element:1");
  auto request = this->request();
  if (!GetParam().wide) set_option(request.options, "integers", "32");
  const auto sink = create(request);
  copy_part(*source, 0, *sink);
  const auto file = open_exodus({request.name, {}, solo()});
  const auto& model = file->model(0);
  source->seek(1);
  file->seek(1);
  EXPECT_EQ(source->next_state(Timeout(0)).time, file->next_state(Timeout(0)).time);
  each_state_field(model, [&](Slot slot) {
    const auto& entity = model.entities[slot.entity];
    const auto rows = rows_of(entity, entity.fields[slot.field]);
    for (std::uint64_t first = 0; first < rows; first += 7) {
      const Rows part{first, std::min<std::uint64_t>(7, rows - first)};
      std::vector<double> a(7), b(7);
      source->read(0, slot, part, a.data());
      file->read(0, slot, part, b.data());
      EXPECT_EQ(a, b);
    }
  });
}

TEST_P(ExodusFormats, AStateThatWasNotEndedIsNotThere) {
  auto source = every_entity(DType::int32);
  {
    const auto sink = create(request());
    const auto& model = source.model(0);
    sink->define(model);
    each_model_field(model, [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); });
    for (const double time : {1.0, 2.0}) {
      sink->begin_state(time);
      static_cast<void>(source.next_state(Timeout(0)));
      each_state_field(model, [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); });
      if (time < 2) sink->end_state();
    }
  }
  const auto file = open_exodus({request().name, {}, solo()});
  EXPECT_EQ(file->times(), std::vector<double>{1});
}

// HDF5 promises nothing here.
class ClassicFormats : public ExodusFormats {};

TEST_P(ClassicFormats, AReaderSeesStatesAsTheyCome) {
  auto source = every_entity(DType::int32);
  const auto& model = source.model(0);
  const auto sink = create(request());
  sink->define(model);
  each_model_field(model, [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); });
  std::unique_ptr<Source> file;
  std::vector<double> times;
  for (const double time : {1.0, 2.0, 3.0}) {
    sink->begin_state(time);
    static_cast<void>(source.next_state(Timeout(0)));
    each_state_field(model, [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); });
    sink->end_state();
    times.push_back(time);
    if (!file) file = open_exodus({request().name, {}, solo()});
    EXPECT_EQ(file->times(), times);
    EXPECT_EQ(file->next_state(Timeout(0)).time, time);
    each_state_field(model, [&](Slot slot) { EXPECT_EQ(read_whole(*file, 0, slot), read_whole(source, 0, slot)); });
  }
  sink->close();
}

TEST_P(ExodusFormats, MissingValuesAreNamed) {
  auto source = every_entity(DType::int32);
  const auto& model = source.model(0);
  const auto sink = create(request());
  sink->define(model);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message([&] { sink->begin_state(0); }),
              HasSubstr("the model has no values of field 'coordinates' of node_block"));
  const auto coordinates = slot_of(model, EntityType::node_block, "nodeblock_1", "coordinates");
  EXPECT_THAT(message([&] { sink->write(coordinates, nullptr); }),
              HasSubstr("no values are given of field 'coordinates' of node_block"));
  each_model_field(model, [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); });
  sink->begin_state(0);
  static_cast<void>(source.next_state(Timeout(0)));
  EXPECT_THAT(message([&] { sink->end_state(); }), HasSubstr("the state has no values of field 'time_step' of region"));
  each_state_field(model, [&](Slot slot) { sink->write(slot, read_whole(source, 0, slot).data()); });
  sink->end_state();
  sink->close();
  EXPECT_EQ(open_exodus({request().name, {}, solo()})->times(), std::vector<double>{0});
}

// netCDF reads what is missing as zeros.
TEST_P(ClassicFormats, AFileThatIsCutOffIsRefused) {
  auto source = every_entity(DType::int32);
  static_cast<void>(written(source));
  const auto path = request().name;
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t length = 0; length + 4 < whole.size(); length += length < 400 ? 7 : 101) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    EXPECT_THROW(static_cast<void>(open_exodus({path, {}, nullptr})), Error) << length << " of " << whole.size();
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << whole;
  EXPECT_NO_THROW(static_cast<void>(open_exodus({path, {}, nullptr})));
}

INSTANTIATE_TEST_SUITE_P(All, ExodusFormats,
                         testing::Values(Format{"offset64", false}, Format{"cdf5", true}, Format{"netcdf4", true},
                                         Format{"netcdf4_classic", false}),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(All, ClassicFormats, testing::Values(Format{"offset64", false}, Format{"cdf5", true}),
                         testing::PrintToStringParamName());

class ExodusTest : public testing::Test {
 protected:
  void SetUp() override {
    if (penstock_exodus_part == nullptr) GTEST_SKIP() << "built without netCDF (Debian: libnetcdf-dev)";
  }
  std::string path(const std::string& file) const { return folder_.path() + "/" + file; }
  static std::string message(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  TestFolder folder_;
};

TEST_F(ExodusTest, WhatIsNoExodusFileIsSaidSo) {
  const auto open = [&](const std::string& file) {
    return message([&] { static_cast<void>(open_exodus({path(file), {}, solo()})); });
  };
  EXPECT_THAT(open("absent.e"), HasSubstr("there is no such file"));
  std::ofstream(path("text.e")) << "no netCDF at all";
  EXPECT_THAT(open("text.e"), HasSubstr("is no netCDF file"));
  std::ofstream(path("empty.e")).flush();
  EXPECT_THAT(open("empty.e"), HasSubstr("empty.e"));
}

TEST_F(ExodusTest, OptionsAreChecked) {
  const auto create = [&](const MeshOptions& options) {
    return message([&] { static_cast<void>(create_exodus({path("a.e"), options, solo()})); });
  };
  EXPECT_THAT(create({.compression = 3}), HasSubstr("compression needs format: netcdf4"));
  EXPECT_THAT(create({.format = MeshFormat::offset64, .integers = MeshIntegers::bits_64}),
              HasSubstr("need format: cdf5 or netcdf4"));
}

TEST_F(ExodusTest, WhatItCannotKeepIsRefused) {
  Model model;
  model.add({.type = EntityType::element_block,
             .name = "b",
             .id = 1,
             .count = 2,
             .topology = "hex8",
             .fields = {{.name = "neighbours", .dtype = DType::int32, .role = Role::mesh}}});
  EXPECT_THAT(message([&] {
                create_exodus({path("a.e"), {}, solo()})->define(model);
              }),
              HasSubstr("Exodus has no place for the field 'neighbours' of element_block 'b'"));
}

TEST_F(ExodusTest, PartsHaveFilesOfTheirOwn) {
  const auto source = generated("4x4x9|parts:4|times:3|nodal:2|element:1|global:1|nodeset:xzZ|sideset:XZ");
  run_thread_cohort(4, [&](const std::shared_ptr<Cohort>& cohort) {
    const auto sink = create_exodus({path("mesh.e"), {}, cohort});
    const auto own = generated("4x4x9|parts:4|times:3|nodal:2|element:1|global:1|nodeset:xzZ|sideset:XZ");
    copy_part(*own, static_cast<std::uint32_t>(cohort->rank()), *sink);
  });
  EXPECT_TRUE(std::filesystem::exists(path("mesh.e.4.3")));
  const auto files = open_nemesis({path("mesh.e"), {}, solo()});
  ASSERT_EQ(files->parts(), 4U);
  for (std::uint32_t part = 0; part < 4; ++part) expect_same(*source, part, *files, part);
  std::filesystem::remove(path("mesh.e.4.2"));
  EXPECT_THAT(message([&] {
                static_cast<void>(open_nemesis({path("mesh.e"), {}, solo()}));
              }),
              HasSubstr("mesh.e.4.2: there is no such file"));
  std::ofstream(path("mesh.e.2.0")).flush();
  EXPECT_THAT(message([&] {
                static_cast<void>(open_nemesis({path("mesh.e"), {}, solo()}));
              }),
              HasSubstr("of 2 parts and of 4"));
}

// What was written last under a name is what is read, whatever number of ranks wrote before.
TEST_F(ExodusTest, FilesOfEarlierRunsGo) {
  const auto write = [&](int ranks) {
    run_thread_cohort(ranks, [&](const std::shared_ptr<Cohort>& cohort) {
      const auto own = generated("2x2x4|parts:" + std::to_string(ranks));
      copy_part(*own, static_cast<std::uint32_t>(cohort->rank()), *create_exodus({path("mesh.e"), {}, cohort}));
    });
    return open_exodus({path("mesh.e"), {}, nullptr})->parts();
  };
  for (const std::uint32_t ranks : {4U, 2U, 1U, 3U, 1U}) EXPECT_EQ(write(static_cast<int>(ranks)), ranks);
  std::ofstream(path("mesh.e.2.0")).flush();
  EXPECT_THAT(message([&] {
                static_cast<void>(open_exodus({path("mesh.e"), {}, nullptr}));
              }),
              HasSubstr("remove one of them"));
}

TEST_F(ExodusTest, NamesThatExodusHasNoPlaceForComeBack) {
  Model model;
  model.add({.type = EntityType::region, .name = "whole", .count = 1});
  model.add({.type = EntityType::node_block,
             .name = "points",
             .id = 1,
             .count = 2,
             .fields = {{.name = "coordinates", .storage = "vector_3d", .role = Role::mesh}}});
  MemorySource source(model, {});
  copy_part(source, 0, *create_exodus({path("a.e"), {}, solo()}));
  const auto file = open_exodus({path("a.e"), {}, nullptr});
  expect_same(source, 0, *file, 0);
  const auto refused = [&](const std::function<void(Model&)>& change) {
    Model changed = model;
    change(changed);
    return message([&] { create_exodus({path("b.e"), {}, solo()})->define(changed); });
  };
  EXPECT_THAT(refused([](Model& m) { m.properties["version"] = 1.0; }),
              HasSubstr("the name of an attribute of Exodus"));
  EXPECT_THAT(refused([](Model& m) {
                m.qa = {{std::string(33, 'x'), "", "", ""}};
              }),
              HasSubstr("at most 32 characters"));
  EXPECT_THAT(refused([](Model& m) { m.information = {std::string(81, 'x')}; }), HasSubstr("at most 80 characters"));
  EXPECT_THAT(refused([](Model& m) { m.entities[1].properties["a"] = std::int64_t{1}; }),
              HasSubstr("no properties of the region itself"));
}

// After an error of the database a sink only closes; an error of one rank is all ranks'.
TEST_F(ExodusTest, OneRankThatFailsEndsAll) {
  std::atomic<int> refused = 0;
  run_thread_cohort(3, [&](const std::shared_ptr<Cohort>& cohort) {
    const auto own = generated("2x2x6|parts:3");
    auto model = own->model(static_cast<std::uint32_t>(cohort->rank()));
    if (cohort->rank() == 1)
      model.entities[2].fields.push_back({.name = "neighbours", .dtype = DType::int32, .role = Role::mesh});
    const auto sink = create_checked(database_named("exodus"), {path("mesh.e"), {}, cohort});
    const auto said = message([&] {
      sink->define(model);
      each_model_field(model, [&](Slot slot) {
        const auto& entity = model.entities[slot.entity];
        std::vector<std::byte> values(values_of(entity, entity.fields[slot.field]) * 8);
        if (entity.type == EntityType::comm_set)
          own->read(static_cast<std::uint32_t>(cohort->rank()), slot, {0, entity.count}, values.data());
        sink->write(slot, values.data());
      });
    });
    EXPECT_THAT(said, HasSubstr("rank 1: "));
    EXPECT_THAT(said, HasSubstr("no place for the field 'neighbours'"));
    EXPECT_NO_THROW(sink->close());
    ++refused;
  });
  EXPECT_EQ(refused, 3);
}

TEST(NullDatabase, TakesEverything) {
  auto source = every_entity(DType::int64);
  const auto sink = database_named("null").create({"nothing", {}, solo()});
  EXPECT_NO_THROW(copy_part(source, 0, *sink));
}

TEST(GeneratedDatabase, TextsAreChecked) {
  const auto message = [](const std::string& name) -> std::string {
    try {
      static_cast<void>(generated(name));
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("2x2x2|times:3"), "accepted");
  for (const auto* bad : {"", "2x2", "2x2x0", "axbxc", "2x2x2|tmes:3", "2x2x2|times", "2x2x2|parts:3",
                          "2x2x2|nodeset:q", "2x2x2|sideset:xx", "1000000x1000000x1000000"})
    EXPECT_NE(message(bad), "accepted") << bad;
}

// Nodes that two parts share have one id and one place.
TEST(GeneratedDatabase, PartsAgree) {
  const auto source = generated("3x2x7|parts:3");
  std::map<std::int64_t, std::vector<double>> places;
  for (std::uint32_t part = 0; part < 3; ++part) {
    const auto count = source->model(part).count_of(EntityType::node_block);
    std::vector<double> coordinates(3 * count);
    std::vector<std::int64_t> ids(count);
    source->read(part, {1, 0}, {0, count}, coordinates.data());
    source->read(part, {1, 1}, {0, count}, ids.data());
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<double> place(coordinates.begin() + static_cast<std::ptrdiff_t>(3 * i),
                                      coordinates.begin() + static_cast<std::ptrdiff_t>(3 * i + 3));
      EXPECT_EQ(places.emplace(ids[i], place).first->second, place);
    }
  }
  EXPECT_EQ(places.size(), 4U * 3 * 8);
}

}  // namespace
}  // namespace penstock::mesh
