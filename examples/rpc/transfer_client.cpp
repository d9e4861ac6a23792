// transfer_client CONTACT-FILE [RECORDS [REPEATS [automatic|unix|tcp]]]
//
// Moves an array of records to the transfer service and back in its four ways, checks it, and prints the bandwidth of each.
// "unix": over the Unix socket, with memory that is not shared.
#include <chrono>
#include <cstring>
#include <iomanip>
#include <iostream>

#include "records.hpp"

namespace {

namespace rpc = penstock::rpc;
using namespace penstock::examples::transfer;
using Clock = std::chrono::steady_clock;

rpc::CallOptions within() { return {penstock::base::Deadline(penstock::Timeout(60'000))}; }

std::uint64_t ends_checksum(std::span<const Record> records) {
  const std::size_t some = std::min<std::size_t>(1024, records.size());
  return transfer::checksum(records.first(some)) + transfer::checksum(records.last(some));
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string(what) + " did not carry the records over");
}

// The best of the repetitions.
template <class F>
void measure(const char* name, std::uint64_t bytes, int repeats, F&& once) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    once();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::cout << std::left << std::setw(14) << name << std::right << std::fixed << std::setprecision(1) << std::setw(12)
            << best * 1e6 << " us" << std::setw(12) << static_cast<double>(bytes) / best / 1e6 << " MB/s" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: transfer_client CONTACT-FILE [RECORDS [REPEATS [automatic|unix|tcp]]]\n";
    return 2;
  }
  try {
    const auto contact = transfer::read_contact(argv[1]);
    const std::uint64_t count = argc > 2 ? std::stoull(argv[2]) : 65'536;
    const int repeats = argc > 3 ? std::stoi(argv[3]) : 5;
    const std::string way = argc > 4 ? argv[4] : "automatic";
    const std::uint64_t bytes = count * sizeof(Record);

    auto progress = std::make_shared<rpc::Progress>();
    rpc::ServerOptions options;
    options.memory_bytes = std::uint64_t{2} << 30;
    const auto reach = way == "tcp" ? penstock::fabric::Reach::tcp_only : penstock::fabric::Reach::automatic;
    const auto deadline = within().deadline;
    auto channel = penstock::fabric::run_task(
        *progress,
        rpc::connect(progress, contact.endpoint, contact.token, "transfer/user", nullptr, deadline, reach, options),
        deadline, "no connection");
    TransferClient client(channel);
    std::cout << count << " records of " << sizeof(Record) << " bytes over "
              << (way == "unix" ? "unix" : channel->bulk().plane()) << std::endl;

    const auto buffer = way == "unix" ? rpc::BulkBuffer() : rpc::BulkBuffer::allocate(bytes);
    std::vector<Record> plain(way == "unix" ? count : 0);
    const std::span<Record> records = way == "unix" ? std::span(plain) : transfer::as_records(buffer.span());
    std::vector<Record> expected(count);

    transfer::fill(records, 1);
    std::memcpy(expected.data(), records.data(), bytes);
    measure("memcpy", bytes, repeats, [&] { std::memcpy(expected.data(), records.data(), bytes); });
    RecordsT message;
    message.records.assign(records.begin(), records.end());
    measure("write-encode", bytes, repeats, [&] {
      const auto result = client.start_write_encode(message, within()).get(within().deadline);
      expect(result.count == count && result.checksum == ends_checksum(records), "write-encode");
    });
    {
      const auto exposure = channel->bulk().expose(std::as_bytes(records));
      MemoryT memory;
      memory.memory = exposure.descriptor();
      memory.count = count;
      measure("write-bulk", bytes, repeats, [&] {
        const auto result = client.start_write_bulk(memory, within()).get(within().deadline);
        expect(result.count == count && result.checksum == ends_checksum(records), "write-bulk");
      });
    }
    WantedT wanted;
    wanted.count = count;
    wanted.seed = 2;
    transfer::fill(expected, 2);
    measure("read-encode", bytes, repeats, [&] {
      message = client.start_read_encode(wanted, within()).get(within().deadline);
      expect(message.records.size() == count && ends_checksum(message.records) == ends_checksum(expected),
             "read-encode");
    });
    expect(std::memcmp(message.records.data(), expected.data(), bytes) == 0, "read-encode");
    {
      const auto exposure = channel->bulk().expose(std::as_writable_bytes(records), rpc::Access::write);
      MemoryT memory;
      memory.memory = exposure.descriptor();
      memory.count = count;
      memory.seed = 2;
      measure("read-bulk", bytes, repeats, [&] {
        const auto result = client.start_read_bulk(memory, within()).get(within().deadline);
        expect(result.count == count && result.checksum == ends_checksum(expected), "read-bulk");
      });
    }
    expect(std::memcmp(records.data(), expected.data(), bytes) == 0, "read-bulk");
  } catch (const std::exception& error) {
    std::cerr << "transfer_client: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
