// How the engine's files are made: HDF5's types, properties and names for ours.
#pragma once

#include <cstdint>
#include <string>

#include "model/layout.hpp"
#include "penstock/types.hpp"
#include "storage/hdf5.hpp"

namespace penstock::stream::h5 {

using namespace storage::h5;

Id access_list();  // how files are opened
Id names_list();   // how links are made: UTF-8, with the groups above them
Id type_of(DType dtype);
Id text_type();
// As penstock stream save marks what HDF5 has no type for.
void mark_type(hid_t dataset, DType dtype);
void write_text(hid_t object, const char* name, const std::string& text);

// Sizes or indices as they are in the file: those of a column-major variable the other way round, after a dimension `step`
// that all variables but local arrays have.
Extents in_file(const Dims& dims, const model::VariableDefinition& variable, hsize_t step);
std::string block_name(std::uint32_t number);
// A dataset in one piece, of which nothing is written yet.
Id make_dataset(hid_t file, const std::string& name, hid_t type, const Extents& shape);
std::uint64_t offset_of(hid_t dataset);

}  // namespace penstock::stream::h5
