// The staging space as programs use it: parts of arrays and of views, puts that end at the fence, errors.
#include <thread>

#include "staging_support.hpp"

namespace penstock::kokkos_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Rows = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Columns = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
using StagedRows = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::StagingSpace>;
using StagedColumns = Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::StagingSpace>;

class Use : public StagingTest {
 protected:
  static Rows filled(std::size_t rows, std::size_t columns, std::size_t seed = 0) {
    Rows view("host", rows, columns);
    fill(view, {}, seed);
    return view;
  }
  static Errc code_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::ok;
  }
  // Waits for one second at most in what is called.
  static void start_impatient() {
    Kokkos::Staging::finalize();
    start(1'000);
  }
};

// Two programs put halves of one array, each its own local view; whoever is first defines the whole.
TEST_F(Use, ProgramsPutPartsOfOneArray) {
  const auto array = name();
  const auto put = [&](std::size_t first) {
    const StagedRows staged(array, 8, 5);
    Kokkos::Staging::define(staged, 16, 5);
    Kokkos::Staging::set_lower_bound(staged, first, 0);
    const Rows part("part", 8, 5);
    fill(part, Index{first});
    Kokkos::deep_copy(staged, part);
  };
  put(8);
  std::thread other([&] { put(0); });
  const Columns whole("whole", 16, 5);
  Kokkos::deep_copy(whole, StagedColumns(array, 16, 5));
  other.join();
  EXPECT_EQ(wrong(whole), 0u);
}

TEST_F(Use, ExtentsOfTheTypeCount) {
  const auto array = name();
  const Kokkos::View<int* [3][2], Kokkos::StagingSpace> staged(array, 4);
  const Kokkos::View<int* [3][2], Kokkos::LayoutLeft, Kokkos::HostSpace> from("from", 4);
  const Kokkos::View<int***, Kokkos::LayoutRight, Kokkos::HostSpace> to("to", 4, 3, 2);
  fill(from);
  Kokkos::deep_copy(staged, from);
  Kokkos::deep_copy(to, staged);
  EXPECT_EQ(wrong(to), 0u);
}

TEST_F(Use, CopiesOfAViewShareVersionAndBounds) {
  const StagedRows staged(name(), 3, 4);
  const auto copy = staged;
  Kokkos::Staging::set_version(copy, 5);
  Kokkos::Staging::set_lower_bound(copy, 1, 1);
  Kokkos::deep_copy(staged, filled(3, 4));
  EXPECT_EQ(Kokkos::Staging::space().versions(name()), std::vector<std::uint64_t>{5});
  EXPECT_EQ(Kokkos::Staging::space().info(name()).shape, (Dims{4, 5}));
}

// Rows, columns and every second element of larger views: their gaps are neither read nor written.
TEST_F(Use, PartsWithGaps) {
  const auto larger = filled(9, 12);
  const auto every = std::make_pair(2, 8);
  const auto inside = Kokkos::subview(larger, every, std::make_pair(3, 11));
  const StagedRows staged(name("box"), 6, 8);
  Kokkos::deep_copy(staged, inside);
  const Columns all("all", 10, 12);
  for_each_index(all, [&](const Index& i) { at(all, i) = -1; });
  const auto part = Kokkos::subview(all, std::make_pair(1, 7), std::make_pair(2, 10));
  Kokkos::deep_copy(part, staged);
  EXPECT_EQ(wrong(part, Index{2, 3}), 0u);
  std::size_t untouched = 0;
  for_each_index(all, [&](const Index& i) { untouched += at(all, i) == -1 ? 1 : 0; });
  EXPECT_EQ(untouched, 120u - 48u);

  // A column of rows has a stride in its only dimension.
  const auto column = Kokkos::subview(larger, Kokkos::ALL, 7);
  const Kokkos::View<double*, Kokkos::StagingSpace> line(name("line"), 9);
  Kokkos::deep_copy(line, column);
  const Kokkos::View<double*, Kokkos::HostSpace> got("got", 9);
  Kokkos::deep_copy(got, line);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(got(i), larger(i, 7));
}

TEST_F(Use, PutsEndAtTheFence) {
  constexpr std::uint64_t versions = 20;
  const Kokkos::DefaultHostExecutionSpace exec;
  const StagedColumns staged(name(), 50, 40);
  for (std::uint64_t version = 0; version < versions; ++version) {
    Kokkos::Staging::set_version(staged, version);
    Kokkos::deep_copy(exec, staged, filled(50, 40, version));  // nobody else has the source
  }
  Kokkos::fence();
  const Rows got("got", 50, 40);
  for (std::uint64_t version = 0; version < versions; ++version) {
    Kokkos::Staging::set_version(staged, version);
    Kokkos::deep_copy(got, staged);
    EXPECT_EQ(wrong(got, {}, version), 0u) << version;
  }
}

TEST_F(Use, ErrorsOfPutsThatGoOnAreThoseOfTheFence) {
  const Kokkos::DefaultHostExecutionSpace exec;
  const StagedRows staged(name(), 3, 4);
  Kokkos::deep_copy(staged, filled(3, 4));
  Kokkos::deep_copy(exec, staged, filled(3, 4));  // the same values
  EXPECT_NO_THROW(Kokkos::Staging::fence());
  for (const bool whole : {true, false}) {
    const auto fence = [&] { whole ? Kokkos::fence() : Kokkos::Staging::fence(); };
    EXPECT_NO_THROW(Kokkos::deep_copy(exec, staged, filled(3, 4, 1)));
    EXPECT_EQ(code_of(fence), Errc::already_exists);
    EXPECT_NO_THROW(fence()) << "an error is thrown once";
  }
  Kokkos::deep_copy(exec, staged, filled(3, 4, 2));
  EXPECT_EQ(code_of(Kokkos::Staging::finalize), Errc::already_exists);
  start();  // it had ended all the same
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(staged, filled(3, 4, 3)); }), Errc::already_exists);
}

TEST_F(Use, BoundsThatDoNotFit) {
  const StagedRows staged(name(), 3, 4);
  const auto host = filled(3, 4);
  const auto copy = [&] { Kokkos::deep_copy(staged, host); };
  Kokkos::Staging::set_upper_bound(staged, 2, 4);
  EXPECT_EQ(code_of(copy), Errc::invalid_argument);
  EXPECT_THAT(message_of(copy), AllOf(HasSubstr(name()), HasSubstr("dimension 1, 0 to 4"), HasSubstr("extent 4")));
  Kokkos::Staging::set_lower_bound(staged, 0, 1);
  EXPECT_NO_THROW(copy());
  Kokkos::Staging::set_lower_bound(staged, 3, 1);  // above the upper bound
  EXPECT_EQ(code_of(copy), Errc::invalid_argument);
  EXPECT_THAT(message_of([&] { Kokkos::Staging::set_lower_bound(staged, -1, 0); }), HasSubstr("negative"));
  // The array is defined by now, as 3 x 5.
  Kokkos::Staging::set_lower_bound(staged, 0, 2);
  Kokkos::Staging::set_upper_bound(staged, 2, 5);
  EXPECT_EQ(code_of(copy), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(host, staged); }), Errc::invalid_argument);
}

TEST_F(Use, ViewsThatDoNotFit) {
  const StagedRows staged(name(), 3, 4);
  const auto why = message_of([&] { Kokkos::deep_copy(staged, filled(4, 3)); });
  EXPECT_THAT(why, AllOf(HasSubstr(name()), HasSubstr("extents")));
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(filled(3, 5), staged); }), Errc::invalid_argument);
  const StagedRows other(name("other"), 4, 4);
  EXPECT_EQ(code_of([&] { Kokkos::Staging::view_bind_layout(other, staged); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(StagedRows(), filled(3, 4)); }), Errc::invalid_argument);
  Kokkos::deep_copy(staged, filled(3, 4));
  const auto part = Kokkos::subview(staged, std::make_pair(0, 2), Kokkos::ALL);
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(part, filled(2, 4)); }), Errc::unsupported);
  // The array has elements of another type: a get converts, a put does not define it anew.
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> floats("floats", 3, 4);
  const Kokkos::View<float**, Kokkos::StagingSpace> single(name(), 3, 4);
  Kokkos::deep_copy(floats, single);
  EXPECT_EQ(wrong(floats), 0u);
}

TEST_F(Use, WhatIsNotThereIsWaitedFor) {
  start_impatient();
  const Rows host("host", 3, 4);
  const StagedRows unknown(name("nobody puts this"), 3, 4);
  const auto get = [&] { Kokkos::deep_copy(host, unknown); };
  EXPECT_EQ(code_of(get), Errc::timeout);
  EXPECT_THAT(message_of(get), AllOf(HasSubstr("nobody puts this"), HasSubstr("not defined")));

  const StagedRows upper(name("half"), 3, 4);
  Kokkos::Staging::define(upper, 6, 4);
  Kokkos::deep_copy(upper, filled(3, 4));
  const Rows whole("whole", 6, 4);
  EXPECT_THAT(message_of([&] { Kokkos::deep_copy(whole, StagedRows(name("half"), 6, 4)); }), HasSubstr("[3, 6)"));
  Kokkos::Staging::set_version(upper, 1);  // of which nobody has put anything
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(host, upper); }), Errc::timeout);
}

TEST_F(Use, BeginsAndEndsOnce) {
  EXPECT_EQ(code_of([] { start(); }), Errc::wrong_state);
  const StagedRows staged(name(), 3, 4);
  Kokkos::Staging::finalize();
  EXPECT_EQ(code_of(Kokkos::Staging::finalize), Errc::wrong_state);
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(staged, filled(3, 4)); }), Errc::wrong_state);
  EXPECT_EQ(code_of([&] { Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), staged, filled(3, 4)); }),
            Errc::wrong_state);
  EXPECT_NO_THROW(Kokkos::fence());
  start();
  EXPECT_NO_THROW(Kokkos::deep_copy(staged, filled(3, 4)));  // a view outlives it
}

TEST_F(Use, EmptyViews) {
  const StagedRows staged(name(), 0, 4);
  Kokkos::deep_copy(staged, filled(0, 4));
  Kokkos::deep_copy(filled(0, 4), staged);
  EXPECT_EQ(code_of([&] { Kokkos::Staging::space().info(name()); }), Errc::not_found);
}

// 4 TiB: more than there is memory.
TEST_F(Use, AStagingViewTakesNoMemory) {
  // 512 GiB: more than there is, and less than the addresses that the thread sanitizer leaves to a program (1.5 TiB).
  const StagedRows staged(name(), std::size_t{1} << 18, std::size_t{1} << 18);
  EXPECT_EQ(staged.size(), std::size_t{1} << 36);
  static_assert(!Kokkos::SpaceAccessibility<Kokkos::HostSpace, Kokkos::StagingSpace>::accessible);
}

}  // namespace
}  // namespace penstock::kokkos_test
