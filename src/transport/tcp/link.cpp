#include "transport/tcp/link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/fault.hpp"
#include "base/known_code.hpp"
#include "fabric/socket.hpp"
#include "transport/tcp/frame.hpp"

namespace penstock::transport {

namespace {

using base::FaultPhase;
using fabric::FrameHeader;
using wire::DataKind;

constexpr std::size_t buffer_bytes = std::size_t{32} << 10, most_kept_bytes = std::size_t{1} << 20;
constexpr std::size_t small_read_bytes = 4096;  // while bytes may follow the next frame: they go where they belong
constexpr std::size_t behind_body_bytes = 512;  // read along with bytes: their trailer, and what follows
constexpr std::size_t most_places = 256;        // of one receive
constexpr int unix_room = 1 << 20;
constexpr int steps_per_turn = 8;  // then other links have theirs
constexpr std::size_t most_reply_frame_bytes = buffer_bytes / 2;
// Of answers that wait to be sent, and the requests for them: more than a Requester ever has under way.
constexpr std::size_t most_waiting = 128, most_waiting_bytes = std::size_t{32} << 20;

std::byte garbage[64];  // sent where a test asks for it

[[noreturn]] void lost(const std::string& why) { throw Error(Errc::peer_lost, why); }
bool would_block(std::ptrdiff_t result) { return result == -EAGAIN || result == -EWOULDBLOCK; }

}  // namespace

Link::Link(memory::UniqueFd socket, std::shared_ptr<Source> source, std::uint64_t in_flight_bytes)
    : socket_(std::move(socket)), source_(std::move(source)), requester_(in_flight_bytes), buffer_(buffer_bytes) {
  fabric::set_blocking(socket_.get(), false);
  fabric::set_stream_options(socket_.get());
  // TCP finds its own measure; a Unix socket has none.
  if (fabric::is_local(socket_.get())) ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &unix_room, sizeof unix_room);
}

void Link::advance(bool readable) {
  for (int step = 0; step < steps_per_turn; ++step) {
    const bool active = send();
    if (readable) readable = receive();
    else if (!active) return;
    while (process()) {
    }
  }
}

void Link::end(const Error& error) {
  socket_.reset();
  out_.clear();
  batch_ = {};
  reply_.clear();
  written_ = {};
  requester_.end(error);
}

// ------------------------------------------------------------------------------------------------------------ sending

// Gives the next bytes of the first message to the socket. False when there are none, or no room.
bool Link::send() {
  if (out_.empty() && requester_.may_ask() && !ask(out_.emplace_back())) out_.pop_back();
  if (out_.empty() || shut_) return false;
  Out& out = out_.front();
  if (!out.begun) begin(out);
  {
    const auto lock = lock_out(out);
    if (batch_.empty()) give_more(out);
    else look_again(out);
    if (!batch_.empty()) return send_batch();
  }
  finish();
  return true;
}

bool Link::send_batch() {
  const auto count = fabric::send_some(socket_.get(), batch_, -1);
  // What the peer said before it closed is still to be read.
  shut_ = count == -EPIPE || count == -ECONNRESET;
  if (shut_ || would_block(count)) return false;
  if (count < 0) lost(fabric::errno_text(static_cast<int>(-count)));
  auto left = static_cast<std::size_t>(count);
  while (!batch_.empty() && left >= batch_.front().iov_len) {
    left -= batch_.front().iov_len;
    batch_ = batch_.subspan(1);
  }
  if (!batch_.empty()) {
    batch_.front().iov_base = static_cast<std::byte*>(batch_.front().iov_base) + left;
    batch_.front().iov_len -= left;
  }
  return true;
}

// The next request of ours, if there is one, as a message.
bool Link::ask(Out& out) {
  while (requester_.may_ask()) {
    auto question = requester_.ask();
    if (!question) continue;
    out.question = true;
    out.what = question->body.empty() ? Out::What::frame : Out::What::write;
    out.point = question->body.empty() ? "send:read_request" : "send:write_request";
    out.frame = std::move(question->frame);
    out.transfer = std::move(question->transfer);
    out.body = question->body;
    return true;
  }
  return false;
}

void Link::begin(Out& out) {
  out.begun = true;
  if (out.what == Out::What::reply) reply_.prepare(*source_, out.frame);
  else parts_.assign(1, {out.frame.data(), out.frame.size()});
  if (!base::fault_point(out.point, FaultPhase::before)) return;
  std::memset(garbage, 0xa5, sizeof garbage);
  parts_.assign(1, {garbage, sizeof garbage});
  batch_ = parts_;
  out.ended = true;
}

std::unique_lock<std::mutex> Link::lock_out(const Out& out) const {
  if (out.what == Out::What::reply) return reply_.lock();
  return lock_of(out.what == Out::What::write ? &out.transfer->mutex : nullptr);
}

// The next parts of the message; none at its end.
void Link::give_more(Out& out) {
  if (out.ended) return;
  if (out.what == Out::What::reply) {
    const bool more = out.given;
    batch_ = reply_.next();
    if (more && !batch_.empty()) base::fault_point(out.point, FaultPhase::half);
    out.given = true;
    return;
  }
  if (out.given) parts_.clear();
  out.given = true;
  if (out.what == Out::What::write) {
    if (out.transfer->dropped) out.trailer = static_cast<std::uint64_t>(Errc::cancelled);
    const std::size_t bytes = std::min(out.body.size(), batch_bytes);
    auto* from = out.trailer == 0 ? const_cast<std::byte*>(out.body.data()) : nothing().data();
    parts_.push_back({from, bytes});
    out.body = out.body.subspan(bytes);
    if (out.body.empty()) parts_.push_back({&out.trailer, sizeof out.trailer});
  }
  batch_ = parts_;
  out.ended = out.body.empty();
}

// After the lock was given back: puts zeros in place of memory that was withdrawn.
void Link::look_again(Out& out) {
  if (out.what == Out::What::reply && !out.ended) reply_.look_again(batch_);
  if (out.what != Out::What::write || !out.transfer->dropped) return;
  if (replace_body(batch_, out.frame, out.trailer)) out.trailer = static_cast<std::uint64_t>(Errc::cancelled);
}

void Link::finish() {
  Out& out = out_.front();
  base::fault_point(out.point, FaultPhase::after);
  if (out.what == Out::What::reply) {
    source_->served(reply_.payload_bytes());
    reply_.clear();
  }
  const bool answered = !out.question;
  if (answered) {
    --waiting_answers_;
    waiting_bytes_ -= out.frame.size();
  }
  out_.pop_front();
  // After an answer comes a question, if there is one: a peer that asks without end does not keep this side from asking.
  if (answered && requester_.may_ask() && !ask(out_.emplace_front())) out_.pop_front();
}

// To be sent as an answer, or to be answered.
Link::Out& Link::answer(std::vector<std::byte> frame) {
  waiting_bytes_ += frame.size();
  if (++waiting_answers_ > most_waiting || waiting_bytes_ > most_waiting_bytes)
    throw Error(Errc::protocol, "asks for more at once than may be");
  Out& out = out_.emplace_back();
  out.frame = std::move(frame);
  out.point = "data-reply";
  return out;
}

// ---------------------------------------------------------------------------------------------------------- receiving

// One receive: into what the bytes that come are for, and behind it into the buffer. False when there is no more just now.
bool Link::receive() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  iovec parts[most_places + 1];
  std::size_t count = 0, direct = 0, behind = behind_body_bytes;
  std::unique_lock<std::mutex> lock;
  if (reading_ == Reading::reply ||
      reading_ == Reading::written) {  // the buffer is empty: process() has moved its bytes
    lock = lock_body();
    for (const iovec& place : places()) {
      if (count == most_places) break;
      parts[count++] = place;
      direct += place.iov_len;
    }
    if (direct < left_of_body()) behind = 0;
  } else {
    // As much as has come already, not what a header claims.
    behind = std::min(std::max(small_read_bytes, frame_bytes_missing()), std::max(buffer_bytes, end_));
    if (end_ == 0 && buffer_.size() > most_kept_bytes) buffer_ = std::vector<std::byte>(buffer_bytes);
    if (buffer_.size() - end_ < behind) buffer_.resize(end_ + behind);
  }
  if (behind > 0) parts[count++] = {buffer_.data() + end_, behind};
  const auto got = fabric::receive_parts(socket_.get(), std::span(parts, count));
  if (would_block(got)) return false;
  if (got < 0) lost(fabric::errno_text(static_cast<int>(-got)));
  if (got == 0) lost("closed the connection");
  const auto bytes = static_cast<std::size_t>(got);
  if (direct > 0) filled(std::min(bytes, direct));
  end_ += bytes - std::min(bytes, direct);
  return bytes == direct + behind;
}

// Of a frame whose header has come.
std::size_t Link::frame_bytes_missing() const {
  FrameHeader header{};
  if (end_ - begin_ < sizeof header) return 0;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  return sizeof header + header.length - std::min<std::size_t>(end_ - begin_, sizeof header + header.length);
}

// One step on what has been received. False when more bytes are needed.
bool Link::process() {
  switch (reading_) {
    case Reading::frame: return take_frame();
    case Reading::reply:
    case Reading::written: {
      const auto lock = lock_body();
      auto to = places();
      for (; !to.empty() && begin_ < end_; to = places()) {
        const std::size_t bytes = std::min(end_ - begin_, to.front().iov_len);
        std::memcpy(to.front().iov_base, buffer_.data() + begin_, bytes);
        begin_ += bytes;
        filled(bytes);
      }
      if (!to.empty()) return false;
      trailer_of_reply_ = reading_ == Reading::reply;
      reading_ = Reading::trailer;
      return true;
    }
    case Reading::trailer: {
      std::uint64_t code = 0;
      if (end_ - begin_ < sizeof code) return false;
      std::memcpy(&code, buffer_.data() + begin_, sizeof code);
      begin_ += sizeof code;
      reading_ = Reading::frame;
      if (trailer_of_reply_) requester_.take_trailer(code);
      else answer_write(code);
      return true;
    }
  }
  return false;
}

bool Link::take_frame() {
  FrameHeader header{};
  if (end_ - begin_ < sizeof header) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  const auto kind = static_cast<DataKind>(header.kind);
  const bool reply = kind == DataKind::reply;
  const bool request = source_ && (kind == DataKind::read_request || kind == DataKind::write_request);
  if (header.has_fd != 0 || !(reply || request) ||
      header.length > (reply ? most_reply_frame_bytes : fabric::max_frame_bytes))
    throw Error(Errc::protocol, "sent what is neither an answer nor a request for data");
  if (end_ - begin_ < sizeof header + header.length) return false;
  const auto message = std::span<const std::byte>(buffer_).subspan(begin_ + sizeof header, header.length);
  begin_ += sizeof header + header.length;
  if (reply) {
    if (requester_.take_reply(message) > 0) reading_ = Reading::reply;
    return true;
  }
  base::fault_point("data-request", FaultPhase::before);
  if (kind == DataKind::write_request) {
    take_write(message);
    return true;
  }
  answer({message.begin(), message.end()}).what = Out::What::reply;
  return true;
}

// Its bytes follow. What cannot be written is received, and refused afterwards.
void Link::take_write(std::span<const std::byte> message) {
  wire::DataRequest request;
  wire::decode_data_request(message, request);
  const wire::DataPiece& piece = request.pieces.front();
  const wire::Reach reach = wire::reach(piece, request.points);
  written_ = {};
  written_.id = request.id;
  written_.left = wire::bytes_of(piece);
  if (request.pieces.size() != 1 || piece.is_points || reach.last - reach.first != written_.left || piece.ndims > 1 ||
      (piece.ndims == 1 && piece.strides[0] < 0))
    throw Error(Errc::protocol, "writes what is no range of bytes");
  reading_ = Reading::written;
  try {
    written_.region = source_->open(request, true);
    written_.to = written_.region->segment(piece.segment, reach) + reach.first;
  } catch (const Error& error) {
    written_.refused = error;
  }
}

std::uint64_t Link::left_of_body() const { return reading_ == Reading::reply ? requester_.left() : written_.left; }

std::unique_lock<std::mutex> Link::lock_body() {
  if (reading_ == Reading::reply) return std::unique_lock(requester_.mutex());
  return lock_of(written_.region ? written_.region->mutex() : nullptr);
}

std::span<iovec> Link::places() {
  if (reading_ == Reading::reply) return requester_.places();
  if (written_.left == 0) return {};
  if (!written_.refused && written_.region->state() != Errc::ok)
    written_.refused = Error(written_.region->state(), "the memory was taken back while it was written");
  place_ = {written_.to, written_.left};
  if (written_.refused) place_ = {waste().data(), std::min<std::uint64_t>(written_.left, waste().size())};
  return {&place_, 1};
}

void Link::filled(std::size_t bytes) {
  if (reading_ == Reading::reply) {
    requester_.filled(bytes);
    return;
  }
  written_.left -= bytes;
  if (!written_.refused) written_.to += bytes;
}

void Link::answer_write(std::uint64_t trailer) {
  wire::DataReply reply{.id = written_.id};
  if (trailer != 0 && !written_.refused)
    written_.refused = Error(base::known_code(static_cast<std::uint32_t>(trailer)), "the writer took its bytes back");
  if (written_.refused) {
    reply.status = written_.refused->code();
    reply.message = written_.refused->what();
  }
  written_ = {};
  std::vector<std::byte> frame;
  encode_frame(DataKind::reply, reply, frame);
  answer(std::move(frame));
}

}  // namespace penstock::transport
