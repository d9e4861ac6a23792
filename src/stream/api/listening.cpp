#include "stream/api/listening.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/uri.hpp"
#include "fabric/handshake.hpp"
#include "fabric/registration.hpp"
#include "stream/api/open.hpp"

namespace penstock::stream {
namespace {

constexpr const char* loopback = "127.0.0.1";
// File systems that other hosts do not see (linux/magic.h): tmpfs, ext, XFS, Btrfs, overlay, ramfs, ZFS, F2FS.
constexpr std::array<std::uint32_t, 8> own_file_systems{0x01021994, 0xEF53,     0x58465342, 0x9123683E,
                                                        0x794C7630, 0x858458F6, 0x2FC12FC1, 0xF2F52010};

bool is_loopback(std::string_view host) { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

// The nearest folder that exists: a directory is made when the first stream registers.
bool is_own_folder(std::filesystem::path folder) {
  std::error_code ignored;
  folder = std::filesystem::absolute(folder, ignored);
  while (!std::filesystem::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  struct statfs about {};
  if (::statfs(folder.c_str(), &about) != 0) return false;
  return std::ranges::find(own_file_systems, static_cast<std::uint32_t>(about.f_type)) != own_file_systems.end();
}

// Why others than this host's programs may connect; "": none.
std::string other_callers(const EngineContext& context, Cohort& cohort, Callers callers) {
  if (cohort.size() > 1) {
    const auto hosts = gather_texts(cohort, [] { return fabric::host_name(); });
    if (std::ranges::count(hosts, hosts.front()) != std::ssize(hosts)) return "the ranks run on several hosts";
  }
  if (callers == Callers::anyone) return "what reads it may run on other hosts";
  if (callers == Callers::directory && !is_of_this_host(context.directory))
    return "programs on other hosts may see the directory";
  return "";
}

}  // namespace

bool is_of_this_host(const std::string& directory) {
  if (!fabric::is_directory_service(directory)) return is_own_folder(directory);
  const auto rest = std::string_view(directory).substr(directory.find("://") + 3);
  const auto hosts = base::split(rest.substr(0, rest.find('/')), ',');
  return std::ranges::all_of(hosts, [](std::string_view at) {
    const auto host = at.substr(0, at.rfind(':'));
    return is_loopback(host.starts_with('[') ? host.substr(1, host.find(']') - 1) : host);
  });
}

std::string listening_address(const EngineContext& context, const std::string& stream, Cohort& cohort,
                              Callers callers) {
  std::string address = context.listen;
  auto why = other_callers(context, cohort, callers);  // every rank asks, also where only some have an address
  if (!address.empty()) {
    why = "listen is given";
  } else if (why.empty()) {
    address = loopback;
    why = "nobody known is on another host";
  }
  if (cohort.rank() == 0)
    base::log(base::Level::info, "listening",
              {{"stream", stream}, {"address", address.empty() ? "every interface" : address}, {"why", why}});
  return address;
}

}  // namespace penstock::stream
