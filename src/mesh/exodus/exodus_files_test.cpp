// Exodus files that other programs write otherwise than ours, and files larger than any memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/test_support.hpp"
#include "mesh/checked_sink.hpp"
#include "mesh/exodus/netcdf_file.hpp"
#include "mesh/exodus_part.hpp"
#include "mesh/mesh_test_support.hpp"
#include "penstock/cohort.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

using testing::ElementsAre;

constexpr int of_file = NetcdfFile::global_attribute;

// A file of a program that names neither attributes nor sets, with two triangles.
void write_old_file(const std::string& path) {
  auto file = NetcdfFile::create(path, NetcdfFile::Format::offset64);
  file.put_real(of_file, "version", 4.0F);
  file.put_attribute(of_file, "title", std::string("old"));
  const auto dimension = [&](const char* name, std::size_t length) { return file.define_dimension(name, length); };
  const auto axes = dimension("num_dim", 2), nodes = dimension("num_nodes", 4), elements = dimension("num_elem", 2);
  const auto blocks = dimension("num_el_blk", 1), width = dimension("num_nod_per_el1", 3);
  const auto rows = dimension("num_el_in_blk1", 2), attributes = dimension("num_att_in_blk1", 2);
  const auto sets = dimension("num_node_sets", 2), maps = dimension("num_elem_maps", 2);
  const auto name = dimension("len_name", 33), frames = dimension("num_cframes", 2);
  file.define_variable("coordx", DType::float64, {nodes});
  file.define_variable("coordy", DType::float64, {nodes});
  file.define_variable("coor_names", DType::string, {axes, name});
  file.define_variable("eb_prop1", DType::int32, {blocks});
  file.put_attribute(file.define_variable("connect1", DType::int32, {rows, width}), "elem_type", std::string("TRI"));
  file.define_variable("attrib1", DType::float64, {rows, attributes});
  file.define_variable("ns_prop1", DType::int32, {sets});
  file.define_variable("elem_map", DType::int32, {elements});
  file.define_variable("elem_map1", DType::int32, {elements});
  file.define_variable("elem_map2", DType::int32, {elements});
  file.define_variable("emap_names", DType::string, {maps, name});
  file.define_variable("em_prop1", DType::int32, {maps});
  file.define_variable("frame_ids", DType::int32, {frames});
  file.define_variable("frame_coordinates", DType::float64, {dimension("num_cframes_9", 18)});
  file.define_variable("frame_tags", DType::string, {frames});
  file.end_definitions();
  const auto put = [&](const char* variable, const Extent& count, const std::vector<std::int64_t>& values) {
    file.write(file.find(variable)->id, DType::int64, Extent(count.size(), 0), count, values.data());
  };
  put("coordx", {4}, {0, 1, 0, 1});
  put("coordy", {4}, {0, 0, 1, 1});
  put("eb_prop1", {1}, {10});
  put("connect1", {2, 3}, {1, 2, 3, 2, 4, 3});
  put("attrib1", {2, 2}, {1, 2, 3, 4});
  put("ns_prop1", {2}, {-1, -1});
  put("elem_map", {2}, {2, 1});
  put("elem_map1", {2}, {7, 8});
  put("elem_map2", {2}, {9, 10});
  put("em_prop1", {2}, {333, 2});
  put("frame_ids", {2}, {20, 13});
  std::vector<std::int64_t> points(18);
  std::iota(points.begin(), points.end(), 1);
  put("frame_coordinates", {18}, points);
  file.write(file.find("frame_tags")->id, DType::string, {0}, {2}, "rc");
  file.write_texts("coor_names", {"east", "north"});
  file.write_texts("emap_names", {"", "second"});
  file.close();
}

std::vector<std::int64_t> integers(const NetcdfFile& file, const std::string& variable, std::size_t count) {
  std::vector<std::int64_t> values(count);
  file.read(file.find(variable)->id, DType::int64, {0}, {count}, values.data());
  return values;
}

TEST(ExodusFiles, ACopyKeepsHowOtherProgramsWriteThem) {
  const TestFolder folder;
  write_old_file(folder / "old.e");
  const auto source = open_exodus({folder / "old.e", {}, solo()});
  const auto sink = create_checked(database_named("exodus"), {folder / "copy.e", {}, solo()});
  copy_part(*source, 0, *sink);
  const auto again = open_exodus({folder / "copy.e", {}, solo()});
  expect_same(*source, 0, *again, 0);
  const auto copy = NetcdfFile::open(folder / "copy.e");
  EXPECT_THAT(copy.read_texts(*copy.find("coor_names")), ElementsAre("east", "north"));
  EXPECT_EQ(copy.attributes(copy.find("connect1")->id).at("elem_type"), Property(std::string("TRI")));
  EXPECT_EQ(source->model(0).at(EntityType::element_block, "block_10").topology, "tri3");
  EXPECT_THAT(copy.read_texts(*copy.find("attrib_name1")), ElementsAre("", ""));
  EXPECT_THAT(copy.read_texts(*copy.find("emap_names")), ElementsAre("", "second"));
  EXPECT_THAT(integers(copy, "elem_map", 2), ElementsAre(2, 1));
  EXPECT_THAT(integers(copy, "elem_map2", 2), ElementsAre(9, 10));
  EXPECT_THAT(integers(copy, "em_prop1", 2), ElementsAre(333, 2));
  EXPECT_THAT(integers(copy, "ns_prop1", 2), ElementsAre(-1, -1));
  EXPECT_THAT(copy.read_texts(*copy.find("ns_names")), ElementsAre("nodelist_-1", "nodelist_-1_2"));
  EXPECT_THAT(integers(copy, "frame_ids", 2), ElementsAre(20, 13));
  EXPECT_EQ(integers(copy, "frame_coordinates", 18).back(), 18);
  std::string tags(2, ' ');
  copy.read(copy.find("frame_tags")->id, DType::string, {0}, {2}, tags.data());
  EXPECT_EQ(tags, "rc");
}

// HDF5 prints errors that netCDF expects, unless each thread tells it not to.
TEST(ExodusFiles, NothingIsPrintedInOtherThreads) {
  const TestFolder folder;
  testing::internal::CaptureStderr();
  std::thread([&] {
    auto source = every_entity(DType::int32);
    MeshOptions options;
    options.format = MeshFormat::netcdf4;
    const auto sink = create_checked(database_named("exodus"), {folder / "a.e", options, solo()});
    copy_part(source, 0, *sink);
    static_cast<void>(open_exodus({folder / "a.e", {}, solo()}));
  }).join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// More nodes and elements than 31 bits count, most of them holes in the file.
constexpr std::uint64_t many = 2'200'000'000;
constexpr std::uint64_t slice = 1000;
constexpr std::uint64_t slices[] = {0, many / 2, many - slice};

std::int64_t value_at(std::uint64_t row) { return static_cast<std::int64_t>(row * 3 + 1); }

// Of the slices alone: in three variables of nodes, and in the connectivity of bars.
void write_large_file(const std::string& path) {
  auto file = NetcdfFile::create(path, NetcdfFile::Format::cdf5);
  file.put_real(of_file, "version", 9.0F);
  file.put_attribute(of_file, "int64_status", std::int64_t{0x1c00});
  const auto time = file.define_dimension("time_step", 0);
  static_cast<void>(file.define_dimension("num_dim", 1));
  const auto nodes = file.define_dimension("num_nodes", many);
  static_cast<void>(file.define_dimension("num_elem", many));
  const auto blocks = file.define_dimension("num_el_blk", 1);
  const auto rows = file.define_dimension("num_el_in_blk1", many), width = file.define_dimension("num_nod_per_el1", 2);
  const auto name = file.define_dimension("len_name", 33), results = file.define_dimension("num_nod_var", 1);
  const auto times = file.define_variable("time_whole", DType::float64, {time});
  const auto ids = file.define_variable("eb_prop1", DType::int64, {blocks});
  const auto coordinates = file.define_variable("coordx", DType::float64, {nodes});
  const auto numbers = file.define_variable("node_num_map", DType::int64, {nodes});
  const auto connectivity = file.define_variable("connect1", DType::int64, {rows, width});
  file.put_attribute(connectivity, "elem_type", std::string("BAR2"));
  file.define_variable("name_nod_var", DType::string, {results, name});
  const auto pressure = file.define_variable("vals_nod_var1", DType::float64, {time, nodes});
  file.end_definitions();
  file.write_texts("name_nod_var", {"pressure"});
  const std::int64_t id = 7;
  file.write(ids, DType::int64, {0}, {1}, &id);
  std::vector<std::int64_t> values(2 * slice);
  for (const auto first : slices) {
    for (std::size_t i = 0; i < slice; ++i) values[i] = value_at(first + i);
    file.write(coordinates, DType::int64, {first}, {slice}, values.data());
    file.write(numbers, DType::int64, {first}, {slice}, values.data());
    file.write(pressure, DType::int64, {0, first}, {1, slice}, values.data());
    for (std::size_t i = 0; i < 2 * slice; ++i)
      values[i] = static_cast<std::int64_t>((first + i / 2 + i % 2) % many + 1);
    file.write(connectivity, DType::int64, {first, 0}, {slice, 2}, values.data());
  }
  const double at = 0.5;
  file.write(times, DType::float64, {0}, {1}, &at);
  file.close();
}

// Whether the file system keeps holes: 64 GiB that occupy next to nothing.
bool has_sparse_files(const std::string& path) {
  std::ofstream(path).flush();
  std::error_code error;
  std::filesystem::resize_file(path, std::uintmax_t{1} << 36, error);
  struct stat status {};
  const bool sparse = !error && ::stat(path.c_str(), &status) == 0 && status.st_blocks < 1024;
  std::filesystem::remove(path);
  return sparse;
}

long largest_memory_kib() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(ExodusFiles, MoreEntitiesThan31BitsCountAreReadBySlices) {
  const TestFolder folder;
  if (!has_sparse_files(folder / "hole"))
    GTEST_SKIP() << "the file system of " << folder.path() << " keeps no holes in files";
  const auto path = folder / "large.e";
  const auto before = largest_memory_kib();
  write_large_file(path);
  const auto source = open_exodus({path, {}, solo()});
  const auto& model = source->model(0);
  EXPECT_EQ(model.count_of(EntityType::node_block), many);
  EXPECT_EQ(model.count_of(EntityType::element_block), many);
  const auto check = [&](Slot slot, std::size_t columns, const auto& expected) {
    for (const auto first : slices) {
      const auto is_real = model.entities[slot.entity].fields[slot.field].dtype == DType::float64;
      std::vector<std::int64_t> whole(slice * columns);
      std::vector<double> real(slice * columns);
      source->read(0, slot, {first, slice}, is_real ? static_cast<void*>(real.data()) : whole.data());
      for (std::size_t i = 0; i < slice * columns; ++i) {
        const auto found = is_real ? static_cast<std::int64_t>(real[i]) : whole[i];
        ASSERT_EQ(found, expected(first, i)) << "row " << first + i / columns;
      }
    }
  };
  const auto of_row = [](std::uint64_t first, std::size_t i) { return value_at(first + i); };
  check(slot_of(model, EntityType::node_block, "nodeblock_1", "coordinates"), 1, of_row);
  check(slot_of(model, EntityType::node_block, "nodeblock_1", "ids"), 1, of_row);
  check(slot_of(model, EntityType::element_block, "block_7", "connectivity"), 2,
        [](std::uint64_t first, std::size_t i) { return static_cast<std::int64_t>((first + i / 2 + i % 2) % many); });
  ASSERT_EQ(source->next_state(Timeout(0)).time, 0.5);
  check(slot_of(model, EntityType::node_block, "nodeblock_1", "pressure"), 1, of_row);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_GT(status.st_size, static_cast<off_t>(many * 40));
  EXPECT_LT(status.st_blocks * 512, 8 << 20);
  EXPECT_LT(largest_memory_kib() - before, 64 << 10);
  // What the header says is still what must be there.
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 8);
  EXPECT_THROW(static_cast<void>(open_exodus({path, {}, solo()})), Error);
}

// An Exodus file with variables of another program: of elements, of a dimension of their own, of states.
void add_foreign(const std::string& path) {
  auto file = NetcdfFile::create(path, NetcdfFile::Format::offset64);
  file.put_real(of_file, "version", 4.0F);
  const auto states = file.define_dimension("time_step", 0), y = file.define_dimension("y", 2);
  const auto x = file.define_dimension("x", 3), nodes = file.define_dimension("num_nodes", 4);
  file.define_dimension("num_dim", 1);
  file.define_variable("coordx", DType::float64, {nodes});
  file.define_variable("time_whole", DType::float64, {states});
  file.put_attribute(file.define_variable("colour", DType::int16, {y, x}), "units", std::string("shade"));
  file.define_variable("of_nodes", DType::float32, {nodes});
  file.define_variable("letters", DType::string, {x});
  file.define_variable("lone", DType::int8, {});
  file.define_variable("probe", DType::float64, {states, y});
  file.end_definitions();
  const auto put = [&](const char* variable, const Extent& start, const Extent& count, std::int64_t first) {
    std::vector<std::int64_t> values(values_in(count));
    std::iota(values.begin(), values.end(), first);
    file.write(file.find(variable)->id, DType::int64, start, count, values.data());
  };
  put("coordx", {0}, {4}, 0);
  put("colour", {0, 0}, {2, 3}, 10);
  put("of_nodes", {0}, {4}, 20);
  put("lone", {}, {}, 30);
  file.write(file.find("letters")->id, DType::string, {0}, {3}, "abc");
  for (std::size_t state = 0; state < 2; ++state) {
    put("time_whole", {state}, {1}, static_cast<std::int64_t>(state));
    put("probe", {state, 0}, {1, 2}, static_cast<std::int64_t>(40 + 10 * state));
  }
  file.close();
}

void expect_foreign(const std::string& path) {
  const auto file = NetcdfFile::open(path);
  const auto values = [&](const char* name, const Extent& start, const Extent& count) {
    std::vector<std::int64_t> values(values_in(count));
    file.read(file.find(name)->id, DType::int64, start, count, values.data());
    return values;
  };
  ASSERT_NE(file.find("probe"), nullptr);
  EXPECT_THAT(values("colour", {0, 0}, {2, 3}), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_EQ(std::get<std::string>(file.attributes(file.find("colour")->id).at("units")), "shade");
  EXPECT_EQ(file.find("colour")->dtype, DType::int16);
  EXPECT_THAT(values("of_nodes", {0}, {4}), ElementsAre(20, 21, 22, 23));
  EXPECT_EQ(file.find("of_nodes")->dimensions, file.find("coordx")->dimensions);
  EXPECT_THAT(values("lone", {}, {}), ElementsAre(30));
  std::string letters(3, ' ');
  file.read(file.find("letters")->id, DType::string, {0}, {3}, letters.data());
  EXPECT_EQ(letters, "abc");
  EXPECT_THAT(values("probe", {0, 0}, {2, 2}), ElementsAre(40, 41, 50, 51));
}

TEST(ExodusFiles, VariablesOfOtherProgramsAreKept) {
  const TestFolder folder;
  add_foreign(folder.path() + "/a.e");
  expect_foreign(folder.path() + "/a.e");
  for (const auto* format : {"offset64", "cdf5", "netcdf4"}) {
    DatabaseRequest request{folder.path() + "/b.e", {}, solo()};
    set_option(request.options, "format", format);
    const auto source = std::shared_ptr<Source>(open_exodus({folder.path() + "/a.e", {}, solo()}));
    copy_part(*join(source), 0, *create_checked(database_named("exodus"), request));
    expect_foreign(request.name);
  }
}

TEST(ExodusFiles, APropertyThatContradictsItsFieldIsRefused) {
  const TestFolder folder;
  for (const auto* property : {"", "int32", "int32/y", "int32/y=3", "int32/y=-1", "int23/y=2", "int32/time_step/y=2"}) {
    Model model;
    Entity region{.type = EntityType::region, .name = "region", .count = 1};
    region.fields = {{.name = "netcdf/a", .dtype = DType::int32, .role = Role::mesh, .count = 2}};
    region.properties["netcdf/a"] = std::string(property);
    model.add(region);
    EXPECT_THROW(create_exodus({folder.path() + "/a.e", {}, solo()})->define(model), Error) << property;
  }
}

}  // namespace
}  // namespace penstock::mesh
