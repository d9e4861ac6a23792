// For tests of the protocol, message by message.
#pragma once

#include "stream/protocol/link.hpp"

namespace penstock::stream {

inline constexpr LinkId reader_a = first_reader_link, reader_b = first_reader_link + 1;

}  // namespace penstock::stream
