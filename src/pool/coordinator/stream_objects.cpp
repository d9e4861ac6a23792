#include "pool/coordinator/stream_objects.hpp"

#include "base/config.hpp"
#include "base/log.hpp"
#include "pool/keys/infos.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/keys/stream_keys.hpp"
#include "pool/store/object_info.hpp"

namespace penstock::pool {

StreamOptions stream_options(const fb::StreamRecordT& record, const std::string& stream) {
  StreamOptions options = base::from_yaml(record.options, [&](const Error& e) {  // of a writer newer than this server
    base::log(base::Level::warn, "an option of a stream is not understood", {{"stream", stream}, {"why", e.what()}});
  });
  if (record.stripe_bytes != 0) options.stripe_bytes = record.stripe_bytes;  // readers know the first writer's
  return options;
}

KeyPattern exact_row(const std::string& row) {
  Pattern pattern;
  pattern.row = escape_pattern(row);
  return KeyPattern(pattern);
}

Task<std::string> first_row(ServerCore& core, Member member, std::uint64_t view, std::string rows,
                            base::Deadline deadline) {
  std::string found;
  if (member.id == core.self()) {
    Pattern pattern;
    pattern.row = rows;
    const KeyPattern keys(pattern);
    core.store().table().scan(streams_namespace(), keys, "", 1, [&](const ObjectTable::Entry& entry) {
      found = std::string(entry.row);
      return false;
    });
    co_return found;
  }
  auto channel = co_await core.members().channel(std::move(member), deadline);
  fb::ObjectsClient client(std::move(channel));
  fb::ListRequestT request;
  request.view = view;
  request.ns = pack_namespace(streams_namespace());
  request.row = pack_bytes(rows);
  request.column = pack_bytes("*");
  request.limit = 1;
  rpc::CallOptions options;
  options.deadline = deadline;
  const auto reply = co_await client.list(std::move(request), options);
  for (auto& info : unpack_infos(reply.objects.get())) found = std::move(info.key.row);
  co_return found;
}

Task<void> drop_at(ServerCore& core, Member member, std::uint64_t view, std::vector<Key> keys,
                   std::optional<std::uint64_t> tag, base::Deadline deadline) {
  if (member.id == core.self()) {
    for (const auto& key : keys)
      co_await core.drop(streams_namespace(), key.row, key.column, tag, std::nullopt, Acknowledge::memory, deadline);
    co_return;
  }
  auto channel = co_await core.members().channel(std::move(member), deadline);
  fb::ObjectsClient client(std::move(channel));
  fb::DropRequestT request;
  request.view = view;
  request.keys = pack_keys(streams_namespace(), keys);
  request.tagged = tag.has_value();
  request.tag = tag.value_or(0);
  rpc::CallOptions options;
  options.deadline = deadline;
  const auto reply = co_await client.drop(std::move(request), options);
  for (const auto& failure : reply.failures)
    if (failure && failure->code != 0) throw unpack_status(failure->code, failure->message);
}

Task<void> drop_stripes_at(ServerCore& core, Member member, std::uint64_t view, std::string rows, std::string column,
                           base::Deadline deadline) {
  if (member.id != core.self()) {
    auto channel = co_await core.members().channel(std::move(member), deadline);
    fb::ObjectsClient client(std::move(channel));
    fb::DropPatternRequestT request;
    request.view = view;
    request.ns = pack_namespace(streams_namespace());
    request.row = pack_bytes(rows);
    request.column = pack_bytes(column);
    rpc::CallOptions options;
    options.deadline = deadline;
    co_await client.drop_pattern(std::move(request), options);
    co_return;
  }
  Pattern pattern;
  pattern.row = rows;
  pattern.column = column;
  const KeyPattern keys(pattern);
  const auto placement = core.placement();
  struct Found {
    Key key;
    std::optional<std::uint64_t> tag;
  };
  std::vector<Found> found;
  core.store().table().scan(streams_namespace(), keys, "", ~std::size_t{0}, [&](const ObjectTable::Entry& entry) {
    if (core.is_primary(*placement, entry.ns, entry.row, entry.object.tag))
      found.push_back({{std::string(entry.row), std::string(entry.column)}, entry.object.tag});
    return true;
  });
  for (auto& f : found)
    co_await core.drop(streams_namespace(), f.key.row, f.key.column, f.tag, std::nullopt, Acknowledge::memory,
                       deadline);
}

}  // namespace penstock::pool
