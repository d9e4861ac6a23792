#include "transport/tcp/reply.hpp"

#include <algorithm>
#include <cstring>

#include "transport/asked_piece.hpp"
#include "transport/tcp/frame.hpp"

namespace penstock::transport {

namespace {

constexpr std::size_t most_sent_parts = 512;  // below the kernel's limit of 1024
constexpr std::size_t most_parts = 1u << 18;  // of one request: after that pieces are packed, however they lie

}  // namespace

Reply::Reply() = default;

void Reply::clear() {
  parts_.clear();
  pieces_.clear();
  bases_.clear();
  moves_.clear();
  chunks_.reset();
  batch_.clear();
  region_.reset();
  mutex_ = nullptr;
}

void Reply::prepare(Source& source, std::span<const std::byte> request) {
  clear();
  reply_ = {};
  header_sent_ = trailer_sent_ = false;
  at_ = 0;
  at_bytes_ = left_ = trailer_ = 0;
  request_.id = 0;
  try {
    wire::decode_data_request(request, request_);
    reply_.id = request_.id;
    resolve(source);
    left_ = reply_.bytes;
  } catch (const Error& error) {
    refuse(error);
  }
  encode_frame(wire::DataKind::reply, reply_, header_);
}

void Reply::refuse(const Error& error) {
  clear();
  reply_ = {.id = request_.id, .status = error.code(), .message = error.what()};
}

void Reply::resolve(Source& source) {
  region_ = source.open(request_, false);
  mutex_ = region_->mutex();
  // Spans into moves_ and references into pieces_ stay valid: neither grows beyond this.
  moves_.reserve(request_.points.size());
  pieces_.reserve(request_.pieces.size());
  for (const wire::DataPiece& piece : request_.pieces) {
    add_piece(piece, region_->segment(piece.segment, wire::reach(piece, request_.points)));
    reply_.bytes += wire::bytes_of(piece);
  }
}

void Reply::add_piece(const wire::DataPiece& wanted, const std::byte* base) {
  const model::Piece piece = source_of(wanted, request_.points, moves_);
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

// Packs the next chunk of the current part behind what the bounce buffer holds. False when there is no room for it.
bool Reply::add_packed(std::uint64_t& room) {
  const Part& part = parts_[at_];
  const std::uint64_t limit = std::min(chunk_bytes, part.bytes);
  if (room < limit || bounce_.size() + limit > batch_bytes) return false;
  if (!chunks_) chunks_.emplace(pieces_[part.piece], limit);
  bounce_.reserve(batch_bytes);
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

void Reply::add_parts(std::uint64_t room) {
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
}

std::span<iovec> Reply::next() {
  batch_.clear();
  bounce_.clear();
  // With a mutex, bytes are looked at before they are sent, else when all were given to the kernel.
  if (mutex_ != nullptr && trailer_ == 0) trailer_ = static_cast<std::uint64_t>(region_->state());
  if (!header_sent_) {
    batch_.push_back({header_.data(), header_.size()});
    header_sent_ = true;
  }
  const std::size_t first = batch_.size();
  if (trailer_ == 0) add_parts(batch_bytes);
  else if (left_ > 0) batch_.push_back({nothing().data(), std::min(left_, batch_bytes)});
  for (std::size_t i = first; i < batch_.size(); ++i) left_ -= batch_[i].iov_len;
  const bool may_end = mutex_ != nullptr || batch_.empty();
  if (left_ == 0 && reply_.bytes > 0 && !trailer_sent_ && may_end) {
    if (mutex_ == nullptr) trailer_ = static_cast<std::uint64_t>(region_->state());
    batch_.push_back({&trailer_, sizeof trailer_});
    trailer_sent_ = true;
  }
  return batch_;
}

void Reply::look_again(std::span<iovec> rest) {
  if (mutex_ == nullptr || region_->state() == Errc::ok) return;
  if (replace_body(rest, header_, trailer_)) trailer_ = static_cast<std::uint64_t>(region_->state());
}

}  // namespace penstock::transport
