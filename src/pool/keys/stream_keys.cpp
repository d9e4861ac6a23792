#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

std::string digits(std::uint64_t number, std::size_t width) {
  auto text = std::to_string(number);
  return std::string(text.size() < width ? width - text.size() : 0, '0') + text;
}

}  // namespace

const Namespace& streams_namespace() {
  static const Namespace ns = Namespace::named("penstock.streams");
  return ns;
}

std::string stream_row(std::string_view stream) { return std::string(stream_row_prefix) + std::string(stream); }

std::string stream_of_row(std::string_view row) {
  if (!row.starts_with(stream_row_prefix)) return "";
  return std::string(row.substr(stream_row_prefix.size()));
}

bool is_stream_record(const Namespace& ns, std::string_view row, std::string_view column) {
  return column == record_column && row.starts_with(stream_row_prefix) && ns == streams_namespace();
}

std::string epoch_column(std::uint64_t life, std::uint64_t epoch) {
  return "epoch/" + std::to_string(life) + "/" + std::to_string(epoch);
}
std::string step_column(std::uint64_t step) { return "step/" + digits(step, 20); }
std::string group_column(std::string_view group) { return "group/" + std::string(group); }

std::string stripe_row(std::string_view stream, std::uint64_t step, std::uint32_t rank, std::uint32_t stripe) {
  return "stripe/" + std::string(stream) + "/" + digits(step, 20) + "/" + std::to_string(rank) + "/" +
         std::to_string(stripe);
}
std::string stripe_column(std::uint64_t life) { return std::to_string(life); }
std::string stripe_pattern(std::string_view stream) { return "stripe/" + std::string(stream) + "/*"; }
std::string stripe_pattern(std::string_view stream, std::uint64_t step) {
  return "stripe/" + std::string(stream) + "/" + digits(step, 20) + "/*";
}

}  // namespace penstock::pool
