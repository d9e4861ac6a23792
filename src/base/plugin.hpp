// Shared objects that users supply. They stay loaded until the process ends.
#pragma once

#include <string>

namespace penstock::base {

// The function that the shared object at `path` exports under this name, which the caller casts to its type. Throws Error:
// not_found (it cannot be loaded), unsupported (it exports no such function).
using AnyFunction = void (*)();
AnyFunction plugin_function(const std::string& path, const char* name);

}  // namespace penstock::base
