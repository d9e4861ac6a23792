#include "mesh/exodus_part.hpp"

#include <algorithm>
#include <array>
#include <utility>

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

bool is_exodus_name(std::string_view name) {
  static constexpr std::array<std::string_view, 6> endings{".e", ".exo", ".ex2", ".exoII", ".g", ".gen"};
  // Also a part's: mesh.e.16.03.
  for (int i = 0; i < 2; ++i) {
    const auto digits = name.find_last_not_of("0123456789");
    if (digits == std::string_view::npos || digits + 1 == name.size() || name[digits] != '.') break;
    name = name.substr(0, digits);
  }
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view each) { return name.ends_with(each); });
}

std::unique_ptr<Source> open_exodus(const DatabaseRequest& request) { return exodus_part().open(request); }
std::unique_ptr<Sink> create_exodus(const DatabaseRequest& request) { return exodus_part().create(request); }
std::unique_ptr<Source> open_nemesis(const DatabaseRequest& request) { return exodus_part().open_nemesis(request); }
std::unique_ptr<Sink> create_nemesis(const DatabaseRequest& request) { return exodus_part().create_nemesis(request); }
std::shared_ptr<void> hold_exodus_files(const std::string& name) { return exodus_part().hold(name); }
MeshOptions options_of_exodus_files(const std::string& name) { return exodus_part().options_of(name); }
LoadBalance read_load_balance(const std::string& path) { return exodus_part().read_load_balance(path); }
void write_load_balance(const std::string& path, std::shared_ptr<Source> whole, const LoadBalance& balance) {
  exodus_part().write_load_balance(path, std::move(whole), balance);
}

}  // namespace penstock::mesh
