#include "memory/segment.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {

namespace {

constexpr int resize_seals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int segment_seals = resize_seals | F_SEAL_FUTURE_WRITE;

std::string errno_text(int code) { return std::generic_category().message(code); }

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

[[noreturn]] void fail(const char* what, int code, std::uint64_t bytes) {
  const bool no_room = code == ENOMEM || code == ENOSPC || code == EFBIG || code == EMFILE || code == ENFILE;
  throw Error(no_room ? Errc::memory : Errc::system,
              std::string(what) + " of " + base::format_size(bytes) + " of shared memory failed: " + errno_text(code));
}

Mapping map_file(int fd, std::uint64_t bytes, int protection, int flags = MAP_POPULATE) {
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED | flags, fd, 0);
  if (address == MAP_FAILED) fail("mapping", errno, bytes);
  return {static_cast<std::byte*>(address), bytes};
}

constexpr std::uint64_t least_part = std::uint64_t{8} << 20;  // takes a thread milliseconds, and its start far less

// Makes the pages. Returns errno.
int touch(std::byte* data, std::uint64_t bytes) {
  int code = 0;
  do {
    code = ::madvise(data, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (code == EINTR || code == EAGAIN);
  return code;
}

// Signals are the application's: its threads are to get them, not those begun meanwhile.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

unsigned allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&allowed));
}

// The same by this thread and others, each with a part of its own. Without huge pages the kernel, not the memory, sets the pace
// of one thread.
int touch_by(unsigned threads, std::byte* data, std::uint64_t bytes) {
  const std::uint64_t parts = std::min({std::uint64_t{threads}, std::uint64_t{allowed_cores()}, bytes / least_part});
  if (parts < 2) return touch(data, bytes);
  const std::uint64_t part = whole_pages(bytes / parts);
  std::vector<int> codes(parts, 0);
  std::uint64_t begun = 0;  // parts that others have
  {
    std::vector<std::jthread> others;
    others.reserve(parts);
    const NoSignals masked;
    try {
      for (; begun + 1 < parts; ++begun)
        others.emplace_back([&code = codes[begun], at = data + begun * part, part] { code = touch(at, part); });
    } catch (const std::system_error&) {  // no more threads: the rest is this one's
    }
    codes.back() = touch(data + begun * part, bytes - begun * part);
  }
  const auto failed = std::ranges::find_if(codes, [](int code) { return code != 0; });
  return failed == codes.end() ? 0 : *failed;
}

// Every page is there on return: a machine without memory is an error here, not a SIGBUS while a block is copied. In one pass;
// to allocate first (as kernels before 5.14 are told to) and populate the mapping then takes half as long again.
Mapping create_memory_file(UniqueFd& fd, std::uint64_t bytes, unsigned threads = 1) {
  fd.reset(::memfd_create("penstock", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail("creation", errno, bytes);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("creation", errno, bytes);
  {
    Mapping mapping = map_file(fd.get(), bytes, PROT_READ | PROT_WRITE, 0);
    const int code = touch_by(threads, mapping.data(), bytes);
    if (code == 0) return mapping;
    if (code != EINVAL)
      fail("allocation", code == EFAULT ? ENOMEM : code, bytes);  // EFAULT: touching it would be a SIGBUS
  }
  int code = 0;
  do {
    code = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code != 0) fail("allocation", code, bytes);
  return map_file(fd.get(), bytes, PROT_READ | PROT_WRITE);
}

void seal(int fd, int seals, std::uint64_t bytes) {
  if (::fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) fail("sealing", errno, bytes);
}

// A peer's file must be what was announced, and must stay so.
void check_file(int fd, std::uint64_t bytes, int seals) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw Error(Errc::system, "fstat of a peer's memory: " + errno_text(errno));
  if (static_cast<std::uint64_t>(status.st_size) != bytes || bytes == 0)
    throw Error(Errc::protocol, "a peer announced " + std::to_string(bytes) + " bytes of memory and sent " +
                                    std::to_string(status.st_size));
  const int found = ::fcntl(fd, F_GET_SEALS);
  if (found < 0 || (found & seals) != seals)
    throw Error(Errc::protocol, "a peer's memory file lacks the seals that keep it as it is");
}

}  // namespace

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

UniqueFd UniqueFd::duplicate_of(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw Error(Errc::system, "duplicating a descriptor: " + errno_text(errno));
  return copy;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Segment Segment::create(std::uint64_t bytes, unsigned threads) {
  if (bytes == 0 || bytes > std::uint64_t{1} << 46) fail("creation", EFBIG, bytes);
  const std::uint64_t size = whole_pages(bytes);
  UniqueFd fd;
  // Mapped before it is sealed: the seal forbids writable mappings from then on.
  Mapping mapping = create_memory_file(fd, size, threads);
  seal(fd.get(), segment_seals, size);
  return {std::move(fd), std::move(mapping)};
}

Mapping map_segment(int fd, std::uint64_t expected_bytes) {
  check_file(fd, expected_bytes, segment_seals);
  return map_file(fd, expected_bytes, PROT_READ);
}

Mapping create_shared_page(UniqueFd& fd) { return create_shared(fd, page_bytes()); }

Mapping map_shared_page(int fd) { return map_shared(fd, page_bytes(), true); }

Mapping create_shared(UniqueFd& fd, std::uint64_t bytes) {
  if (bytes == 0 || bytes > std::uint64_t{1} << 46) fail("creation", EFBIG, bytes);
  const std::uint64_t size = whole_pages(bytes);
  UniqueFd file;
  Mapping mapping = create_memory_file(file, size);
  seal(file.get(), resize_seals, size);
  fd = std::move(file);
  return mapping;
}

Mapping map_shared(int fd, std::uint64_t expected_bytes, bool writable) {
  constexpr std::uint64_t populate_bytes = std::uint64_t{64} << 20;  // more would stop the engine for milliseconds
  check_file(fd, expected_bytes, resize_seals);
  // Who reads comes to 16 pages with each fault, and often reads but a part.
  if (!writable) return map_file(fd, expected_bytes, PROT_READ, 0);
  return map_file(fd, expected_bytes, PROT_READ | PROT_WRITE, expected_bytes <= populate_bytes ? MAP_POPULATE : 0);
}

void unmap_pages(std::span<const std::byte> bytes) {
  const auto page = page_bytes(), first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto from = (first + page - 1) / page * page, to = (first + bytes.size()) / page * page;
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

UniqueFd read_only_descriptor(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  UniqueFd out(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!out) throw Error(Errc::system, "reopening shared memory for reading: " + errno_text(errno));
  return out;
}

}  // namespace penstock::memory
