// A model as text (JSON), and back: what the database `stream` sends once.
#pragma once

#include <string>
#include <string_view>

#include "penstock/region.hpp"

namespace penstock::mesh {

std::string to_text(const Model& model);
// Throws Error(protocol) for a text that to_text did not make, or a model that check() refuses.
Model model_from_text(std::string_view text);
// The same without check().
Model unchecked_model_from_text(std::string_view text);

}  // namespace penstock::mesh
