#include "stream/file/hdf5_part.hpp"

namespace penstock::stream {

const Hdf5Part& hdf5_part() {
  static const auto& part = static_cast<const Hdf5Part&>(  // tried again after an error
      base::load_part({"engine=file", "libpenstock_file.so", "penstock_file_part",
                       "install HDF5 (Debian: libhdf5-dev) and build Penstock again", &penstock_file_part,
                       /*own_libraries=*/true}));
  return part;
}

}  // namespace penstock::stream
