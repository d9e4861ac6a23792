#include "storage/tier.hpp"

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"
#include "storage/tier_base.hpp"

namespace penstock::storage {

std::vector<std::string_view> tier_kinds() {
  return {
      "files",
#ifdef PENSTOCK_HAVE_ROCKSDB
      "rocksdb",
      "disk",
#endif
#ifdef PENSTOCK_HAVE_HDF5
      "hdf5",
#endif
  };
}

std::unique_ptr<Tier> open_tier(const TierOptions& options) {
  const auto kinds = tier_kinds();
  if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end()) {
    const bool known = options.kind == "rocksdb" || options.kind == "disk" || options.kind == "hdf5";
    std::string there;
    for (const auto kind : kinds) there += (there.empty() ? "" : ", ") + std::string(kind);
    throw Error(Errc::unsupported, known ? "this Penstock was built without " +
                                               std::string(options.kind == "hdf5" ? "HDF5" : "RocksDB") +
                                               ", so the tier '" + options.kind + "' is not there; there are: " + there
                                         : base::unknown_name("tier", options.kind, kinds));
  }
  if (options.path.empty()) throw Error(Errc::invalid_argument, "a tier needs a path");
  try {
#ifdef PENSTOCK_HAVE_ROCKSDB
    if (options.kind == "rocksdb" || options.kind == "disk") return open_rocksdb_tier(options);
#endif
    return open_files_tier(options);
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(Errc::system, error.what());
  }
}

}  // namespace penstock::storage
