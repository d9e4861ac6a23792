// The one function of libpenstock_ucx.so (base/part.hpp): what needs UCX.
#pragma once

#include <memory>

#include "base/part.hpp"
#include "transport/served_link.hpp"

namespace penstock::transport {

struct UcxPart : base::PartHead {
  std::shared_ptr<ServedLink> (*link)(LinkSide side);
};

}  // namespace penstock::transport

// Null where it is not linked into the program.
extern "C" [[gnu::weak]] const penstock::base::PartHead* penstock_ucx_part();
