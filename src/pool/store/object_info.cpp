#include "pool/store/object_info.hpp"

#include "pool/keys/protocol.hpp"

namespace penstock::pool {

std::unique_ptr<fb::InfoT> pack_info(const Key& key, const StoredObject& object, std::uint32_t waiters) {
  auto info = std::make_unique<fb::InfoT>();
  info->row = pack_bytes(key.row);
  info->column = pack_bytes(key.column);
  info->bytes = object.bytes;
  info->version = object.version;
  info->checksum = object.checksum;
  info->put_us = object.put_us;
  info->in_memory = object.blob != nullptr;
  info->on_disk = object.on_disk;
  info->waiters = waiters;
  if (object.metadata) info->metadata = *object.metadata;
  return info;
}

void append_info(fb::InfosT& infos, const ObjectTable::Entry& entry) {
  auto& keys = *infos.keys;
  keys.bytes.insert(keys.bytes.end(), entry.row.begin(), entry.row.end());
  keys.bytes.insert(keys.bytes.end(), entry.column.begin(), entry.column.end());
  keys.lengths.push_back(static_cast<std::uint16_t>(entry.row.size()));
  keys.lengths.push_back(static_cast<std::uint16_t>(entry.column.size()));
  const auto& object = entry.object;
  infos.bytes.push_back(object.bytes);
  infos.versions.push_back(object.version);
  infos.checksums.push_back(object.checksum);
  infos.put_us.push_back(object.put_us);
  infos.where.push_back(static_cast<std::uint8_t>((object.blob ? 1 : 0) | (object.on_disk ? 2 : 0)));
  // Most listings have no metadata at all: then the array stays empty.
  if (object.metadata && !object.metadata->empty()) {
    infos.metadata.resize(infos.bytes.size());
    infos.metadata.back() = *object.metadata;
  } else if (!infos.metadata.empty()) {
    infos.metadata.emplace_back();
  }
}

}  // namespace penstock::pool
