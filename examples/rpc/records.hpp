// Records that both sides can make and check, and how a client finds the server.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

#include "examples/rpc/transfer_service.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/token.hpp"

namespace transfer {

using penstock::examples::transfer::Record;

inline Record record_of(std::uint64_t seed, std::uint64_t i) {
  const auto value = static_cast<std::int32_t>((seed * 31 + i) & 0xffffff);
  return Record(value, static_cast<float>(value) * 0.5F, static_cast<double>(value) * 0.25);
}

inline void fill(std::span<Record> records, std::uint64_t seed) {
  for (std::size_t i = 0; i < records.size(); ++i) records[i] = record_of(seed, i);
}

inline std::uint64_t checksum(std::span<const Record> records) {
  std::uint64_t sum = 0;
  for (const Record& r : records) {
    sum += static_cast<std::uint64_t>(r.int_value()) + static_cast<std::uint64_t>(r.float_value() * 2) +
           static_cast<std::uint64_t>(r.double_value() * 4);
  }
  return sum;
}

inline std::span<Record> as_records(std::span<std::byte> bytes) {
  return {reinterpret_cast<Record*>(bytes.data()), bytes.size() / sizeof(Record)};
}

// Where the server listens and what one must know: a file that only its owner reads.
struct Contact {
  penstock::fabric::Endpoint endpoint;
  penstock::fabric::Token token;
};

inline Contact read_contact(const std::string& file) {
  std::ifstream in(file);
  std::string endpoint, token;
  if (!std::getline(in, endpoint) || !std::getline(in, token)) throw std::runtime_error("no server in " + file);
  return {penstock::fabric::endpoint_from_text(endpoint), penstock::fabric::Token::from_hex(token)};
}

}  // namespace transfer
