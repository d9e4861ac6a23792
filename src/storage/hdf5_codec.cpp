// Files of the tier `hdf5`: dataset /data with attributes `key` (bytes), `name` (the key as text, percent-encoded), `xxh3`,
// `number`, `synced`, `metadata_xxh3`; dataset /metadata where there is any. The file's metadata carries HDF5's own checksums
// (format of 1.10).
//
// The file is made in memory and written by us in one call, at the price of one copy of the data: HDF5 cannot be relied on
// after a write of its own failed (a full disk). Data is contiguous, so that it is read and verified past HDF5, too. Debian's
// HDF5 is not thread-safe: one mutex for all of it here; a program that uses HDF5 itself must not do so at the same time.
#include <fcntl.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "storage/hdf5.hpp"
#include "storage/object_codec.hpp"
#include "storage/tier.hpp"
#include "storage/verified_read.hpp"

namespace penstock::storage {

namespace {

using h5::check;
using h5::Id;
using h5::Use;

// The memory that the core driver makes a file in; we keep it when HDF5 closes the file.
struct Image {
  void* buffer = nullptr;
  std::size_t bytes = 0;
  ~Image() { std::free(buffer); }
};

H5FD_file_image_callbacks_t image_callbacks(Image& image) {
  H5FD_file_image_callbacks_t callbacks{};
  callbacks.image_malloc = [](std::size_t size, H5FD_file_image_op_t, void*) { return std::malloc(size); };
  callbacks.image_memcpy = [](void* to, const void* from, std::size_t size, H5FD_file_image_op_t, void*) {
    return std::memcpy(to, from, size);
  };
  callbacks.image_realloc = [](void* buffer, std::size_t size, H5FD_file_image_op_t, void*) {
    return std::realloc(buffer, size);
  };
  callbacks.image_free = [](void* buffer, H5FD_file_image_op_t operation, void* data) -> herr_t {
    if (operation == H5FD_FILE_IMAGE_OP_FILE_CLOSE) std::free(std::exchange(static_cast<Image*>(data)->buffer, buffer));
    else std::free(buffer);
    return 0;
  };
  callbacks.udata_copy = [](void* data) { return data; };
  callbacks.udata_free = [](void*) -> herr_t { return 0; };
  callbacks.udata = &image;
  return callbacks;
}

// What metadata says about the data.
struct Description {
  hid_t type = -1;
  h5::Extents shape;
};

hid_t type_of(std::string_view dtype) {
  const std::pair<std::string_view, hid_t> types[] = {
      {"int8", H5T_STD_I8LE},      {"int16", H5T_STD_I16LE},   {"int32", H5T_STD_I32LE},  {"int64", H5T_STD_I64LE},
      {"uint8", H5T_STD_U8LE},     {"uint16", H5T_STD_U16LE},  {"uint32", H5T_STD_U32LE}, {"uint64", H5T_STD_U64LE},
      {"float32", H5T_IEEE_F32LE}, {"float64", H5T_IEEE_F64LE}};
  for (const auto& [name, type] : types)
    if (name == dtype) return type;
  return -1;
}

// The text after `"name":` and blanks; empty when it is not there.
std::string_view value_of(std::string_view json, std::string_view name) {
  std::string quoted(1, '"');
  quoted.append(name).append(1, '"');
  const std::size_t at = json.find(quoted);
  if (at == std::string_view::npos) return {};
  const std::size_t colon = json.find_first_not_of(' ', at + name.size() + 2);
  if (colon == std::string_view::npos || json[colon] != ':') return {};
  const std::size_t value = json.find_first_not_of(' ', colon + 1);
  return value == std::string_view::npos ? std::string_view{} : json.substr(value);
}

// {"dtype": "float64", "shape": [3, 4]} at the beginning of metadata, when it describes exactly this much data.
std::optional<Description> description_of(std::string_view metadata, std::uint64_t data_bytes) {
  if (!metadata.starts_with('{')) return std::nullopt;
  const std::string_view json = metadata.substr(0, std::min(metadata.find('}'), std::size_t{1024}));
  const std::string_view dtype = value_of(json, "dtype");
  std::string_view shape = value_of(json, "shape");
  if (!dtype.starts_with('"') || !shape.starts_with('[')) return std::nullopt;
  Description result;
  result.type = type_of(dtype.substr(1, dtype.find('"', 1) - 1));
  if (result.type < 0) return std::nullopt;
  std::uint64_t bytes = H5Tget_size(result.type);
  shape.remove_prefix(1);
  for (;;) {
    shape.remove_prefix(std::min(shape.find_first_not_of(" ,"), shape.size()));
    if (shape.starts_with(']')) break;
    hsize_t extent = 0;
    const auto end = std::from_chars(shape.data(), shape.data() + shape.size(), extent);
    if (end.ec != std::errc() || result.shape.size() == H5S_MAX_RANK || extent > max_data_bytes) return std::nullopt;
    if (extent != 0 && bytes > max_data_bytes / extent) return std::nullopt;
    bytes *= extent;
    result.shape.push_back(extent);
    shape.remove_prefix(static_cast<std::size_t>(end.ptr - shape.data()));
  }
  if (bytes != data_bytes) return std::nullopt;
  return result;
}

std::string percent_encoded(std::string_view key, std::size_t most) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : key) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (out.size() + (plain ? 1 : 3) > most) break;
    const auto byte = static_cast<unsigned char>(c);
    if (plain) out += c;
    else (((out += '%') += digits[byte >> 4]) += digits[byte & 15]);
  }
  return out;
}

void write_attribute(hid_t object, const char* name, std::uint64_t value) {
  const Id space = h5::space_of({});
  const Id attribute(H5Acreate2(object, name, H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                     "make an attribute");
  check(H5Awrite(attribute, H5T_NATIVE_UINT64, &value), "write an attribute");
}

void write_bytes_attribute(hid_t object, const char* name, std::string_view bytes) {
  const Id space = h5::space_of({bytes.size()});
  const Id attribute(H5Acreate2(object, name, H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                     "make an attribute");
  if (!bytes.empty()) check(H5Awrite(attribute, H5T_NATIVE_UINT8, bytes.data()), "write an attribute");
}

void write_text_attribute(hid_t object, const char* name, const std::string& text) {
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose, "make a type");
  check(H5Tset_size(type, text.size() + 1), "make a type");
  const Id space = h5::space_of({});
  const Id attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "make an attribute");
  check(H5Awrite(attribute, type, text.c_str()), "write an attribute");
}

std::uint64_t read_attribute(hid_t object, const char* name) {
  const Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, "open an attribute");
  std::uint64_t value = 0;
  const Id space(H5Aget_space(attribute), H5Sclose, "read an attribute");
  if (H5Sget_simple_extent_npoints(space) != 1) throw Error(Errc::protocol, std::string("no number: ") + name);
  check(H5Aread(attribute, H5T_NATIVE_UINT64, &value), "read an attribute");
  return value;
}

std::string read_bytes_attribute(hid_t object, const char* name, std::uint64_t most) {
  const Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, "open an attribute");
  const Id space(H5Aget_space(attribute), H5Sclose, "read an attribute");
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0 || static_cast<std::uint64_t>(count) > most)
    throw Error(Errc::protocol, std::string("too long: ") + name);
  std::string bytes(static_cast<std::size_t>(count), '\0');
  if (count != 0) check(H5Aread(attribute, H5T_NATIVE_UINT8, bytes.data()), "read an attribute");
  return bytes;
}

Id write_dataset(hid_t file, const char* name, const Description& what, const void* bytes) {
  const Id space = h5::space_of(what.shape);
  const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make properties");
  check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "make properties");
  Id set(H5Dcreate2(file, name, what.type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose, "make a dataset");
  if (H5Sget_simple_extent_npoints(space) > 0)
    check(H5Dwrite(set, what.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes), "write a dataset");
  return set;
}

void make_image(const ObjectHeader& header, std::span<const std::byte> data, Image& image) {
  const Use use;
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make properties");
  auto callbacks = image_callbacks(image);
  // Room for all from the start: growing would copy.
  const std::size_t room = data.size() + header.metadata.size() + header.key.size() * 4 + (64 << 10);
  check(H5Pset_fapl_core(access, room, false), "make properties");
  check(H5Pset_file_image_callbacks(access, &callbacks), "make properties");
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "make properties");
  check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "make properties");
  const Id file(H5Fcreate("object", H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "make a file");
  const Description bytes{H5T_STD_U8LE, {data.size()}};
  const auto described = description_of(header.metadata, data.size());
  {
    const Id set = write_dataset(file, "data", described ? *described : bytes, data.data());
    write_bytes_attribute(set, "key", header.key);
    write_text_attribute(set, "name", percent_encoded(header.key, 3 * max_key_bytes));
    write_attribute(set, "xxh3", header.checksum);
    write_attribute(set, "number", header.number);
    write_attribute(set, "synced", header.synced ? 1 : 0);
    write_attribute(set, "metadata_xxh3", checksum(std::as_bytes(std::span(header.metadata))));
  }
  if (!header.metadata.empty())
    write_dataset(file, "metadata", {H5T_STD_U8LE, {header.metadata.size()}}, header.metadata.data());
  check(H5Fflush(file, H5F_SCOPE_LOCAL), "flush a file");
  const ssize_t size = H5Fget_file_image(file, nullptr, 0);
  if (size <= 0) throw Error(Errc::internal, "HDF5 does not say how long a file is");
  image.bytes = static_cast<std::size_t>(size);
}

// Everything but the data, and where that is.
ObjectHeader read_all_but_data(const std::string& path, std::uint64_t& data_offset) {
  const Use use;
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make properties");
  check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "make properties");
  const Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "open the file");
  const Id set(H5Dopen2(file, "data", H5P_DEFAULT), H5Dclose, "open the data");
  ObjectHeader header;
  header.key = read_bytes_attribute(set, "key", max_key_bytes);
  header.checksum = read_attribute(set, "xxh3");
  header.number = read_attribute(set, "number");
  header.synced = read_attribute(set, "synced") != 0;
  const Id type(H5Dget_type(set), H5Tclose, "read the data's type");
  const Id space(H5Dget_space(set), H5Sclose, "read the data's shape");
  header.data_bytes = static_cast<std::uint64_t>(H5Sget_simple_extent_npoints(space)) * H5Tget_size(type);
  if (header.data_bytes > max_data_bytes) throw Error(Errc::protocol, "its sizes are beyond the limits");
  const haddr_t offset = header.data_bytes != 0 ? H5Dget_offset(set) : 0;
  if (offset == HADDR_UNDEF) throw Error(Errc::protocol, "its data is not in one piece");
  data_offset = offset;
  if (H5Lexists(file, "metadata", H5P_DEFAULT) > 0) {
    const Id metadata(H5Dopen2(file, "metadata", H5P_DEFAULT), H5Dclose, "open the metadata");
    const Id extent(H5Dget_space(metadata), H5Sclose, "read the metadata");
    const hssize_t count = H5Sget_simple_extent_npoints(extent);
    if (count < 0 || static_cast<std::uint64_t>(count) > max_metadata_bytes)
      throw Error(Errc::protocol, "long metadata");
    header.metadata.resize(static_cast<std::size_t>(count));
    if (count > 0)
      check(H5Dread(metadata, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, header.metadata.data()),
            "read the metadata");
  }
  if (checksum(std::as_bytes(std::span(header.metadata))) != read_attribute(set, "metadata_xxh3"))
    throw Error(Errc::protocol, "its metadata is damaged");
  return header;
}

class Hdf5Codec final : public ObjectCodec {
 public:
  std::string_view suffix() const override { return ".h5"; }
  std::string name_prefix(std::string_view key) const override { return percent_encoded(key, 96); }

  void write(const File& file, const ObjectHeader& header, std::span<const std::byte> data) const override {
    Image image;
    make_image(header, data, image);
    if (image.buffer == nullptr) throw Error(Errc::internal, "HDF5 kept a file's memory");
    file.write({}, {static_cast<const std::byte*>(image.buffer), image.bytes});
  }

  ObjectHeader read(const std::string& path, const Place& place) const override {
    const File file(path, O_RDONLY);  // says why it cannot be opened, which HDF5 does not
    std::uint64_t offset = 0;
    ObjectHeader header = read_header(path, offset);
    if (place) read_verified(file, {offset, header.data_bytes, header.checksum}, place(header));
    return header;
  }

  ObjectHeader verify(const std::string& path) const override {
    const File file(path, O_RDONLY);
    std::uint64_t offset = 0;
    ObjectHeader header = read_header(path, offset);
    verify_only(file, {offset, header.data_bytes, header.checksum});
    return header;
  }

 private:
  static ObjectHeader read_header(const std::string& path, std::uint64_t& data_offset) {
    try {
      return read_all_but_data(path, data_offset);
    } catch (const Error& error) {
      throw Error(Errc::protocol, error.what()).in(path);
    }
  }
};

}  // namespace

std::unique_ptr<ObjectCodec> hdf5_codec() { return std::make_unique<Hdf5Codec>(); }

}  // namespace penstock::storage
