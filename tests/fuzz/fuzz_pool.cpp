// What pools read from clients, peers and the directory: every request of pool.fbs, verified and unpacked as a server does;
// views and announcements; packed keys; patterns.
#include "fuzz.hpp"
#include "pool/keys/placement.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/view.hpp"
#include "rpc/encoding.hpp"

using namespace penstock;
using namespace penstock::pool;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t {
  put,
  get,
  release,
  list,
  drop,
  drop_pattern,
  wait_row,
  subscribe,
  unsubscribe,
  compute,
  replicate,
  fetch,
  missing,
  pull,
  admin,
  attach,
  open_reader,
  next_step,
  end_step,
  close_reader,
  stream_info,
  view,
  announcement,
  packed_key,
  pattern,
  targets
};

// Runs `check` on the request, if it is one.
template <class Table, class Check>
void request(std::span<const std::byte> bytes, Check check) {
  fuzz::refuses_with({Errc::protocol, Errc::invalid_argument}, [&] {
    auto value = rpc::decode<Table>(std::vector<std::byte>(bytes.begin(), bytes.end()), "request");
    check(value);
    // What was read can be sent on, and reads the same.
    (void)rpc::decode<Table>(rpc::encode<Table>(value), "request");
  });
}

constexpr auto nothing = [](const auto&) {};

// What was unpacked packs to the same.
void check_keys(const fb::KeysT* packed) {
  const auto keys = unpack_keys(packed);
  const auto again = pack_keys(keys.ns, keys.keys);
  fuzz::check(again->ns == packed->ns && again->bytes == packed->bytes && again->lengths == packed->lengths);
}

void check_put(const fb::PutRequestT& request) {
  check_keys(request.keys.get());
  const std::uint64_t total = request.bulk.bytes() > 0 ? request.bulk.bytes() : request.data.size();
  check_sizes(request.keys->lengths.size() / 2, request.sizes, total);
  std::uint64_t offset = 0;
  for (const auto size : request.sizes) {
    if (request.bulk.bytes() == 0) part_of(request.data, offset, size);
    offset += size;
  }
  fuzz::check(offset == total);
  checked_enum(request.if_exists, IfExists::add_version);
  checked_enum(request.acknowledge, Acknowledge::durable);
}

void check_pattern(const std::vector<std::uint8_t>& ns, const std::vector<std::uint8_t>& row,
                   const std::vector<std::uint8_t>& column) {
  unpack_namespace(ns);
  unpack_pattern(row, column).matches("rank/00001", "T");
}

void check_replicate(const fb::ReplicateRequestT& request) { check_batch(unpack_keys(request.keys.get()), request); }

void check_packed_key(std::string_view bytes) {
  fuzz::refuses_with({Errc::protocol}, [&] {
    const auto key = unpack_key(bytes);
    fuzz::check(pack_key(key.ns, key.row, key.column) == bytes);
  });
}

// The first half is the pattern, the rest the text.
void check_pattern(std::string_view bytes) {
  fuzz::refuses_with({Errc::invalid_argument}, [&] {
    const TextPattern pattern(std::string(bytes.substr(0, bytes.size() / 2)));
    const std::string_view text = bytes.substr(bytes.size() / 2);
    if (pattern.matches(text)) fuzz::check(text.starts_with(pattern.prefix()));
    if (pattern.exact()) fuzz::check(pattern.matches(pattern.prefix()));
    fuzz::check(TextPattern::exactly(text).matches(text));
  });
}

void check_view(std::string_view bytes) {
  fuzz::refuses_with({Errc::protocol}, [&] {
    const pool::View view = view_from_json(bytes);
    fuzz::check(view_from_json(to_json(view)) == view);
    if (view.members.size() <= 4 && !view.members.empty() && view.members[0].state == ServerState::active)
      fuzz::check(Placement(view).owners({}, "row", 7).count > 0);
  });
}

void check_announcement(std::string_view bytes) {
  fuzz::refuses_with({Errc::protocol}, [&] {
    const Announcement announcement = announcement_from_json(bytes);
    next_view({}, {announcement}, 2);
  });
}

std::unique_ptr<fb::KeysT> some_keys() {
  const std::vector<Key> keys = {{"rank/1", "T"}, {std::string("\0row", 4), ""}};
  return pack_keys({}, keys);
}

Bytes some_put() {
  fb::PutRequestT put;
  put.view = 3;
  put.keys = some_keys();
  put.sizes = {2, 3};
  put.data = {1, 2, 3, 4, 5};
  put.checksums = {1, 2};
  put.metadata = "text";
  return rpc::encode<fb::PutRequest>(put);
}

Bytes some_replicate() {
  fb::ReplicateRequestT batch;
  batch.keys = some_keys();
  batch.sizes = {0, 3};
  batch.versions = batch.checksums = batch.tags = {1, 2};
  batch.put_us = {1, 2};
  batch.tagged = batch.keep_older = {false, true};
  batch.dropped = {true, false};
  batch.metadata = {"", "text"};
  batch.data = {1, 2, 3};
  return rpc::encode<fb::ReplicateRequest>(batch);
}

Bytes some_pull() {
  fb::PullRequestT pull;
  pull.stream = "heat";
  pull.addresses = {"{}"};
  pull.ranges.push_back(std::make_unique<fb::PullRangeT>());
  pull.ranges[0]->bytes = 64;
  pull.stripes.push_back(std::make_unique<fb::PullStripeT>());
  pull.stripes[0]->bytes = 64;
  pull.stripes[0]->ranges = 1;
  return rpc::encode<fb::PullRequest>(pull);
}

// Most requests are keys and a few numbers, or a pattern and a few.
template <class Table>
Bytes with_keys() {
  typename Table::NativeTableType request;
  request.keys = some_keys();
  return rpc::encode<Table>(request);
}
template <class Table>
Bytes with_pattern() {
  typename Table::NativeTableType request;
  request.ns = pack_namespace({});
  request.row = pack_bytes("rank/*");
  request.column = pack_bytes("[T-V]?");
  return rpc::encode<Table>(request);
}
template <class Table>
Bytes with_stream() {
  typename Table::NativeTableType request;
  request.stream = "heat";
  return rpc::encode<Table>(request);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  fb::ReleaseRequestT leases;
  leases.leases = {1, 2};
  fb::UnsubscribeRequestT ended;
  ended.id = 7;
  fb::AdminRequestT command;
  command.command = "drain";
  pool::View some{.number = 7, .settled = false, .replication = 2, .members = {}};
  some.members.push_back({.id = 3, .name = "node:3", .endpoint = {"name", {"127.0.0.1"}, 4711}});
  some.members.push_back({.id = 4, .name = "node:4", .endpoint = {}, .weight = 2, .state = ServerState::draining});
  return {choose(put, some_put()),
          choose(get, with_keys<fb::GetRequest>()),
          choose(release, rpc::encode<fb::ReleaseRequest>(leases)),
          choose(list, with_pattern<fb::ListRequest>()),
          choose(drop, with_keys<fb::DropRequest>()),
          choose(drop_pattern, with_pattern<fb::DropPatternRequest>()),
          choose(wait_row, with_pattern<fb::WaitRowRequest>()),
          choose(subscribe, with_pattern<fb::SubscribeRequest>()),
          choose(unsubscribe, rpc::encode<fb::UnsubscribeRequest>(ended)),
          choose(compute, with_keys<fb::ComputeRequest>()),
          choose(replicate, some_replicate()),
          choose(fetch, with_keys<fb::FetchRequest>()),
          choose(missing, with_keys<fb::MissingRequest>()),
          choose(pull, some_pull()),
          choose(admin, rpc::encode<fb::AdminRequest>(command)),
          choose(attach, with_stream<fb::AttachRequest>()),
          choose(open_reader, with_stream<fb::OpenReaderRequest>()),
          choose(next_step, with_stream<fb::NextStepRequest>()),
          choose(end_step, with_stream<fb::EndStepRequest>()),
          choose(close_reader, with_stream<fb::CloseReaderRequest>()),
          choose(stream_info, with_stream<fb::StreamInfoRequest>()),
          choose(view, to_json(some)),
          choose(announcement, to_json(Announcement{some.members[0], true, 5})),
          choose(packed_key, pack_key({}, std::string("a\0b", 3), "column")),
          choose(pattern, "a*[b-d]?\\*axxxcz*")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const auto keys = [](const auto& request) { check_keys(request.keys.get()); };
  const auto patterns = [](const auto& request) { check_pattern(request.ns, request.row, request.column); };
  switch (data[0] % targets) {
    case put: request<fb::PutRequest>(bytes, check_put); break;
    case get: request<fb::GetRequest>(bytes, keys); break;
    case release: request<fb::ReleaseRequest>(bytes, nothing); break;
    case list: request<fb::ListRequest>(bytes, patterns); break;
    case drop: request<fb::DropRequest>(bytes, keys); break;
    case drop_pattern: request<fb::DropPatternRequest>(bytes, patterns); break;
    case wait_row: request<fb::WaitRowRequest>(bytes, patterns); break;
    case subscribe: request<fb::SubscribeRequest>(bytes, patterns); break;
    case unsubscribe: request<fb::UnsubscribeRequest>(bytes, nothing); break;
    case compute: request<fb::ComputeRequest>(bytes, keys); break;
    case replicate: request<fb::ReplicateRequest>(bytes, check_replicate); break;
    case fetch: request<fb::FetchRequest>(bytes, keys); break;
    case missing: request<fb::MissingRequest>(bytes, keys); break;
    case pull: request<fb::PullRequest>(bytes, check_pull); break;
    case admin: request<fb::AdminRequest>(bytes, nothing); break;
    case attach: request<fb::AttachRequest>(bytes, nothing); break;
    case open_reader: request<fb::OpenReaderRequest>(bytes, nothing); break;
    case next_step: request<fb::NextStepRequest>(bytes, nothing); break;
    case end_step: request<fb::EndStepRequest>(bytes, nothing); break;
    case close_reader: request<fb::CloseReaderRequest>(bytes, nothing); break;
    case stream_info: request<fb::StreamInfoRequest>(bytes, nothing); break;
    case view: check_view(fuzz::text(bytes)); break;
    case announcement: check_announcement(fuzz::text(bytes)); break;
    case packed_key: check_packed_key(fuzz::text(bytes)); break;
    case pattern: check_pattern(fuzz::text(bytes)); break;
  }
  return 0;
}
