// In place of CUDA's driver, for tests on machines without a GPU: written from its published interface
// (docs.nvidia.com/cuda/cuda-driver-api). A device's memory is at addresses that the processor cannot touch: who reads or writes
// there without the driver crashes. Copies need the memory's context, or its device's primary one where it has none, to be
// current in the thread, as the driver's do. Copies to the device return before the bytes are there, as the driver's may: they
// arrive when the default stream, in which they are, is next used or waited for.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

using Address = unsigned long long;  // CUdeviceptr
using Context = void*;

enum Result : int { success = 0, invalid_value = 1, out_of_memory = 2, invalid_context = 201 };
enum Attribute : int { context_attribute = 1, type_attribute = 2, managed_attribute = 8, ordinal_attribute = 9 };
enum Type : unsigned { host_type = 1, device_type = 2 };

struct Region {
  std::size_t bytes = 0;
  Type type = device_type;
  bool managed = false;
  Context context = nullptr;
  char* backing = nullptr;  // what it holds; null where the address can be used
};

std::mutex mutex;  // guards what follows
std::map<Address, Region> regions;
int primary_uses = 0;
int primary;  // its address is the device's primary context

struct Arrival {
  char* there;
  std::vector<char> bytes;
};
std::vector<Arrival> arrivals;

thread_local std::vector<Context> current;

void arrive() {
  for (const auto& [there, bytes] : arrivals) std::memcpy(there, bytes.data(), bytes.size());
  arrivals.clear();
}

// The region that holds all of a range.
std::pair<const Address, Region>* find(Address address, std::size_t bytes) {
  auto found = regions.upper_bound(address);
  if (found == regions.begin()) return nullptr;
  --found;
  const auto offset = address - found->first;
  return offset < found->second.bytes && bytes <= found->second.bytes - offset ? &*found : nullptr;
}

int allocate(Address* out, std::size_t bytes, Region region) {
  const bool hidden = region.type == device_type && !region.managed;
  void* at = ::mmap(nullptr, bytes, hidden ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return out_of_memory;
  region.bytes = bytes;
  if (hidden) region.backing = static_cast<char*>(std::calloc(bytes, 1));
  *out = reinterpret_cast<Address>(at);
  const std::lock_guard lock(mutex);
  regions[*out] = region;
  return success;
}

// Where a range lies, for a copy.
int locate(Address device, std::size_t bytes, char*& there) {
  const auto* found = find(device, bytes);
  if (found == nullptr) return invalid_value;
  const auto& [begin, region] = *found;
  const Context wanted = region.context != nullptr ? region.context : &primary;
  if (current.empty() || current.back() != wanted) return invalid_context;
  there = region.backing != nullptr ? region.backing + (device - begin) : reinterpret_cast<char*>(device);
  return success;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return success; }

int cuDevicePrimaryCtxRetain(Context* context, int device) {
  if (device != 0) return invalid_value;
  const std::lock_guard lock(mutex);
  ++primary_uses;
  *context = &primary;
  return success;
}

int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard lock(mutex);
  return primary_uses-- > 0 ? success : invalid_context;
}

int cuCtxPushCurrent_v2(Context context) {
  if (context == nullptr) return invalid_context;
  current.push_back(context);
  return success;
}

int cuCtxPopCurrent_v2(Context* context) {
  if (current.empty()) return invalid_context;
  *context = current.back();
  current.pop_back();
  return success;
}

int cuMemAlloc_v2(Address* out, std::size_t bytes) {
  return current.empty() ? invalid_context : allocate(out, bytes, {.context = current.back()});
}

int cuMemAllocManaged(Address* out, std::size_t bytes, unsigned) {
  return current.empty() ? invalid_context : allocate(out, bytes, {.managed = true, .context = current.back()});
}

// Of the device's pool: memory of no context.
int cuMemAllocAsync(Address* out, std::size_t bytes, void*) { return allocate(out, bytes, {}); }

int cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
  if (current.empty()) return invalid_context;
  return allocate(reinterpret_cast<Address*>(out), bytes, {.type = host_type, .context = current.back()});
}

int cuMemFree_v2(Address address) {
  const std::lock_guard lock(mutex);
  arrive();
  const auto found = regions.find(address);
  if (found == regions.end()) return invalid_value;
  ::munmap(reinterpret_cast<void*>(address), found->second.bytes);
  std::free(found->second.backing);
  regions.erase(found);
  return success;
}

int cuMemFreeHost(void* address) { return cuMemFree_v2(reinterpret_cast<Address>(address)); }

int cuPointerGetAttribute(void* value, int attribute, Address address) {
  const std::lock_guard lock(mutex);
  const auto* found = find(address, 1);
  if (found == nullptr) return invalid_value;
  const Region& region = found->second;
  switch (attribute) {
    case context_attribute: std::memcpy(value, &region.context, sizeof region.context); return success;
    case type_attribute: std::memcpy(value, &region.type, sizeof region.type); return success;
    case managed_attribute: {
      const unsigned managed = region.managed;
      std::memcpy(value, &managed, sizeof managed);
      return success;
    }
    case ordinal_attribute: std::memset(value, 0, sizeof(int)); return success;
    default: return invalid_value;
  }
}

int cuStreamCreate(void** stream, unsigned) {
  static int others;
  *stream = &others;
  return current.empty() ? invalid_context : success;
}

int cuStreamSynchronize(void* stream) {
  const std::lock_guard lock(mutex);
  if (current.empty()) return invalid_context;
  if (stream == nullptr) arrive();
  return success;
}

int cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, void* stream) {
  const std::lock_guard lock(mutex);
  if (stream == nullptr) arrive();
  char* there = nullptr;
  const int result = locate(from, bytes, there);
  if (result == success) std::memcpy(to, there, bytes);
  return result;
}

int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
}

int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  char* there = nullptr;
  const int result = locate(to, bytes, there);
  const auto* first = static_cast<const char*>(from);
  if (result == success) arrivals.push_back({there, {first, first + bytes}});
  return result;
}

}  // extern "C"
