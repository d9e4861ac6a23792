// The lock of whoever calls HDF5, by itself or through netCDF: the libraries may be builds that know no threads, and all parts of a
// process share one copy of them.
#pragma once

#include <mutex>

namespace penstock::storage {

std::mutex& hdf5_mutex();

}  // namespace penstock::storage
