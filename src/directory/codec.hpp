// Between directory/directory.fbs and directory/directory.hpp.
#pragma once

#include <memory>
#include <utility>

#include "directory/directory.hpp"
#include "directory/directory_generated.h"
#include "penstock/error.hpp"

namespace penstock::directory {

inline std::unique_ptr<fb::EntryT> to_wire(DirectoryEntry entry) {
  auto out = std::make_unique<fb::EntryT>();
  out->path = std::move(entry.path);
  out->value.assign(entry.value.begin(), entry.value.end());
  out->revision = entry.revision;
  out->created = entry.created;
  out->lease = entry.lease;
  return out;
}

inline DirectoryEntry from_wire(const std::unique_ptr<fb::EntryT>& entry) {
  if (!entry) throw Error(Errc::protocol, "the directory sent an entry that is not there");
  DirectoryEntry out;
  out.path = std::move(entry->path);
  out.value.assign(entry->value.begin(), entry->value.end());
  out.revision = entry->revision;
  out.created = entry->created;
  out.lease = entry->lease;
  return out;
}

}  // namespace penstock::directory
