// What the header of a file in one of netCDF's classic formats (CDF-1, 2, 5) says, where netCDF-C itself does not help: how long the file
// must be (netCDF-C reads what is missing at the end of a file that was cut off as zeros), and how many records it has.
//
// The format: https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::mesh {

// Bytes up to the end of the last value; nothing for a file of another format. Throws Error(invalid_argument): a header that is cut off.
std::optional<std::uint64_t> classic_length(const std::string& path);
// Makes the file count no more records than these. Nobody has it open. Throws Error(system).
void keep_records(const std::string& path, std::uint64_t records);

}  // namespace penstock::mesh
