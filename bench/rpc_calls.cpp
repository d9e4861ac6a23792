// Remote calls of Penstock: the client is this process, the server a child.
//
//   rpc_calls --study calls --way shm|tcp [--calls N] [--bytes 64]     latency, and calls a second with 1, 16, 256 under way
//   rpc_calls --study bulk --way shm|unix|tcp|ucx [--sizes A,B,...] [--total BYTES]
//
// shm: over the Unix socket, memory shared. unix: the same socket, memory that is not shared. tcp: loopback. ucx: calls over
// loopback, memory by UCX. A call is an echo of --bytes bytes. Bulk is moved by the server (pull: it reads, push: it writes), 4 transfers under way.
//
// In turns with it the same memory is moved in pieces of the same size without the library (bare_...): by memcpy in the server's
// thread, through the mapping that the library made, or by blocking calls on a socket of the same kind. Both walk through a
// window of memory that no cache holds. The clock is the server's. Figures are medians over the turns; ratio_...: of what
// follows each other. ucx has neither: its peer is ucx_perftest.

#include <thread>

#include "arguments.hpp"
#include "bench/rpc_calls_service.hpp"
#include "fabric/endpoint.hpp"
#include "rpc/channel.hpp"
#include "socket_pair.hpp"
#include "transport/planes.hpp"

namespace penstock::bench {
namespace {

using namespace penstock::bench::calls;

constexpr std::uint32_t bulk_under_way = 4;
constexpr std::uint32_t turns = 8;
const std::string realm_and_role = "bench/user";

base::Deadline patience() { return base::Deadline(Timeout(300'000)); }

// --------------------------------------------------------------------------------------------------------------- server

class Answering final : public CallsService {
 public:
  Answering(std::shared_ptr<rpc::Progress> progress, int bare_socket)
      : progress_(std::move(progress)), bare_socket_(bare_socket) {}

  rpc::Task<BytesT> echo(rpc::Call&, BytesT request) override { co_return request; }

  rpc::Task<MovedT> transfer(rpc::Call& call, MoveT request) override {
    const std::span<std::byte> mine = memory(request.memory.bytes());
    if (request.push) fill_words(mine, request.seed);
    else std::memset(mine.data(), 0, mine.size());
    if (request.bare) co_return move_bare(call.channel(), request, mine);
    auto done = std::make_shared<std::uint32_t>(0);
    std::vector<rpc::Future<void>> chains;
    const double start = now();
    for (std::uint32_t i = 0; i < request.under_way; ++i)
      chains.push_back(fabric::spawn(*progress_, chain(call.shared_channel(), request, mine, done)));
    for (auto& each : chains) co_await std::move(each);
    co_return moved(request, mine, now() - start);
  }

 private:
  static MovedT moved(const MoveT& request, std::span<const std::byte> mine, double seconds) {
    MovedT reply;
    reply.seconds = seconds;
    // Where all of it was moved.
    reply.right = request.push || request.times * request.bytes < mine.size() || check_words(mine, request.seed);
    return reply;
  }

  // Blocks the engine's thread, which has nothing else to do.
  MovedT move_bare(rpc::Channel& channel, const MoveT& request, std::span<std::byte> mine) const {
    const std::uint64_t places = mine.size() / request.bytes;
    const auto mapped = channel.bulk().map(request.memory, patience());
    auto* theirs = mapped ? const_cast<std::byte*>(mapped->bytes.data()) : nullptr;  // it is exposed for both
    const double start = now();
    for (std::uint32_t i = 0; i < request.times; ++i) {
      const std::uint64_t at = i % places * request.bytes;
      if (theirs != nullptr) {
        std::memcpy((request.push ? theirs : mine.data()) + at, (request.push ? mine.data() : theirs) + at,
                    request.bytes);
        asm volatile("" : : "r"(mine.data()), "r"(theirs) : "memory");  // each copy is made
      } else if (request.push) {
        send_all(bare_socket_, mine.data() + at, request.bytes);
      } else {
        require(receive_all(bare_socket_, mine.data() + at, request.bytes), "a message");
      }
    }
    if (theirs == nullptr && request.push) {  // until the client has all of it
      char c = 0;
      require(receive_all(bare_socket_, &c, 1), "the end");
    }
    return moved(request, mine, now() - start);
  }

  static rpc::Task<void> chain(std::shared_ptr<rpc::Channel> channel, MoveT request, std::span<std::byte> mine,
                               std::shared_ptr<std::uint32_t> done) {
    const std::uint64_t places = mine.size() / request.bytes;
    while (*done < request.times) {
      const std::uint64_t at = (*done)++ % places * request.bytes;
      const auto part = mine.subspan(at, request.bytes);
      if (request.push) co_await channel->bulk().push(request.memory, at, part, patience());
      else co_await channel->bulk().pull(request.memory, at, part, patience());
    }
  }
  std::span<std::byte> memory(std::uint64_t bytes) {
    if (bytes > memory_.size()) memory_ = populated(bytes);  // sizes go up; unmapped when the process ends
    return memory_.first(bytes);
  }
  std::shared_ptr<rpc::Progress> progress_;
  const int bare_socket_;
  std::span<std::byte> memory_;
};

rpc::ServerOptions options_of(const std::string& way) {
  rpc::ServerOptions options;
  if (way == "ucx") options.plane = &transport::plane_named(way);
  return options;
}

void serve(int socket, int bare_socket, const std::string& way) {
  const auto token = fabric::Token::random();
  auto progress = std::make_shared<rpc::Progress>();
  auto services = std::make_shared<rpc::ServiceTable>();
  services->add(std::make_shared<Answering>(progress, bare_socket));
  rpc::Server server(
      progress, services, [token](const std::string&) -> std::optional<fabric::Token> { return token; }, "127.0.0.1",
      options_of(way));
  send_text(socket, fabric::to_text(server.endpoint()));
  send_text(socket, token.hex());
  wait_for_end(socket);
}

// --------------------------------------------------------------------------------------------------------------- client

rpc::Task<void> call_chain(CallsClient& client, std::size_t bytes, std::shared_ptr<std::uint64_t> left) {
  while (*left > 0) {
    --*left;
    BytesT request;
    request.bytes.assign(bytes, 7);
    const BytesT reply = co_await client.echo(std::move(request), rpc::CallOptions{patience()});
    require(reply.bytes.size() == bytes, "an echo");
  }
}

// One after the other from an application thread, which waits for each.
void measure_latency(CallsClient& client, std::uint64_t calls, std::size_t bytes, FigureLine& line) {
  BytesT request;
  request.bytes.assign(bytes, 7);
  std::vector<double> times;
  times.reserve(calls);
  for (std::uint64_t i = 0; i < calls; ++i) {
    const double start = now();
    const BytesT reply = client.start_echo(request, rpc::CallOptions{patience()}).get(patience());
    times.push_back(now() - start);
    require(reply.bytes.size() == bytes, "an echo");
  }
  std::sort(times.begin(), times.end());
  line.add("latency_us", 1e6 * times[times.size() / 2]);
  line.add("latency_p99_us", 1e6 * times[times.size() * 99 / 100]);
}

void measure_rates(rpc::Progress& progress, CallsClient& client, std::uint64_t calls, std::size_t bytes,
                   FigureLine& line) {
  for (const int under_way : {1, 16, 256}) {
    auto left = std::make_shared<std::uint64_t>(under_way == 1 ? calls / 4 : calls);
    const double count = static_cast<double>(*left);
    const double start = now();
    std::vector<rpc::Future<void>> chains;
    for (int i = 0; i < under_way; ++i) chains.push_back(fabric::spawn(progress, call_chain(client, bytes, left)));
    for (auto& each : chains) each.get(patience());
    line.add("calls_per_s_" + std::to_string(under_way), count / (now() - start));
  }
}

// Has the server move the client's memory, and does the client's part where the socket beside the channel is used. GB/s.
double move(CallsClient& client, const MoveT& request, std::span<std::byte> mine, bool shared, int bare_socket) {
  if (request.push) std::memset(mine.data(), 0, mine.size());
  auto moving = client.start_transfer(request, rpc::CallOptions{patience()});
  if (request.bare && !shared) {
    const std::uint64_t places = mine.size() / request.bytes;
    for (std::uint32_t i = 0; i < request.times; ++i) {
      std::byte* part = mine.data() + i % places * request.bytes;
      if (request.push) require(receive_all(bare_socket, part, request.bytes), "a message");
      else send_all(bare_socket, part, request.bytes);
    }
    if (request.push) send_all(bare_socket, "e", 1);
  }
  const auto moved = moving.get(patience());
  const bool all = request.times * request.bytes >= mine.size();
  require(moved.right && (!request.push || !all || check_words(mine, request.seed)), "bulk memory");
  return static_cast<double>(request.bytes) * request.times / 1e9 / moved.seconds;
}

void measure_bulk(const Arguments& arguments, CallsClient& client, rpc::Channel& channel, bool shared, int bare_socket,
                  FigureLine& line) {
  const std::uint64_t total = arguments.number("total", 512 << 20);
  for (const std::uint64_t size : arguments.numbers("sizes")) {
    const std::uint64_t window = window_of(size);
    const rpc::BulkBuffer buffer = shared ? rpc::BulkBuffer::allocate(window) : rpc::BulkBuffer();
    std::vector<std::byte> plain(shared ? 0 : window);
    const std::span<std::byte> mine = shared ? buffer.span() : std::span(plain);
    const auto exposure = channel.bulk().expose(mine, rpc::Access::read_write);
    for (const bool push : {false, true}) {
      MoveT request;
      request.memory = exposure.descriptor();
      request.bytes = size;
      request.under_way = bulk_under_way;
      request.push = push;
      request.seed = size + (push ? 1 : 0);
      if (!push) fill_words(mine, request.seed);
      std::vector<double> ours, bare, ratios;
      for (std::uint32_t turn = 0; turn <= turns; ++turn) {
        // First once around, which is not counted: connections, pages, and that all arrives.
        request.times = static_cast<std::uint32_t>(turn == 0 ? window / size : times_for(size, total / turns));
        double rates[2] = {};
        for (const bool first : {true, false}) {
          request.bare = first == (turn % 2 == 0);
          if (request.bare && bare_socket < 0) continue;
          rates[request.bare] = move(client, request, mine, shared, bare_socket);
        }
        if (turn == 0) continue;
        ours.push_back(rates[false]);
        if (bare_socket < 0) continue;
        bare.push_back(rates[true]);
        ratios.push_back(rates[false] / rates[true]);
      }
      const std::string name = (push ? "push_" : "pull_") + std::to_string(size);
      line.add(name, median(ours));
      if (bare.empty()) continue;
      line.add("bare_" + name, median(bare));
      line.add("ratio_" + name, median(ratios));
    }
  }
}

void run(const Arguments& arguments) {
  const std::string study = arguments.text("study", "calls"), way = arguments.text("way", "shm");
  const std::uint64_t calls = arguments.number("calls", 20'000);
  const std::size_t bytes = arguments.number("bytes", 64);
  (void)arguments.numbers("sizes");
  (void)arguments.number("total", 0);
  arguments.check();
  const bool shared = way == "shm";
  const SocketPair beside(way == "ucx" ? "unix" : way);
  Child server([&](int socket) { serve(socket, beside.ends[1], way); });
  const auto endpoint = fabric::endpoint_from_text(receive_text(server.socket()));
  const auto token = fabric::Token::from_hex(receive_text(server.socket()));
  FigureLine line;
  {
    auto progress = std::make_shared<rpc::Progress>();
    const auto reach = way == "tcp" || way == "ucx" ? fabric::Reach::tcp_only : fabric::Reach::automatic;
    auto channel = fabric::run_task(
        *progress, rpc::connect(progress, endpoint, token, realm_and_role, nullptr, patience(), reach, options_of(way)),
        patience());
    CallsClient client(channel);
    if (study == "bulk") {
      measure_bulk(arguments, client, *channel, shared, way == "ucx" ? -1 : beside.ends[0], line);
    } else {
      FigureLine unused;
      measure_latency(client, calls / 20 + 1, bytes, unused);  // warm
      measure_latency(client, calls / 4 + 1, bytes, line);
      measure_rates(*progress, client, calls, bytes, line);
    }
    channel->close();
  }
  require(server.finish(), "the server's end");
  line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
