// Many small objects of one namespace on their way to disk, together: their keys were not there, and nothing else is being done
// to them. What each of them needs is kept here, so that none has strings and nodes of its own until it is in the table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pool/eviction.hpp"
#include "pool/object_table.hpp"
#include "storage/checksum.hpp"

namespace penstock::pool {

class FreshBatch {
 public:
  struct Item {
    std::size_t at = 0;  // in keys_
    std::uint32_t row_bytes = 0, column_bytes = 0;
    std::uint64_t line = 0;  // a strong hash of the packed key
    std::uint64_t version = 0, checksum = 0;
    std::shared_ptr<const Blob> blob;
    // The submitter's number; 0: nobody but the batch knows of it.
    std::uint64_t id = 0;
  };

  // common: what the objects have in common (put_us, tag, metadata).
  FreshBatch(const Namespace& ns, StoredObject common, bool keep_older)
      : ns(ns), common(std::move(common)), keep_older(keep_older) {}

  void reserve(std::size_t objects, std::size_t key_bytes);
  // False: a row with zeros, whose packed key does not hold it as it is.
  bool add(std::string_view row, std::string_view column);
  void set_version(Item& item, std::uint64_t version);  // once, for each
  std::string_view packed_key(const Item& item) const {
    return {keys_->data() + item.at, ns_bytes + item.row_bytes + row_end_bytes + item.column_bytes};
  }
  std::string_view tier_key(const Item& item) const {
    return {keys_->data() + item.at, packed_key(item).size() + version_bytes};
  }
  std::string_view row(const Item& item) const { return {keys_->data() + item.at + ns_bytes, item.row_bytes}; }
  std::string_view column(const Item& item) const {
    return {keys_->data() + item.at + ns_bytes + item.row_bytes + row_end_bytes, item.column_bytes};
  }
  SharedKey shared_key(const Item& item) const { return {keys_, item.at, packed_key(item).size()}; }
  std::uint64_t last_used(const Item& item) const {
    return first_use + static_cast<std::uint64_t>(&item - items.data());
  }
  StoredObject object(const Item& item) const;
  // What the table will keep of them: made while the disk works.
  void make_ready();

  const Namespace ns;
  const StoredObject common;
  const bool keep_older;
  bool absent = false;  // no tier can have one of them
  std::uint64_t bytes = 0;
  std::uint64_t first_use = 0;  // last_used of the first; of the others, in order, one more each
  std::vector<Item> items;
  std::vector<ObjectTable::Ready> ready;  // of each item, once made: in a tier

 private:
  static constexpr std::size_t ns_bytes = sizeof(Namespace::bytes), row_end_bytes = 2, version_bytes = 8;
  std::shared_ptr<std::string> keys_ = std::make_shared<std::string>();  // as in tiers
};

}  // namespace penstock::pool
