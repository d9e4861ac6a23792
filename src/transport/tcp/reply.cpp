#include "transport/tcp/reply.hpp"

#include <algorithm>
#include <cstring>

#include "fabric/connection.hpp"
#include "transport/tcp/transfer_limits.hpp"

namespace penstock::transport {

namespace {

constexpr std::size_t most_sent_parts = 512;  // below the kernel's limit of 1024
constexpr std::size_t most_parts = 1u << 18;  // of one request: after that pieces are packed, however they lie

}  // namespace

Reply::Reply() { bounce_.reserve(batch_bytes); }

void Reply::clear() {
  parts_.clear();
  pieces_.clear();
  bases_.clear();
  moves_.clear();
  owners_.clear();
  chunks_.reset();
  batch_.clear();
}

void Reply::reset(std::uint64_t id) {
  clear();
  reply_ = {.id = id};
  header_sent_ = trailer_sent_ = false;
  at_ = 0;
  at_bytes_ = 0;
}

void Reply::refuse(std::uint64_t id, const Error& error) {
  reset(id);
  reply_.status = error.code();
  reply_.message = error.what();
  encode_header();
}

void Reply::prepare(const memory::Arena& arena, const wire::ReadRequest& request) {
  reset(request.id);
  arena_ = &arena;
  slot_ = request.slot;
  step_ = request.step;
  try {
    resolve(arena, request);
    encode_header();
  } catch (const Error& error) {
    refuse(request.id, error);
  }
}

void Reply::resolve(const memory::Arena& arena, const wire::ReadRequest& request) {
  // Spans into moves_ and references into pieces_ stay valid: neither grows beyond this.
  moves_.reserve(request.points.size());
  pieces_.reserve(request.pieces.size());
  for (const wire::ReadPiece& piece : request.pieces) {
    const wire::Reach reach = wire::reach(piece, request.points);
    const auto view = arena.read(request.slot, request.step, piece.segment, reach.first, reach.last - reach.first);
    if (owners_.size() <= piece.segment) owners_.resize(piece.segment + 1);
    owners_[piece.segment] = view.owner;
    add_piece(piece, request.points, view.owner->data());
    reply_.bytes += wire::bytes_of(piece);
  }
}

void Reply::add_piece(const wire::ReadPiece& wanted, std::span<const std::uint64_t> points, const std::byte* base) {
  model::Piece piece;
  piece.segment = wanted.segment;
  piece.elem_size = wanted.elem_size;
  if (wanted.is_points) {
    const std::size_t first = moves_.size();
    for (const std::uint64_t point : points.subspan(wanted.first_point, wanted.point_count))
      moves_.push_back({point, 0});
    piece.points = std::span<const model::PointMove>(moves_).subspan(first);
  } else {
    piece.copy.ndims = wanted.ndims;
    piece.copy.elem_size = wanted.elem_size;
    piece.copy.src_offset = static_cast<std::int64_t>(wanted.offset);
    piece.copy.count = wanted.count;
    piece.copy.src_strides = wanted.strides;
  }
  const std::uint64_t bytes = wire::bytes_of(wanted);
  runs_.clear();
  const std::size_t runs = std::min(most_runs, most_parts - std::min(most_parts, parts_.size()));
  if (model::contiguous_runs(piece, std::min(least_run_bytes, bytes), runs, runs_)) {
    for (const model::SourceRun& run : runs_) parts_.push_back({base + run.offset, run.bytes, 0, false});
    return;
  }
  parts_.push_back({nullptr, bytes, pieces_.size(), true});
  pieces_.push_back(piece);
  bases_.push_back(base);
}

void Reply::encode_header() {
  header_.assign(sizeof(fabric::FrameHeader), std::byte{0});
  encode(reply_, header_);
  const fabric::FrameHeader frame{static_cast<std::uint32_t>(header_.size() - sizeof(fabric::FrameHeader)),
                                  static_cast<std::uint16_t>(wire::DataKind::read_reply), 0};
  std::memcpy(header_.data(), &frame, sizeof frame);
}

// Packs the next chunk of the current part behind what the bounce buffer holds. False when there is no room for it.
bool Reply::add_packed(std::uint64_t& room) {
  const Part& part = parts_[at_];
  const std::uint64_t limit = std::min(chunk_bytes, part.bytes);
  if (room < limit || bounce_.size() + limit > batch_bytes) return false;
  if (!chunks_) chunks_.emplace(pieces_[part.piece], limit);
  const model::Piece chunk = chunks_->next();
  const std::uint64_t bytes = chunk.bytes();
  const std::size_t begin = bounce_.size();
  bounce_.resize(begin + bytes);  // within the capacity: what batch_ points to stays
  model::pack(chunk, bases_[part.piece], bounce_.data() + begin);
  batch_.push_back({bounce_.data() + begin, bytes});
  room -= bytes;
  if (chunks_->done()) {
    chunks_.reset();
    ++at_;
  }
  return true;
}

std::span<iovec> Reply::next() {
  batch_.clear();
  bounce_.clear();
  std::uint64_t room = batch_bytes;
  if (!header_sent_) {
    batch_.push_back({header_.data(), header_.size()});
    header_sent_ = true;
  }
  while (at_ < parts_.size() && room > 0 && batch_.size() < most_sent_parts) {
    const Part& part = parts_[at_];
    if (part.packed) {
      if (!add_packed(room)) break;
      continue;
    }
    const std::uint64_t bytes = std::min(room, part.bytes - at_bytes_);
    batch_.push_back({const_cast<std::byte*>(part.data + at_bytes_), bytes});
    room -= bytes;
    at_bytes_ += bytes;
    if (at_bytes_ < part.bytes) continue;
    ++at_;
    at_bytes_ = 0;
  }
  // Alone, after all else was given to the kernel: it vouches for every byte before it.
  if (batch_.empty() && reply_.bytes > 0 && !trailer_sent_) {
    trailer_ = arena_->holds(slot_, step_) ? 0 : static_cast<std::uint64_t>(Errc::step_gone);
    batch_.push_back({&trailer_, sizeof trailer_});
    trailer_sent_ = true;
  }
  return batch_;
}

}  // namespace penstock::transport
