// What a peer sends on the connections of a channel of remote calls: frames of items, messages about bulk memory, and those of
// the bulk connection.
#include "fuzz.hpp"
#include "rpc/envelope.hpp"
#include "transport/bulk_messages.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { items, link_message, ticket, targets };

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
      case rpc::ItemType::link: rpc::append_link(again, item->body); break;
      default: rpc::append_plain(again, item->type, item->id); break;
    }
    const auto twice = rpc::ItemReader(again).next();
    fuzz::check(twice && twice->type == item->type && twice->body.size() == item->body.size() &&
                twice->code == item->code && twice->message == item->message);
  }
}

void read_message(std::span<const std::byte> bytes) {
  std::string_view text;
  const auto message = transport::decode_bulk_message(bytes, text);
  const auto again = transport::encode(message, text);
  std::string_view twice;
  fuzz::check(transport::decode_bulk_message(again, twice).a == message.a && twice == text);
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
  rpc::append_link(out, body);
  all.push_back(choose(items, out));
  const auto raw = [](const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return Bytes(bytes.begin(), bytes.end());
  };
  using Kind = transport::BulkMessageKind;
  all.push_back(choose(link_message, transport::encode({Kind::segment, 1, 1, 4096})));
  all.push_back(choose(link_message, transport::encode({Kind::leases, 0, 0, 65536})));
  all.push_back(choose(link_message, transport::encode({Kind::compare_swap, 0, 7, 1, 8, 1, 2})));
  all.push_back(choose(link_message, transport::encode({Kind::atomic_failure, 2, 7}, "why")));
  all.push_back(choose(ticket, raw(transport::Ticket{})));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  fuzz::refuses_with({Errc::protocol}, [&] {
    switch (data[0] % targets) {
      case items: read_items(bytes); break;
      case link_message: read_message(bytes); break;
      case ticket: transport::decode_ticket(bytes); break;
    }
  });
  return 0;
}
