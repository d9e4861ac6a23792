#include "pool/keys/infos.hpp"

namespace penstock::pool {

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
