// How long a file in one of netCDF's classic formats (CDF-1, 2, 5) must be by its header: netCDF itself reads what is missing at the end
// of a file that was cut off as zeros.
//
// The format: https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::mesh {

// Bytes up to the end of the last value; nothing for a file of another format. Throws Error(invalid_argument): a header that is cut off.
std::optional<std::uint64_t> classic_length(const std::string& path);

}  // namespace penstock::mesh
