// transfer_server CONTACT-FILE [ADDRESS]
//
// Offers the transfer service until its standard input ends. Writes how to reach it to CONTACT-FILE, then says "ready".
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "records.hpp"

namespace {

namespace rpc = penstock::rpc;
using namespace penstock::examples::transfer;

// Methods run on the engine thread. What takes long there (the checksum of a long array) would be given to workers in a real
// service; here it is part of none of the measured ways.
class Server final : public TransferService {
 public:
  rpc::Task<ResultT> write_encode(rpc::Call&, RecordsT request) override { co_return result(request.records); }

  rpc::Task<ResultT> write_bulk(rpc::Call& call, MemoryT request) override {
    // Admission: as many bytes as the server has to spare, in the order that its budget finds fair.
    const std::uint64_t bytes = request.count * sizeof(Record);
    const auto credit = co_await call.channel().budget().acquire(bytes, call.deadline());
    const auto buffer = rpc::BulkBuffer::allocate(bytes);
    co_await call.channel().bulk().pull(request.memory, 0, buffer.span(), call.deadline());
    co_return result(transfer::as_records(buffer.span()));
  }

  rpc::Task<RecordsT> read_encode(rpc::Call&, WantedT request) override {
    RecordsT reply;
    const auto records = of_seed(request.seed, request.count);
    reply.records.assign(records.begin(), records.end());
    co_return reply;
  }

  rpc::Task<ResultT> read_bulk(rpc::Call& call, MemoryT request) override {
    const auto records = of_seed(request.seed, request.count);
    co_await call.channel().bulk().push(request.memory, 0, std::as_bytes(records), call.deadline());
    co_return result(records);
  }

 private:
  // The checksum of a few records at both ends: it must not be what is measured.
  static ResultT result(std::span<const Record> records) {
    constexpr std::size_t some = 1024;
    ResultT out;
    out.count = records.size();
    out.checksum = transfer::checksum(records.first(std::min(some, records.size()))) +
                   transfer::checksum(records.last(std::min(some, records.size())));
    return out;
  }
  // Made once for a seed and size.
  std::span<const Record> of_seed(std::uint64_t seed, std::uint64_t count) {
    if (seed != seed_ || made_.size() != count) {
      made_.resize(count);
      transfer::fill(made_, seed);
      seed_ = seed;
    }
    return made_;
  }
  std::vector<Record> made_;
  std::uint64_t seed_ = ~std::uint64_t{0};
};

void write_contact(const std::string& file, const std::string& text) {
  const std::string draft = file + ".new";
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) ::close(fd);
  if (!written || std::rename(draft.c_str(), file.c_str()) != 0) throw std::runtime_error("cannot write " + file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: transfer_server CONTACT-FILE [ADDRESS]\n";
    return 2;
  }
  try {
    const auto token = penstock::fabric::Token::random();
    auto progress = std::make_shared<rpc::Progress>();
    auto services = std::make_shared<rpc::ServiceTable>();
    services->add(std::make_shared<Server>());
    rpc::ServerOptions options;
    options.memory_bytes = std::uint64_t{2} << 30;
    rpc::Server server(
        progress, services,
        [token](const std::string& name) -> std::optional<penstock::fabric::Token> {
          if (name != "transfer/user") return std::nullopt;
          return token;
        },
        argc > 2 ? argv[2] : "127.0.0.1", options);
    write_contact(argv[1], penstock::fabric::to_text(server.endpoint()) + "\n" + token.hex() + "\n");
    std::cout << "ready" << std::endl;
    for (char c = 0; ::read(0, &c, 1) > 0;) {
    }
  } catch (const std::exception& error) {
    std::cerr << "transfer_server: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
