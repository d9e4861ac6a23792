// Where the values of a field are in an Exodus file, and how they are moved between it and an array of ours.
#pragma once

#include <cstdint>
#include <vector>

#include "mesh/database.hpp"
#include "mesh/exodus/netcdf_file.hpp"
#include "mesh/stored_source.hpp"

namespace penstock::mesh {

// A component, or all of them, in one variable. Variables of states have the time before the dimensions named here.
struct Column {
  enum class Shape : std::uint8_t {
    rows,     // [first + row]
    matrix,   // [row][component]: the place's only column
    columns,  // [row][at]
    lines,    // [at][row]
    value,    // [at], for a field of one row
    all,      // [lengths...]: all dimensions, in the order of the rows
  };
  int variable = -1;
  Shape shape = Shape::rows;
  std::size_t first = 0;
  std::size_t at = 0;
  Extent lengths = {};
  bool is_text = false;  // characters, each a number of 32 bits in the field
};

struct Place {
  std::vector<Column> columns;  // one for each component, in their order
  std::vector<int> from_one;    // by component: 1 where the file counts from 1 and we from 0; none: all 0
};

void read_place(const NetcdfFile& file, const Place& place, DType dtype, std::uint32_t components, StateNumber state,
                Rows rows, void* out);
void write_place(NetcdfFile& file, const Place& place, DType dtype, std::uint32_t components, StateNumber state,
                 Rows rows, const void* values);

}  // namespace penstock::mesh
