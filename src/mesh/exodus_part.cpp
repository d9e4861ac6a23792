#include "mesh/exodus_part.hpp"

namespace penstock::mesh {
namespace {

const ExodusPart& exodus_part() {
  static const auto& part = static_cast<const ExodusPart&>(  // tried again after an error
      base::load_part({"database=exodus", "libpenstock_exodus.so", "penstock_exodus_part",
                       "install netCDF (Debian: libnetcdf-dev) and build Penstock again", &penstock_exodus_part,
                       /*own_libraries=*/true}));
  return part;
}

}  // namespace

std::unique_ptr<Source> open_exodus(const DatabaseRequest& request) { return exodus_part().open(request); }
std::unique_ptr<Sink> create_exodus(const DatabaseRequest& request) { return exodus_part().create(request); }
std::unique_ptr<Source> open_nemesis(const DatabaseRequest& request) { return exodus_part().open_nemesis(request); }
std::unique_ptr<Sink> create_nemesis(const DatabaseRequest& request) { return exodus_part().create_nemesis(request); }

}  // namespace penstock::mesh
