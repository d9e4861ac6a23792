#include "directory/open.hpp"

#include <cstdlib>

#include "base/uri.hpp"
#include "directory/embedded.hpp"
#include "directory/etcd/directory.hpp"
#include "directory/server.hpp"
#include "fabric/registration.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {

std::string resolve_directory_service(const std::string& configured) {
  if (!configured.empty()) return configured;
  const char* value = std::getenv("PENSTOCK_DIRECTORY_SERVICE");
  return value != nullptr && *value != '\0' ? value : "embedded";
}

std::unique_ptr<Directory> open_directory(std::shared_ptr<fabric::Progress> progress, const std::string& where,
                                          const std::string& registration_directory) {
  if (where == "embedded" && fabric::is_directory_service(registration_directory))
    return open_directory(std::move(progress), registration_directory, "");
  if (where == "embedded") {
    const std::string path = fabric::resolve_directory(registration_directory);
    auto locate = [path]() -> DirectoryLocation {
      const auto found = fabric::Directory(path).read(directory_registration);
      if (!found) throw Error(Errc::not_found, "no directory is registered in " + path);
      return {found->endpoint, found->token};
    };
    return open_embedded_directory(std::move(progress), std::move(locate), "embedded directory registered in " + path);
  }
  if (where.starts_with("etcd://")) return open_etcd_directory(std::move(progress), parse_etcd_address(where));
  if (fabric::is_address(where)) {
    const auto found = fabric::parse_address(where);
    const bool reads = found.stream == reader_registration;
    if (!reads && found.stream != directory_registration)
      throw Error(Errc::invalid_argument, "the address of a directory ends with /directory, not /" + found.stream);
    const auto name = base::format_endpoint(found.endpoint.tcp_hosts.at(0), found.endpoint.tcp_port);
    auto locate = [at = DirectoryLocation{found.endpoint, found.token}] { return at; };
    return open_embedded_directory(std::move(progress), std::move(locate), "embedded directory at " + name,
                                   reads ? "read" : "write", /*fixed=*/true);
  }
  throw Error(
      Errc::invalid_argument,
      "'" + where + "' is no directory: it is 'embedded', etcd://host:port or tcp://host:port/directory?token=...");
}

std::string reader_address(const std::string& where, const std::string& registration_directory) {
  const bool embedded = where == "embedded";
  if (embedded && fabric::is_directory_service(registration_directory))
    return reader_address(registration_directory, "");
  if (where.starts_with("etcd://"))
    throw Error(Errc::unsupported,
                where.substr(0, where.find('?')) +
                    " has users and roles of its own: clients use this address, with a role's token");
  const std::string path = embedded ? fabric::resolve_directory(registration_directory) : "";
  auto found = embedded ? fabric::Directory(path).read(directory_registration) : fabric::parse_address(where);
  if (!found) throw Error(Errc::not_found, "no directory is registered in " + path);
  if (found->stream == reader_registration) return where;
  found->stream = reader_registration;
  found->token = reader_token(found->token);
  return fabric::to_address(*found);
}

}  // namespace penstock::directory
