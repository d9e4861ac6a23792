#include "stream/file/hdf5/handles.hpp"

#include <algorithm>

namespace penstock::stream::h5 {

Id access_list() {
  Id list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make properties");
  check(H5Pset_libver_bounds(list, H5F_LIBVER_V18, H5F_LIBVER_V110), "set the format");
  check(H5Pset_alignment(list, 1, 64), "set the alignment");
  check(H5Pset_fclose_degree(list, H5F_CLOSE_STRONG), "make properties");
#if H5_VERSION_GE(1, 10, 7)
  check(H5Pset_file_locking(list, false, true), "leave locks out");  // files have their names once they are complete
#endif
  return list;
}

Id names_list() {
  Id list(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "make properties");
  check(H5Pset_char_encoding(list, H5T_CSET_UTF8), "make properties");
  check(H5Pset_create_intermediate_group(list, 1), "make properties");
  return list;
}

Id type_of(DType dtype) {
  const auto copy = [](hid_t type) { return Id(H5Tcopy(type), H5Tclose, "make a type"); };
  const auto complex = [](hid_t part, std::size_t bytes) {
    Id type(H5Tcreate(H5T_COMPOUND, 2 * bytes), H5Tclose, "make a type");
    check(H5Tinsert(type, "r", 0, part), "make a type");
    check(H5Tinsert(type, "i", bytes, part), "make a type");
    return type;
  };
  switch (dtype) {
    case DType::boolean:
    case DType::int8: return copy(H5T_STD_I8LE);
    case DType::int16: return copy(H5T_STD_I16LE);
    case DType::int32: return copy(H5T_STD_I32LE);
    case DType::int64: return copy(H5T_STD_I64LE);
    case DType::uint8: return copy(H5T_STD_U8LE);
    case DType::bfloat16:
    case DType::uint16: return copy(H5T_STD_U16LE);
    case DType::uint32: return copy(H5T_STD_U32LE);
    case DType::uint64: return copy(H5T_STD_U64LE);
    case DType::float32: return copy(H5T_IEEE_F32LE);
    case DType::float64: return copy(H5T_IEEE_F64LE);
    case DType::complex64: return complex(H5T_IEEE_F32LE, 4);
    case DType::complex128: return complex(H5T_IEEE_F64LE, 8);
    case DType::float16: {
      auto type = copy(H5T_IEEE_F32LE);
      check(H5Tset_fields(type, 15, 10, 5, 0, 10), "make a type");
      check(H5Tset_size(type, 2), "make a type");
      check(H5Tset_ebias(type, 15), "make a type");
      return type;
    }
    case DType::string: return text_type();
    case DType::none: break;
  }
  throw Error(Errc::internal, "no type of HDF5 for an element type");
}

Id text_type() {
  Id type(H5Tcopy(H5T_C_S1), H5Tclose, "make a type");
  check(H5Tset_size(type, H5T_VARIABLE), "make a type");
  check(H5Tset_cset(type, H5T_CSET_UTF8), "make a type");
  return type;
}

void write_text(hid_t object, const char* name, const std::string& text) {
  const Id type = text_type(), space = space_of({});
  const Id attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "make an attribute");
  const char* value = text.c_str();
  check(H5Awrite(attribute, type, &value), "write an attribute");
}

void mark_type(hid_t dataset, DType dtype) {
  if (dtype == DType::boolean) write_text(dataset, "dtype", "bool");
  if (dtype == DType::bfloat16) write_text(dataset, "penstock_dtype", "bfloat16");
}

Extents in_file(const Dims& dims, const model::VariableDefinition& variable, hsize_t step) {
  Extents result(dims.begin(), dims.end());
  if (variable.order == Order::column) std::ranges::reverse(result);
  if (variable.kind != Kind::local_array) result.insert(result.begin(), step);
  return result;
}

std::string block_name(std::uint32_t number) { return "/penstock/blocks/" + std::to_string(number); }

Id make_dataset(hid_t file, const std::string& name, hid_t type, const Extents& shape) {
  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make properties");
  check(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), "make properties");
  check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "make properties");
  const Id space = space_of(shape), names = names_list();
  return {H5Dcreate2(file, name.c_str(), type, space, names, creation, H5P_DEFAULT), H5Dclose, "make a dataset"};
}

std::uint64_t offset_of(hid_t dataset) {
  const auto offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) fail("find a dataset's place");
  return offset;
}

}  // namespace penstock::stream::h5
