#include "base/plugin.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "penstock/error.hpp"

namespace penstock::base {

AnyFunction plugin_function(const std::string& path, const char* name) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  // Without a slash the loader looks into its own folders only.
  if (library == nullptr && path.find('/') == std::string::npos)
    library = ::dlopen(("./" + path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(Errc::not_found, "it cannot be loaded: " + std::string(::dlerror()));
  void* found = ::dlsym(library, name);
  Dl_info info;
  void* entry = nullptr;
  const bool known = found != nullptr && ::dladdr1(found, &info, &entry, RTLD_DL_SYMENT) != 0 && entry != nullptr;
  const auto type = known ? ELF64_ST_TYPE(static_cast<const ElfW(Sym)*>(entry)->st_info) : STT_NOTYPE;
  if (type != STT_FUNC && type != STT_GNU_IFUNC)
    throw Error(Errc::unsupported, std::string("it exports no function ") + name);
  return reinterpret_cast<AnyFunction>(found);
}

}  // namespace penstock::base
