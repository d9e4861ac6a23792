// The limits of the planes that remote calls use, without any library. Two processes; both walk through windows of memory.
//
//   rpc_limits --study calls --way unix|tcp [--calls N] [--bytes 64]   echo over a blocking socket
//   rpc_limits --study bulk --way shm|unix|tcp [--sizes A,B,...] [--total BYTES]
//
// shm: memcpy out of the other process's memory into one's own (pull) and back (push). unix, tcp: send and recv, one stream.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "arguments.hpp"

namespace penstock::bench {
namespace {

// Two connected sockets.
struct Pair {
  int ends[2] = {-1, -1};
  explicit Pair(const std::string& way) {
    if (way != "tcp") {
      require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
      return;
    }
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    require(
        bind(listener, where, length) == 0 && listen(listener, 1) == 0 && getsockname(listener, where, &length) == 0,
        "listening");
    ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(connect(ends[0], where, length) == 0, "connecting");
    ends[1] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    const int on = 1;
    for (const int end : ends) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Pair() {
    for (const int end : ends) close(end);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
};

void echo(const Arguments& arguments, const std::string& way, FigureLine& line) {
  const std::uint64_t calls = arguments.number("calls", 20'000);
  std::vector<char> message(arguments.number("bytes", 64));
  const Pair pair(way);
  Child child([&](int) {
    for (std::uint64_t i = 0; i < calls; ++i) {
      require(receive_all(pair.ends[1], message.data(), message.size()), "an echo");
      send_all(pair.ends[1], message.data(), message.size());
    }
  });
  std::vector<double> times;
  const double start = now();
  for (std::uint64_t i = 0; i < calls; ++i) {
    const double sent = now();
    send_all(pair.ends[0], message.data(), message.size());
    require(receive_all(pair.ends[0], message.data(), message.size()), "an echo");
    times.push_back(now() - sent);
  }
  line.add("calls_per_s_1", static_cast<double>(calls) / (now() - start));
  std::sort(times.begin(), times.end());
  line.add("latency_us", 1e6 * times[times.size() / 2]);
  line.add("latency_p99_us", 1e6 * times[times.size() * 99 / 100]);
}

// The other process's memory; this one copies. Its pages are made by the other one, and mapped here.
void copies(std::uint64_t size, std::uint32_t times, FigureLine& line) {
  const int file = memfd_create("limit", MFD_CLOEXEC);
  const std::uint64_t window = window_of(size);
  require(file >= 0 && ftruncate(file, static_cast<off_t>(window)) == 0, "a memory file");
  Child owner([&](int socket) {
    fill_words(populated(window, file), size);
    send_text(socket, "filled");
    wait_for_end(socket);
  });
  (void)receive_text(owner.socket());
  const auto theirs = populated(window, file), mine = populated(window);
  std::memcpy(mine.data(), theirs.data(), window);
  for (const bool push : {false, true}) {
    const double start = now();
    for (std::uint32_t i = 0; i < times; ++i) {
      const std::uint64_t at = i % (window / size) * size;
      std::memcpy((push ? theirs : mine).data() + at, (push ? mine : theirs).data() + at, size);
      asm volatile("" : : "r"(mine.data()), "r"(theirs.data()) : "memory");  // each copy is made
    }
    line.add((push ? "push_" : "pull_") + std::to_string(size),
             static_cast<double>(size) * times / 1e9 / (now() - start));
  }
  require(check_words(mine, size), "a copy");
  munmap(theirs.data(), window);
  munmap(mine.data(), window);
  close(file);
}

// The child sends; one direction stands for both.
void stream(const std::string& way, std::uint64_t size, std::uint32_t times, FigureLine& line) {
  const Pair pair(way);
  const std::uint64_t window = window_of(size), places = window / size;
  Child child([&](int) {
    const auto memory = populated(window);
    fill_words(memory, size);
    char go = 0;
    require(receive_all(pair.ends[1], &go, 1), "the start");
    for (std::uint64_t i = 0; i < places + times; ++i) send_all(pair.ends[1], memory.data() + i % places * size, size);
  });
  const auto mine = populated(window);
  auto receive = [&](std::uint64_t i) {
    require(receive_all(pair.ends[0], mine.data() + i % places * size, size), "a message");
  };
  send_all(pair.ends[0], "g", 1);
  for (std::uint64_t i = 0; i < places; ++i) receive(i);  // once around before the clock
  const double start = now();
  for (std::uint64_t i = places; i < places + times; ++i) receive(i);
  const double rate = static_cast<double>(size) * times / 1e9 / (now() - start);
  require(check_words(mine, size), "a message");
  munmap(mine.data(), window);
  line.add("pull_" + std::to_string(size), rate);
  line.add("push_" + std::to_string(size), rate);
}

void run(const Arguments& arguments) {
  const std::string study = arguments.text("study", "calls"), way = arguments.text("way", "unix");
  const std::uint64_t total = arguments.number("total", 512 << 20);
  const auto sizes = arguments.numbers("sizes");
  FigureLine line;
  if (study == "calls") echo(arguments, way, line);
  for (const std::uint64_t size : sizes) {
    if (way == "shm") copies(size, times_for(size, total), line);
    else stream(way, size, times_for(size, total), line);
  }
  arguments.check();
  line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
