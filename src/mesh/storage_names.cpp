#include "mesh/storage_names.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace penstock::mesh {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// The base of a name that ends with _suffix; "" for another.
std::string_view base_of(std::string_view name, std::string_view suffix) {
  if (name.size() < suffix.size() + 2) return {};
  const auto base = name.substr(0, name.size() - suffix.size() - 1);
  if (name[base.size()] != '_' || lower(name.substr(base.size() + 1)) != suffix) return {};
  return base;
}

// How many of the names from `first` on are `base` with these suffixes, each in its turn.
std::size_t matching(const std::vector<std::string>& names, std::size_t first, std::string_view base,
                     const std::vector<std::string>& suffixes) {
  std::size_t count = 0;
  while (count < suffixes.size() && first + count < names.size() &&
         base_of(names[first + count], suffixes[count]) == base)
    ++count;
  return count;
}

// The longest storage that the names from `first` on make; a scalar when none does.
Storage longest(const std::vector<std::string>& names, std::size_t first, std::string& base) {
  Storage best{"scalar", {}};
  for (const auto& storage : named_storages()) {
    if (storage.suffixes.size() < 2 || storage.suffixes.size() <= best.suffixes.size()) continue;
    const auto its_base = base_of(names[first], storage.suffixes.front());
    if (its_base.empty() || matching(names, first, its_base, storage.suffixes) < storage.suffixes.size()) continue;
    best = storage;
    base = its_base;
  }
  if (!best.suffixes.empty()) return best;
  // An array: the number of digits says how long it may be.
  const auto digits = names[first].size() - 1 - names[first].find_last_of('_');
  if (names[first].find('_') == std::string::npos || digits == 0 || digits > 5) return best;
  const auto one = std::string(digits - 1, '0') + "1";
  const auto its_base = base_of(names[first], one);
  if (its_base.empty()) return best;
  std::size_t size = 1;
  const auto suffix = [&](std::size_t number) {
    const auto text = std::to_string(number);
    return text.size() >= digits ? text : std::string(digits - text.size(), '0') + text;
  };
  while (first + size < names.size() && base_of(names[first + size], suffix(size + 1)) == its_base) ++size;
  if (size < 2 || std::to_string(size).size() != digits) return best;
  base = its_base;
  return storage_named("[" + std::to_string(size) + "]");
}

}  // namespace

std::vector<Field> join_components(const std::vector<std::string>& names, DType dtype, Role role) {
  std::vector<Field> fields;
  for (std::size_t i = 0; i < names.size();) {
    Field field{.name = names[i], .dtype = dtype, .role = role};
    const auto storage = longest(names, i, field.name);
    const auto count = std::max<std::size_t>(1, storage.suffixes.size());
    field.storage = storage.name;
    if (count > 1)
      field.components.assign(names.begin() + static_cast<std::ptrdiff_t>(i),
                              names.begin() + static_cast<std::ptrdiff_t>(i + count));
    if (component_names({.name = field.name, .storage = field.storage}) == field.components) field.components.clear();
    fields.push_back(std::move(field));
    i += count;
  }
  return fields;
}

std::vector<std::string> component_names(const Field& field) {
  if (!field.components.empty()) return field.components;
  const auto storage = storage_named(field.storage);
  if (storage.suffixes.empty()) return {field.name};
  std::vector<std::string> names;
  for (const auto& suffix : storage.suffixes) names.push_back(field.name + "_" + suffix);
  return names;
}

}  // namespace penstock::mesh
