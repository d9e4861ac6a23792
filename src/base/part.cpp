#include "base/part.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "penstock/error.hpp"
#include "penstock/version.hpp"

namespace penstock::base {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int own_symbols_first = 0;  // sanitizers must be found first
#else
constexpr int own_symbols_first = RTLD_DEEPBIND;
#endif

// Beside the library or program that this function is in; without a folder when it is not there, for the dynamic linker's
// default search.
std::string file_of(const char* library) {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&load_part), &here) == 0) return library;
  const auto beside = std::filesystem::path(here.dli_fname).replace_filename(library);
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside.string() : library;
}

}  // namespace

const PartHead& load_part(const PartRequest& request) {
  auto* entry = request.linked;
  std::string file = "the program";
  if (entry == nullptr) {
    file = file_of(request.library);
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | (request.own_libraries ? own_symbols_first : 0));
    if (library == nullptr)
      throw Error(Errc::unsupported, std::string(request.what) + " needs " + request.library +
                                         " beside libpenstock.so (" + ::dlerror() + "): " + request.install);
    entry = reinterpret_cast<decltype(entry)>(::dlsym(library, request.entry));
    if (entry == nullptr)
      throw Error(Errc::unsupported, file + " is not Penstock's part for " + std::string(request.what));
  }
  const PartHead& part = *entry();
  if (std::string_view(part.version) != version)
    throw Error(Errc::unsupported, file + " is of Penstock " + part.version + ", this is " + version);
  if (part.libpenstock != &load_part)
    throw Error(Errc::unsupported,
                file + " belongs to another copy of libpenstock than the one that this program uses");
  return part;
}

}  // namespace penstock::base
