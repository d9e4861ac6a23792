#include "stream/protocol/agreement.hpp"

#include <string_view>
#include <unordered_map>

namespace penstock::stream {

const std::string& Agreement::disagreement(const std::vector<wire::RankBlob>& changed) {
  bool differs = false;
  for (const auto& blob : changed) differs |= take(blob);
  if (differs) compare();
  return why_;
}

// False when the rank puts what it put before.
bool Agreement::take(const wire::RankBlob& blob) {
  auto put = wire::decode_put_variables(std::as_bytes(std::span(*blob.layout)));
  auto& known = put_.at(blob.rank);
  if (known && *known == put) return false;
  const auto& neighbour = put_[blob.rank == 0 ? 0 : blob.rank - 1];
  known = neighbour && *neighbour == put ? neighbour : std::make_shared<const Definitions>(std::move(put));
  return true;
}

void Agreement::compare() {
  struct First {
    int rank;
    const model::VariableDefinition* definition;
  };
  std::unordered_map<std::string_view, First> first;
  const Definitions* before = nullptr;
  why_.clear();
  for (std::size_t rank = 0; rank < put_.size(); ++rank) {
    const auto* put = put_[rank].get();
    if (!put || put == before) continue;
    before = put;
    for (const auto& definition : *put) {
      const auto [known, is_new] = first.try_emplace(definition.name, First{static_cast<int>(rank), &definition});
      if (!is_new)
        why_ = model::disagreement(*known->second.definition, known->second.rank, definition, static_cast<int>(rank));
      if (!why_.empty()) return;
    }
  }
}

}  // namespace penstock::stream
