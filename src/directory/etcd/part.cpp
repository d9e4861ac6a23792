#include "directory/etcd/part.hpp"

namespace penstock::directory {

std::unique_ptr<Directory> open_etcd_directory(std::shared_ptr<fabric::Progress> progress, const EtcdAddress& address) {
  static const auto& part = static_cast<const EtcdPart&>(  // tried again after an error
      base::load_part({"etcd", "libpenstock_etcd.so", "penstock_etcd_part",
                       "install cpp-httplib (Debian: libcpp-httplib-dev) and build Penstock again",
                       &penstock_etcd_part}));
  return part.open(std::move(progress), address);
}

}  // namespace penstock::directory
