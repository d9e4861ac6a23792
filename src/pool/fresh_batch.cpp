#include "pool/fresh_batch.hpp"

#include <span>

#include "pool/object_key.hpp"
#include "pool/object_memory.hpp"
#include "pool/object_record.hpp"

namespace penstock::pool {

void FreshBatch::reserve(std::size_t objects, std::size_t key_bytes) {
  items.reserve(objects);
  keys_->reserve(key_bytes + objects * (ns_bytes + row_end_bytes + version_bytes));
}

bool FreshBatch::add(std::string_view row, std::string_view column) {
  if (row.find('\0') != std::string_view::npos) return false;
  Item item;
  item.at = keys_->size();
  item.row_bytes = static_cast<std::uint32_t>(row.size());
  item.column_bytes = static_cast<std::uint32_t>(column.size());
  append_packed_key(*keys_, ns, row, column);
  item.line = storage::checksum(std::as_bytes(std::span(*keys_).subspan(item.at)));
  keys_->append(version_bytes, '\0');
  items.push_back(std::move(item));
  return true;
}

void FreshBatch::set_version(Item& item, std::uint64_t version) {
  item.version = version;
  write_version(keys_->data() + item.at + packed_key(item).size(), version);
}

StoredObject FreshBatch::object(const Item& item) const {
  StoredObject object = common;
  object.version = item.version;
  object.bytes = item.blob->size();
  object.checksum = item.checksum;
  object.blob = item.blob;
  object.last_used = last_used(item);
  return object;
}

void FreshBatch::make_ready() {
  std::vector<ObjectTable::Ready> made;
  made.reserve(items.size());
  for (const auto& item : items) {
    auto stored = object(item);
    stored.on_disk = true;
    made.push_back(ObjectTable::make_ready(row(item), column(item), std::move(stored), keep_older));
  }
  ready = std::move(made);
}

}  // namespace penstock::pool
