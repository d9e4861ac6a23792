// The limit of a small call, without any library: an echo over a blocking socket, between two processes. The limit of bulk
// memory is measured where ours is, in turns with it (rpc_calls).
//
//   rpc_limits --way unix|tcp [--calls N] [--bytes 64]
#include "arguments.hpp"
#include "socket_pair.hpp"

namespace penstock::bench {
namespace {

void echo(const Arguments& arguments, const std::string& way, FigureLine& line) {
  const std::uint64_t calls = arguments.number("calls", 20'000);
  std::vector<char> message(arguments.number("bytes", 64));
  const SocketPair pair(way);
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

void run(const Arguments& arguments) {
  const std::string way = arguments.text("way", "unix");
  FigureLine line;
  echo(arguments, way, line);
  arguments.check();
  line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
