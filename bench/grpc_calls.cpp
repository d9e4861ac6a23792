// gRPC on the same calls, through its C++ API: the client is this process, the server a child.
//
//   grpc_calls --study calls --way unix|tcp [--calls N] [--bytes 64]
//   grpc_calls --study bulk --way unix|tcp [--sizes A,B,...] [--total BYTES]     each transfer is one unary call
//
// At its best on few cores: generic methods whose messages are bytes (no protobuf to encode), asynchronous on one completion
// queue and one thread on either side, no encryption, no limit on a message's size.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "arguments.hpp"

namespace penstock::bench {
namespace {

constexpr int bulk_under_way = 4;
constexpr std::string_view empty_reply = "/bench.Calls/Take";
constexpr std::string_view sized_reply = "/bench.Calls/Give";  // the request says how many bytes

grpc::ByteBuffer buffer_of(std::span<const std::byte> bytes) {  // no copy: bytes outlive the call
  const grpc::Slice slice(const_cast<std::byte*>(bytes.data()), bytes.size(), grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

// --------------------------------------------------------------------------------------------------------------- server

// One call, from its acceptance to its end; then the next.
class Exchange {
 public:
  Exchange(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue, std::span<const std::byte> memory)
      : service_(service), queue_(queue), memory_(memory), stream_(&context_) {
    service_.RequestCall(&context_, &stream_, &queue_, &queue_, this);
  }
  void step(bool good) {
    switch (state_++) {
      case 0:
        if (!good) break;  // the server ends
        new Exchange(service_, queue_, memory_);
        stream_.Read(&message_, this);
        return;
      case 1:
        if (!good) break;
        answer();
        return;
      default: break;
    }
    delete this;
  }

 private:
  void answer() {
    if (context_.method() == empty_reply) {
      message_ = buffer_of({});
    } else if (context_.method() == sized_reply) {
      grpc::Slice slice;
      std::uint64_t size = 0;
      if (message_.DumpToSingleSlice(&slice).ok() && slice.size() == sizeof size)
        std::memcpy(&size, slice.begin(), sizeof size);
      message_ = buffer_of(memory_.first(std::min<std::size_t>(size, memory_.size())));
    }
    stream_.WriteAndFinish(message_, grpc::WriteOptions(), grpc::Status::OK, this);
  }
  grpc::AsyncGenericService& service_;
  grpc::ServerCompletionQueue& queue_;
  std::span<const std::byte> memory_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer message_;
  int state_ = 0;
};

void serve(int socket, const std::string& address, std::size_t largest) {
  std::vector<std::byte> memory(largest);
  fill_words(memory, 1);
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  const auto server = builder.BuildAndStart();
  require(server != nullptr, "a gRPC server");
  send_text(socket, address.starts_with("unix:") ? address : "127.0.0.1:" + std::to_string(port));
  new Exchange(service, *queue, memory);
  void* tag = nullptr;
  for (bool good = false; queue->Next(&tag, &good);) static_cast<Exchange*>(tag)->step(good);
}

// --------------------------------------------------------------------------------------------------------------- client

class Client {
 public:
  explicit Client(const std::string& address) : stub_(channel_to(address)) {}

  // `count` calls, `under_way` at once.
  void call(std::string_view method, const grpc::ByteBuffer& request, std::uint64_t count, int under_way,
            std::size_t reply_bytes) {
    std::uint64_t left = count;
    int running = 0;
    auto start = [&] {
      --left;
      ++running;
      auto* one = new One;
      one->reader = stub_.PrepareUnaryCall(&one->context, std::string(method), request, &queue_);
      one->reader->StartCall();
      one->reader->Finish(&one->reply, &one->status, one);
    };
    while (left > 0 && running < under_way) start();
    while (running > 0) {
      void* tag = nullptr;
      bool good = false;
      require(queue_.Next(&tag, &good) && good, "the queue");
      const std::unique_ptr<One> one(static_cast<One*>(tag));
      if (!one->status.ok()) throw std::runtime_error("gRPC: " + one->status.error_message());
      require(one->reply.Length() == reply_bytes, "a reply");
      --running;
      if (left > 0) start();
    }
  }

 private:
  struct One {
    grpc::ClientContext context;
    grpc::ByteBuffer reply;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };
  static std::shared_ptr<grpc::Channel> channel_to(const std::string& address) {
    grpc::ChannelArguments options;
    options.SetMaxReceiveMessageSize(-1);
    options.SetMaxSendMessageSize(-1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), options);
  }
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

void measure_calls(Client& client, std::uint64_t calls, std::size_t bytes, FigureLine& line) {
  const std::vector<std::byte> content(bytes, std::byte{7});
  const auto message = buffer_of(content);
  const auto echo = [&](std::uint64_t count, int under_way) {
    client.call("/bench.Calls/Echo", message, count, under_way, bytes);
  };
  echo(calls / 20 + 1, 1);
  std::vector<double> times;
  for (std::uint64_t i = 0; i < calls / 4 + 1; ++i) {
    const double start = now();
    echo(1, 1);
    times.push_back(now() - start);
  }
  std::sort(times.begin(), times.end());
  line.add("latency_us", 1e6 * times[times.size() / 2]);
  line.add("latency_p99_us", 1e6 * times[times.size() * 99 / 100]);
  for (const int under_way : {1, 16, 256}) {
    const std::uint64_t count = under_way == 1 ? calls / 4 : calls;
    const double start = now();
    echo(count, under_way);
    line.add("calls_per_s_" + std::to_string(under_way), static_cast<double>(count) / (now() - start));
  }
}

// Pull: the reply is large; push: the request is. Seen from the side that holds the memory, as rpc_calls is.
void measure_bulk(Client& client, const std::vector<std::uint64_t>& sizes, std::uint64_t total, FigureLine& line) {
  for (const std::uint64_t size : sizes) {
    std::vector<std::byte> content(size);
    fill_words(content, size);
    const auto large = buffer_of(content);
    const auto wanted = buffer_of(std::as_bytes(std::span(&size, 1)));
    for (const bool push : {false, true}) {
      const std::uint64_t times = times_for(size, total);
      const auto move = [&](std::uint64_t count) {
        if (push) client.call(sized_reply, wanted, count, bulk_under_way, size);
        else client.call(empty_reply, large, count, bulk_under_way, 0);
      };
      move(bulk_under_way);
      const double start = now();
      move(times);
      line.add((push ? "push_" : "pull_") + std::to_string(size),
               static_cast<double>(size) * static_cast<double>(times) / 1e9 / (now() - start));
    }
  }
}

void run(const Arguments& arguments) {
  const std::string study = arguments.text("study", "calls"), way = arguments.text("way", "unix");
  const std::string directory = arguments.text("directory", ".");
  const std::uint64_t calls = arguments.number("calls", 20'000), total = arguments.number("total", 512 << 20);
  const std::size_t bytes = arguments.number("bytes", 64);
  const auto sizes = arguments.numbers("sizes");
  arguments.check();
  std::uint64_t largest = 8;
  for (const auto size : sizes) largest = std::max(largest, size);
  const std::string address = way == "unix" ? "unix:" + directory + "/grpc" : "127.0.0.1:0";
  Child server([&](int socket) { serve(socket, address, largest); });
  const std::string where = receive_text(server.socket());
  FigureLine line;
  {
    Client client(where);
    if (study == "bulk") measure_bulk(client, sizes, total, line);
    else measure_calls(client, calls, bytes, line);
  }
  line.print();
  server.kill();  // what gRPC does to shut down is not measured
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
