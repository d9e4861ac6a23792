#include "pool/infos.hpp"

namespace penstock::pool {

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

std::vector<ObjectInfo> unpack_infos(const fb::InfosT* infos) {
  std::vector<ObjectInfo> result;
  if (!infos || infos->bytes.empty()) return result;
  const std::size_t n = infos->bytes.size();
  if (!infos->keys || infos->keys->lengths.size() != 2 * n || infos->versions.size() != n ||
      infos->checksums.size() != n || infos->put_us.size() != n || infos->where.size() != n ||
      (!infos->metadata.empty() && infos->metadata.size() != n))
    throw Error(Errc::protocol, "a listing whose parts do not match");
  const auto* text = reinterpret_cast<const char*>(infos->keys->bytes.data());
  std::size_t left = infos->keys->bytes.size();
  const auto take = [&](std::size_t length) {
    if (length > left) throw Error(Errc::protocol, "a listing whose keys are too short");
    std::string part(text, length);
    text += length;
    left -= length;
    return part;
  };
  result.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto& info = result[i];
    info.key.row = take(infos->keys->lengths[2 * i]);
    info.key.column = take(infos->keys->lengths[2 * i + 1]);
    info.bytes = infos->bytes[i];
    info.version = infos->versions[i];
    info.checksum = infos->checksums[i];
    info.put_us = infos->put_us[i];
    info.in_memory = (infos->where[i] & 1) != 0;
    info.on_disk = (infos->where[i] & 2) != 0;
    if (!infos->metadata.empty()) info.metadata = infos->metadata[i];
  }
  return result;
}

}  // namespace penstock::pool
