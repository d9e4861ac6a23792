// What a pool's servers keep for themselves under a namespace, and so who may read and change it there. The object server asks for
// the policy of a namespace; it does not know what is kept.
#pragma once

#include <string_view>

#include "penstock/pool.hpp"

namespace penstock::pool {

struct NamespacePolicy {
  std::string_view why_servers_only;  // may change it, for who tries; empty: who has the role `write` may
  std::string_view why_secret;        // of what no client is given the bytes of, whatever its role
  bool (*is_secret)(std::string_view row, std::string_view column) = nullptr;
  bool untagged_is_bookkeeping = false;  // may use the memory that is kept for it (store/credit)
};
const NamespacePolicy& policy_of(const Namespace& ns);

}  // namespace penstock::pool
