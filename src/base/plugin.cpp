#include "base/plugin.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "penstock/error.hpp"

namespace penstock::base {

AnyFunction plugin_function(const std::string& path, const char* name) {
  // Without a slash the loader would look into its own folders.
  const auto file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(Errc::not_found, "it cannot be loaded: " + std::string(::dlerror()));
  void* found = ::dlsym(library, name);
  Dl_info info;
  void* entry = nullptr;
  const bool known = found != nullptr && ::dladdr1(found, &info, &entry, RTLD_DL_SYMENT) != 0 && entry != nullptr;
  if (!known || ELF64_ST_TYPE(static_cast<const ElfW(Sym)*>(entry)->st_info) != STT_FUNC)
    throw Error(Errc::unsupported, std::string("it exports no function ") + name);
  return reinterpret_cast<AnyFunction>(found);
}

}  // namespace penstock::base
