#include "memory/kind.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "penstock/error.hpp"

namespace penstock::memory {

namespace {

// What is used of CUDA's driver, as its interface is published (docs.nvidia.com/cuda/cuda-driver-api).
struct Cuda {
  using Address = unsigned long long;  // CUdeviceptr
  using Context = void*;
  static constexpr int context_attribute = 1, type_attribute = 2, managed_attribute = 8, ordinal_attribute = 9;
  static constexpr unsigned host_type = 1, device_type = 2;

  int (*get_attribute)(void* value, int attribute, Address address);
  int (*push_context)(Context context);
  int (*pop_context)(Context* context);
  int (*retain_context)(Context* context, int device);
  int (*release_context)(int device);
  int (*from_device)(void* to, Address from, std::size_t bytes);
  int (*to_device)(Address to, const void* from, std::size_t bytes);  // may return before the data is there
  int (*wait_for)(void* stream);

  // Leaves the function alone, and returns false, where the library does not have it.
  template <class F>
  static bool find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    return function != nullptr;
  }
  bool find_all(void* library) {
    return find(library, "cuPointerGetAttribute", get_attribute) &&
           find(library, "cuCtxPushCurrent_v2", push_context) && find(library, "cuCtxPopCurrent_v2", pop_context) &&
           find(library, "cuDevicePrimaryCtxRetain", retain_context) &&
           find(library, "cuDevicePrimaryCtxRelease_v2", release_context) &&
           find(library, "cuMemcpyDtoH_v2", from_device) && find(library, "cuMemcpyHtoD_v2", to_device) &&
           find(library, "cuStreamSynchronize", wait_for);
  }
};

// How many libraries the process has ever loaded.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;
      },
      &loaded);
  return loaded;
}

std::atomic<const Cuda*> found{nullptr};
const Cuda* cuda_found() { return found.load(std::memory_order_acquire); }

// Null where the process has no CUDA. A search costs as much as opening a file: it is repeated only after a library was loaded.
const Cuda* cuda() {
  static std::atomic<unsigned long long> searched{0};
  if (const auto* have = cuda_found()) return have;
  const auto loaded = libraries_loaded();
  if (searched.load(std::memory_order_relaxed) == loaded) return nullptr;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const auto* have = cuda_found()) return have;
  if (void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
    static Cuda driver;
    if (driver.find_all(library)) found.store(&driver, std::memory_order_release);
  }
  searched.store(loaded, std::memory_order_relaxed);
  return cuda_found();
}

Cuda::Address address_of(const void* memory) { return reinterpret_cast<Cuda::Address>(memory); }

void require(int result, const char* what) {
  if (result != 0) throw Error(Errc::system, std::string("CUDA: ") + what + ": error " + std::to_string(result));
}

// The context of a device's memory, current in this thread as long as this lives. Memory of a pool, or of mapped pieces, belongs to
// no context: then it is the device's primary one.
class Current {
 public:
  Current(const Cuda& driver, const void* memory) : cuda_(driver) {
    Cuda::Context context = nullptr;
    const int result = cuda_.get_attribute(&context, Cuda::context_attribute, address_of(memory));
    if (result != 0 || context == nullptr) {
      require(cuda_.get_attribute(&device_, Cuda::ordinal_attribute, address_of(memory)), "memory without a device");
      require(cuda_.retain_context(&context, device_), "no context");
      retained_ = true;
    }
    if (const int result = cuda_.push_context(context); result != 0) {
      release();
      require(result, "no context");
    }
  }
  ~Current() {
    Cuda::Context context = nullptr;
    cuda_.pop_context(&context);
    release();
  }

 private:
  void release() {
    if (retained_) cuda_.release_context(device_);
  }
  const Cuda& cuda_;
  int device_ = 0;
  bool retained_ = false;
};

}  // namespace

bool devices_here(base::Clock::time_point now) {
  static std::atomic<base::Clock::rep> look_again{0};
  const auto time = now.time_since_epoch();
  if (time.count() >= look_again.load(std::memory_order_relaxed)) {
    look_again.store(base::Clock::duration(time + std::chrono::microseconds(100)).count(), std::memory_order_relaxed);
    cuda();
  }
  return devices_seen();
}

bool devices_seen() { return cuda_found() != nullptr; }

Kind kind_of(const void* address) {
  const auto* driver = cuda();
  if (driver == nullptr || address == nullptr) return Kind::host;
  unsigned type = 0, managed = 0;
  // Memory that CUDA does not know is an error to it.
  if (driver->get_attribute(&type, Cuda::type_attribute, address_of(address)) != 0) return Kind::host;
  if (type == Cuda::host_type) return Kind::pinned;
  if (type != Cuda::device_type) return Kind::host;
  const bool both = driver->get_attribute(&managed, Cuda::managed_attribute, address_of(address)) == 0 && managed != 0;
  return both ? Kind::host : Kind::device;
}

void copy_in(void* to, const void* callers, std::size_t bytes) {
  if (bytes == 0) return;
  if (!on_device(callers)) {
    std::memcpy(to, callers, bytes);
    return;
  }
  const Current current(*cuda(), callers);
  require(cuda()->from_device(to, address_of(callers), bytes), "memory could not be copied from the device");
}

void copy_out(void* callers, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (!on_device(callers)) {
    std::memcpy(callers, from, bytes);
    return;
  }
  const Current current(*cuda(), callers);
  require(cuda()->to_device(address_of(callers), from, bytes), "memory could not be copied to the device");
  require(cuda()->wait_for(nullptr), "memory could not be copied to the device");
}

void wait_for_stream(const void* memory, void* stream) {
  if (!on_device(memory)) throw Error(Errc::invalid_argument, "CUDA: the memory is on no device");
  const Current current(*cuda(), memory);
  require(cuda()->wait_for(stream), "a stream could not be waited for");
}

}  // namespace penstock::memory
