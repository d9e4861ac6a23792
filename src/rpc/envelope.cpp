#include "rpc/envelope.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/known_code.hpp"

namespace penstock::rpc {

namespace {

struct Header {
  std::uint32_t bytes;  // of the whole item, padding included
  std::uint16_t type;
  std::uint16_t is_long;  // the body is a descriptor
  std::uint64_t id;
};
static_assert(sizeof(Header) == 16);

struct CallFields {
  std::uint64_t service;
  std::uint32_t method;
  std::uint32_t deadline_ms;
  std::uint64_t body_bytes;
};
static_assert(sizeof(CallFields) == 24);

struct FailureFields {
  std::int32_t code;
  std::uint32_t where_bytes;
  std::uint32_t message_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(FailureFields) == 16);

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

[[noreturn]] void refuse_item(const char* what) { throw Error(Errc::protocol, what); }

struct Nothing {};

// Appends the header, fields and parts of an item.
template <class Fields>
void append(std::vector<std::byte>& out, ItemType type, bool is_long, std::uint64_t id, const Fields& fields,
            std::span<const std::byte> first, std::span<const std::byte> second = {}) {
  constexpr std::size_t fields_bytes = std::is_empty_v<Fields> ? 0 : sizeof(Fields);
  const std::size_t bytes = padded(sizeof(Header) + fields_bytes + first.size() + second.size());
  const Header header{static_cast<std::uint32_t>(bytes), static_cast<std::uint16_t>(type),
                      static_cast<std::uint16_t>(is_long ? 1 : 0), id};
  const std::size_t at = out.size();
  out.resize(at + bytes);
  std::byte* to = out.data() + at;
  const auto put = [&to](const void* from, std::size_t count) {
    if (count > 0) std::memcpy(to, from, count);
    to += count;
  };
  put(&header, sizeof header);
  put(&fields, fields_bytes);
  put(first.data(), first.size());
  put(second.data(), second.size());
}

// Takes fields and bodies off the front of an item.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  T take() {
    T out;
    const auto bytes = take_bytes(sizeof out);
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  }
  std::span<const std::byte> take_bytes(std::uint64_t count) {
    if (count > rest_.size()) refuse_item("an item that is shorter than it says");
    const auto out = rest_.first(count);
    rest_ = rest_.subspan(count);
    return out;
  }
  std::string_view take_text(std::uint32_t count, std::size_t limit) {
    if (count > limit) refuse_item("a failure with too long a text");
    const auto bytes = take_bytes(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void end() const {
    if (rest_.size() >= 8) refuse_item("an item that is longer than it says");
  }

 private:
  std::span<const std::byte> rest_;
};

WireBulk take_bulk(Fields& fields) {
  const auto bulk = fields.take<WireBulk>();
  if (bulk.bytes == 0) refuse_item("a long body without bytes");
  return bulk;
}

void decode_call(Fields& fields, bool is_long, Item& item) {
  const auto call = fields.take<CallFields>();
  item.service = call.service;
  item.method = call.method;
  item.deadline_ms = call.deadline_ms;
  if (is_long) item.long_body = take_bulk(fields);
  else item.body = fields.take_bytes(call.body_bytes);
}

void decode_failure(Fields& fields, Item& item) {
  const auto failure = fields.take<FailureFields>();
  item.code = base::known_code(failure.code);
  item.where = fields.take_text(failure.where_bytes, max_where_bytes);
  item.message = fields.take_text(failure.message_bytes, max_message_bytes);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

std::optional<Item> ItemReader::next() {
  if (rest_.empty()) return std::nullopt;
  Header header;
  if (rest_.size() < sizeof header) refuse_item("a frame that ends within an item");
  std::memcpy(&header, rest_.data(), sizeof header);
  if (header.bytes < sizeof header || header.bytes > rest_.size() || header.bytes % 8 != 0 || header.is_long > 1)
    refuse_item("an item of an impossible length");
  Fields fields(rest_.subspan(sizeof header, header.bytes - sizeof header));
  rest_ = rest_.subspan(header.bytes);
  Item item;
  item.type = static_cast<ItemType>(header.type);
  item.id = header.id;
  const bool is_long = header.is_long == 1;
  switch (item.type) {
    case ItemType::call: decode_call(fields, is_long, item); break;
    case ItemType::reply: {
      const auto body_bytes = fields.take<std::uint64_t>();
      if (is_long) item.long_body = take_bulk(fields);
      else item.body = fields.take_bytes(body_bytes);
      break;
    }
    case ItemType::failure: decode_failure(fields, item); break;
    case ItemType::cancel:
    case ItemType::release: break;
    case ItemType::link: item.body = fields.take_bytes(fields.take<std::uint64_t>()); break;
    default: refuse_item("an item of an unknown type");
  }
  fields.end();
  return item;
}

void append_call(std::vector<std::byte>& out, std::uint64_t id, std::uint64_t service, std::uint32_t method,
                 std::uint32_t deadline_ms, std::span<const std::byte> body) {
  append(out, ItemType::call, false, id, CallFields{service, method, deadline_ms, body.size()}, body);
}

void append_long_call(std::vector<std::byte>& out, std::uint64_t id, std::uint64_t service, std::uint32_t method,
                      std::uint32_t deadline_ms, const WireBulk& body) {
  append(out, ItemType::call, true, id, CallFields{service, method, deadline_ms, 0},
         std::as_bytes(std::span(&body, 1)));
}

void append_reply(std::vector<std::byte>& out, std::uint64_t id, std::span<const std::byte> body) {
  append(out, ItemType::reply, false, id, static_cast<std::uint64_t>(body.size()), body);
}

void append_long_reply(std::vector<std::byte>& out, std::uint64_t id, const WireBulk& body) {
  append(out, ItemType::reply, true, id, std::uint64_t{0}, std::as_bytes(std::span(&body, 1)));
}

void append_failure(std::vector<std::byte>& out, std::uint64_t id, Errc code, std::string_view where,
                    std::string_view message) {
  where = where.substr(0, max_where_bytes);
  message = message.substr(0, max_message_bytes);
  const FailureFields fields{static_cast<std::int32_t>(code), static_cast<std::uint32_t>(where.size()),
                             static_cast<std::uint32_t>(message.size()), 0};
  append(out, ItemType::failure, false, id, fields, bytes_of(where), bytes_of(message));
}

void append_plain(std::vector<std::byte>& out, ItemType type, std::uint64_t id) {
  append(out, type, false, id, Nothing{}, {});
}

void append_link(std::vector<std::byte>& out, std::span<const std::byte> message) {
  append(out, ItemType::link, false, 0, static_cast<std::uint64_t>(message.size()), message);
}

}  // namespace penstock::rpc
