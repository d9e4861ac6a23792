// A memory space that stands in for a device's: the host may not touch its views, and Kokkos copies to and from it byte by byte. Its
// kernels run on the host, so that what a device's views go through can be run without a device.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdlib>
#include <cstring>
#include <string>

namespace penstock::kokkos_test {

class FakeDevice {
 public:
  using memory_space = FakeDevice;
  using execution_space = Kokkos::DefaultHostExecutionSpace;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using size_type = std::size_t;
  static constexpr const char* name() { return "FakeDevice"; }
  inline static int copies_in = 0, copies_out = 0;
};

}  // namespace penstock::kokkos_test

// Kernels reach its memory; the host, which is a memory space here, does not.
template <>
struct Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, penstock::kokkos_test::FakeDevice> {
  enum : bool { assignable = false, accessible = true, deepcopy = true };
  using space = Kokkos::Device<Kokkos::DefaultHostExecutionSpace, penstock::kokkos_test::FakeDevice>;
};

namespace Kokkos::Impl {

template <>
class SharedAllocationRecord<penstock::kokkos_test::FakeDevice, void> : public SharedAllocationRecord<void, void> {
 public:
  std::string get_label() const override { return label_; }
  ~SharedAllocationRecord() override { std::free(m_alloc_ptr); }

 protected:
  SharedAllocationRecord(const penstock::kokkos_test::FakeDevice&, const std::string& label, std::size_t bytes,
                         function_type deallocate)
      : SharedAllocationRecord<void, void>(
            static_cast<SharedAllocationHeader*>(std::malloc(bytes + sizeof(SharedAllocationHeader))),
            bytes + sizeof(SharedAllocationHeader), deallocate),
        label_(label) {}

 private:
  const std::string label_;
};

template <class Exec>
struct DeepCopy<penstock::kokkos_test::FakeDevice, HostSpace, Exec> {
  DeepCopy(void* to, const void* from, std::size_t bytes) {
    ++penstock::kokkos_test::FakeDevice::copies_in;
    std::memcpy(to, from, bytes);
  }
  DeepCopy(const Exec&, void* to, const void* from, std::size_t bytes) : DeepCopy(to, from, bytes) {}
};
template <class Exec>
struct DeepCopy<HostSpace, penstock::kokkos_test::FakeDevice, Exec> {
  DeepCopy(void* to, const void* from, std::size_t bytes) {
    ++penstock::kokkos_test::FakeDevice::copies_out;
    std::memcpy(to, from, bytes);
  }
  DeepCopy(const Exec&, void* to, const void* from, std::size_t bytes) : DeepCopy(to, from, bytes) {}
};
template <class Exec>
struct DeepCopy<penstock::kokkos_test::FakeDevice, penstock::kokkos_test::FakeDevice, Exec> {
  DeepCopy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  DeepCopy(const Exec&, void* to, const void* from, std::size_t bytes) : DeepCopy(to, from, bytes) {}
};

}  // namespace Kokkos::Impl
