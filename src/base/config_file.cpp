#include "base/config_file.hpp"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/config.hpp"
#include "base/option_tables.hpp"
#include "penstock/error.hpp"

namespace penstock::base {
namespace {

std::string place_of(const std::string& file, const YAML::Node& node) {
  return file + ":" + std::to_string(node.Mark().line + 1);
}

[[noreturn]] void fail(const std::string& file, const YAML::Node& node, Errc code, const std::string& message) {
  throw Error(code, place_of(file, node) + ": " + message);
}

// Runs body; its errors name the place in the file.
template <class Body>
void at(const std::string& file, const YAML::Node& node, Body body) {
  try {
    body();
  } catch (const Error& error) {
    fail(file, node, error.code(), error.what());
  }
}

// A scalar's text; YAML's own types do not matter, because the field decides.
std::string scalar(const std::string& file, const YAML::Node& node, std::string_view what) {
  if (!node.IsScalar()) fail(file, node, Errc::invalid_argument, std::string(what) + " takes one value");
  return node.Scalar();
}

// One value, or a list with ';' between its items.
std::string list(const std::string& file, const YAML::Node& node, std::string_view what) {
  if (!node.IsSequence()) return scalar(file, node, what);
  std::string text;
  for (const auto& item : node) text.append(text.empty() ? "" : ";").append(scalar(file, item, what));
  return text;
}

// Calls body(key, value, key's node) for each entry of a map; a key may come only once, which yaml-cpp does not check.
template <class Body>
void for_each_entry(const std::string& file, const YAML::Node& map, std::string_view what, Body body) {
  if (!map.IsDefined() || map.IsNull()) return;
  if (!map.IsMap()) fail(file, map, Errc::invalid_argument, std::string(what) + " must be a map of keys and values");
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string key = scalar(file, entry.first, "a key");
    if (!seen.insert(key).second) fail(file, entry.first, Errc::invalid_argument, "'" + key + "' is given twice");
    body(key, entry.second, entry.first);
  }
}

// For messages: without its folder where that is the working directory.
std::string short_path(const std::filesystem::path& path) {
  std::error_code no_error;
  return path.parent_path() == std::filesystem::current_path(no_error) ? path.filename() : path;
}

YAML::Node load(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(Errc::not_found, "cannot read the configuration file " + file);
  try {
    return YAML::Load(in);
  } catch (const YAML::Exception& error) {
    throw Error(Errc::invalid_argument, file + ":" + std::to_string(error.mark.line + 1) + ": " + error.msg);
  } catch (const std::ios_base::failure&) {  // a folder
    throw Error(Errc::invalid_argument, "cannot read the configuration file " + file);
  }
}

// Undefined where it is not there: yaml-cpp throws when such a node is asked anything but IsDefined.
YAML::Node entry_of(const YAML::Node& map, std::string_view key) {
  return map.IsDefined() && map.IsMap() ? map[std::string(key)] : YAML::Node(YAML::NodeType::Undefined);
}

}  // namespace

ConfigFile::ConfigFile(const std::string& path)
    : path_(short_path(path)), root_(std::make_unique<YAML::Node>(load(path))) {}
ConfigFile::~ConfigFile() = default;

std::vector<ConfigFile::Entry> ConfigFile::entries(std::string_view section) const {
  std::vector<Entry> entries;
  const YAML::Node map = entry_of(*root_, section);
  if (!map.IsDefined()) return entries;
  for_each_entry(path_, map, section, [&](const std::string& name, const YAML::Node&, const YAML::Node& place) {
    entries.push_back({name, place_of(path_, place)});
  });
  return entries;
}

void ConfigFile::read_entry(const ConfigSection& section, const std::string& name, const Set& set) const {
  const YAML::Node entry = entry_of(entry_of(*root_, section.name), name);
  if (!entry.IsDefined()) return;
  if (entry.IsScalar()) {
    const auto place = place_of(path_, entry);
    at(path_, entry, [&] {
      for_each_part(entry.Scalar(), section.alone,
                    [&](const std::string& key, const std::string& value) { set(key, value, place); });
    });
    return;
  }
  for_each_entry(path_, entry, section.what,
                 [&](const std::string& key, const YAML::Node& value, const YAML::Node& place) {
                   const std::string text = section.list == key ? list(path_, value, key) : scalar(path_, value, key);
                   at(path_, place, [&] { set(key, text, place_of(path_, place)); });
                 });
}

void ConfigFile::read_keys(const std::function<bool(const std::string& key)>& check, const Set& set) const {
  for_each_entry(path_, *root_, "the configuration",
                 [&](const std::string& key, const YAML::Node& value, const YAML::Node& place) {
                   bool is_value = true;
                   at(path_, place, [&] { is_value = check(key); });
                   if (!is_value) return;
                   const std::string text = value.IsNull() ? "" : list(path_, value, key);
                   at(path_, place, [&] { set(key, text, place_of(path_, place)); });
                 });
}

}  // namespace penstock::base
