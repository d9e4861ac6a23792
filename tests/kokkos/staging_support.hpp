// What the tests of the staging space share: a pool of two server processes, and views of any rank and layout whose elements say
// where they are.
#pragma once

#include <gmock/gmock.h>

#include <array>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "../conformance/scenario.hpp"
#include "penstock/kokkos.hpp"

namespace penstock::kokkos_test {

// The pool; main() makes it.
class Pool {
 public:
  Pool() {
    for (int number = 0; number < 2; ++number) {
      std::vector<std::string> words{"servers=2"};
      if (number > 0) words.push_back("directory=registered");
      servers_.push_back(std::make_unique<scenario::ServerProcess>(scratch_.path(), words, false));
    }
    for (auto& server : servers_) server->wait_ready();
  }
  const std::string& directory() const { return scratch_.path(); }
  Context context() const {
    ContextOptions options;
    options.directory = directory();
    options.listen = "127.0.0.1";
    return Context(options);
  }
  scenario::ServerProcess& server(std::size_t number) { return *servers_.at(number); }

 private:
  scenario::ScratchDirectory scratch_;
  std::vector<std::unique_ptr<scenario::ServerProcess>> servers_;
};
Pool& pool();

// Each test begins and ends with the staging space as a program does.
class StagingTest : public testing::Test {
 protected:
  void SetUp() override { start(); }
  void TearDown() override { Kokkos::Staging::finalize(); }
  static void start(std::uint32_t timeout_ms = 30'000) {
    PoolOptions options;
    options.timeout_ms = timeout_ms;
    Kokkos::Staging::initialize(pool().context(), options);
  }
  // A name of this test's own.
  static std::string name(const std::string& of = "T") {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string(test->test_suite_name()) + "." + test->name() + "." + of;
  }
};

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

template <class T, unsigned Rank>
struct Pointers {
  using type = typename Pointers<T, Rank - 1>::type*;
};
template <class T>
struct Pointers<T, 0> {
  using type = T;
};
template <class T, unsigned Rank, class Layout>
using Host = Kokkos::View<typename Pointers<T, Rank>::type, Layout, Kokkos::HostSpace>;
template <class T, unsigned Rank, class Layout>
using Staged = Kokkos::View<typename Pointers<T, Rank>::type, Layout, Kokkos::StagingSpace>;

using Index = std::array<std::size_t, 8>;
// Prime to each other where they are neighbours, so that exchanged dimensions are seen.
inline constexpr Index sizes{3, 5, 4, 3, 2, 3, 2, 3};

// Elements next to each other with dimension 0 the fastest, with the last one the fastest, or neither: with gaps, and dimension 0 the
// fastest but for the last one.
enum class Strides { left, right, scattered };

inline Kokkos::LayoutStride strided(const Index& extents, unsigned rank, Strides strides) {
  Kokkos::LayoutStride layout;
  const bool gaps = strides == Strides::scattered;
  std::size_t stride = gaps ? 2 : 1;
  const auto place = [&](unsigned d) {
    layout.dimension[d] = extents[d];
    layout.stride[d] = stride;
    stride *= extents[d] + (gaps ? 1 : 0);
  };
  if (strides == Strides::right)
    for (unsigned d = rank; d-- > 0;) place(d);
  else {
    if (gaps) place(rank - 1);
    for (unsigned d = 0; d + (gaps ? 1 : 0) < rank; ++d) place(d);
  }
  return layout;
}
template <class Layout>
Layout layout(const Index& extents, unsigned rank) {
  if constexpr (std::is_same_v<Layout, Kokkos::LayoutStride>) return strided(extents, rank, Strides::scattered);
  else {
    Layout layout;
    for (unsigned d = 0; d < rank; ++d) layout.dimension[d] = extents[d];
    return layout;
  }
}
template <class View>
View make(const std::string& label, const Index& extents = sizes) {
  return View(label, layout<typename View::array_layout>(extents, unsigned(View::rank)));
}

// As Kokkos's operator() does it, which takes the compiler too long for hundreds of types of views.
template <class View>
auto& at(const View& view, const Index& i) {
  std::size_t offset = 0;
  for (unsigned d = 0; d < unsigned(View::rank); ++d) offset += i[d] * view.stride(d);
  return view.data()[offset];
}
template <class View>
void for_each_index(const View& view, const std::function<void(const Index&)>& body) {
  Index i{};
  if (view.size() == 0) return;
  for (;;) {
    body(i);
    unsigned d = unsigned(View::rank);
    while (d > 0 && ++i[d - 1] == view.extent(d - 1)) i[--d] = 0;
    if (d == 0) return;
  }
}

// The element of an array at an index; `seed` tells arrays apart.
template <class T>
T element(const Index& i, const Index& origin = {}, std::size_t seed = 0) {
  std::size_t number = seed;
  for (std::size_t d = 0; d < 8; ++d) number = number * 7 + i[d] + origin[d];
  if constexpr (std::is_same_v<T, bool>) return number % 3 == 0;
  else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return T{static_cast<std::uint16_t>(number)};
  else if constexpr (requires(T value) { value.imag(); }) return T(number % 1000, -1.0 - number % 100);
  else return static_cast<T>(number % 100'000);
}
template <class View>
void fill(const View& view, const Index& origin = {}, std::size_t seed = 0) {
  for_each_index(view, [&](const Index& i) { at(view, i) = element<typename View::value_type>(i, origin, seed); });
}
// How many elements are not what they are to be.
template <class View>
std::size_t wrong(const View& view, const Index& origin = {}, std::size_t seed = 0) {
  std::size_t count = 0;
  for_each_index(view, [&](const Index& i) {
    if (!(at(view, i) == element<typename View::non_const_value_type>(i, origin, seed))) ++count;
  });
  return count;
}

template <class V>
void bounds(const V& view, const Index& origin) {
  [&]<std::size_t... D>(std::index_sequence<D...>) {
    Kokkos::Staging::set_lower_bound(view, origin[D]...);
    Kokkos::Staging::set_upper_bound(view, (origin[D] + view.extent(D) - 1)...);
  }
  (std::make_index_sequence<unsigned(V::rank)>());
}

// Rows of cells, printed when it goes.
class Table {
 public:
  explicit Table(std::string title) : title_(std::move(title)) {}
  void add(const std::string& row, const std::string& cell) {
    for (auto& [name, cells] : rows_)
      if (name == row) return cells.push_back(cell);
    rows_.push_back({row, {cell}});
  }
  ~Table() {
    std::cout << "\n" << title_ << "\n";
    for (const auto& [name, cells] : rows_) {
      std::cout << "| " << name << std::string(name.size() < 62 ? 62 - name.size() : 0, ' ');
      for (const auto& cell : cells) std::cout << " | " << cell;
      std::cout << " |\n";
    }
    std::cout << std::endl;
  }

 private:
  std::string title_;
  std::vector<std::pair<std::string, std::vector<std::string>>> rows_;
};

}  // namespace penstock::kokkos_test
