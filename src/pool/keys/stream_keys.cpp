#include "pool/keys/stream_keys.hpp"

#include <charconv>
#include <span>

#include "storage/checksum.hpp"

namespace penstock::pool {
namespace {

std::string digits(std::uint64_t number, std::size_t width) {
  auto text = std::to_string(number);
  return std::string(text.size() < width ? width - text.size() : 0, '0') + text;
}

std::optional<std::uint64_t> number_after(std::string_view text, const std::string& prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  std::uint64_t number = 0;
  text.remove_prefix(prefix.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || (end != text.data() + text.size() && *end != '/')) return std::nullopt;
  return number;
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

bool is_stream_record(std::string_view row, std::string_view column) {
  return column == record_column && row.starts_with(stream_row_prefix);
}

std::string epoch_column(std::uint64_t life, std::uint64_t epoch) {
  return "epoch/" + std::to_string(life) + "/" + std::to_string(epoch);
}
std::optional<std::uint64_t> epoch_of_column(std::string_view column, std::uint64_t life) {
  return number_after(column, "epoch/" + std::to_string(life) + "/");
}
std::string step_column(std::uint64_t step) { return "step/" + digits(step, 20); }
std::string group_column(std::string_view group) { return "group/" + std::string(group); }

std::string stripe_row(std::string_view stream, std::uint64_t step, std::uint32_t rank, std::uint32_t stripe) {
  return "stripe/" + std::string(stream) + "/" + digits(step, 20) + "/" + std::to_string(rank) + "/" +
         std::to_string(stripe);
}
std::optional<std::uint64_t> step_of_stripe_row(std::string_view row, std::string_view stream) {
  return number_after(row, "stripe/" + std::string(stream) + "/");
}
std::uint64_t stripe_tag(std::uint64_t base, std::uint64_t step, std::uint32_t rank, std::uint32_t stripe) {
  if ((base & tag_by_step) == 0) return base + rank + stripe;
  const std::uint64_t turn = step / 16;
  const std::uint64_t begin = storage::checksum(std::as_bytes(std::span(&turn, 1))) & 0xffff'ffff;
  return base + begin + step + rank + stripe;
}
std::uint64_t tag_base_of(std::string_view stream) {
  return tag_by_step | (storage::checksum(std::as_bytes(std::span(stream))) & 0xffff'ffff);
}
std::string stripe_column(std::uint64_t life) { return std::to_string(life); }
std::string stripe_pattern(std::string_view stream) { return "stripe/" + std::string(stream) + "/*"; }
std::string stripe_pattern(std::string_view stream, std::uint64_t step) {
  return "stripe/" + std::string(stream) + "/" + digits(step, 20) + "/*";
}

}  // namespace penstock::pool
