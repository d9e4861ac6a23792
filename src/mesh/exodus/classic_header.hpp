// What the header of a file in one of netCDF's classic formats (CDF-1, 2, 5) says, where netCDF-C itself does not help: how long the file
// must be (netCDF-C reads what is missing at the end of a file that was cut off as zeros), how many records it has, and where its variables
// are.
//
// The format: https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::mesh {

struct ClassicVariable {
  std::uint64_t begin = 0;  // of its values in the file; of a variable of records: in the first one
  std::uint64_t type = 0;   // nc_type
  bool of_record = false;
  std::vector<std::uint64_t> lengths;  // of its dimensions, without that of records
};
struct ClassicHeader {
  int version = 0;  // 1, 2 or 5
  std::uint64_t records = 0;
  std::uint64_t record_bytes = 0;
  std::vector<ClassicVariable> variables;  // by netCDF's number
};
// Nothing for a file of another format. Throws Error(invalid_argument): a header that is cut off, or damaged.
std::optional<ClassicHeader> read_classic_header(const std::string& path);
// Of an nc_type; 0 for one that there is not.
std::uint64_t classic_type_size(std::uint64_t type);

// Whether the file is there, in one of the classic formats.
bool is_classic(const std::string& path);
// Bytes up to the end of the last value; nothing for a file of another format. Throws Error(invalid_argument): a header that is cut off.
std::optional<std::uint64_t> classic_length(const std::string& path);
// Throws Error(invalid_argument) also for a file that is shorter than that.
void require_whole(const std::string& path);
// Makes the file count no more records than these. Nobody has it open. Throws Error(system).
void keep_records(const std::string& path, std::uint64_t records);

}  // namespace penstock::mesh
