// The one function of libpenstock_etcd.so, the client of etcd. The client needs an HTTP library, which brings TLS and
// compression; it is a library of its own so that only programs that use etcd load them.
//
// open_etcd_directory (etcd/part.cpp, in libpenstock) loads it, checks that both are of one version and that the client was
// linked to this copy of libpenstock, and never unloads it: its threads and objects may outlive any one directory.
#pragma once

#include <memory>
#include <string_view>

#include "directory/etcd/directory.hpp"

namespace penstock::directory {

struct EtcdPart {
  const char* version;  // of the client; stays the first member in every version
  EtcdAddress (*libpenstock)(
      std::string_view);  // parse_etcd_address as the client finds it: identifies its libpenstock
  std::unique_ptr<Directory> (*open)(std::shared_ptr<fabric::Progress> progress, const EtcdAddress& address);
};

}  // namespace penstock::directory

// Null where the client is not linked into the program. Test programs link its objects, and load nothing.
extern "C" [[gnu::weak]] const penstock::directory::EtcdPart* penstock_etcd_part();
