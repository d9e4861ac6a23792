#include "mesh/exodus/classic_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::size_t piece = std::size_t{4} << 20;  // bytes converted at a time

// Calls body with a value of the type that the file has. The numbers are nc_type's.
template <class Body>
void with_file_type(std::uint64_t type, Body body) {
  switch (type) {
    case 4: return body(std::int32_t{});
    case 5: return body(float{});
    case 6: return body(double{});
    case 10: return body(std::int64_t{});
    default: throw Error(Errc::unsupported, "a shared file has no values of netCDF's type " + std::to_string(type));
  }
}
template <class Body>
void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::int32: return body(std::int32_t{});
    case DType::int64: return body(std::int64_t{});
    case DType::float32: return body(float{});
    case DType::float64: return body(double{});
    default: throw Error(Errc::unsupported, "a shared file has no values of type " + std::string(name_of(dtype)));
  }
}

template <class To, class From>
To converted(From value, std::uint64_t add) {
  if constexpr (std::integral<From>) {
    value = static_cast<From>(value + static_cast<From>(add));
    if constexpr (std::integral<To>)
      if (!std::in_range<To>(value))
        throw Error(Errc::invalid_argument,
                    std::to_string(value) + " does not fit 32 bits: say integers: 64 and format: cdf5");
  }
  return static_cast<To>(value);
}

template <class T>
void store(std::byte* to, T value) {  // the file's bytes are big-endian
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  auto bits = std::bit_cast<Bits>(value);
  if constexpr (std::endian::native == std::endian::little) {
    if constexpr (sizeof(T) == 4) bits = __builtin_bswap32(bits);
    else bits = __builtin_bswap64(bits);
  }
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace

ClassicColumn classic_column(const ClassicHeader& header, const Place& place, std::size_t number) {
  const auto& column = place.columns.at(number);
  const auto& variable = header.variables.at(static_cast<std::size_t>(column.variable));
  ClassicColumn out{.begin = variable.begin,
                    .record_bytes = variable.of_record ? header.record_bytes : 0,
                    .type = variable.type,
                    .add = number < place.from_one.size() && place.from_one[number] != 0 ? 1U : 0U};
  const auto width = variable.lengths.empty() ? 1 : variable.lengths.back();
  switch (column.shape) {
    case Column::Shape::rows: out.first = column.first; break;
    case Column::Shape::matrix: out.row = out.width = width; break;
    case Column::Shape::columns:
      out.first = column.at;
      out.row = width;
      break;
    case Column::Shape::value: out.first = column.at; break;
    case Column::Shape::all: break;
    case Column::Shape::lines: throw Error(Errc::internal, "a column of lines is only read");
  }
  return out;
}

ClassicFile::ClassicFile(const std::string& path, std::string name) : name_(std::move(name)) {
  auto file = storage::File::open_if_there(path, O_RDWR);
  if (!file)
    throw Error(
        Errc::not_found,
        path + ": rank 0 has made the file, and this rank does not see it: its folder is one that all ranks see");
  file_ = std::move(*file);
}

void ClassicFile::write_bytes(std::span<const std::byte> bytes, std::uint64_t at) const {
  try {
    file_.write_at(at, bytes);
  } catch (const Error& error) {
    throw error.in(name_);
  }
}

void ClassicFile::write(const ClassicColumn& column, DType dtype, std::uint64_t state, Rows rows, const void* values,
                        std::size_t stride) {
  const auto size = classic_type_size(column.type);
  const auto row_bytes = column.row * size;
  const auto many = std::max<std::uint64_t>(1, piece / std::max<std::uint64_t>(row_bytes, 1));
  std::vector<std::byte> bytes;
  for (std::uint64_t done = 0; done < rows.count; done += many) {
    const auto count = std::min(many, rows.count - done);
    // From the first value of the column to the last one.
    bytes.resize((count - 1) * row_bytes + column.width * size);
    const auto at = column.begin + state * column.record_bytes + column.first * size + (rows.first + done) * row_bytes;
    if (column.row != column.width) {  // other columns of these rows; nothing beyond the end
      const auto have = file_.read_at(at, bytes);
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(have), bytes.end(), std::byte{});
    }
    with_type(dtype, [&]<class From>(From) {
      with_file_type(column.type, [&]<class To>(To) {
        const auto* from = static_cast<const From*>(values) + done * stride;
        for (std::uint64_t r = 0; r < count; ++r)
          for (std::uint64_t i = 0; i < column.width; ++i)
            store(bytes.data() + r * row_bytes + i * size, converted<To>(from[r * stride + i], column.add));
      });
    });
    write_bytes(bytes, at);
  }
}

void ClassicFile::count_records(std::uint64_t records) {
  std::byte version{};
  file_.read_at(3, {&version, 1});
  std::array<std::byte, 8> bytes{};
  store(bytes.data(), records);
  const std::size_t width = version == std::byte{5} ? 8 : 4;
  write_bytes(std::span(bytes).last(width), 4);
}

}  // namespace penstock::mesh
