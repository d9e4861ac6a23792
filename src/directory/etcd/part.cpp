#include "directory/etcd/part.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "penstock/error.hpp"
#include "penstock/version.hpp"

namespace penstock::directory {
namespace {

constexpr const char* client_name = "libpenstock_etcd.so";

// Beside the library or program that this function is in; without a folder when it is not there, for the dynamic linker's
// default search.
std::string client_file() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&parse_etcd_address), &here) == 0) return client_name;
  const auto beside = std::filesystem::path(here.dli_fname).replace_filename(client_name);
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside.string() : client_name;
}

const EtcdPart& load_client() {
  auto* entry = &penstock_etcd_part;
  std::string file = "the program";
  if (entry == nullptr) {
    file = client_file();
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw Error(Errc::unsupported,
                  std::string("etcd needs ") + client_name + " beside libpenstock.so (" + ::dlerror() +
                      "): install cpp-httplib (Debian: libcpp-httplib-dev) and build Penstock again");
    entry = reinterpret_cast<decltype(entry)>(::dlsym(library, "penstock_etcd_part"));
    if (entry == nullptr) throw Error(Errc::unsupported, file + " is not Penstock's client of etcd");
  }
  const EtcdPart& part = *entry();
  if (std::string_view(part.version) != version)
    throw Error(Errc::unsupported, file + " is of Penstock " + part.version + ", this is " + version);
  if (part.libpenstock != &parse_etcd_address)
    throw Error(Errc::unsupported,
                file + " belongs to another copy of libpenstock than the one that this program uses");
  return part;
}

}  // namespace

std::unique_ptr<Directory> open_etcd_directory(std::shared_ptr<fabric::Progress> progress, const EtcdAddress& address) {
  static const EtcdPart& part = load_client();  // tried again after an error
  return part.open(std::move(progress), address);
}

}  // namespace penstock::directory
