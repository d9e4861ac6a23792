// For tests with a device's memory: CUDA's driver, or the double of it (cuda_double.cpp), which stands in for it unless
// PENSTOCK_TEST_CUDA is set.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::memory {

class Device {
 public:
  // Throws std::runtime_error where there is none.
  static Device& get() {
    static Device device;
    return device;
  }
  template <class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    const int result = function != nullptr ? function(arguments...) : -1;
    if (result != 0) throw std::runtime_error(std::string(name) + ": " + std::to_string(result));
  }
  void* context() const { return context_; }
  void* stream() const { return stream_; }

 private:
  Device() {
    const char* file = std::getenv("PENSTOCK_TEST_CUDA") != nullptr ? "libcuda.so.1" : PENSTOCK_CUDA_DOUBLE;
    library_ = ::dlopen(file, RTLD_NOW);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    call("cuInit", 0u);
    call("cuDevicePrimaryCtxRetain", &context_, 0);
    call("cuCtxPushCurrent_v2", context_);
    constexpr unsigned non_blocking = 1;
    call("cuStreamCreate", &stream_, non_blocking);
    void* popped = nullptr;
    call("cuCtxPopCurrent_v2", &popped);
  }
  void* library_ = nullptr;
  void* context_ = nullptr;
  void* stream_ = nullptr;
};

// Bytes of the kind that a function of the driver allocates: cuMemAlloc_v2, cuMemAllocManaged, cuMemAllocAsync, cuMemHostAlloc.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, const std::string& how = "cuMemAlloc_v2") : bytes_(bytes), how_(how) {
    const auto& device = Device::get();
    device.call("cuCtxPushCurrent_v2", device.context());
    if (how == "cuMemAlloc_v2") device.call("cuMemAlloc_v2", &address_, bytes);
    else if (how == "cuMemAllocManaged") device.call("cuMemAllocManaged", &address_, bytes, 1u);
    else if (how == "cuMemAllocAsync") device.call("cuMemAllocAsync", &address_, bytes, static_cast<void*>(nullptr));
    else device.call("cuMemHostAlloc", reinterpret_cast<void**>(&address_), bytes, 0u);
    leave();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    const auto& device = Device::get();
    device.call("cuCtxPushCurrent_v2", device.context());
    if (how_ == "cuMemHostAlloc") device.call("cuMemFreeHost", static_cast<void*>(data()));
    else device.call("cuMemFree_v2", address_);
    leave();
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  std::span<std::byte> span() const { return {data(), bytes_}; }
  void write(std::span<const std::byte> bytes) const {
    const auto& device = Device::get();
    device.call("cuCtxPushCurrent_v2", device.context());
    device.call("cuMemcpyHtoD_v2", address_, static_cast<const void*>(bytes.data()), bytes.size());
    device.call("cuStreamSynchronize", static_cast<void*>(nullptr));
    leave();
  }
  // In a stream that waits for no other.
  std::vector<std::byte> read() const {
    std::vector<std::byte> out(bytes_);
    const auto& device = Device::get();
    device.call("cuCtxPushCurrent_v2", device.context());
    device.call("cuMemcpyDtoHAsync_v2", static_cast<void*>(out.data()), address_, bytes_, device.stream());
    device.call("cuStreamSynchronize", device.stream());
    leave();
    return out;
  }

 private:
  static void leave() {
    void* context = nullptr;
    Device::get().call("cuCtxPopCurrent_v2", &context);
  }
  const std::size_t bytes_;
  const std::string how_;
  unsigned long long address_ = 0;
};

}  // namespace penstock::memory
