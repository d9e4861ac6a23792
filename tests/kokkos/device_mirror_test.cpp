// Views that the host cannot touch go through a mirror. There is no device here: a memory space of this test stands in for one.
#include "fake_device.hpp"
#include "staging_support.hpp"

namespace penstock::kokkos_test {
namespace {

class DeviceMirror : public StagingTest {
 protected:
  template <class Layout>
  using Device = Kokkos::View<double***, Layout, FakeDevice>;
  using HostRows = Host<double, 3, Kokkos::LayoutRight>;
  static_assert(!Kokkos::Staging::detail::on_host<Device<Kokkos::LayoutLeft>>);

  // What the test does on the device: elements are copied by a kernel.
  template <class To, class From>
  static void copy_elements(const To& to, const From& from) {
    for_each_index(to, [&](const Index& i) { at(to, i) = at(from, i); });
  }
  template <class To, class From>
  static void round_trip(const To& to, const From& from, const std::string& array) {
    const auto values = make<HostRows>("values");
    fill(values);
    copy_elements(from, values);
    const auto staged = make<Staged<double, 3, Kokkos::LayoutRight>>(array);
    const int in = FakeDevice::copies_in, out = FakeDevice::copies_out;
    Kokkos::deep_copy(staged, from);
    EXPECT_EQ(FakeDevice::copies_out, out + 1);
    Kokkos::deep_copy(to, staged);
    EXPECT_EQ(FakeDevice::copies_in, in + 1);
    EXPECT_EQ(wrong(to), 0u);

    Kokkos::Staging::set_version(staged, 1);
    Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), staged, from);
    copy_elements(from, make<HostRows>("zeros"));  // the mirror is what is read
    Kokkos::Staging::fence();
    copy_elements(to, make<HostRows>("zeros"));
    Kokkos::deep_copy(Kokkos::DefaultHostExecutionSpace(), to, staged);
    EXPECT_EQ(wrong(to), 0u);
  }
};

TEST_F(DeviceMirror, WholeViews) {
  round_trip(make<Device<Kokkos::LayoutLeft>>("to"), make<Device<Kokkos::LayoutRight>>("from"), name("a"));
  round_trip(make<Device<Kokkos::LayoutRight>>("to"), make<Device<Kokkos::LayoutLeft>>("from"), name("b"));
  round_trip(make<Device<Kokkos::LayoutStride>>("to"), make<Device<Kokkos::LayoutStride>>("from"), name("c"));
}

TEST_F(DeviceMirror, PartsOfViews) {
  auto larger = sizes;
  for (auto& n : larger) n += 2;
  const auto inside = [](const auto& view) {
    const auto range = [](std::size_t d) { return std::make_pair(std::size_t{1}, 1 + sizes[d]); };
    return Kokkos::subview(view, range(0), range(1), range(2));
  };
  round_trip(inside(make<Device<Kokkos::LayoutLeft>>("to", larger)),
             inside(make<Device<Kokkos::LayoutRight>>("from", larger)), name());
}

}  // namespace
}  // namespace penstock::kokkos_test
