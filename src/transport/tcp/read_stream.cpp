#include "transport/tcp/read_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/fault.hpp"
#include "fabric/socket.hpp"
#include "transport/tcp/transfer_limits.hpp"

namespace penstock::transport {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{16} << 10;
constexpr std::size_t most_received_parts = 256;
// One request: enough to keep the connection busy, small enough that several are under way.
constexpr std::uint64_t request_bytes = std::uint64_t{1} << 20;
constexpr std::size_t request_pieces = 4096;
constexpr std::size_t request_points = 1u << 17;

[[noreturn]] void lost(const std::string& why) { throw Error(Errc::peer_lost, why); }

}  // namespace

ReadStream::ReadStream(memory::UniqueFd socket, std::uint64_t in_flight_bytes)
    : socket_(std::move(socket)), in_flight_bytes_(in_flight_bytes), buffer_(buffer_bytes) {
  bounce_.reserve(batch_bytes);
}

void ReadStream::begin(std::uint64_t step, std::uint32_t slot, bool ordered) {
  step_ = step;
  slot_ = slot;
  ordered_ = ordered;
  parts_.clear();
  next_ = 0;
}

void ReadStream::add(const model::Piece& piece, std::byte* out) {
  if (piece.bytes() == 0) return;
  if (piece.points.size() <= request_points) {
    parts_.push_back({piece, out});
    return;
  }
  for (PieceChunks chunks(piece, request_points * piece.elem_size); !chunks.done();)
    parts_.push_back({chunks.next(), out});
}

bool ReadStream::may_request() const {
  return next_ < parts_.size() && (requests_.empty() || outstanding_ < in_flight_bytes_);
}

void ReadStream::advance() {
  for (bool active = true; active && !finished();) {
    active = write_some();
    // Bytes may be waiting in the buffer, or the socket.
    while (!requests_.empty() && (process() || read_some())) active = true;
  }
}

// ------------------------------------------------------------------------------------------------------------ asking

void ReadStream::make_request() {
  message_.clear();
  message_.id = next_id_++;
  message_.step = step_;
  message_.slot = slot_;
  Request request{message_.id, next_, next_, 0};
  while (next_ < parts_.size() && request.bytes < request_bytes && message_.pieces.size() < request_pieces &&
         message_.points.size() + parts_[next_].piece.points.size() <= request_points) {
    const model::Piece& piece = parts_[next_].piece;
    wire::ReadPiece wanted;
    wanted.segment = piece.segment;
    wanted.elem_size = piece.elem_size;
    if (!piece.points.empty()) {
      wanted.is_points = true;
      wanted.first_point = static_cast<std::uint32_t>(message_.points.size());
      wanted.point_count = static_cast<std::uint32_t>(piece.points.size());
      for (const model::PointMove& move : piece.points) message_.points.push_back(move.src);
    } else {
      wanted.elem_size = piece.copy.elem_size;
      wanted.offset = static_cast<std::uint64_t>(piece.copy.src_offset);
      wanted.ndims = piece.copy.ndims;
      wanted.count = piece.copy.count;
      wanted.strides = piece.copy.src_strides;
    }
    message_.pieces.push_back(wanted);
    request.bytes += piece.bytes();
    request.last = ++next_;
  }
  outstanding_ += request.bytes;
  requests_.push_back(request);

  sending_.assign(sizeof(fabric::FrameHeader), std::byte{0});
  sent_ = 0;
  encode(message_, sending_);
  const fabric::FrameHeader header{static_cast<std::uint32_t>(sending_.size() - sizeof(fabric::FrameHeader)),
                                   static_cast<std::uint16_t>(wire::DataKind::read_request), 0};
  std::memcpy(sending_.data(), &header, sizeof header);
  if (base::fault_point("send:read_request", base::FaultPhase::before))
    std::memset(sending_.data(), 0xa5, sending_.size());
}

bool ReadStream::write_some() {
  bool active = false;
  for (;;) {
    if (sent_ == sending_.size()) {
      if (!may_request()) return active;
      make_request();
    }
    const iovec part{sending_.data() + sent_, sending_.size() - sent_};
    const auto count = fabric::send_some(socket_.get(), std::span(&part, 1), -1);
    if (count == -EAGAIN || count == -EWOULDBLOCK) return active;
    // What the server said before it closed is still to be read.
    if (count < 0 && (count == -EPIPE || count == -ECONNRESET)) return active;
    if (count < 0) lost(fabric::errno_text(static_cast<int>(-count)));
    sent_ += static_cast<std::size_t>(count);
    active = true;
    if (sent_ == sending_.size()) base::fault_point("send:read_request", base::FaultPhase::after);
  }
}

// --------------------------------------------------------------------------------------------------------- receiving

// One receive: into what the batch waits for, and behind it into the buffer. False when there is nothing just now.
bool ReadStream::read_some() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  iovec parts[most_received_parts + 1];
  std::size_t count = 0;
  std::size_t wanted = 0;
  for (std::size_t i = batch_at_; i < batch_.size(); ++i) {
    parts[count++] = batch_[i];
    wanted += batch_[i].iov_len;
  }
  parts[count++] = {buffer_.data() + end_, buffer_.size() - end_};
  const auto got = fabric::receive_parts(socket_.get(), std::span(parts, count));
  if (got == -EAGAIN || got == -EWOULDBLOCK) return false;
  if (got < 0) lost(fabric::errno_text(static_cast<int>(-got)));
  if (got == 0) lost("closed the connection");
  const auto bytes = static_cast<std::size_t>(got);
  const std::size_t direct = std::min(bytes, wanted);
  consume(direct);
  end_ += bytes - direct;
  return true;
}

// So many bytes of the batch have been received.
void ReadStream::consume(std::size_t count) {
  received_ += count;
  while (count > 0) {
    iovec& front = batch_[batch_at_];
    const std::size_t taken = std::min(count, front.iov_len);
    front.iov_base = static_cast<std::byte*>(front.iov_base) + taken;
    front.iov_len -= taken;
    count -= taken;
    if (front.iov_len == 0) ++batch_at_;
  }
}

// Moves what the buffer holds of the batch's bytes.
void ReadStream::drain_buffer() {
  while (begin_ < end_ && batch_at_ < batch_.size()) {
    const std::size_t count = std::min(end_ - begin_, batch_[batch_at_].iov_len);
    std::memcpy(batch_[batch_at_].iov_base, buffer_.data() + begin_, count);
    begin_ += count;
    consume(count);
  }
}

// One step of the reply's state machine on what has been received. False when more bytes are needed.
bool ReadStream::process() {
  switch (state_) {
    case State::header: return take_reply();
    case State::payload:
      drain_buffer();
      if (batch_at_ < batch_.size()) return false;
      finish_batch();
      if (part_ < requests_.front().last) build_batch();
      else state_ = State::trailer;
      return true;
    case State::trailer: {
      std::uint64_t code = 0;
      if (end_ - begin_ < sizeof code) return false;
      std::memcpy(&code, buffer_.data() + begin_, sizeof code);
      begin_ += sizeof code;
      if (code != 0)
        throw Error(Errc::step_gone, "step " + std::to_string(step_) + " was taken back while it was read");
      outstanding_ -= requests_.front().bytes;
      requests_.pop_front();
      state_ = State::header;
      return true;
    }
  }
  return false;
}

bool ReadStream::take_reply() {
  fabric::FrameHeader header{};
  if (requests_.empty() || end_ - begin_ < sizeof header) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  if (header.kind != static_cast<std::uint16_t>(wire::DataKind::read_reply) || header.has_fd != 0 ||
      header.length > buffer_.size() - sizeof header)
    throw Error(Errc::protocol, "answered with what is no read reply");
  if (end_ - begin_ < sizeof header + header.length) return false;
  const auto reply =
      wire::decode_read_reply(std::span<const std::byte>(buffer_).subspan(begin_ + sizeof header, header.length));
  begin_ += sizeof header + header.length;
  const Request& request = requests_.front();
  if (reply.status != Errc::ok) throw Error(reply.status, reply.message);
  if (reply.id != request.id || reply.bytes != request.bytes)
    throw Error(Errc::protocol,
                "answered with " + std::to_string(reply.bytes) + " bytes instead of " + std::to_string(request.bytes));
  part_ = request.first;
  part_open_ = false;
  state_ = State::payload;
  build_batch();
  return true;
}

void ReadStream::next_part() {
  ++part_;
  part_open_ = false;
  chunks_.reset();
}

// What the next receives fill: runs of the destination, or the bounce buffer for what is unpacked afterwards.
void ReadStream::build_batch() {
  batch_.clear();
  batch_at_ = 0;
  bounce_.clear();
  unpacks_.clear();
  std::uint64_t room = batch_bytes;
  while (part_ < requests_.front().last && room > 0 && batch_.size() < most_received_parts) {
    const Part& part = parts_[part_];
    if (!part_open_) {
      // The destination's runs: the source's side of the piece turned round.
      runs_.clear();
      run_ = 0;
      run_bytes_ = 0;
      chunks_.reset();
      part_open_ = true;
      model::Piece turned = part.piece;
      turned.copy.src_offset = part.piece.copy.dst_offset;
      turned.copy.src_strides = part.piece.copy.dst_strides;
      const bool in_place =
          part.piece.points.empty() &&
          model::contiguous_runs(turned, std::min(least_run_bytes, part.piece.bytes()), most_runs, runs_);
      if (!in_place) chunks_.emplace(part.piece, std::min(chunk_bytes, part.piece.bytes()));
    }
    if (!(chunks_ ? add_packed(part, room) : add_direct(part, room))) return;
  }
}

bool ReadStream::add_direct(const Part& part, std::uint64_t& room) {
  // Unpacking comes after the whole batch: where order matters, it must not be overtaken.
  if (ordered_ && !unpacks_.empty()) return false;
  const model::SourceRun& run = runs_[run_];
  const std::uint64_t bytes = std::min(room, run.bytes - run_bytes_);
  std::byte* to = part.out + static_cast<std::int64_t>(run.offset) + run_bytes_;
  batch_.push_back({to, bytes});
  room -= bytes;
  run_bytes_ += bytes;
  if (run_bytes_ < run.bytes) return true;
  run_bytes_ = 0;
  if (++run_ == runs_.size()) next_part();
  return true;
}

bool ReadStream::add_packed(const Part& part, std::uint64_t& room) {
  const std::uint64_t limit = std::min(chunk_bytes, part.piece.bytes());
  if (room < limit || bounce_.size() + limit > batch_bytes) return false;
  const model::Piece chunk = chunks_->next();
  const std::uint64_t bytes = chunk.bytes();
  unpacks_.push_back({chunk, part.out, bounce_.size()});
  bounce_.resize(bounce_.size() + bytes);  // within the capacity: what batch_ points to stays
  batch_.push_back({bounce_.data() + unpacks_.back().bounce_offset, bytes});
  room -= bytes;
  if (chunks_->done()) next_part();
  return true;
}

void ReadStream::finish_batch() {
  for (const Unpack& unpack : unpacks_) model::unpack(unpack.piece, bounce_.data() + unpack.bounce_offset, unpack.out);
  unpacks_.clear();
  batch_.clear();
  batch_at_ = 0;
}

}  // namespace penstock::transport
