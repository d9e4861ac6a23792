#include "settings.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <utility>

namespace gray_scott {
namespace {

using Setter = std::function<void(Settings&, const YAML::Node&)>;

template <class T>
T read(const YAML::Node& node, const char* expected) {
  try {
    return node.as<T>();
  } catch (const YAML::Exception&) {
    std::ostringstream text;
    text << node;
    throw UsageError("expected " + std::string(expected) + ", got \"" + text.str() + "\"");
  }
}

std::string as_text(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

template <class T>
T in_range(T value, double low, double high) {
  // The negated form also refuses NaN.
  if (!(static_cast<double>(value) >= low && static_cast<double>(value) <= high))
    throw UsageError(as_text(static_cast<double>(value)) + " is out of range: " + as_text(low) + " to " +
                     as_text(high));
  return value;
}

Setter number(double Settings::*member, double low, double high) {
  return [=](Settings& s, const YAML::Node& node) { s.*member = in_range(read<double>(node, "a number"), low, high); };
}

Setter integer(std::int64_t Settings::*member, double low, double high) {
  return [=](Settings& s, const YAML::Node& node) {
    s.*member = in_range(read<std::int64_t>(node, "an integer"), low, high);
  };
}

constexpr double min_cells = 4;
constexpr double max_cells = 8192;
constexpr double max_steps = 1e9;

void set_cube(Settings& s, const YAML::Node& node) {
  s.shape.fill(in_range(read<std::int64_t>(node, "an integer"), min_cells, max_cells));
}

void set_shape(Settings& s, const YAML::Node& node) {
  const auto cells = read<std::vector<std::int64_t>>(node, "three integers, [nx, ny, nz]");
  if (cells.size() != 3) throw UsageError("expected three integers, got " + std::to_string(cells.size()));
  for (std::size_t d = 0; d < 3; ++d) s.shape[d] = in_range(cells[d], min_cells, max_cells);
}

void set_stream(Settings& s, const YAML::Node& node) {
  s.stream = read<std::string>(node, "a name");
  if (s.stream.empty()) throw UsageError("the name is empty");
}

const std::vector<std::pair<std::string, Setter>>& keys() {
  static const std::vector<std::pair<std::string, Setter>> table = {
      {"L", set_cube},
      {"shape", set_shape},
      {"Du", number(&Settings::Du, 0, 10)},
      {"Dv", number(&Settings::Dv, 0, 10)},
      {"F", number(&Settings::F, 0, 1)},
      {"k", number(&Settings::k, 0, 1)},
      {"dt", number(&Settings::dt, 1e-9, 100)},
      {"noise", number(&Settings::noise, 0, 1)},
      {"box", integer(&Settings::box, 1, max_cells)},
      {"steps", integer(&Settings::steps, 1, max_steps)},
      {"plot_every", integer(&Settings::plot_every, 1, max_steps)},
      {"seed", integer(&Settings::seed, 0, 9e18)},
      {"stream", set_stream},
  };
  return table;
}

// Levenshtein distance, one row at a time.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

const Setter& find_key(const std::string& key) {
  for (const auto& [name, set] : keys())
    if (name == key) return set;
  const auto nearest = std::min_element(keys().begin(), keys().end(), [&](const auto& a, const auto& b) {
    return edit_distance(key, a.first) < edit_distance(key, b.first);
  });
  throw UsageError("unknown key; did you mean \"" + nearest->first + "\"?");
}

void apply(Settings& settings, const std::string& key, const YAML::Node& value, const std::string& where) {
  try {
    find_key(key)(settings, value);
  } catch (const UsageError& error) {
    throw UsageError(where + ": " + key + ": " + error.what());
  }
}

// What no key alone can tell.
void check_together(const Settings& s, const std::string& where) {
  const auto refuse = [&](const std::string& why) { throw UsageError(where + ": " + why); };
  if (s.plot_every > s.steps)
    refuse("plot_every (" + std::to_string(s.plot_every) + ") is larger than steps (" + std::to_string(s.steps) +
           "): nothing would be put out");
  if (s.box > *std::min_element(s.shape.begin(), s.shape.end()))
    refuse("box (" + std::to_string(s.box) + ") is larger than the smallest side of the grid");
  // The averaging Laplacian has eigenvalues in [-2, 0]; explicit Euler needs dt * D * 2 <= 2.
  if (s.dt * std::max(s.Du, s.Dv) > 1.0)
    refuse("dt * max(Du, Dv) is " + as_text(s.dt * std::max(s.Du, s.Dv)) +
           "; explicit Euler is stable only up to 1: choose a smaller dt");
}

YAML::Node node_of(const std::string& text, const std::string& where) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw UsageError(where + ": " + error.what());
  }
}

}  // namespace

std::string keys_and_defaults() {
  const Settings s;
  std::ostringstream out;
  out << "L or shape (cells): " << s.shape[0] << ", Du: " << s.Du << ", Dv: " << s.Dv << ", F: " << s.F
      << ", k: " << s.k << ", dt: " << s.dt << ", noise: " << s.noise << ", box (cells): " << s.box
      << ", steps: " << s.steps << ",\nplot_every (steps): " << s.plot_every << ", seed: " << s.seed
      << ", stream: " << s.stream;
  return out.str();
}

std::optional<std::string> read_text(const std::string& path) {
  std::ostringstream text;
  std::ifstream file(path);
  file.peek();  // bad: a folder
  if (!file.is_open() || file.bad()) return std::nullopt;
  text << file.rdbuf();  // of an empty file nothing: failbit
  return text.str();
}

Settings parse_settings(const std::string& text, const std::string& path, const std::vector<std::string>& overrides) {
  const YAML::Node file = node_of(text, path);
  if (!file.IsMap() && !file.IsNull()) throw UsageError(path + ": expected \"key: value\" lines");
  if (file.IsMap() && file["L"] && file["shape"]) throw UsageError(path + ": give either L or shape, not both");
  Settings settings;
  for (const auto& entry : file) {
    if (!entry.first.IsScalar()) throw UsageError(path + ": a key is a word, not a list or a map");
    apply(settings, entry.first.Scalar(), entry.second, path);
  }
  for (const auto& given : overrides) {
    const auto equals = given.find('=');
    if (equals == std::string::npos) throw UsageError("--set: expected key=value, got \"" + given + "\"");
    apply(settings, given.substr(0, equals), node_of(given.substr(equals + 1), "--set " + given), "--set");
  }
  check_together(settings, path);
  return settings;
}

Settings load_settings(const std::string& path) {
  const auto text = read_text(path);
  if (!text) throw UsageError(path + ": cannot be read");
  return parse_settings(*text, path);
}

}  // namespace gray_scott
