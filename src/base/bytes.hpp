// Hexadecimal text and random bytes. Safe from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::base {

// Two lower-case digits for each byte.
std::string to_hex(std::string_view bytes);
// The inverse, in any case; empty when the text is not whole bytes of hexadecimal digits.
std::optional<std::string> from_hex(std::string_view text);

// From the kernel's generator, fit for keys. Throws Error(system).
std::string random_bytes(std::size_t count);

}  // namespace penstock::base
