#include "transport/tcp/requester.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/known_code.hpp"
#include "transport/asked_piece.hpp"
#include "transport/tcp/frame.hpp"

namespace penstock::transport {

namespace {

constexpr std::size_t most_received_parts = 256;
// One request: enough to keep the connection busy, small enough that several are under way.
constexpr std::uint64_t request_bytes = std::uint64_t{1} << 20;
constexpr std::size_t request_pieces = 4096;

}  // namespace

void Requester::submit(TransferPtr transfer) {
  transfer->next = 0;
  try {
    if (transfer->parts.empty()) transfer->settle();
    else waiting_.push_back(transfer);
  } catch (const std::bad_alloc&) {
    fail(*transfer, Error(Errc::memory, "no memory for a transfer"));
  }
}

void Requester::end(const Error& error) {
  auto all = std::exchange(waiting_, {});
  for (Request& request : std::exchange(requests_, {})) all.push_back(std::move(request.transfer));
  for (const TransferPtr& transfer : all) {
    transfer->outstanding = 0;
    if (!transfer->done) fail(*transfer, error);
  }
}

// ------------------------------------------------------------------------------------------------------------- asking

void Requester::fail(Transfer& transfer, const Error& error) {
  std::erase_if(waiting_, [&](const TransferPtr& one) { return one.get() == &transfer; });
  transfer.fail(error);
}

// As many parts as make a good request. A write is of one part: its bytes follow.
void Requester::fill_message(Request& request) {
  auto& transfer = *request.transfer;
  message_.clear();
  message_.id = request.id;
  message_.region = transfer.region;
  message_.slot = transfer.slot;
  while (transfer.next < transfer.parts.size()) {
    const model::Piece& piece = transfer.parts[transfer.next].piece;
    if (!message_.pieces.empty() &&
        (transfer.write || request.bytes >= request_bytes || message_.pieces.size() >= request_pieces ||
         message_.points.size() + piece.points.size() > request_points))
      break;
    message_.pieces.push_back(wanted_of(piece, message_.points));
    request.bytes += piece.bytes();
    request.last = ++transfer.next;
  }
}

std::optional<Requester::Question> Requester::ask() {
  const TransferPtr transfer = waiting_.front();
  {
    const std::lock_guard lock(transfer->mutex);
    if (transfer->dropped && !transfer->error)
      transfer->error = Error(Errc::cancelled, "a transfer that nobody waits for");
  }
  if (transfer->error) {
    waiting_.pop_front();
    transfer->settle();
    return std::nullopt;
  }
  // Without memory for this the link ends, and the transfer fails with it: it is in one of the lists all the time.
  Request request{next_id_++, transfer, transfer->next, transfer->next, 0, 0};
  fill_message(request);
  Question question{transfer, {}, {}};
  encode_frame(transfer->write ? wire::DataKind::write_request : wire::DataKind::read_request, message_,
               question.frame);
  if (transfer->write) {
    const auto& part = transfer->parts[request.first];
    question.body = {part.memory + part.piece.copy.dst_offset, request.bytes};
  }
  request.asked_bytes = question.frame.size();
  requests_.push_back(request);
  ++transfer->outstanding;
  outstanding_ += request.bytes;
  asked_bytes_ += request.asked_bytes;
  waiting_.pop_front();
  if (transfer->next < transfer->parts.size()) waiting_.push_back(transfer);  // after the others
  return question;
}

// ------------------------------------------------------------------------------------------------------------ answers

std::uint64_t Requester::take_reply(std::span<const std::byte> message) {
  const auto reply = wire::decode_data_reply(message);
  // Reads are answered in order, and so are writes.
  const auto found =
      std::find_if(requests_.begin(), requests_.end(), [&](const Request& r) { return r.id == reply.id; });
  if (found == requests_.end()) throw Error(Errc::protocol, "answered what was not asked");
  answered_ = static_cast<std::size_t>(found - requests_.begin());
  const Request& request = *found;
  const std::uint64_t expected = request.transfer->write || reply.status != Errc::ok ? 0 : request.bytes;
  if (reply.bytes != expected)
    throw Error(Errc::protocol,
                "answered with " + std::to_string(reply.bytes) + " bytes instead of " + std::to_string(expected));
  part_ = request.first;
  part_open_ = false;
  batch_.clear();
  batch_at_ = 0;
  left_ = expected;
  if (reply.status != Errc::ok) answer(Error(reply.status, reply.message));
  else if (request.transfer->write) answer({});
  return left_;
}

void Requester::take_trailer(std::uint64_t code) {
  if (code == 0) {
    answer({});
  } else {
    const auto known = base::known_code(static_cast<std::int64_t>(code));
    const auto region = std::to_string(requests_[answered_].transfer->region);
    const auto what = known == Errc::step_gone ? "step " + region : std::string("the memory");
    answer(Error(known, what + " was taken back while it was read"));
  }
}

// The request is answered.
void Requester::answer(std::optional<Error> error) {
  const Request request = std::move(requests_[answered_]);
  requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(answered_));
  outstanding_ -= request.bytes;
  asked_bytes_ -= request.asked_bytes;
  --request.transfer->outstanding;
  if (error) fail(*request.transfer, *error);
  else request.transfer->settle();
}

// ---------------------------------------------------------------------------------------------------------- receiving

std::span<iovec> Requester::places() {
  const Transfer& transfer = *requests_[answered_].transfer;
  if (transfer.dropped) {
    waste_ = {waste().data(), std::min<std::uint64_t>(left_, waste().size())};
    unpacks_.clear();
    batch_.clear();
    batch_at_ = 0;
    return {&waste_, left_ > 0 ? 1u : 0u};
  }
  if (batch_at_ == batch_.size()) {
    finish_batch();
    if (left_ > 0) build_batch();
  }
  return std::span(batch_).subspan(batch_at_);
}

void Requester::filled(std::size_t count) {
  left_ -= count;
  while (count > 0 && batch_at_ < batch_.size()) {
    iovec& front = batch_[batch_at_];
    const std::size_t taken = std::min(count, front.iov_len);
    front.iov_base = static_cast<std::byte*>(front.iov_base) + taken;
    front.iov_len -= taken;
    count -= taken;
    if (front.iov_len == 0) ++batch_at_;
  }
}

void Requester::next_part() {
  ++part_;
  part_open_ = false;
  chunks_.reset();
}

void Requester::open_part(const Transfer::Part& part) {
  // The destination's runs: the source's side of the piece turned round.
  runs_.clear();
  run_ = 0;
  run_bytes_ = 0;
  chunks_.reset();
  part_open_ = true;
  model::Piece turned = part.piece;
  turned.copy.src_offset = part.piece.copy.dst_offset;
  turned.copy.src_strides = part.piece.copy.dst_strides;
  const bool in_place = part.piece.points.empty() &&
                        model::contiguous_runs(turned, std::min(least_run_bytes, part.piece.bytes()), most_runs, runs_);
  if (!in_place) chunks_.emplace(part.piece, std::min(chunk_bytes, part.piece.bytes()));
}

// What the next receives fill: runs of the destination, or the bounce buffer for what is unpacked afterwards.
void Requester::build_batch() {
  bounce_.clear();
  std::uint64_t room = batch_bytes;
  const Request& request = requests_[answered_];
  while (part_ < request.last && room > 0 && batch_.size() < most_received_parts) {
    const Transfer::Part& part = request.transfer->parts[part_];
    if (!part_open_) open_part(part);
    if (!(chunks_ ? add_packed(part, room) : add_direct(part, room))) return;
  }
}

bool Requester::add_direct(const Transfer::Part& part, std::uint64_t& room) {
  // Unpacking comes after the whole batch: where order matters, it must not be overtaken.
  if (requests_[answered_].transfer->ordered && !unpacks_.empty()) return false;
  const model::SourceRun& run = runs_[run_];
  const std::uint64_t bytes = std::min(room, run.bytes - run_bytes_);
  std::byte* to = part.memory + static_cast<std::int64_t>(run.offset) + run_bytes_;
  batch_.push_back({to, bytes});
  room -= bytes;
  run_bytes_ += bytes;
  if (run_bytes_ < run.bytes) return true;
  run_bytes_ = 0;
  if (++run_ == runs_.size()) next_part();
  return true;
}

bool Requester::add_packed(const Transfer::Part& part, std::uint64_t& room) {
  const std::uint64_t limit = std::min(chunk_bytes, part.piece.bytes());
  if (room < limit || bounce_.size() + limit > batch_bytes) return false;
  bounce_.reserve(batch_bytes);
  const model::Piece chunk = chunks_->next();
  const std::uint64_t bytes = chunk.bytes();
  unpacks_.push_back({chunk, part.memory, bounce_.size()});
  bounce_.resize(bounce_.size() + bytes);  // within the capacity: what batch_ points to stays
  batch_.push_back({bounce_.data() + unpacks_.back().bounce_offset, bytes});
  room -= bytes;
  if (chunks_->done()) next_part();
  return true;
}

void Requester::finish_batch() {
  for (const Unpack& unpack : unpacks_) model::unpack(unpack.piece, bounce_.data() + unpack.bounce_offset, unpack.out);
  unpacks_.clear();
  batch_.clear();
  batch_at_ = 0;
}

}  // namespace penstock::transport
