// penstock::Space: its calls, over what the other files of this folder do.
#include <algorithm>
#include <cstring>

#include "fabric/token.hpp"
#include "memory/kind.hpp"
#include "model/box.hpp"
#include "pool/keys/protocol.hpp"
#include "space/block_key.hpp"
#include "space/client/space_impl.hpp"
#include "space/names.hpp"

namespace penstock {

using fabric::Task;
using space::Partition;
namespace fb = space::fb;

namespace {

constexpr std::uint32_t parts_of_server = 16;

std::uint64_t random_number() {
  std::uint64_t number = 0;
  std::memcpy(&number, fabric::Token::random().bytes.data(), sizeof number);
  return number;
}

}  // namespace

void space::require_on_host(const void* data) {
  if (memory::on_device(data))
    throw Error(Errc::unsupported, "the elements are in a device's memory: copy them to the host's first");
}

Task<fb::StatusReplyT> Space::Impl::status_of(pool::Member member, Deadline deadline) {
  fb::StatusRequestT request;
  request.view = pool.impl().client->members().placement()->view().number;
  auto channel = co_await pool.impl().client->members().channel(std::move(member), deadline);
  const rpc::CallOptions options{deadline};
  co_return co_await fb::SpaceClient(channel).status(std::move(request), options);
}

std::vector<SpaceStatus> Space::Impl::status(Deadline deadline) {
  std::vector<SpaceStatus> all;
  const auto placement = pool.impl().client->members().placement();
  for (const auto& member : placement->view().members) {
    const auto reply = end(begin(status_of(member, deadline)));
    all.push_back({member.name, reply.conversions, reply.converted_bytes, reply.conversion_s, reply.requests,
                   reply.given_bytes, reply.shared_bytes, reply.left_to_readers, reply.replica_bytes,
                   reply.replica_peak, reply.replica_limit, reply.evictions});
  }
  return all;
}

Space::Space(const Context& context, PoolOptions options) {
  if (!options.ns.empty()) throw Error(Errc::invalid_argument, "a space has no namespace of its own: leave ns empty");
  options.ns = space::namespace_name;
  impl_ = std::make_shared<Impl>(context, std::move(options));
}

Space::Space(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Space::Space(Space&&) noexcept = default;
Space& Space::operator=(Space&&) noexcept = default;
Space::~Space() = default;

ArrayInfo Space::define(std::string_view name, DType dtype, const Dims& shape, const ArrayOptions& options) {
  auto& pool = impl_->pool;
  const auto key = space::array_key(name);
  if (size_of(dtype) == 0) throw Error(Errc::invalid_argument, "an array of " + std::string(name_of(dtype)));
  if (shape.empty() || element_count(shape) == 0)
    throw Error(Errc::invalid_argument, "an array of shape " + to_string(shape) + " has no elements to put");
  const auto placement = pool.impl().client->members().placement();
  const auto servers = std::max<std::uint64_t>(1, placement->view().members.size());
  const auto most = element_count(shape) / (space::smallest_part_bytes / size_of(dtype)) + 1;
  space::ArrayRecord record{random_number(), dtype, shape, 1, random_number() >> 32, options};
  record.parts = static_cast<std::uint32_t>(
      std::min({most, servers * parts_of_server, static_cast<std::uint64_t>(space::max_parts)}));
  record.parts = Partition(shape, record.parts).parts();
  const Key open{space::versions_row(record.id), std::string(space::open_column)};
  const auto bytes = space::encode_record(record);
  pool.put(open, bytes);
  Impl::ArrayPointer there;
  for (const auto deadline = impl_->deadline(configured); !there;) {
    try {
      pool.put(key, bytes);
      return Impl::Array(std::string(name), record).info();
    } catch (const Error& error) {
      if (error.code() != Errc::already_exists) throw;
    }
    try {
      there = impl_->read(name);
    } catch (const Error& error) {  // dropped between the two
      if (error.code() != Errc::not_found || deadline.passed()) throw;
    }
  }
  pool.drop(open);
  if (there->record.dtype != dtype || there->record.shape != shape)
    throw Error(Errc::already_exists, "array '" + std::string(name) + "' is " +
                                          std::string(name_of(there->record.dtype)) + " of shape " +
                                          to_string(there->record.shape));
  if (const auto& its = there->record.options; options != ArrayOptions{} && options != its)
    throw Error(Errc::already_exists, "array '" + std::string(name) + "' is converted " +
                                          std::string(name_of(its.convert)) +
                                          ", into other layouts, or other versions of it are kept");
  return there->info();
}

ArrayInfo Space::info(std::string_view name) { return impl_->read(name)->info(); }

std::vector<ArrayInfo> Space::list() {
  std::vector<ArrayInfo> infos;
  Pattern pattern;
  pattern.row = std::string(space::array_row_prefix) + "*";
  impl_->list(pattern, [&](const ObjectInfo& object) {
    try {
      infos.push_back(impl_->read(std::string_view(object.key.row).substr(space::array_row_prefix.size()))->info());
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;  // dropped meanwhile
    }
  });
  return infos;
}

ArrayInfo Space::wait(std::string_view name, Timeout timeout) {
  return impl_->defined(name, impl_->deadline(timeout))->info();
}

void Space::wait(std::string_view name, std::uint64_t version, const Box& box, Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  for (;;) {
    const auto array = impl_->array(name, box, deadline);
    if (model::is_empty(box)) return;
    try {
      impl_->find_whole(array, version, array->partition.cut(box), deadline);
      return;
    } catch (const Impl::Replaced&) {
    }
  }
}

void Space::done(std::string_view name, std::uint64_t version, std::string_view reader, Timeout timeout) {
  const auto deadline = impl_->deadline(timeout);
  const auto array = impl_->defined(name, deadline);
  const auto& readers = array->record.options.readers;
  if (std::find(readers.begin(), readers.end(), reader) == readers.end())
    throw Error(Errc::invalid_argument,
                "array '" + array->name + "' waits for no reader '" + std::string(reader) + "'");
  PutOptions options;
  options.if_exists = IfExists::overwrite;
  options.timeout = Impl::left(deadline);
  const auto number = space::version_column(version);
  impl_->pool.put({space::versions_row(array->record.id), space::reader_column(reader)},
                  std::as_bytes(std::span(number)), options);
}

std::vector<std::uint64_t> Space::versions(std::string_view name) {
  std::vector<std::uint64_t> versions;
  for (const auto& object : impl_->version_objects(*impl_->read(name)))
    if (object.bytes == 0) versions.push_back(*space::version_of_column(object.key.column));
  return versions;
}

std::optional<std::uint64_t> Space::latest(std::string_view name) {
  const auto all = versions(name);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::vector<Box> Space::blocks(std::string_view name, std::uint64_t version) {
  std::vector<Box> boxes;
  Pattern pattern;
  pattern.row = pool::escape_pattern(space::blocks_prefix(impl_->read(name)->record.id, version)) + "*";
  impl_->list(pattern, [&](const ObjectInfo& object) {
    if (const auto box = space::block_box_of(object.key.column)) boxes.push_back(*box);
  });
  return boxes;
}

std::vector<SpaceStatus> Space::status() { return impl_->status(impl_->deadline(configured)); }

bool Space::drop(std::string_view name, std::uint64_t version) {
  return impl_->drop_version(*impl_->read(name), version, impl_->deadline(configured));
}

// The record goes last: what was interrupted can be done again.
bool Space::drop(std::string_view name) {
  const auto key = space::array_key(name);
  const auto deadline = impl_->deadline(configured);
  Impl::ArrayPointer array;
  try {
    array = impl_->read(name);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
  const auto row = space::versions_row(array->record.id);
  impl_->pool.drop({row, std::string(space::open_column)});
  impl_->end(impl_->begin(impl_->drop_blocks(array->record.id, 0, true, deadline)));
  for (const auto& object : impl_->version_objects(*array))
    impl_->drop_version(*array, *space::version_of_column(object.key.column), deadline);
  impl_->forget(*array, 0);
  return impl_->pool.drop(key);
}

}  // namespace penstock
