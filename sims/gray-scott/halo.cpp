#include "halo.hpp"

namespace gray_scott {
namespace {

// The layer of cells at `position` in dimension `d`, without edges and corners.
MPI_Datatype layer(const Index& count, int d, std::int64_t position) {
  int sizes[3], part[3], starts[3];
  for (int i = 0; i < 3; ++i) {
    sizes[i] = static_cast<int>(count[i] + 2);
    part[i] = static_cast<int>(i == d ? 1 : count[i]);
    starts[i] = static_cast<int>(i == d ? position : 1);
  }
  MPI_Datatype type;
  MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  return type;
}

}  // namespace

Halo::Halo(MPI_Comm cartesian, const Index& count) : comm_(cartesian) {
  int self = 0;
  MPI_Comm_rank(comm_, &self);
  for (int d = 0; d < 3; ++d) {
    Face& low = faces_[2 * d];
    Face& high = faces_[2 * d + 1];
    MPI_Cart_shift(comm_, d, 1, &low.neighbour, &high.neighbour);
    undivided_[d] = low.neighbour == self;
    low.inner = layer(count, d, 1);
    low.ghost = layer(count, d, 0);
    high.inner = layer(count, d, count[d]);
    high.ghost = layer(count, d, count[d] + 1);
  }
}

Halo::~Halo() {
  for (Face& face : faces_) {
    MPI_Type_free(&face.inner);
    MPI_Type_free(&face.ghost);
  }
}

void Halo::start(std::span<double* const> fields) {
  requests_.clear();
  // The tag names field and side as the sender sees it: with two ranks in a dimension both neighbours are the same rank,
  // and only the tag tells their messages apart.
  const auto tag = [](std::size_t field, std::size_t face) { return static_cast<int>(6 * field + face); };
  for (std::size_t f = 0; f < fields.size(); ++f)
    for (std::size_t i = 0; i < faces_.size(); ++i)
      if (!undivided_[i / 2])
        MPI_Irecv(fields[f], 1, faces_[i].ghost, faces_[i].neighbour, tag(f, i ^ 1), comm_, &requests_.emplace_back());
  for (std::size_t f = 0; f < fields.size(); ++f)
    for (std::size_t i = 0; i < faces_.size(); ++i)
      if (!undivided_[i / 2])
        MPI_Isend(fields[f], 1, faces_[i].inner, faces_[i].neighbour, tag(f, i), comm_, &requests_.emplace_back());
  for (double* field : fields)
    for (std::size_t i = 0; i < faces_.size(); ++i)
      if (undivided_[i / 2])
        MPI_Sendrecv(field, 1, faces_[i].inner, 0, 0, field, 1, faces_[i ^ 1].ghost, 0, 0, MPI_COMM_SELF,
                     MPI_STATUS_IGNORE);
}

void Halo::finish() { MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE); }

}  // namespace gray_scott
