// Who a writer waits for. Plain value.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::stream {

struct Awaited {
  enum class Whom : std::uint8_t {
    readers,     // to join, or to release steps
    first_rank,  // of this writer, which knows whom itself waits for
    others,      // a rank, a pool, files
  };
  std::string who;  // for messages
  Whom whom = Whom::others;
};

}  // namespace penstock::stream
