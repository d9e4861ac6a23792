// penstock::Pool: calls on keys. Each is a batch, scattered over the servers that own the keys. Calls on patterns and rows are
// in pool_patterns.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/fork.hpp"
#include "base/text.hpp"
#include "fabric/registration.hpp"
#include "memory/kind.hpp"
#include "penstock/stream.hpp"
#include "pool/client/client_impl.hpp"
#include "pool/keys/infos.hpp"
#include "pool/keys/protocol.hpp"

namespace penstock {

using fabric::Task;
using pool::PoolClient;
namespace fb = pool::fb;

namespace {

constexpr std::uint64_t inline_put_bytes = 512 << 10;  // a batch below this travels in the message
constexpr std::uint64_t inline_get_bytes = 128 << 10;  // objects up to this do
constexpr std::size_t max_batch = 10'000;              // keys in one request
// Keys in one request that reads: their metadata fit in the reply, however large.
constexpr std::size_t max_read_batch = pool::max_metadata_reply / pool::max_metadata_bytes;
constexpr std::uint64_t max_batch_bytes = 64 << 20;

// Keys are binary; messages are not.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 64)) {
    if (c >= 0x20 && c < 0x7f) out += c;
    else out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > 64 ? out + "..." : out;
}

// What goes in one request each.
std::vector<std::vector<std::size_t>> parts_of(std::vector<std::size_t> indices, std::size_t most,
                                               const std::function<std::uint64_t(std::size_t)>& bytes_of) {
  std::vector<std::vector<std::size_t>> parts(1);
  std::uint64_t bytes = 0;
  for (const auto i : indices) {
    const std::uint64_t more = bytes_of ? bytes_of(i) : 0;
    if (parts.back().size() == most || (!parts.back().empty() && bytes + more > max_batch_bytes)) {
      parts.emplace_back();
      bytes = 0;
    }
    bytes += more;
    parts.back().push_back(i);
  }
  return parts;
}

// Memory of an object that a server of this node keeps for us: given back with the last owner.
struct Leased {
  std::shared_ptr<rpc::Channel> channel;
  std::uint64_t lease = 0;
  std::shared_ptr<const void> mapping;
  const base::Origin origin;
  Leased(std::shared_ptr<rpc::Channel> c, std::uint64_t l) : channel(std::move(c)), lease(l) {}
  Leased(const Leased&) = delete;
  ~Leased() {
    if (origin.leave(channel, mapping)) return;
    if (lease != 0) pool::release_leases(channel, {lease});
  }
};

}  // namespace

// ------------------------------------------------------------------------------------------------------------- scattering

template <class R>
Task<std::vector<Result<R>>> Pool::Impl::scatter(std::shared_ptr<Batch<R>> batch, std::optional<std::uint64_t> tag,
                                                 bool replicas, base::Deadline deadline,
                                                 std::function<std::uint64_t(std::size_t)> bytes_of, Send<R> send) {
  auto self = shared_from_this();
  auto& results = batch->results;
  Indices left(results.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  // turn: how many owners were asked in vain in the view asked_view. A new view's primary is asked before its replicas, which
  // may lag behind it.
  PoolClient::Attempt turn = 0;
  std::uint64_t asked_view = 0;
  for (PoolClient::Attempt attempt = 0; !left.empty(); ++attempt) {
    const auto placement = co_await client->members().at_least(1, deadline);
    const auto& view = placement->view();
    if (std::exchange(asked_view, view.number) != view.number) turn = 0;
    struct Sent {
      std::shared_ptr<const Indices> indices;
      std::string server;
      fabric::Future<void> future;
    };
    std::vector<Sent> sent;
    for (auto& [member, indices] : by_server(*placement, *batch, left, tag, replicas ? turn : 0)) {
      for (auto& part : parts_of(std::move(indices), replicas ? max_read_batch : max_batch, bytes_of)) {
        auto shared = std::make_shared<const Indices>(std::move(part));
        auto task = send_to(view.members[member], view.number, batch, shared, attempt, replicas, deadline, send);
        sent.push_back({shared, view.members[member].name, fabric::spawn(*client->progress(), std::move(task))});
      }
    }
    left.clear();
    std::optional<Error> last;
    for (auto& s : sent) {
      std::optional<Error> failed;
      try {
        co_await std::move(s.future);
        for (const auto i : *s.indices) {
          // A replica that does not have it may lag behind; the primary decides.
          if (results[i].code != Errc::not_found || !replicas || turn == 0) continue;
          if (turn % std::max(1u, placement->owners(ns, batch->key(i).row, tag).count) == 0) continue;
          left.push_back(i);
          last = Error(Errc::not_found, results[i].message);
        }
      } catch (const Error& error) {
        failed = error.in("server " + s.server);
      }
      if (!failed) continue;
      const bool stale = failed->code() == Errc::stale_view;  // at the deadline a timeout: below
      const bool retry =
          stale || ((PoolClient::may_retry(*failed) || failed->code() == Errc::timeout) && !deadline.passed());
      for (const auto i : *s.indices) {
        results[i] = {};
        if (retry) {
          left.push_back(i);
        } else {
          results[i].code = failed->code();
          results[i].message = "pool " + client->pool() + ": " + failed->what();
        }
      }
      last = failed;
    }
    if (left.empty()) break;
    for (const auto i : left) results[i] = {};
    if (deadline.passed()) {
      for (const auto i : left) {
        results[i].code = Errc::timeout;
        results[i].message = "pool " + client->pool() + ": " + (last ? last->what() : "no server answered");
      }
      break;
    }
    // Reads with another replica to ask do not wait for a new view first.
    turn = last->code() == Errc::stale_view ? 0 : turn + 1;
    const bool try_replica = replicas && view.replication > 1 && turn % view.replication != 0;
    if (!try_replica) {
      const Error why = *last;
      co_await client->before_retry(view.number, attempt, why, deadline);
    }
  }
  co_return std::move(results);
}

// Whom to ask for which keys. While the primary cannot be reached, reads go to the replicas in turn.
template <class R>
std::map<std::uint32_t, Pool::Impl::Indices> Pool::Impl::by_server(const pool::Placement& placement,
                                                                   const Batch<R>& batch, const Indices& wanted,
                                                                   std::optional<std::uint64_t> tag,
                                                                   PoolClient::Attempt turn) const {
  std::map<std::uint32_t, Indices> groups;
  Indices* group = nullptr;
  const std::string* row = nullptr;
  for (const auto i : wanted) {
    const Key& key = batch.key(i);
    if (row == nullptr || *row != key.row) {  // most batches stay in a row for a while
      row = &key.row;
      const auto owners = placement.owners(ns, key.row, tag);
      group = &groups[owners.index[turn % owners.count]];
    }
    group->push_back(i);
  }
  return groups;
}

template <class R>
std::unique_ptr<fb::KeysT> Pool::Impl::packed_keys(const Batch<R>& batch, const Indices& indices) const {
  return pool::pack_keys(ns, indices.size(), [&](std::size_t n) -> const Key& { return batch.key(indices[n]); });
}

template <class R>
Task<void> Pool::Impl::send_to(pool::Member member, std::uint64_t view, std::shared_ptr<Batch<R>> batch,
                               std::shared_ptr<const Indices> indices, PoolClient::Attempt attempt, bool replicas,
                               base::Deadline deadline, Send<R> send) {
  auto self = shared_from_this();
  const auto connect_by = replicas ? earlier(deadline, base::Deadline(Timeout(2000))) : deadline;
  auto channel = co_await client->members().channel(std::move(member), connect_by);
  co_await send(std::move(channel), view, std::move(batch), std::move(indices), attempt);
}

// -------------------------------------------------------------------------------------------------------------------- put

Task<std::vector<Result<std::uint64_t>>> Pool::Impl::put(std::vector<PutItem> items, PutOptions put_options,
                                                         base::Deadline deadline, Fill fill) {
  auto self = shared_from_this();
  if (put_options.metadata.size() > pool::max_metadata_bytes)
    throw Error(Errc::invalid_argument, "metadata of " + std::to_string(put_options.metadata.size()) +
                                            " bytes; they are at most " + base::format_size(pool::max_metadata_bytes));
  auto shared = std::make_shared<const Puts>(Puts{std::move(items), std::move(put_options), std::move(fill)});
  auto batch = std::make_shared<Batch<std::uint64_t>>();
  batch->key = [shared](std::size_t i) -> const Key& { return shared->items[i].key; };
  batch->results.resize(shared->items.size());
  auto bytes_of = [shared](std::size_t i) { return static_cast<std::uint64_t>(shared->items[i].bytes.size()); };
  Send<std::uint64_t> send = [self, shared, deadline](
                                 Channel channel, std::uint64_t view, std::shared_ptr<Batch<std::uint64_t>> of,
                                 std::shared_ptr<const Indices> indices, PoolClient::Attempt attempt) {
    return self->send_put(std::move(channel), view, std::move(of), std::move(indices), attempt, shared, deadline);
  };
  const auto tag = shared->options.tag;
  co_return co_await scatter<std::uint64_t>(std::move(batch), tag, false, deadline, std::move(bytes_of),
                                            std::move(send));
}

void Pool::Impl::Puts::copy(std::size_t item, std::byte* to) const {
  if (fill) fill(item, to);
  else memory::copy_in(to, items[item].bytes.data(), items[item].bytes.size());
}

Task<void> Pool::Impl::send_put(Channel channel, std::uint64_t view, std::shared_ptr<Batch<std::uint64_t>> batch,
                                std::shared_ptr<const Indices> shared_indices, PoolClient::Attempt attempt,
                                std::shared_ptr<const Puts> puts, base::Deadline deadline) {
  auto self = shared_from_this();
  const auto& indices = *shared_indices;
  const auto& items = puts->items;
  const auto& put_options = puts->options;
  fb::PutRequestT request;
  request.view = view;
  request.keys = packed_keys(*batch, indices);
  request.if_exists = static_cast<std::uint8_t>(put_options.if_exists);
  request.acknowledge = static_cast<std::uint8_t>(put_options.acknowledge);
  request.tagged = put_options.tag.has_value();
  request.tag = put_options.tag.value_or(0);
  request.metadata = put_options.metadata;
  request.again = attempt > 0;  // the answer to an earlier try may have been lost on its way
  std::uint64_t total = 0;
  request.sizes.reserve(indices.size());
  for (const auto i : indices) {
    request.sizes.push_back(items[i].bytes.size());
    total += items[i].bytes.size();
  }
  transport::BulkBuffer buffer;
  transport::Exposure exposure;
  const bool one = indices.size() == 1;
  if (total <= inline_put_bytes) {
    request.data.resize(total);
    auto* to = reinterpret_cast<std::byte*>(request.data.data());
    for (const auto i : indices) {
      puts->copy(i, to);
      to += items[i].bytes.size();
    }
  } else if (one && !puts->fill && !channel->shares_memory() && !memory::on_device(items[indices[0]].bytes.data())) {
    exposure = channel->bulk().expose(items[indices[0]].bytes);
  } else {
    buffer = transport::BulkBuffer::allocate(total);
    auto copy = [&] {
      std::uint64_t offset = 0;
      for (const auto i : indices) {
        puts->copy(i, buffer.span().data() + offset);
        offset += items[i].bytes.size();
      }
    };
    co_await workers->run(copy);
    exposure = channel->bulk().expose(std::span<const std::byte>(buffer.span().first(total)), buffer.state());
  }
  if (total > inline_put_bytes) request.bulk = exposure.descriptor();
  rpc::CallOptions call_options{deadline};
  auto reply = co_await fb::ObjectsClient(channel).put(std::move(request), call_options);
  auto& results = batch->results;
  if (reply.versions.size() != indices.size() || reply.failed.size() != reply.failures.size())
    throw Error(Errc::protocol, "a reply of another length");
  for (std::size_t n = 0; n < indices.size(); ++n) results[indices[n]].value = reply.versions[n];
  for (std::size_t f = 0; f < reply.failed.size(); ++f) {
    const auto n = reply.failed[f];
    if (n >= indices.size()) throw Error(Errc::protocol, "a reply about another object");
    const auto code = static_cast<Errc>(reply.failures[f]->code);
    if (code == Errc::stale_view || code == Errc::peer_lost) throw Error(code, reply.failures[f]->message);
    auto& result = results[indices[n]];
    result.value.reset();
    result.code = code;
    result.message =
        "pool " + client->pool() + ": " + item_text(items[indices[n]].key) + ": " + reply.failures[f]->message;
  }
}

// -------------------------------------------------------------------------------------------------------------------- get

Task<std::vector<Result<Object>>> Pool::Impl::get(std::vector<Key> keys, GetOptions get_options, bool wait,
                                                  bool info_only, base::Deadline deadline) {
  auto self = shared_from_this();
  auto shared_options = std::make_shared<const GetOptions>(get_options);
  auto shared_keys = std::make_shared<const std::vector<Key>>(std::move(keys));
  auto batch = std::make_shared<Batch<Object>>();
  batch->key = [shared_keys](std::size_t i) -> const Key& { return (*shared_keys)[i]; };
  batch->results.resize(shared_keys->size());
  Send<Object> send = [self, shared_options, wait, info_only, deadline](
                          Channel channel, std::uint64_t view, std::shared_ptr<Batch<Object>> of,
                          std::shared_ptr<const Indices> indices, PoolClient::Attempt) {
    return self->send_get(std::move(channel), view, std::move(of), std::move(indices), shared_options, wait, info_only,
                          deadline);
  };
  const auto tag = shared_options->tag;
  co_return co_await scatter<Object>(std::move(batch), tag, true, deadline, {}, std::move(send));
}

Task<void> Pool::Impl::send_get(Channel channel, std::uint64_t view, std::shared_ptr<Batch<Object>> batch,
                                std::shared_ptr<const Indices> shared_indices,
                                std::shared_ptr<const GetOptions> get_options, bool wait, bool info_only,
                                base::Deadline deadline) {
  auto self = shared_from_this();
  const auto& indices = *shared_indices;
  const std::size_t count = indices.size();
  fb::GetRequestT request;
  request.view = view;
  request.keys = packed_keys(*batch, indices);
  request.version = get_options->version.value_or(0);
  request.tagged = get_options->tag.has_value();
  request.tag = get_options->tag.value_or(0);
  request.offset = get_options->offset;
  request.bytes = get_options->bytes;
  request.wait = wait;
  request.info_only = info_only;
  request.inline_bytes = inline_get_bytes;
  rpc::CallOptions call_options{deadline};
  auto reply = std::make_shared<fb::GetReplyT>();
  *reply = co_await fb::ObjectsClient(channel).get(std::move(request), call_options);
  std::size_t answered = take_simple(reply, *batch, indices);
  for (const auto& got : reply->got) {
    if (got->index >= count) throw Error(Errc::protocol, "a reply about another object");
    const auto i = indices[got->index];
    auto& result = batch->results[i];
    if (result.value || result.code != Errc::ok) throw Error(Errc::protocol, "a reply about another object");
    ++answered;
    if (got->code != 0) {
      result.code = static_cast<Errc>(got->code);
      result.message = "pool " + client->pool() + ": " + item_text(batch->key(i)) + ": " + got->message;
      continue;
    }
    if (!got->info) throw Error(Errc::protocol, "a reply without information");
    Object object;
    object.info = pool::unpack_info(*got->info);
    if (!info_only) co_await fetch_bytes(channel, reply, *got, object, deadline);
    result.value = std::move(object);
  }
  if (answered != count) throw Error(Errc::protocol, "a reply of another length");
}

// Objects whose bytes lie in the reply one after the other; all of them share it.
std::size_t Pool::Impl::take_simple(const std::shared_ptr<fb::GetReplyT>& reply, Batch<Object>& batch,
                                    const Indices& indices) {
  const std::size_t n = reply->simple.size();
  if (reply->bytes.size() != n || reply->versions.size() != n || reply->checksums.size() != n ||
      reply->put_us.size() != n || reply->where.size() != n)
    throw Error(Errc::protocol, "a reply whose parts do not match");
  std::uint64_t offset = 0;
  // Bytes of objects that are listed otherwise may lie between: those say where.
  std::size_t other = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto index = reply->simple[i];
    if (index >= indices.size() || (i > 0 && index <= reply->simple[i - 1]))
      throw Error(Errc::protocol, "a reply about another object");
    for (; other < reply->got.size() && reply->got[other]->index < index; ++other)
      if (reply->got[other]->inlined) offset = reply->got[other]->offset + reply->got[other]->inline_size;
    const std::uint64_t size = reply->bytes[i];
    if (offset > reply->data.size() || size > reply->data.size() - offset)
      throw Error(Errc::protocol, "a reply is too short");
    Object& object = batch.results[indices[index]].value.emplace();
    object.info.key = batch.key(indices[index]);
    object.info.bytes = size;
    object.info.version = reply->versions[i];
    object.info.checksum = reply->checksums[i];
    object.info.put_us = reply->put_us[i];
    object.info.in_memory = (reply->where[i] & 1) != 0;
    object.info.on_disk = (reply->where[i] & 2) != 0;
    object.bytes_ = {reinterpret_cast<const std::byte*>(reply->data.data()) + offset, size};
    object.owner = reply;
    offset += size;
  }
  return n;
}

Task<void> Pool::Impl::fetch_bytes(std::shared_ptr<rpc::Channel> channel, std::shared_ptr<fb::GetReplyT> reply,
                                   const fb::GotT& got, Object& object, base::Deadline deadline) {
  if (got.inlined) {
    const std::uint64_t size = got.inline_size;
    if (got.offset > reply->data.size() || size > reply->data.size() - got.offset)
      throw Error(Errc::protocol, "a reply is too short");
    object.bytes_ = {reinterpret_cast<const std::byte*>(reply->data.data()) + got.offset, size};
    object.owner = reply;
    co_return;
  }
  if (got.bulk.bytes() == 0) throw Error(Errc::protocol, "a reply without bytes");
  const transport::BulkDescriptor from = got.bulk;
  auto leased = std::make_shared<Leased>(channel, got.lease);
  auto mapped = co_await map(channel, from, deadline);
  if (mapped) {  // in place: the server keeps the object for us as long as it is used
    leased->mapping = mapped->owner;
    object.bytes_ = mapped->bytes;
    object.owner = leased;
    co_return;
  }
  auto memory = std::make_shared<transport::BulkBuffer>(transport::BulkBuffer::allocate(from.bytes()));
  const auto into = memory->span().first(from.bytes());
  co_await channel->bulk().pull(from, 0, into, deadline);
  object.bytes_ = into;
  object.owner = memory;
}

// map may wait for a descriptor: on a worker.
Task<std::optional<transport::BulkSpace::Mapped>> Pool::Impl::map(std::shared_ptr<rpc::Channel> channel,
                                                                  transport::BulkDescriptor from,
                                                                  base::Deadline deadline) {
  if (!channel->shares_memory()) co_return std::nullopt;
  auto job = [channel, from, deadline] { return channel->bulk().map(from, deadline); };
  co_return co_await workers->run(job);
}

// ------------------------------------------------------------------------------------------------------------------- drop

Task<std::vector<Result<bool>>> Pool::Impl::drop(std::vector<Key> keys, GetOptions get_options,
                                                 base::Deadline deadline) {
  auto self = shared_from_this();
  auto shared_options = std::make_shared<const GetOptions>(get_options);
  auto shared_keys = std::make_shared<const std::vector<Key>>(std::move(keys));
  auto batch = std::make_shared<Batch<bool>>();
  batch->key = [shared_keys](std::size_t i) -> const Key& { return (*shared_keys)[i]; };
  batch->results.resize(shared_keys->size());
  std::uint64_t request_id = 0;  // by which servers know a later try of this drop
  std::memcpy(&request_id, fabric::Token::random().bytes.data(), sizeof(request_id));
  Send<bool> send = [self, shared_options, request_id, deadline](
                        Channel channel, std::uint64_t view, std::shared_ptr<Batch<bool>> of,
                        std::shared_ptr<const Indices> indices, PoolClient::Attempt) {
    return self->send_drop(std::move(channel), view, std::move(of), std::move(indices), shared_options, request_id,
                           deadline);
  };
  const auto tag = shared_options->tag;
  co_return co_await scatter<bool>(std::move(batch), tag, false, deadline, {}, std::move(send));
}

Task<void> Pool::Impl::send_drop(Channel channel, std::uint64_t view, std::shared_ptr<Batch<bool>> batch,
                                 std::shared_ptr<const Indices> shared_indices,
                                 std::shared_ptr<const GetOptions> get_options, std::uint64_t request_id,
                                 base::Deadline deadline) {
  auto self = shared_from_this();
  const auto& indices = *shared_indices;
  fb::DropRequestT request;
  request.request = request_id;
  request.view = view;
  request.keys = packed_keys(*batch, indices);
  request.version = get_options->version.value_or(0);
  request.tagged = get_options->tag.has_value();
  request.tag = get_options->tag.value_or(0);
  rpc::CallOptions call_options{deadline};
  auto reply = co_await fb::ObjectsClient(channel).drop(std::move(request), call_options);
  if (reply.dropped.size() != indices.size() || reply.failures.size() != indices.size())
    throw Error(Errc::protocol, "a reply of another length");
  for (std::size_t n = 0; n < indices.size(); ++n) {
    auto& result = batch->results[indices[n]];
    if (reply.failures[n] && reply.failures[n]->code != 0) {
      result.code = static_cast<Errc>(reply.failures[n]->code);
      result.message = reply.failures[n]->message;
    } else {
      result.value = reply.dropped[n];
    }
  }
}

std::string Pool::Impl::item_text(const Key& key) {
  return "object " + printable(key.row) + (key.column.empty() ? "" : "/" + printable(key.column));
}

void Pool::Impl::check_key(const Key& key) {
  if (key.row.empty()) throw Error(Errc::invalid_argument, "a key needs a row");
  if (key.row.size() > max_key_bytes || key.column.size() > max_key_bytes)
    throw Error(Errc::invalid_argument, "a row or column of more than " + std::to_string(max_key_bytes) + " bytes");
}

}  // namespace penstock
