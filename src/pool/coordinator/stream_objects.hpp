// What a stream's home reads from and writes to the pool's objects, apart from its state.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "penstock/options.hpp"
#include "pool/server/server_core.hpp"

namespace penstock::pool {

template <class Table>
std::vector<std::byte> encode_object(const typename Table::NativeTableType& value) {
  return rpc::encode<Table>(value);
}
// Throws Error(protocol).
template <class Table>
typename Table::NativeTableType decode_object(std::span<const std::byte> bytes) {
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());  // aligned, as decode wants it
  return rpc::decode<Table>(copy, "record of a stream");
}

// The options in a stream's record. Those that this server does not know are logged and left out.
StreamOptions stream_options(const fb::StreamRecordT& record, const std::string& stream);
KeyPattern exact_row(const std::string& row);
// The lowest row that matches, of what a server holds; empty when there is none.
Task<std::string> first_row(ServerCore& core, Member member, std::uint64_t view, std::string rows,
                            base::Deadline deadline);
// Drops objects at the server that is their primary owner; those that are not there are passed over.
Task<void> drop_at(ServerCore& core, Member member, std::uint64_t view, std::vector<Key> keys,
                   std::optional<std::uint64_t> tag, base::Deadline deadline);
// Of the stripes whose rows and columns match (stripe_pattern, stripe_column), those whose primary owner the server is.
Task<void> drop_stripes_at(ServerCore& core, Member member, std::uint64_t view, std::string rows, std::string column,
                           base::Deadline deadline);

}  // namespace penstock::pool
