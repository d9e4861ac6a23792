// What a Gray-Scott run is told: a YAML file of "key: value" lines, each optional, each checked.
//
// Plain values; throws UsageError with a message for the user (an unknown key with the nearest known one, a value out
// of range with the range). Needs neither MPI nor Penstock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "usage_error.hpp"

namespace gray_scott {

using Index = std::array<std::int64_t, 3>;

using simulation::UsageError;

struct Settings {
  Index shape{64, 64, 64};  // cells in x, y, z; in YAML either "shape: [nx, ny, nz]" or "L: n" for a cube
  double Du = 0.2;  // diffusion of U; lengths are such that the Laplacian is mean of six neighbours minus centre
  double Dv = 0.1;
  double F = 0.02;               // feed rate
  double k = 0.048;              // kill rate
  double dt = 1.0;               // length of a time step
  double noise = 0.0;            // amplitude of the uniform noise in the rate of U
  std::int64_t box = 12;         // edge in cells of the seeded box in the middle
  std::int64_t steps = 1000;     // time steps of the run
  std::int64_t plot_every = 20;  // time steps between two outputs; the initial state is not put out
  std::int64_t seed = 1;         // of the noise
  std::string stream = "gray-scott";

  std::int64_t outputs() const { return steps / plot_every; }
  std::int64_t last_output() const { return outputs() * plot_every; }  // the time step of
};

// The text of a file, which messages call `path`; `overrides` ("F=0.03") are applied after it and checked alike.
Settings parse_settings(const std::string& text, const std::string& path,
                        const std::vector<std::string>& overrides = {});

// Nothing if the file cannot be read.
std::optional<std::string> read_text(const std::string& path);

// Both together.
Settings load_settings(const std::string& path);

// Of the settings, for --help: "L or shape (cells): 64, ...".
std::string keys_and_defaults();

}  // namespace gray_scott
