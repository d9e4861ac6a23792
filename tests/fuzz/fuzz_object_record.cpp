// What a pool's store finds in a tier: keys with versions, and records of objects.
#include "fuzz.hpp"
#include "pool/store/object_record.hpp"
#include "pool/store/object_table.hpp"

using namespace penstock;

namespace {

enum Target : std::uint8_t { record, key, targets };

// What is understood is written back as it was.
void check_record(std::string_view bytes) {
  pool::ObjectRecord decoded;
  if (fuzz::refuses_with({Errc::protocol}, [&] { decoded = pool::decode_record(bytes); }))
    fuzz::check(pool::encode_record(decoded) == bytes);
}

void check_key(std::string_view bytes) {
  pool::TierKey parts;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { parts = pool::split_tier_key(bytes); })) return;
  fuzz::check(pool::tier_key(parts.packed_key, parts.version) == bytes);
  pool::UnpackedKey unpacked;
  if (fuzz::refuses_with({Errc::protocol}, [&] { unpacked = pool::unpack_key(parts.packed_key); }))
    fuzz::check(pool::pack_key(unpacked.ns, unpacked.row, unpacked.column) == parts.packed_key);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  const auto packed = pool::pack_key(Namespace{}, std::string("heat\0x", 6), "step/7");
  return {choose(record, pool::encode_record({1'700'000'000'000'000, 17, true, "{\"dtype\": \"float64\"}"})),
          choose(record, pool::encode_record({})), choose(key, pool::tier_key(packed, 1)),
          choose(key, pool::tier_key(packed, ~std::uint64_t{0}))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % targets == record) check_record(bytes);
  else check_key(bytes);
  return 0;
}
