#include "pool/compute/result_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::pool::compute {

using memory::UniqueFd;

UniqueFd create_result_file(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("penstock-result", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw Error(errno == ENOMEM || errno == ENFILE || errno == EMFILE ? Errc::memory : Errc::system,
                "a memory file of " + base::format_size(bytes) + ": " + std::generic_category().message(errno));
  return fd;
}

void read_result_file(int fd, std::span<std::byte> into) {
  for (std::size_t at = 0; at < into.size();) {
    const auto count = ::pread(fd, into.data() + at, into.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Error(Errc::system, "reading a result: " + std::generic_category().message(errno));
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace penstock::pool::compute
