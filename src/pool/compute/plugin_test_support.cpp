// A plug-in for the tests: useful functions, and some that misbehave in each way that a worker must survive.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "penstock/compute.hpp"

using penstock::compute::Call;

namespace {

void energy(const Call& call) {
  double sum = 0;
  for (std::size_t i = 0; i < call.input_count(); ++i)
    for (const double v : call.input(i).values<double>()) sum += v * v;
  call.value(sum);
  call.info(R"({"unit": "J"})");
}

void echo_arguments(const Call& call) { call.text(call.arguments()); }

// "name@start" of each input.
void describe(const Call& call) {
  std::string all;
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    const auto input = call.input(i);
    all += std::string(input.name()) + "@";
    for (const auto s : input.start()) all += std::to_string(s) + ",";
    all += ";";
  }
  call.text(all);
}

void doubled(const Call& call) {
  const auto input = call.input(0);
  const auto values = input.values<double>();
  const auto out = call.array<double>(input.shape());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = 2 * values[i];
}

void spin(const Call&) {
  for (std::atomic<std::uint64_t> i = 0;;) i.fetch_add(1, std::memory_order_relaxed);
}

// Blocks without using CPU, for ever.
void block(const Call&) {
  int ends[2];
  if (::pipe(ends) != 0) return;
  char byte;
  while (::read(ends[0], &byte, 1) >= 0) {
  }
}

void block_once_told(const Call& call) {
  const auto path = call.input(0).bytes();
  const std::string name(reinterpret_cast<const char*>(path.data()), path.size());
  const int fifo = ::open(name.c_str(), O_WRONLY);
  const pid_t self = ::getpid();
  if (::write(fifo, &self, sizeof self) != sizeof self) throw std::runtime_error("the pipe is gone");
  block(call);
}

void hog(const Call& call) {
  std::size_t total = 0;
  for (;;) {
    auto* memory = static_cast<volatile char*>(::operator new(8u << 20));
    for (std::size_t i = 0; i < (8u << 20); i += 4096) memory[i] = 1;
    total += 8u << 20;
    if (total > (std::size_t{4} << 30)) break;
  }
  call.value(static_cast<std::uint64_t>(total));
}

void segfault(const Call&) { ::raise(SIGSEGV); }
void write_input(const Call& call) { const_cast<std::byte*>(call.input(0).bytes().data())[0] = std::byte{1}; }
void aborts(const Call&) { std::abort(); }
void exits(const Call&) { ::_exit(7); }
void throws(const Call&) { throw std::runtime_error("no good"); }

void huge(const Call& call) { call.output(std::uint64_t{1} << 40); }

void pid(const Call& call) { call.value(static_cast<std::int64_t>(::getpid())); }

// Tries to write a file, and to read what must not be there: 0 when all of it fails.
void escape(const Call& call) {
  std::int64_t escaped = 0;
  const char* path = "/tmp/penstock-compute-escape";
  const int file = ::open(path, O_CREAT | O_WRONLY, 0600);
  if (file >= 0 && ::write(file, "x", 1) == 1) escaped |= 1;
  if (file >= 0) ::close(file);
  ::unlink(path);
  if (std::getenv("PENSTOCK_TOKEN") != nullptr) escaped |= 2;
  for (int fd = 4; fd < 256; ++fd)
    if (fd != file && ::fcntl(fd, F_GETFD) >= 0 && !(::fcntl(fd, F_GETFD) & FD_CLOEXEC)) escaped |= 4;
  call.value(escaped);
}

}  // namespace

PENSTOCK_COMPUTE_FUNCTIONS({"energy", penstock::compute::entry<energy>},
                           {"echo_arguments", penstock::compute::entry<echo_arguments>},
                           {"describe", penstock::compute::entry<describe>},
                           {"doubled", penstock::compute::entry<doubled>}, {"spin", penstock::compute::entry<spin>},
                           {"block", penstock::compute::entry<block>},
                           {"block_once_told", penstock::compute::entry<block_once_told>},
                           {"hog", penstock::compute::entry<hog>}, {"segfault", penstock::compute::entry<segfault>},
                           {"write_input", penstock::compute::entry<write_input>},
                           {"aborts", penstock::compute::entry<aborts>}, {"exits", penstock::compute::entry<exits>},
                           {"throws", penstock::compute::entry<throws>}, {"huge", penstock::compute::entry<huge>},
                           {"pid", penstock::compute::entry<pid>}, {"escape", penstock::compute::entry<escape>})
