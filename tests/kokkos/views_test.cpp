// Views of every spelling, mirrors, random boxes against a loop, threads, and arrays that are there already.
#include <random>
#include <thread>

#include "staging_support.hpp"

namespace penstock::kokkos_test {
namespace {

using testing::HasSubstr;
using Rows = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Columns = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
using StagedRows = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::StagingSpace>;
using StagedColumns = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::StagingSpace>;

class Views : public StagingTest {
 protected:
  template <class View = Rows>
  static View filled(std::size_t rows, std::size_t columns, std::size_t seed = 0) {
    View view("host", rows, columns);
    fill(view, {}, seed);
    return view;
  }
  // Of all servers.
  static std::uint64_t conversions() {
    std::uint64_t sum = 0;
    for (const auto& server : Kokkos::Staging::space().status()) sum += server.conversions;
    return sum;
  }
};

TEST_F(Views, OfEverySpelling) {
  using Exec = Kokkos::DefaultHostExecutionSpace;
  const auto array = name();
  Kokkos::View<const double**, Kokkos::HostSpace> constant = filled(3, 4);
  Kokkos::deep_copy(Kokkos::View<double**, Kokkos::Device<Exec, Kokkos::StagingSpace>>(array, 3, 4), constant);
  const auto check = [&](const auto& staged, const auto& host) {
    Kokkos::deep_copy(host, staged);
    EXPECT_EQ(wrong(host), 0u);
    Kokkos::deep_copy(Exec(), host, staged);
    EXPECT_EQ(wrong(host), 0u);
    Kokkos::deep_copy(staged, host);  // the same values
    Kokkos::deep_copy(Exec(), staged, host);
    Kokkos::fence();
  };
  check(Kokkos::View<double**, Kokkos::StagingSpace>(array, 3, 4), Kokkos::View<double**>("host", 3, 4));
  check(Kokkos::View<double**, Kokkos::StagingSpace>(array, 3, 4), Kokkos::View<double* [4]>("host", 3));
  check(Kokkos::View<double[3][4], Kokkos::LayoutLeft, Kokkos::StagingSpace>(array),
        Kokkos::View<double**, Kokkos::LayoutLeft, Exec>("host", 3, 4));
  check(Kokkos::View<double**, StagingSpace::device_type>(array, 3, 4),
        Kokkos::View<double**, Kokkos::LayoutStride, Kokkos::HostSpace>("host",
                                                                        strided(Index{3, 4}, 2, Strides::scattered)));
  std::vector<double> memory(12);
  check(Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::StagingSpace, Kokkos::MemoryTraits<0>>(array, 3, 4),
        Kokkos::View<double**, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(memory.data(), 3, 4));
}

TEST_F(Views, HaveMirrorsOnTheHost) {
  const StagedColumns staged(name(), 3, 4);
  const auto host = Kokkos::create_mirror_view(staged);
  static_assert(std::is_same_v<decltype(host)::memory_space, Kokkos::HostSpace>);
  static_assert(std::is_same_v<decltype(host)::array_layout, Kokkos::LayoutLeft>);
  fill(host);
  Kokkos::deep_copy(staged, host);
  const auto got = Kokkos::create_mirror(staged);
  Kokkos::deep_copy(got, staged);
  EXPECT_EQ(wrong(got), 0u);
}

TEST_F(Views, HaveLongNames) {
  const std::string array = name() + std::string(200, 'x');  // Kokkos's own records hold 127 characters
  const StagedRows staged(array, 3, 4);
  EXPECT_EQ(staged.label(), array);
  Kokkos::deep_copy(staged, filled(3, 4));
  EXPECT_EQ(Kokkos::Staging::space().info(array).shape, (Dims{3, 4}));
}

TEST_F(Views, AGetSeesThePutsBeforeIt) {
  const StagedRows staged(name(), 30, 40);
  const auto host = filled(30, 40);
  Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), staged, host);
  Kokkos::deep_copy(host, staged);  // into the source of that put
  EXPECT_EQ(wrong(host), 0u);
}

TEST_F(Views, OfAnArrayThatWasDroppedDefineItAgain) {
  const StagedRows staged(name(), 3, 4);
  Kokkos::deep_copy(staged, filled(3, 4));
  EXPECT_TRUE(Kokkos::Staging::space().drop(name()));
  Kokkos::deep_copy(staged, filled(3, 4, 1));
  const Rows got("got", 3, 4);
  Kokkos::deep_copy(got, staged);
  EXPECT_EQ(wrong(got, {}, 1), 0u);
}

TEST_F(Views, OfAnArrayOfAnotherRankOrType) {
  Kokkos::Staging::space().define(name("rank"), DType::float64, {3, 4, 5});
  EXPECT_THAT(message_of([&] { Kokkos::deep_copy(StagedRows(name("rank"), 3, 4), filled(3, 4)); }),
              HasSubstr("not within array"));
  Kokkos::Staging::space().define(name("type"), DType::complex128, {3, 4});
  EXPECT_NE(message_of([&] { Kokkos::deep_copy(StagedRows(name("type"), 3, 4), filled(3, 4)); }), "");
}

// The paper's replica: the servers convert an array once, whoever asks.
TEST_F(Views, OfAnotherLayoutAreConvertedOnce) {
  ArrayOptions options;
  options.convert = ConvertAt::on_request;
  Kokkos::Staging::space().define(name(), DType::float64, {300, 200}, options);
  Kokkos::deep_copy(StagedRows(name(), 300, 200), filled(300, 200));
  const auto before = conversions();
  std::uint64_t first = 0;
  for (int reader = 0; reader < 3; ++reader) {
    const Columns got("got", 300, 200);
    Kokkos::deep_copy(got, StagedColumns(name(), 300, 200));
    EXPECT_EQ(wrong(got), 0u);
    if (reader == 0) first = conversions();
  }
  EXPECT_GT(first, before);
  EXPECT_EQ(conversions(), first);
}

TEST_F(Views, ThatAreNoArrays) {
  const auto host = filled(3, 4);
  const Kokkos::View<double**, Kokkos::StagingSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> unmanaged(nullptr, 3, 4);
  EXPECT_THAT(message_of([&] { Kokkos::deep_copy(unmanaged, host); }), HasSubstr("unmanaged"));
  const StagedRows staged(name(), 3, 4);
  EXPECT_THAT(message_of([&] {
                Kokkos::deep_copy(Kokkos::subview(staged, 1, Kokkos::ALL), Kokkos::subview(host, 1, Kokkos::ALL));
              }),
              HasSubstr("part of a staging view"));
  EXPECT_NE(message_of([&] { Kokkos::deep_copy(StagedRows("", 3, 4), host); }), "");
}

// Boxes of a 3-dimensional array, cut at random and put in random layouts, against an array in memory.
TEST_F(Views, OfRandomBoxesAreWhatALoopGives) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto between = [&](std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random);
  };
  using Strided = Host<float, 3, Kokkos::LayoutStride>;
  using Box3 = Staged<float, 3, Kokkos::LayoutRight>;
  constexpr Strides orders[] = {Strides::left, Strides::right, Strides::scattered};
  const Index shape{17, 13, 9};
  Kokkos::Staging::space().define(name(), DType::float32, {shape[0], shape[1], shape[2]});
  const auto copy = [&](const Index& origin, const Index& extents, bool put) {
    const Strided host("host", strided(extents, 3, orders[between(0, 2)]));
    const auto staged = make<Box3>(name(), extents);
    bounds(staged, origin);
    if (put) {
      fill(host, origin);
      Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), staged, host);
    } else {
      Kokkos::deep_copy(host, staged);
      EXPECT_EQ(wrong(host, origin), 0u);
    }
  };
  // Two cuts of each dimension give 27 boxes, some of them empty.
  std::array<std::array<std::size_t, 4>, 3> cuts;
  for (std::size_t d = 0; d < 3; ++d) {
    cuts[d] = {0, between(0, shape[d]), between(0, shape[d]), shape[d]};
    std::sort(cuts[d].begin(), cuts[d].end());
  }
  std::vector<Index> boxes;
  for (std::size_t number = 0; number < 27; ++number) boxes.push_back({number / 9, number / 3 % 3, number % 3});
  std::shuffle(boxes.begin(), boxes.end(), random);
  for (const auto& box : boxes) {
    Index origin{}, extents{};
    for (std::size_t d = 0; d < 3; ++d) {
      origin[d] = cuts[d][box[d]];
      extents[d] = cuts[d][box[d] + 1] - origin[d];
    }
    if (extents[0] * extents[1] * extents[2] > 0) copy(origin, extents, true);
  }
  Kokkos::fence();
  for (int number = 0; number < 100; ++number) {
    Index origin{}, extents{};
    for (std::size_t d = 0; d < 3; ++d) {
      origin[d] = between(0, shape[d] - 1);
      extents[d] = between(1, shape[d] - origin[d]);
    }
    copy(origin, extents, false);
  }
}

TEST_F(Views, OfSeveralThreads) {
  std::vector<std::thread> threads;
  std::array<std::size_t, 4> count{};
  for (std::size_t number = 0; number < count.size(); ++number)
    threads.emplace_back([&, number] {
      const StagedRows staged(name(std::to_string(number)), 20, 30);
      const Columns got("got", 20, 30);
      for (std::uint64_t version = 0; version < 10; ++version) {
        Kokkos::Staging::set_version(staged, version);
        Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), staged, filled(20, 30, version));
        Kokkos::deep_copy(got, staged);
        count[number] += wrong(got, {}, version);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(count, testing::Each(0u));
}

}  // namespace
}  // namespace penstock::kokkos_test
