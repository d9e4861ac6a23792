// What a peer sends on the connections of a channel of remote calls: frames of items, announcements of memory, and the
// messages of the bulk connection.
#include "fuzz.hpp"
#include "rpc/bulk_wire.hpp"
#include "rpc/envelope.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { items, segment, leases, ticket, bulk_header, bulk_ranges, targets };

// What is decoded is encoded again, and must come out the same.
void read_items(std::span<const std::byte> frame) {
  rpc::ItemReader reader(frame);
  while (const auto item = reader.next()) {
    std::vector<std::byte> again;
    switch (item->type) {
      case rpc::ItemType::call:
        if (item->long_body)
          rpc::append_long_call(again, item->id, item->service, item->method, item->deadline_ms, *item->long_body);
        else rpc::append_call(again, item->id, item->service, item->method, item->deadline_ms, item->body);
        break;
      case rpc::ItemType::reply:
        if (item->long_body) rpc::append_long_reply(again, item->id, *item->long_body);
        else rpc::append_reply(again, item->id, item->body);
        break;
      case rpc::ItemType::failure: rpc::append_failure(again, item->id, item->code, item->where, item->message); break;
      case rpc::ItemType::welcome: rpc::append_welcome(again, item->ticket); break;
      case rpc::ItemType::atomic: rpc::append_atomic(again, item->id, item->atomic); break;
      case rpc::ItemType::atomic_reply: rpc::append_atomic_reply(again, item->id, item->value); break;
      default: rpc::append_plain(again, item->type, item->id); break;
    }
    const auto twice = rpc::ItemReader(again).next();
    fuzz::check(twice && twice->type == item->type && twice->body.size() == item->body.size() &&
                twice->code == item->code && twice->message == item->message);
  }
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> all;
  Bytes out;
  const Bytes body(40, std::byte{3});
  rpc::append_call(out, 1, 2, 3, 4, body);
  rpc::append_reply(out, 1, body);
  all.push_back(choose(items, out));
  out.clear();
  rpc::append_long_call(out, 1, 2, 3, rpc::no_deadline, {1, 1 << 20, 0, 3, 1});
  rpc::append_long_reply(out, 1, {1, 1 << 20, 0, 3, 1});
  rpc::append_failure(out, 2, Errc::timeout, "here", "too late");
  all.push_back(choose(items, out));
  out.clear();
  rpc::append_plain(out, rpc::ItemType::cancel, 1);
  rpc::append_welcome(out, {});
  rpc::append_atomic(out, 7, {1, 8, 1, 2, rpc::AtomicOp::compare_swap, 0});
  rpc::append_atomic_reply(out, 7, 9);
  all.push_back(choose(items, out));
  const auto raw = [](const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return Bytes(bytes.begin(), bytes.end());
  };
  all.push_back(choose(segment, raw(rpc::SegmentFrame{4096, 1, 1})));
  all.push_back(choose(leases, raw(rpc::LeasesFrame{65536})));
  all.push_back(choose(ticket, raw(rpc::Ticket{})));
  rpc::BulkHeader header;
  header.bytes = 100;
  header.count = 1;
  all.push_back(choose(bulk_header, raw(header)));
  all.push_back(choose(bulk_ranges, raw(rpc::BulkRange{8, 100})));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  fuzz::refuses_with({Errc::protocol}, [&] {
    switch (data[0] % targets) {
      case items: read_items(bytes); break;
      case segment: rpc::decode_segment(bytes); break;
      case leases: rpc::decode_leases(bytes); break;
      case ticket: rpc::decode_ticket(bytes); break;
      case bulk_header: rpc::decode_bulk_header(bytes); break;
      case bulk_ranges: rpc::decode_bulk_ranges(bytes, 100); break;
    }
  });
  return 0;
}
