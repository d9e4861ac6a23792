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

std::string elements_of(const space::ArrayRecord& record) {
  std::string text(record.fields.empty() ? name_of(record.dtype) : "{");
  for (const auto& field : record.fields)
    text += (text.size() > 1 ? ", " : "") + field.name + ": " + std::string(name_of(field.dtype));
  return text + (record.fields.empty() ? "" : "}");
}

}  // namespace

void space::require_on_host(const void* data, const ArrayMemory& memory) {
  bool on_device = memory::on_device(data);
  for (const auto& field : memory.fields)
    on_device |= memory::on_device(static_cast<const std::byte*>(data) + field.offset);
  if (on_device) throw Error(Errc::unsupported, "the elements are in a device's memory: copy them to the host's first");
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
  return define(name, dtype, {}, shape, options);
}

ArrayInfo Space::define(std::string_view name, const std::vector<ArrayField>& fields, const Dims& shape,
                        const ArrayOptions& options) {
  if (fields.empty()) throw Error(Errc::invalid_argument, "an array of structures without fields");
  return define(name, DType::none, fields, shape, options);
}

ArrayInfo Space::define(std::string_view name, DType dtype, const std::vector<ArrayField>& fields, const Dims& shape,
                        const ArrayOptions& options) {
  space::ArrayRecord wanted;
  wanted.dtype = dtype;
  wanted.shape = shape;
  wanted.options = options;
  wanted.fields = fields;
  if (const auto bytes = std::exchange(wanted.options.keep_bytes, 0); bytes > 0) {
    const auto version = std::max<std::uint64_t>(1, element_count(shape) * space::element_bytes(wanted));
    const auto fit = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / version, 1, UINT32_MAX));
    wanted.options.keep = wanted.options.keep > 0 ? std::min(wanted.options.keep, fit) : fit;
  }
  const auto there = impl_->define(name, wanted, impl_->deadline(configured));
  Impl::require_defined_as(*there, wanted);
  return there->info();
}

Space::Impl::ArrayPointer Space::Impl::define(std::string_view name, space::ArrayRecord record, Deadline deadline) {
  const auto key = space::array_key(name);
  if (record.fields.empty() && size_of(record.dtype) == 0)
    throw Error(Errc::invalid_argument, "an array of " + std::string(name_of(record.dtype)));
  if (record.shape.empty() || element_count(record.shape) == 0)
    throw Error(Errc::invalid_argument, "an array of shape " + to_string(record.shape) + " has no elements to put");
  const auto placement = pool.impl().client->members().placement();
  const auto servers = std::max<std::uint64_t>(1, placement->view().members.size());
  record.id = random_number();
  record.tag_base = random_number() >> 32;
  space::encode_record(record);  // throws for fields and options that are wrong
  const auto most = element_count(record.shape) / (space::smallest_part_bytes / space::element_bytes(record)) + 1;
  record.parts = static_cast<std::uint32_t>(
      std::min({most, servers * parts_of_server, static_cast<std::uint64_t>(space::max_parts)}));
  record.parts = Partition(record.shape, record.parts).parts();
  const Key open{space::versions_row(record.id), std::string(space::open_column)};
  const auto bytes = space::encode_record(record);
  pool.put(open, bytes, put_until(deadline));
  for (;;) {
    try {
      pool.put(key, bytes, put_until(deadline));
      return std::make_shared<const Array>(std::string(name), std::move(record));
    } catch (const Error& error) {
      if (error.code() != Errc::already_exists) throw;
    }
    try {
      auto there = read(name, deadline);
      pool.drop(open, until(deadline));
      return there;
    } catch (const Error& error) {  // dropped between the two
      if (error.code() != Errc::not_found || deadline.passed()) throw;
    }
  }
}

void Space::Impl::require_defined_as(const Array& there, const space::ArrayRecord& wanted) {
  const auto& its = there.record;
  if (its.dtype != wanted.dtype || its.shape != wanted.shape || its.fields != wanted.fields)
    throw Error(Errc::already_exists,
                "array '" + there.name + "' is " + elements_of(its) + " of shape " + to_string(its.shape));
  if (wanted.options != ArrayOptions{} && wanted.options != its.options)
    throw Error(Errc::already_exists, "array '" + there.name + "' is converted " +
                                          std::string(name_of(its.options.convert)) +
                                          ", into other layouts, or other versions of it are kept");
}

ArrayInfo Space::info(std::string_view name) { return impl_->read(name, impl_->deadline(configured))->info(); }

std::vector<ArrayInfo> Space::list() {
  std::vector<ArrayInfo> infos;
  const auto deadline = impl_->deadline(configured);
  Pattern pattern;
  pattern.row = std::string(space::array_row_prefix) + "*";
  impl_->list(pattern, [&](const ObjectInfo& object) {
    const auto called = std::string_view(object.key.row).substr(space::array_row_prefix.size());
    try {
      infos.push_back(impl_->read(called, deadline)->info());
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
  auto options = impl_->put_until(deadline);
  options.if_exists = IfExists::overwrite;
  const auto number = space::version_column(version);
  try {
    impl_->pool.put({space::versions_row(array->record.id), space::reader_column(reader)},
                    std::as_bytes(std::span(number)), options);
  } catch (const Error& error) {
    if (error.code() != Errc::wrong_state) throw;  // it has read a later one already
  }
}

std::vector<std::uint64_t> Space::versions(std::string_view name) {
  std::vector<std::uint64_t> versions;
  for (const auto& object : impl_->version_objects(*impl_->read(name, impl_->deadline(configured))))
    if (object.bytes == 0) versions.push_back(*space::version_of_column(object.key.column));
  return versions;
}

std::optional<std::uint64_t> Space::latest(std::string_view name) {
  const auto all = versions(name);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::vector<ArrayBlock> Space::blocks(std::string_view name, std::uint64_t version) {
  std::vector<ArrayBlock> blocks;
  Pattern pattern;
  pattern.row =
      pool::escape_pattern(space::blocks_prefix(impl_->read(name, impl_->deadline(configured))->record.id, version)) +
      "*";
  impl_->list(pattern, [&](const ObjectInfo& object) {
    if (const auto box = space::block_box_of(object.key.column))
      blocks.push_back({*box, object.metadata, object.put_us});
  });
  return blocks;
}

std::vector<SpaceStatus> Space::status() { return impl_->status(impl_->deadline(configured)); }

bool Space::drop(std::string_view name, std::uint64_t version) {
  const auto deadline = impl_->deadline(configured);
  return impl_->drop_version(*impl_->read(name, deadline), version, deadline);
}

bool Space::drop(std::string_view name) { return impl_->drop_array(name, impl_->deadline(configured)); }

}  // namespace penstock
