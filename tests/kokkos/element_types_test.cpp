// Every element type in every rank, from each order of strides to each: nine copies through the pool for a cell of the table. The
// order is that of strides here, and not of layout types, which take the compiler too long (checklist_test.cpp has those).
#include "staging_support.hpp"

namespace penstock::kokkos_test {
namespace {

class ElementTypes : public StagingTest {
 protected:
  static inline std::unique_ptr<Table> table;
  static void SetUpTestSuite() {
    table = std::make_unique<Table>(
        "Element types (rows) in ranks 1 to 8 (columns): of the 9 pairs of orders (left, right, scattered) to (left, "
        "right, "
        "scattered), those with every element right");
  }
  static void TearDownTestSuite() { table.reset(); }

  template <class T, unsigned Rank>
  static void copy_rank() {
    using View = Host<T, Rank, Kokkos::LayoutStride>;
    constexpr Strides orders[] = {Strides::left, Strides::right, Strides::scattered};
    const auto staged = make<Staged<T, Rank, Kokkos::LayoutRight>>(name(std::to_string(Rank)));
    const auto copy = [&](Strides order, std::uint64_t version, const auto& body) {
      const View host("host", strided(sizes, Rank, order));
      Kokkos::Staging::set_version(staged, version);
      body(host);
    };
    for (std::uint64_t version = 0; version < 3; ++version)
      copy(orders[version], version, [&](const View& host) {
        fill(host, {}, version);
        Kokkos::deep_copy(staged, host);
      });
    int pairs = 0;
    for (std::uint64_t version = 0; version < 3; ++version)
      for (const auto order : orders)
        copy(order, version, [&](const View& host) {
          Kokkos::deep_copy(host, staged);
          if (wrong(host, {}, version) == 0) ++pairs;
        });
    const auto info = Kokkos::Staging::space().info(staged.label());
    EXPECT_EQ(info.dtype, Kokkos::Staging::detail::element_type<T>());
    EXPECT_EQ(pairs, 9) << name_of(info.dtype) << ", rank " << Rank;
    table->add(std::string(name_of(info.dtype)), std::to_string(pairs));
    EXPECT_TRUE(Kokkos::Staging::space().drop(info.name));
  }
  template <class T>
  static void copy() {
    [&]<unsigned... Rank>(std::integer_sequence<unsigned, Rank...>) { (copy_rank<T, Rank + 1>(), ...); }
    (std::make_integer_sequence<unsigned, 8>());
  }
};

TEST_F(ElementTypes, Boolean) { copy<bool>(); }
TEST_F(ElementTypes, Integer8) { copy<std::int8_t>(), copy<std::uint8_t>(); }
TEST_F(ElementTypes, Integer16) { copy<std::int16_t>(), copy<std::uint16_t>(); }
TEST_F(ElementTypes, Integer32) { copy<std::int32_t>(), copy<std::uint32_t>(); }
TEST_F(ElementTypes, Integer64) { copy<std::int64_t>(), copy<std::uint64_t>(); }
TEST_F(ElementTypes, Float16) { copy<float16>(), copy<bfloat16>(); }
TEST_F(ElementTypes, Float) { copy<float>(), copy<double>(); }
TEST_F(ElementTypes, Complex) { copy<Kokkos::complex<float>>(), copy<Kokkos::complex<double>>(); }

}  // namespace
}  // namespace penstock::kokkos_test
