// A piece of a plan as one side of a link asks for it, and as the other finds it. This module's own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/plan.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

// The source of a piece. Its points are appended to those of the request.
wire::DataPiece wanted_of(const model::Piece& piece, std::vector<std::uint64_t>& points);

// A piece with that source, whose destination is its packed form. Its points are appended to `moves`, which must have room for
// them and outlive it.
model::Piece source_of(const wire::DataPiece& wanted, std::span<const std::uint64_t> points,
                       std::vector<model::PointMove>& moves);

}  // namespace penstock::transport
