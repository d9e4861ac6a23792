// What the programs of `penstock bench rpc` and `penstock bench pool` share: options by name, the line of figures that each
// prints, data that can be checked, and the frame of main. Clocks and pinning: common.hpp.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "common.hpp"

namespace penstock::bench {

// "--name value" pairs. Every option that is given must be asked for (check).
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string_view name = argv[i];
      if (!name.starts_with("--")) throw std::runtime_error("not an option: " + std::string(name));
      given_[std::string(name.substr(2))] = argv[i + 1];
    }
  }
  std::string text(const std::string& name, std::string otherwise = {}) const {
    asked_.insert_or_assign(name, true);
    const auto found = given_.find(name);
    return found == given_.end() ? std::move(otherwise) : found->second;
  }
  std::uint64_t number(const std::string& name, std::uint64_t otherwise) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::stoull(value);
  }
  double real(const std::string& name, double otherwise) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::stod(value);
  }
  std::vector<std::uint64_t> numbers(const std::string& name) const {
    std::vector<std::uint64_t> values;
    std::string all = text(name);
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t comma = std::min(all.find(',', at), all.size());
      values.push_back(std::stoull(all.substr(at, comma - at)));
      at = comma + 1;
    }
    return values;
  }
  void check() const {
    for (const auto& [name, value] : given_)
      if (!asked_.contains(name)) throw std::runtime_error("unknown option --" + name);
  }

 private:
  std::map<std::string, std::string> given_;
  mutable std::map<std::string, bool> asked_;
};

// Figures of a program, one JSON object on a line: {"name": value, ...}.
class FigureLine {
 public:
  void add(const std::string& name, double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.9g", value);
    append(name, text);
  }
  void add(const std::string& name, const std::vector<double>& values) {
    std::string text = "[";
    for (const double value : values) {
      char one[40];
      std::snprintf(one, sizeof one, "%s%.6g", text.size() > 1 ? "," : "", value);
      text += one;
    }
    append(name, text + "]");
  }
  void print() const {
    const std::string line = "{" + line_ + "}\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::perror("write");  // one call: lines never mix
  }

 private:
  void append(const std::string& name, const std::string& value) {
    line_ += (line_.empty() ? "\"" : ",\"") + name + "\":" + value;
  }
  std::string line_;
};

// Words that follow from a seed, and their check, both at about the memory's speed.
inline void fill_words(std::span<std::byte> bytes, std::uint64_t seed) {
  auto* words = reinterpret_cast<std::uint64_t*>(bytes.data());
  const std::uint64_t first = (seed + 1) * 0x9e3779b97f4a7c15;
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) words[i] = first + i * 0xbf58476d1ce4e5b9;
}
inline bool check_words(std::span<const std::byte> bytes, std::uint64_t seed) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(bytes.data());
  const std::uint64_t first = (seed + 1) * 0x9e3779b97f4a7c15;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) wrong |= words[i] ^ (first + i * 0xbf58476d1ce4e5b9);
  return wrong == 0;
}

// Memory with its pages made.
inline std::span<std::byte> populated(std::size_t bytes, int file = -1) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map memory");
  return {static_cast<std::byte*>(memory), bytes};
}

// Calls make() in each thread, and what it returned with (first, how many) of each batch, until all are done. The caller is
// one of the threads.
template <class Make>
void in_batches(std::size_t threads, std::size_t count, std::size_t batch, Make make) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failed;
  const auto run = [&] {
    try {
      auto work = make();
      for (std::size_t first = next.fetch_add(batch); first < count; first = next.fetch_add(batch))
        work(first, std::min(batch, count - first));
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(run);
  run();
  for (auto& thread : others) thread.join();
  if (failed) std::rethrow_exception(failed);
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The frame of main: ends with the program that started it, at its deadline (--deadline-s), and with a message on any
// exception.
template <class Body>
int run_with_arguments(int argc, char** argv, Body body) {
  try {
    const Arguments arguments(argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(static_cast<unsigned>(arguments.number("deadline-s", 600)));
    body(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

// Runs `child` in a process of its own, which ends with this one. The child's end of the socket is handed to it.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      close(ends[0]);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int code = 0;
      try {
        body(ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
        code = 1;
      }
      _exit(code);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Child() { finish(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int socket() const { return socket_; }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    (void)finish();
  }
  // Ends its input and waits for it. False when it failed.
  bool finish() {
    if (pid_ <= 0) return true;
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status == 0;
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

// Whole messages over a stream socket.
inline void send_all(int socket, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw std::runtime_error("send failed");
    from += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}
// A call that takes many megabytes is half as fast as several.
constexpr std::size_t most_received = std::size_t{1} << 20;
// False at the end of the stream.
inline bool receive_all(int socket, void* data, std::size_t bytes) {
  char* into = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, into, std::min(bytes, most_received), MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::runtime_error("recv failed");
    if (got == 0) return false;
    into += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
inline void send_text(int socket, const std::string& text) {
  const std::uint64_t length = text.size();
  send_all(socket, &length, sizeof length);
  send_all(socket, text.data(), length);
}
inline std::string receive_text(int socket) {
  std::uint64_t length = 0;
  if (!receive_all(socket, &length, sizeof length)) throw std::runtime_error("the other process said nothing");
  std::string text(length, '\0');
  if (!receive_all(socket, text.data(), length)) throw std::runtime_error("the other process broke off");
  return text;
}
// Until the other process lets go.
inline void wait_for_end(int socket) {
  char c = 0;
  while (receive_all(socket, &c, 1)) {
  }
}

// How often a size is moved: until so many bytes have been, at least 4 times, at most 4000.
inline std::uint32_t times_for(std::uint64_t size, std::uint64_t total) {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(total / size, 4, 4000));
}

// Transfers of a size walk through a window of so much memory on both sides, so that no cache holds all of it.
constexpr std::uint64_t window_bytes = 64 << 20;
inline std::uint64_t window_of(std::uint64_t size) { return std::max<std::uint64_t>(1, window_bytes / size) * size; }

}  // namespace penstock::bench
