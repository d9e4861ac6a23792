// The one function of libpenstock_etcd.so, the client of etcd (base/part.hpp). It needs an HTTP library, which brings TLS and
// compression.
#pragma once

#include <memory>

#include "base/part.hpp"
#include "directory/etcd/directory.hpp"

namespace penstock::directory {

struct EtcdPart : base::PartHead {
  std::unique_ptr<Directory> (*open)(std::shared_ptr<fabric::Progress> progress, const EtcdAddress& address);
};

}  // namespace penstock::directory

// Null where the client is not linked into the program.
extern "C" [[gnu::weak]] const penstock::base::PartHead* penstock_etcd_part();
