// Arrays and their versions: how they are defined, begun and dropped.
#include <cstring>

#include "fabric/token.hpp"
#include "model/box.hpp"
#include "space/client/space_impl.hpp"
#include "space/names.hpp"

namespace penstock {

using fabric::Task;
using pool::PoolClient;
namespace fb = space::fb;

namespace {

constexpr std::size_t most_begun = 65'536;  // versions that are known to be there

}  // namespace

Space::Impl::ArrayPointer Space::Impl::keep(std::string_view name, const Object& record) {
  auto array = std::make_shared<const Array>(std::string(name), space::decode_record(record.bytes()));
  const std::lock_guard lock(mutex);
  auto& kept = arrays[std::string(name)];
  if (!kept || kept->record != array->record) kept = std::move(array);
  return kept;
}

Space::Impl::ArrayPointer Space::Impl::read(std::string_view name, Deadline deadline) {
  try {
    return keep(name, pool.get(space::array_key(name), until(deadline)));
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    throw Error(Errc::not_found, "pool " + pool.name() + ": there is no array '" + std::string(name) + "'");
  }
}

Space::Impl::ArrayPointer Space::Impl::defined(std::string_view name, Deadline deadline) {
  try {
    return keep(name, pool.need(space::array_key(name), until(deadline)));
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    throw Error(Errc::timeout, "pool " + pool.name() + ": array '" + std::string(name) + "' was not defined in time");
  }
}

Space::Impl::ArrayPointer Space::Impl::array(std::string_view name, const Box& box, Deadline deadline) {
  ArrayPointer found;
  {
    const std::lock_guard lock(mutex);
    if (const auto it = arrays.find(name); it != arrays.end()) found = it->second;
  }
  if (!found) found = defined(name, deadline);
  require_within(*found, box);
  return found;
}

void Space::Impl::require_within(const Array& of, const Box& box) {
  if (!model::is_within(box, of.record.shape))
    throw Error(Errc::invalid_argument, "the box " + model::to_string(box) + " is not within array '" + of.name +
                                            "' of shape " + to_string(of.record.shape));
}

bool Space::Impl::has_begun(const Array& of, std::uint64_t version) {
  const std::lock_guard lock(mutex);
  return begun.contains({of.record.id, version});
}

// The record is looked at once for each version: its array may have been dropped and defined anew.
Space::Impl::ArrayPointer Space::Impl::begin_version(ArrayPointer of, std::uint64_t version, Deadline deadline) {
  if (has_begun(*of, version)) return of;
  of = read(of->name, deadline);
  begin_version_of(*of, version, deadline);
  return of;
}

void Space::Impl::begin_version_of(const Array& of, std::uint64_t version, Deadline deadline) {
  if (has_begun(of, version)) return;
  for (bool there = false; !there;) {
    if (space::are_bounded(of.record.options)) make_room(of, version, deadline);
    try {
      const Key key{space::versions_row(of.record.id), space::version_column(version)};
      pool.put(key, {}, put_until(deadline));
      there = true;
    } catch (const Error& error) {
      there = error.code() == Errc::already_exists;
      // Another version has begun meanwhile.
      const bool again = error.code() == Errc::wrong_state && of.record.options.keep > 0 && !deadline.passed();
      if (!there && !again) throw;
    }
  }
  const std::lock_guard lock(mutex);
  if (begun.size() >= most_begun) begun.clear();
  begun.insert({of.record.id, version});
}

void Space::Impl::make_room(const Array& of, std::uint64_t version, Deadline deadline) {
  auto ask = [id = of.record.id, version, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                                                    PoolClient::Attempt) -> Task<fb::RoomReplyT> {
    fb::RoomRequestT request;
    request.view = view;
    request.array = id;
    request.version = version;
    const rpc::CallOptions options{deadline};
    co_return co_await fb::SpaceClient(channel).room(std::move(request), options);
  };
  try {
    for (;;) {
      const auto reply = end(begin(pool.impl().client->at_primary<fb::RoomReplyT>(
          space::arrays_namespace(), space::versions_row(of.record.id), std::nullopt, deadline, ask)));
      for (const auto old : reply.go) drop_version(of, old, deadline);
      if (reply.begin) return;
    }
  } catch (const Error& error) {
    throw error.in("array '" + of.name + "', version " + std::to_string(version));
  }
}

void Space::Impl::forget(const Array& of, std::uint64_t version) {
  const std::lock_guard lock(mutex);
  begun.erase({of.record.id, version});
  if (const auto it = arrays.find(of.name); it != arrays.end() && it->second.get() == &of) arrays.erase(it);
}

// ------------------------------------------------------------------------------------------------------------------- drop

std::vector<ObjectInfo> Space::Impl::version_objects(const Array& of) {
  std::vector<ObjectInfo> objects;
  Pattern pattern;
  pattern.row = space::versions_row(of.record.id);
  list(pattern, [&](const ObjectInfo& object) {
    if (space::version_of_column(object.key.column)) objects.push_back(object);
  });
  return objects;
}

// The version object is dropped last, so that an interrupted drop can be repeated.
bool Space::Impl::drop_version(const Array& of, std::uint64_t version, Deadline deadline) {
  const Key key{space::versions_row(of.record.id), space::version_column(version)};
  forget(of, version);
  try {
    if (pool.info(key, until(deadline)).bytes == 0) {
      auto options = put_until(deadline);
      options.if_exists = IfExists::overwrite;
      pool.put(key, std::as_bytes(std::span(space::going)), options);
    }
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
  fb::DropRequestT request;
  request.array = of.record.id;
  request.version = version;
  request.tag_base = of.tag(version, 0);
  end(begin(drop_at_all(std::move(request), deadline)));
  return pool.drop(key, until(deadline));
}

bool Space::Impl::drop_array(std::string_view name, Deadline deadline) {
  ArrayPointer array;
  try {
    array = read(name, deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
  return drop_array(*array, deadline);
}

bool Space::Impl::drop_array(const Array& of, Deadline deadline) {
  const auto row = space::versions_row(of.record.id);
  pool.drop({row, std::string(space::open_column)}, until(deadline));
  fb::DropRequestT request;
  request.array = of.record.id;
  request.whole = true;
  end(begin(drop_at_all(std::move(request), deadline)));
  for (const auto& object : version_objects(of))
    drop_version(of, *space::version_of_column(object.key.column), deadline);
  for (const auto& reader : of.record.options.readers) pool.drop({row, space::reader_column(reader)}, until(deadline));
  forget(of, 0);
  // Others may have dropped it meanwhile, and defined the name anew: that record stays.
  const auto key = space::array_key(of.name);
  try {
    const auto record = pool.get(key, until(deadline));
    if (space::decode_record(record.bytes()).id != of.record.id) return false;
    auto options = until(deadline);
    options.version = record.info.version;
    return pool.drop(key, options);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
}

Task<void> Space::Impl::drop_at_all(fb::DropRequestT what, Deadline deadline) {
  auto& client = *pool.impl().client;
  std::optional<Error> last;
  for (PoolClient::Attempt attempt = 0;; ++attempt) {
    const auto placement = co_await client.members().at_least(1, deadline);
    const auto& view = placement->view();
    last.reset();
    std::vector<fabric::Future<fb::DropReplyT>> asked;
    for (const auto& member : view.members) {
      auto request = what;
      request.view = view.number;
      auto task = drop_at(member, std::move(request), deadline);
      asked.push_back(begin(std::move(task)));
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
      try {
        co_await std::move(asked[i]);
      } catch (const Error& error) {
        last = error.in("server " + view.members[i].name);
        PoolClient::throw_unless_retry(*last, deadline);
      }
    }
    if (!last) co_return;
    const Error why = *last;
    co_await client.before_retry(view.number, attempt, why, deadline);
  }
}

Task<fb::DropReplyT> Space::Impl::drop_at(pool::Member member, fb::DropRequestT request, Deadline deadline) {
  auto channel = co_await pool.impl().client->members().channel(std::move(member), deadline);
  const rpc::CallOptions options{deadline};
  co_return co_await fb::SpaceClient(channel).drop(std::move(request), options);
}

}  // namespace penstock
