#include "pool/keys/policy.hpp"

#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {

const NamespacePolicy& policy_of(const Namespace& ns) {
  static constexpr NamespacePolicy none;
  static constexpr NamespacePolicy streams{
      .why_servers_only =
          "what streams are made of is changed by the pool's servers only; a stream whose writer has ended is "
          "dropped as a whole (penstock stream drop)",
      .why_secret = "only the pool's servers read a stream's record: it holds its writer's token",
      .is_secret = is_stream_record,
      .untagged_is_bookkeeping = true};
  return ns == streams_namespace() ? streams : none;
}

}  // namespace penstock::pool
