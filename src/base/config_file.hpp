// Reading YAML files of settings, penstock.yaml above all. Errors, also those that callbacks throw, name the file and line.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace YAML {
class Node;
}

namespace penstock::base {

// A section of penstock.yaml: entries by name, each a map of options or one line of text.
struct ConfigSection {
  std::string_view name, what;  // "streams", "a stream"
  std::string_view list;        // the option that takes several values
  std::string_view alone;       // the option whose value may stand alone in one line of text
};

// One file, read when this is made. Throws Error(not_found, invalid_argument). One thread at a time.
class ConfigFile {
 public:
  // where: "penstock.yaml:12".
  using Set = std::function<void(const std::string& key, const std::string& value, const std::string& where)>;
  struct Entry {
    std::string name, where;
  };

  explicit ConfigFile(const std::string& path);
  ~ConfigFile();

  // In the file's order.
  std::vector<Entry> entries(std::string_view section) const;
  // Calls set for each option of an entry; for none where there is no such entry.
  void read_entry(const ConfigSection& section, const std::string& name, const Set& set) const;
  // Calls set for each key of the file. A list's items have ';' between them. check: called before; false: it is a section.
  void read_keys(const std::function<bool(const std::string& key)>& check, const Set& set) const;

 private:
  std::string path_;
  std::unique_ptr<YAML::Node> root_;
};

}  // namespace penstock::base
