// What SAND2021-10271 says of its staging space, in every rank: a row for each point, a column for each rank. Points that have nothing to
// do with ranks are in use_test.cpp and views_test.cpp.
#include <thread>

#include "staging_support.hpp"

namespace penstock::kokkos_test {
namespace {

using Left = Kokkos::LayoutLeft;
using Right = Kokkos::LayoutRight;
using Strided = Kokkos::LayoutStride;

template <unsigned Rank, class Layout>
using HostArray = Host<double, Rank, Layout>;
template <unsigned Rank, class Layout>
using StagedArray = Staged<double, Rank, Layout>;

Index moved(const Index& by) {
  Index origin{};
  for (std::size_t d = 0; d < 8; ++d) origin[d] = by[d] % 4 + 1;
  return origin;
}

class Checklist : public StagingTest {
 protected:
  static inline std::unique_ptr<Table> table;
  static void SetUpTestSuite() {
    table = std::make_unique<Table>(
        "The staging space's points (rows) in ranks 1 to 8 (columns), with elements of float64");
  }
  static void TearDownTestSuite() { table.reset(); }

  // Runs the point in each rank; it gives the number of wrong elements, or says otherwise what is wrong.
  template <class Point>
  static void run(const std::string& row, const Point& point) {
    [&]<unsigned... Rank>(std::integer_sequence<unsigned, Rank...>) { (run_in<Rank + 1>(row, point), ...); }
    (std::make_integer_sequence<unsigned, 8>());
  }
  template <unsigned Rank, class Point>
  static void run_in(const std::string& row, const Point& point) {
    SCOPED_TRACE("rank " + std::to_string(Rank));
    const auto array = name(std::to_string(Rank));
    const std::size_t count = point(std::integral_constant<unsigned, Rank>(), array);
    EXPECT_EQ(count, 0u);
    table->add(row, count == 0 && !HasFailure() ? "ok" : "--");
  }
  template <unsigned Rank, class From, class Staging>
  static void put(const std::string& array, const Index& extents = sizes, const Index& origin = {},
                  std::uint64_t version = 0) {
    const auto host = make<HostArray<Rank, From>>("host", extents);
    fill(host, origin, version);
    const auto staged = make<StagedArray<Rank, Staging>>(array, extents);
    Kokkos::Staging::set_version(staged, version);
    if (origin != Index{}) bounds(staged, origin);
    Kokkos::deep_copy(staged, host);
  }
  template <unsigned Rank, class To, class Staging>
  static std::size_t get(const std::string& array, const Index& extents = sizes, const Index& origin = {},
                         std::uint64_t version = 0) {
    const auto host = make<HostArray<Rank, To>>("host", extents);
    const auto staged = make<StagedArray<Rank, Staging>>(array, extents);
    Kokkos::Staging::set_version(staged, version);
    if (origin != Index{}) bounds(staged, origin);
    Kokkos::deep_copy(host, staged);
    return wrong(host, origin, version);
  }
};

TEST_F(Checklist, LabelNamesTheArray) {
  run("the label names the array, the first put defines it", [](auto rank, const std::string& array) {
    put<rank, Right, Right>(array);
    const auto info = Kokkos::Staging::space().info(array);
    EXPECT_EQ(info.shape, Dims(std::vector<std::uint64_t>(sizes.begin(), sizes.begin() + rank)));
    EXPECT_EQ(info.dtype, DType::float64);
    return get<rank, Right, Right>(array);
  });
}

TEST_F(Checklist, LayoutIsTheHostsUnlessGiven) {
  run("the layout is the host's unless it is given", [](auto rank, const std::string& array) {
    using Default = Kokkos::View<typename Pointers<double, rank>::type, Kokkos::StagingSpace>;
    using HostDefault = Kokkos::View<typename Pointers<double, rank>::type, Kokkos::HostSpace>;
    static_assert(std::is_same_v<typename Default::array_layout, typename HostDefault::array_layout>);
    static_assert(std::is_same_v<typename StagedArray<rank, Left>::array_layout, Left>);
    const auto staged = make<Default>(array);
    const auto host = make<HostDefault>("host");
    fill(host);
    Kokkos::deep_copy(staged, host);
    Kokkos::deep_copy(host, 0.0);
    Kokkos::deep_copy(host, staged);
    return wrong(host);
  });
}

TEST_F(Checklist, VersionIsZeroUnlessSet) {
  run("set_version: 0 unless it is set; versions are apart", [](auto rank, const std::string& array) {
    put<rank, Right, Right>(array);
    put<rank, Right, Right>(array, sizes, {}, 41);
    EXPECT_EQ(Kokkos::Staging::space().versions(array), (std::vector<std::uint64_t>{0, 41}));
    return get<rank, Right, Right>(array) + get<rank, Right, Right>(array, sizes, {}, 41);
  });
}

TEST_F(Checklist, BoundsAreThoseOfTheBox) {
  run("set_lower_bound, set_upper_bound: inclusive, of the array", [](auto rank, const std::string& array) {
    const auto origin = moved(sizes);
    put<rank, Right, Right>(array, sizes, origin);
    const auto blocks = Kokkos::Staging::space().blocks(array, 0);
    Dims shape = Dims::filled(rank, 0);
    for (std::size_t d = 0; d < rank; ++d) shape[d] = origin[d] + sizes[d];
    EXPECT_EQ(Kokkos::Staging::space().info(array).shape, shape);
    std::uint64_t elements = 0, expected = 1;
    for (const auto& block : blocks) elements += element_count(block.box.count);
    for (std::size_t d = 0; d < rank; ++d) expected *= sizes[d];
    EXPECT_EQ(elements, expected);
    return get<rank, Right, Right>(array, sizes, origin);
  });
}

TEST_F(Checklist, PutFreesTheSource) {
  run("deep_copy(staging, host): the source is free on return", [](auto rank, const std::string& array) {
    const auto host = make<HostArray<rank, Right>>("host");
    fill(host);
    Kokkos::deep_copy(make<StagedArray<rank, Right>>(array), host);
    Kokkos::deep_copy(host, -1.0);
    return get<rank, Right, Right>(array);
  });
}

TEST_F(Checklist, PutGoesOnUntilTheFence) {
  run("deep_copy(exec, staging, host): done at the fence", [](auto rank, const std::string& array) {
    {
      const auto host = make<HostArray<rank, Left>>("host");
      fill(host);
      Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), make<StagedArray<rank, Right>>(array), host);
    }  // it is kept
    Kokkos::fence();
    const auto box = Kokkos::Staging::space().blocks(array, 0);
    EXPECT_FALSE(box.empty());
    return get<rank, Right, Right>(array);
  });
}

TEST_F(Checklist, GetWaitsForAllElements) {
  run("deep_copy(host, staging) waits until all elements are there", [](auto rank, const std::string& array) {
    auto upper = sizes;
    upper[0] += 2;
    Index origin{};
    origin[0] = sizes[0];
    auto rest = sizes;
    rest[0] = 2;
    const auto whole = make<StagedArray<rank, Right>>(array, upper);
    Kokkos::Staging::space().define(array, DType::float64, Kokkos::Staging::detail::extents(whole));
    put<rank, Right, Right>(array);
    std::thread later([&] { put<rank, Left, Right>(array, rest, origin); });
    const std::size_t count = get<rank, Right, Right>(array, upper);
    later.join();
    return count;
  });
}

TEST_F(Checklist, ViewBindLayout) {
  run("view_bind_layout: another layout under another label", [](auto rank, const std::string& array) {
    put<rank, Right, Right>(array);
    const auto staged = make<StagedArray<rank, Right>>(array);
    const auto other = make<StagedArray<rank, Left>>(array + ".columns");
    Kokkos::Staging::view_bind_layout(other, staged);
    const auto host = make<HostArray<rank, Left>>("host");
    Kokkos::deep_copy(host, other);
    return wrong(host);
  });
}

TEST_F(Checklist, LayoutsToLayouts) {
  run("Left, Right, Stride to Left, Right, Stride: nine pairs", [](auto rank, const std::string& array) {
    std::uint64_t version = 0;
    std::size_t count = 0;
    const auto from = [&]<class Layout>(std::type_identity<Layout>) {
      put<rank, Layout, Right>(array, sizes, {}, version);
      count += get<rank, Left, Right>(array, sizes, {}, version);
      count += get<rank, Right, Left>(array, sizes, {}, version);
      count += get<rank, Strided, Right>(array, sizes, {}, version);
      ++version;
    };
    from(std::type_identity<Left>());
    from(std::type_identity<Right>());
    from(std::type_identity<Strided>());
    return count;
  });
}

TEST_F(Checklist, PartsOfViews) {
  run("subviews with gaps are put and got, and nothing beside them", [](auto rank, const std::string& array) {
    auto larger = sizes;
    for (auto& n : larger) n += 3;
    const auto source = make<HostArray<rank, Right>>("source", larger);
    const auto target = make<HostArray<rank, Left>>("target", larger);
    Kokkos::deep_copy(source, -1.0);
    Kokkos::deep_copy(target, -2.0);
    const auto inside = []<class View>(const View& view) {
      return [&]<std::size_t... D>(std::index_sequence<D...>) {
        return Kokkos::subview(view, std::make_pair(std::size_t{1}, 1 + sizes[D])...);
      }
      (std::make_index_sequence<unsigned(View::rank)>());
    };
    fill(inside(source));
    const auto staged = make<StagedArray<rank, Right>>(array);
    Kokkos::deep_copy(staged, inside(source));
    Kokkos::deep_copy(inside(target), staged);
    std::size_t untouched = 0;
    for_each_index(target, [&](const Index& i) { untouched += at(target, i) == -2.0 ? 1 : 0; });
    EXPECT_EQ(untouched, target.size() - staged.size());
    return wrong(inside(target));
  });
}

TEST_F(Checklist, SubsetsAreRead) {
  run("a part of what was put is got", [](auto rank, const std::string& array) {
    put<rank, Right, Right>(array);
    Index origin{}, extents = sizes;
    for (std::size_t d = 0; d < rank; ++d) {
      origin[d] = sizes[d] > 2 ? 1 : 0;
      extents[d] = 2;
    }
    return get<rank, Right, Right>(array, extents, origin) + get<rank, Left, Left>(array, extents, origin) +
           get<rank, Strided, Right>(array, extents, origin);
  });
}

}  // namespace
}  // namespace penstock::kokkos_test
