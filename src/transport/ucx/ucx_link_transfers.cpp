// UcxLink: its transfers, as the side that asks and as the side that answers.
#include <cstring>

#include "base/fault.hpp"
#include "base/known_code.hpp"
#include "transport/asked_piece.hpp"
#include "transport/ucx/ucx_link.hpp"

namespace penstock::transport {

namespace {

using base::FaultPhase;

constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;       // of one question
constexpr std::uint64_t most_outstanding = std::uint64_t{8} << 20;  // asked for and not yet received
constexpr std::size_t most_questions = 64;
constexpr std::uint64_t copied_bytes = 8 << 10;  // shorter answers are packed into one message
// Of the peer: more than a link ever has under way.
constexpr std::size_t most_requests = 128, most_requests_bytes = std::size_t{32} << 20;
constexpr std::uint64_t most_body_bytes = std::uint64_t{4} << 20;

std::byte* place_of(const model::Piece& piece, std::byte* memory) { return memory + piece.copy.dst_offset; }

struct Hold {
  std::shared_ptr<Region> region;
  explicit Hold(std::shared_ptr<Region> of) : region(std::move(of)) {}
  Hold(const Hold&) = delete;
  ~Hold() { region->release(); }
  // Null: the region's owner cannot promise to leave the memory alone.
  static std::shared_ptr<Hold> of(std::shared_ptr<Region> region) {
    return region->hold() ? std::make_shared<Hold>(std::move(region)) : nullptr;
  }
};

}  // namespace

// -------------------------------------------------------------------------------------------------------------- asking

void UcxLink::submit(TransferPtr transfer) {
  loop_->post([self = shared_from_this(), transfer = std::move(transfer)] {
    transfer->next = 0;
    transfer->cut = [link = self->weak_from_this(), loop = self->loop_] {
      loop->call([&] {
        if (const auto there = link.lock()) there->end(there->in_words(Error(Errc::peer_lost, "does not answer")));
      });
    };
    if (self->ended_) {
      transfer->fail(*self->ended_);
      return;
    }
    if (transfer->parts.empty()) transfer->settle();
    else self->waiting_.push_back({transfer, {}});
    try {
      self->ask();
    } catch (const std::exception& error) {
      self->end(self->in_words(Error(Errc::memory, error.what())));
    }
    if (self->worker_) self->worker_->advance();
  });
}

// Transfers take turns.
void UcxLink::ask() {
  if (std::exchange(asking_, true)) return;  // an answer that came while it was asked for
  std::size_t passed = 0;                    // transfers in a row that wait for their own answers
  while (begun_ && passed < waiting_.size() && questions_.size() < most_questions &&
         (questions_.empty() || outstanding_ < most_outstanding)) {
    const auto& transfer = *waiting_.front().transfer;
    const bool waits = transfer.ordered && transfer.outstanding > 0;
    passed = waits ? passed + 1 : 0;
    if (waits || ask_next(waiting_.front())) waiting_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  asking_ = false;
}

// Whether there is more to ask for.
bool UcxLink::ask_next(Asking& next) {
  Transfer& transfer = *next.transfer;
  const bool write = transfer.write;
  Question question{.transfer = next.transfer};
  {
    const std::lock_guard lock(transfer.mutex);
    if (transfer.dropped && !transfer.error)
      transfer.error = Error(Errc::cancelled, "a transfer that nobody waits for");
    if (!transfer.error && write) ++transfer.busy;
  }
  if (transfer.error) {
    transfer.settle();
    return false;
  }
  const auto& part = transfer.parts[transfer.next];
  if (!next.chunks) next.chunks.emplace(part.piece, piece_bytes);
  question.piece = next.chunks->next();
  question.memory = part.memory;
  question.bytes = question.piece.bytes();
  if (next.chunks->done()) {
    next.chunks.reset();
    ++transfer.next;
  }
  const std::uint64_t id = next_id_++;
  wire::DataRequest request;
  request.id = id;
  request.region = transfer.region;
  request.slot = transfer.slot;
  request.pieces.push_back(wanted_of(question.piece, request.points));
  std::vector<std::byte> frame;
  encode(request, frame);
  outstanding_ += question.bytes;
  ++transfer.outstanding;
  const std::span<const std::byte> bytes(place_of(question.piece, question.memory), question.bytes);
  questions_.emplace(id, std::move(question));
  if (!write) {
    base::fault_point("send:read_request", FaultPhase::before);
    send({.id = id, .kind = Kind::read}, {}, std::move(frame), {}, {});
    base::fault_point("send:read_request", FaultPhase::after);
    return transfer.next < transfer.parts.size() || next.chunks;
  }
  base::fault_point("send:write_request", FaultPhase::before);
  send({.id = id, .kind = Kind::write}, frame, {}, bytes, [held = next.transfer](ucs_status_t) {
    const std::lock_guard lock(held->mutex);
    --held->busy;
    held->idle.notify_all();
  });
  base::fault_point("send:write_request", FaultPhase::after);
  return transfer.next < transfer.parts.size() || next.chunks;
}

// The bytes of an answer, to where they belong. The answer itself may have come before them.
void UcxLink::take_body(Questions::iterator at, const Data& data) {
  Question& question = at->second;
  if (question.transfer->write || question.came || question.receiving)
    throw Error(Errc::protocol, "answered with bytes that were not asked for");
  if (data.bytes != question.bytes)
    throw Error(Errc::protocol,
                "answered with " + std::to_string(data.bytes) + " bytes instead of " + std::to_string(question.bytes));
  const auto transfer = question.transfer;
  const bool in_place = packed_is_contiguous_at_destination(question.piece);
  std::byte* const to = in_place ? place_of(question.piece, question.memory) : nullptr;
  {
    const std::lock_guard lock(transfer->mutex);
    question.came = !data.rendezvous || transfer->dropped;
    question.receiving = !question.came;
    if (question.receiving && in_place) ++transfer->busy;
    if (question.came && !transfer->dropped) {
      if (in_place) std::memcpy(to, data.data, data.bytes);
      else model::unpack(question.piece, data.data, question.memory);
    }
  }
  if (question.came) return finish(at);
  std::vector<std::byte> bounce(in_place ? 0 : data.bytes);
  const std::span<std::byte> into = in_place ? std::span(to, data.bytes) : std::span(bounce);
  receive(data, into, std::move(bounce), [this, id = at->first, transfer, into, in_place](ucs_status_t status) {
    const auto found = questions_.find(id);
    {
      const std::lock_guard held(transfer->mutex);
      if (in_place) --transfer->busy;
      else if (status == UCS_OK && !transfer->dropped && found != questions_.end())
        model::unpack(found->second.piece, into.data(), found->second.memory);
      transfer->idle.notify_all();
    }
    if (found == questions_.end()) return;
    found->second.receiving = false;
    found->second.came = true;
    if (status != UCS_OK) found->second.error = error_of(status, "UCX lost it");  // whatever is answered still
    finish(found);
  });
}

void UcxLink::take_answer(Questions::iterator at, const Head& head, const Data& data) {
  Question& question = at->second;
  if (question.answered) throw Error(Errc::protocol, "answered twice");
  if (head.code == 0) {
    if (data.bytes > 0) take_body(at, data);
  } else {
    const std::string text(data.rendezvous ? "" : reinterpret_cast<const char*>(data.data),
                           data.rendezvous ? 0 : data.bytes);
    question.error = Error(base::known_code(head.code), text);
  }
  question.answered = true;
  finish(at);
}

void UcxLink::finish(Questions::iterator at) {
  Question& question = at->second;
  const bool complete = question.error || question.transfer->write || question.came;
  if (ended_ || !question.answered || question.receiving || !complete) return;
  const auto transfer = question.transfer;
  const auto error = question.error;
  outstanding_ -= question.bytes;
  --transfer->outstanding;
  questions_.erase(at);
  if (error) transfer->fail(*error);
  else transfer->settle();
  ask();
}

// ----------------------------------------------------------------------------------------------------------- answering

void UcxLink::take_request(std::vector<std::byte> frame) {
  base::fault_point("data-request", FaultPhase::before);
  if (!source_) throw Error(Errc::protocol, "asks who lends nothing");
  requests_bytes_ += frame.size();
  requests_.push_back(std::move(frame));
  if (requests_.size() + answering_ > most_requests || requests_bytes_ > most_requests_bytes)
    throw Error(Errc::protocol, "asks for more at once than may be");
  serve();
}

void UcxLink::serve() {
  while (!requests_.empty() && answering_bytes_ < most_outstanding) {
    const auto frame = std::move(requests_.front());
    requests_.pop_front();
    requests_bytes_ -= frame.size();
    answer_read(frame);
  }
}

void UcxLink::answer_read(const std::vector<std::byte>& frame) {
  wire::DataRequest request;
  std::shared_ptr<Region> region;
  std::vector<model::PointMove> moves;
  std::vector<model::SourceRun> runs;
  std::vector<std::byte> packed;
  std::uint64_t bytes = 0;
  const std::byte* from = nullptr;
  std::shared_ptr<Hold> hold;
  try {
    wire::decode_data_request(frame, request);
    if (request.pieces.size() != 1) throw Error(Errc::protocol, "asks for other than one piece");
    const auto& wanted = request.pieces.front();
    bytes = wire::bytes_of(wanted);
    if (bytes == 0 || bytes > most_body_bytes) throw Error(Errc::protocol, "asks for a piece of impossible size");
    region = source_->open(request, false);
    const auto* base = region->segment(wanted.segment, wire::reach(wanted, request.points));
    moves.reserve(request.points.size());
    const auto piece = source_of(wanted, request.points, moves);
    if (bytes > copied_bytes && model::contiguous_runs(piece, bytes, 1, runs)) hold = Hold::of(region);
    if (hold) {
      from = base + runs.front().offset;
    } else {
      packed.resize(bytes);
      const auto lock = lock_of(region->mutex());
      if (region->state() == Errc::ok) model::pack(piece, base, packed.data());
      if (region->state() != Errc::ok) throw Error(region->state(), "the memory was taken back while it was read");
    }
  } catch (const Error& error) {
    answer(request.id, error);
    return;
  }
  base::fault_point("data-reply", FaultPhase::before);
  if (from == nullptr) {
    source_->served(bytes);
    answer(request.id, {}, std::move(packed));
    base::fault_point("data-reply", FaultPhase::after);
    return;
  }
  ++answering_;
  answering_bytes_ += bytes;
  send({.id = request.id, .kind = Kind::body}, {}, {}, {from, bytes},
       [this, hold, bytes, id = request.id](ucs_status_t status) mutable {
         --answering_;
         answering_bytes_ -= bytes;
         std::optional<Error> error;
         if (hold->region->mutex() == nullptr && hold->region->state() != Errc::ok)
           error = Error(hold->region->state(), "the memory was taken back while it was read");
         hold.reset();
         if (status != UCS_OK || ended_) return;
         source_->served(bytes);
         answer(id, error);
         base::fault_point("data-reply", FaultPhase::after);
         serve();
       });
  base::fault_point("data-reply", FaultPhase::half);
}

// What cannot be written is not received.
void UcxLink::take_write(const Head& head, std::span<const std::byte> frame, const Data& data) {
  base::fault_point("data-request", FaultPhase::before);
  if (!source_) throw Error(Errc::protocol, "writes to who lends nothing");
  wire::DataRequest request;
  wire::decode_data_request(std::vector<std::byte>(frame.begin(), frame.end()), request);  // aligned
  const auto reach = wire::reach(request.pieces.front(), request.points);
  if (request.pieces.size() != 1 || request.id != head.id || request.pieces.front().is_points ||
      reach.last - reach.first != data.bytes || wire::bytes_of(request.pieces.front()) != data.bytes ||
      answering_ >= most_requests)
    throw Error(Errc::protocol, "writes what is no range of bytes");
  try {
    std::shared_ptr<Region> region = source_->open(request, true);
    auto* const to = region->segment(request.pieces.front().segment, reach) + reach.first;
    auto hold = Hold::of(std::move(region));
    if (!hold) throw Error(Errc::internal, "memory that its owner does not hold still was asked for writing");
    if (!data.rendezvous) {
      std::memcpy(to, data.data, data.bytes);
      answer(head.id, {});
      return;
    }
    ++answering_;
    receive(data, {to, data.bytes}, {}, [this, hold = std::move(hold), id = head.id](ucs_status_t status) mutable {
      --answering_;
      hold.reset();
      if (status == UCS_OK && !ended_) answer(id, {});
    });
  } catch (const Error& error) {
    answer(head.id, error);
  }
}

void UcxLink::answer(std::uint64_t id, const std::optional<Error>& error, std::vector<std::byte> body) {
  Head head{.id = id, .kind = Kind::answer};
  if (error) {
    head.code = static_cast<std::uint32_t>(error->code());
    const std::string_view text = std::string_view(error->what()).substr(0, 4096);
    body.assign(reinterpret_cast<const std::byte*>(text.data()),
                reinterpret_cast<const std::byte*>(text.data() + text.size()));
  }
  send(head, {}, std::move(body), {}, {});
}

}  // namespace penstock::transport
