// How one object is written into one file and read back: raw (object_header) or as HDF5. Safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "storage/file.hpp"
#include "storage/object_header.hpp"

namespace penstock::storage {

class ObjectCodec {
 public:
  virtual ~ObjectCodec() = default;
  // Of the file's name, for people: its suffix, and what may stand first in it ("" for nothing).
  virtual std::string_view suffix() const = 0;
  virtual std::string name_prefix(std::string_view key) const = 0;
  // Fills a new, empty file; does not sync.
  virtual void write(const File& file, const ObjectHeader& header, std::span<const std::byte> data) const = 0;
  // Reads the header and, into what `place` returns for it (data_bytes long), the data, which is verified. Without `place`
  // data is not read, but the file is as long as it should be. Throws Error(protocol) for anything that is not right.
  using Place = std::function<std::span<std::byte>(const ObjectHeader&)>;
  virtual ObjectHeader read(const std::string& path, const Place& place) const = 0;
  // Reads everything and keeps nothing.
  virtual ObjectHeader verify(const std::string& path) const = 0;
};

std::unique_ptr<ObjectCodec> raw_codec();
// Only where HDF5 is built in.
std::unique_ptr<ObjectCodec> hdf5_codec();

}  // namespace penstock::storage
