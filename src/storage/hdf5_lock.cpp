#include "storage/hdf5_lock.hpp"

namespace penstock::storage {

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace penstock::storage
