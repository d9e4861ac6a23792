#include "pool/keys/protocol.hpp"

#include <algorithm>

#include "base/known_code.hpp"

namespace penstock::pool {

namespace {

[[noreturn]] void refuse_message(const char* why) { throw Error(Errc::protocol, why); }

}  // namespace

std::unique_ptr<fb::KeysT> pack_keys(const Namespace& ns, std::span<const Key> keys) {
  return pack_keys(ns, keys.size(), [keys](std::size_t i) -> const Key& { return keys[i]; });
}

std::unique_ptr<fb::KeysT> pack_keys(const Namespace& ns, std::size_t count,
                                     const std::function<const Key&(std::size_t)>& key_of) {
  if (count > max_batch_keys)
    throw Error(Errc::invalid_argument, "a batch of more than " + std::to_string(max_batch_keys) + " keys");
  auto packed = std::make_unique<fb::KeysT>();
  packed->ns = pack_namespace(ns);
  packed->lengths.resize(2 * count);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Key& key = key_of(i);
    if (key.row.size() > max_key_bytes || key.column.size() > max_key_bytes)
      throw Error(Errc::invalid_argument,
                  "a key's row or column is longer than " + std::to_string(max_key_bytes) + " bytes");
    packed->lengths[2 * i] = static_cast<std::uint16_t>(key.row.size());
    packed->lengths[2 * i + 1] = static_cast<std::uint16_t>(key.column.size());
    bytes += key.row.size() + key.column.size();
  }
  packed->bytes.resize(bytes);
  std::uint8_t* to = packed->bytes.data();
  for (std::size_t i = 0; i < count; ++i) {
    const Key& key = key_of(i);
    to = std::copy(key.row.begin(), key.row.end(), to);
    to = std::copy(key.column.begin(), key.column.end(), to);
  }
  return packed;
}

UnpackedKeys unpack_keys(const fb::KeysT* keys) {
  const ViewedKeys viewed = view_keys(keys);
  UnpackedKeys unpacked{viewed.ns, {}};
  unpacked.keys.reserve(viewed.keys.size());
  for (const auto& key : viewed.keys) unpacked.keys.push_back({std::string(key.row), std::string(key.column)});
  return unpacked;
}

ViewedKeys view_keys(const fb::KeysT* keys) {
  if (keys == nullptr) refuse_message("a request without keys");
  const std::size_t count = keys->lengths.size() / 2;
  if (keys->lengths.size() % 2 != 0) refuse_message("a row without a column");
  if (count > max_batch_keys) refuse_message("a batch of too many keys");
  std::size_t sum = 0;
  for (const std::uint16_t length : keys->lengths) {
    if (length > max_key_bytes) refuse_message("a key that is too long");
    sum += length;
  }
  if (sum != keys->bytes.size()) refuse_message("keys whose lengths do not add up");
  ViewedKeys viewed{unpack_namespace(keys->ns), {}};
  viewed.keys.reserve(count);
  const char* text = reinterpret_cast<const char*>(keys->bytes.data());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = keys->lengths[2 * i], column = keys->lengths[2 * i + 1];
    viewed.keys.push_back({{text, row}, {text + row, column}});
    text += row + column;
  }
  return viewed;
}

std::vector<std::uint8_t> pack_namespace(const Namespace& ns) { return {ns.bytes.begin(), ns.bytes.end()}; }

Namespace unpack_namespace(const std::vector<std::uint8_t>& bytes) {
  Namespace ns;
  if (bytes.size() != ns.bytes.size()) refuse_message("a namespace that is not 16 bytes");
  std::ranges::copy(bytes, ns.bytes.begin());
  return ns;
}

std::vector<std::uint8_t> pack_bytes(std::string_view text) { return {text.begin(), text.end()}; }

std::string_view view_bytes(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_sizes(std::size_t keys, const std::vector<std::uint64_t>& sizes, std::uint64_t total) {
  if (sizes.size() != keys) refuse_message("sizes do not match the keys");
  for (const std::uint64_t size : sizes) {
    if (size > total) refuse_message("objects larger than their bytes");
    total -= size;
  }
  if (total != 0) refuse_message("bytes that belong to no object");
}

std::span<const std::byte> part_of(const std::vector<std::uint8_t>& data, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > data.size() || bytes > data.size() - offset)
    refuse_message("an object's bytes that are not in the message");
  return std::as_bytes(std::span(data)).subspan(offset, bytes);
}

void check_batch(const UnpackedKeys& keys, const fb::ReplicateRequestT& request) {
  const std::size_t count = keys.keys.size();
  for (const std::size_t size :
       {request.versions.size(), request.checksums.size(), request.put_us.size(), request.tags.size(),
        request.tagged.size(), request.dropped.size(), request.keep_older.size(), request.metadata.size()})
    if (size != count) refuse_message("a batch whose parts do not match");
  if (request.bulk.bytes() > 0 && !request.data.empty()) refuse_message("a batch with bytes in two places");
  check_sizes(count, request.sizes, request.bulk.bytes() > 0 ? request.bulk.bytes() : request.data.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (request.dropped[i] && request.sizes[i] != 0) refuse_message("a dropped object with bytes");
    if (request.metadata[i].size() > max_metadata_bytes) refuse_message("metadata that are too long");
  }
}

void check_pull(const fb::PullRequestT& request) {
  for (const auto& stripe : request.stripes) {
    if (!stripe) refuse_message("a stripe that is not there");
    if (stripe->first_range > request.ranges.size() || stripe->ranges > request.ranges.size() - stripe->first_range)
      refuse_message("a stripe of ranges that are not there");
    std::uint64_t left = stripe->bytes;
    for (std::uint32_t i = 0; i < stripe->ranges; ++i) {
      const auto& range = request.ranges[stripe->first_range + i];
      if (!range || range->bytes > left) refuse_message("a stripe smaller than its ranges");
      if (range->offset > ~std::uint64_t{0} - range->bytes) refuse_message("a range beyond any memory");
      left -= range->bytes;
    }
    if (left != 0) refuse_message("a stripe larger than its ranges");
  }
}

ObjectInfo unpack_info(const fb::InfoT& info) {
  if (info.row.size() > max_key_bytes || info.column.size() > max_key_bytes) refuse_message("a key that is too long");
  if (info.metadata.size() > max_metadata_bytes) refuse_message("metadata that are too long");
  ObjectInfo object;
  object.key = {std::string(view_bytes(info.row)), std::string(view_bytes(info.column))};
  object.bytes = info.bytes;
  object.version = info.version;
  object.checksum = info.checksum;
  object.put_us = info.put_us;
  object.in_memory = info.in_memory;
  object.on_disk = info.on_disk;
  object.waiters = info.waiters;
  object.metadata = info.metadata;
  return object;
}

std::unique_ptr<fb::StatusT> pack_status(const Error& error) {
  auto status = std::make_unique<fb::StatusT>();
  status->code = static_cast<std::uint16_t>(error.code());
  status->message = std::string(std::string_view(error.what()).substr(0, max_message_text));
  return status;
}

Error unpack_status(std::uint16_t code, const std::string& message) {
  return Error(base::known_code(code), message.substr(0, max_message_text));
}

base::Deadline answer_in_time(base::Deadline deadline) {
  if (deadline.is_never()) return deadline;
  const auto left = deadline.remaining();
  const auto margin = std::clamp(left / 10, Timeout(1), Timeout(200));
  return base::Deadline::at(deadline.when() - margin);
}

std::string escape_pattern(std::string_view text) { return TextPattern::exactly(text).text(); }

KeyPattern unpack_pattern(const std::vector<std::uint8_t>& row, const std::vector<std::uint8_t>& column) {
  return KeyPattern(Pattern{std::string(view_bytes(row)), std::string(view_bytes(column))});
}

}  // namespace penstock::pool
