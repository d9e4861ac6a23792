#include "transport/tcp/bulk_link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/known_code.hpp"
#include "base/log.hpp"
#include "fabric/socket.hpp"

namespace penstock::transport {

namespace {

constexpr std::size_t link_buffer_bytes = std::size_t{32} << 10;
constexpr std::size_t small_read_bytes = 4096;  // while the next message may have a body: that goes where it belongs
constexpr std::size_t behind_body_bytes = 512;  // read along with a body: its trailer, and what follows
constexpr unsigned window = 4;                  // messages of one transfer under way
constexpr int steps_per_turn = 32;              // then other links have theirs
constexpr int most_parts = 64;                  // of one sendmsg
constexpr int socket_bytes = 4 << 20;
constexpr int loopback_bytes =
    256 << 10;  // what is under way between two programs of a host stays in the processor's cache
constexpr std::size_t zero_bytes = std::size_t{64} << 10;

static_assert(max_chunk_ranges * sizeof(BulkRange) <= link_buffer_bytes);

// For bytes that must be sent or received, but belong to nobody any more.
std::array<std::byte, zero_bytes> scratch;
const std::array<std::byte, zero_bytes> zeros{};

void size_buffers(int socket) {
  const bool loopback = fabric::is_loopback(socket);
  const int bytes = loopback ? loopback_bytes : socket_bytes;
  // Beyond the system's limit where we may; between hosts TCP's own adaptation is better than the limit.
  const bool forced = ::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) == 0 &&
                      ::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) == 0;
  if (forced) return;
  if (loopback || fabric::is_local(socket)) ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  if (loopback) ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

std::span<const std::byte> bytes_of(const BulkHeader& header) { return std::as_bytes(std::span(&header, 1)); }

std::exception_ptr refusal_of(std::uint32_t code) {
  return std::make_exception_ptr(Error(base::known_code(code),
                                       "the peer refused a bulk transfer: not exposed (any more), "
                                       "not for this, or out of bounds"));
}

}  // namespace

BulkTransfer::BulkTransfer(std::shared_ptr<fabric::Progress> owner, bool is_push, std::uint64_t exposure_,
                           std::vector<BulkRange> ranges_, std::byte* memory_)
    : progress(std::move(owner)),
      done(*progress),
      push(is_push),
      exposure(exposure_),
      ranges(std::move(ranges_)),
      memory(memory_) {}

BulkLink::BulkLink(std::shared_ptr<SocketLoop> loop, memory::UniqueFd socket, std::shared_ptr<Exposures> exposures,
                   std::string peer_name, std::function<void(const Error&)> on_lost)
    : loop_(std::move(loop)),
      exposures_(std::move(exposures)),
      peer_name_(std::move(peer_name)),
      socket_(std::move(socket)),
      on_lost_(std::move(on_lost)),
      buffer_(link_buffer_bytes) {
  fabric::set_blocking(socket_.get(), false);
  size_buffers(socket_.get());
}

BulkLink::~BulkLink() = default;

void BulkLink::start() {
  loop_->post([self = shared_from_this()] {
    if (!self->ended_) self->loop_->add(self, self->socket_.get());
  });
}

void BulkLink::submit(std::shared_ptr<BulkTransfer> transfer) {
  loop_->post([self = shared_from_this(), transfer = std::move(transfer)] {
    if (self->ended_) transfer->done.set_error(Error(Errc::peer_lost, self->peer_name_ + " is gone"));
    else self->pump(transfer);
  });
}

void BulkLink::close() {
  loop_->post([self = shared_from_this()] {
    self->on_lost_ = nullptr;
    self->end(Error(Errc::peer_lost, self->peer_name_ + ": the channel is closed"));
  });
}

void BulkLink::end(const Error& error) {
  if (std::exchange(ended_, true)) return;
  const auto self = shared_from_this();
  loop_->remove(*this, socket_.get());
  socket_.reset();
  out_.clear();
  into_exposure_.reset();
  into_transfer_.reset();
  for (auto& [id, asked] : std::exchange(asked_, {})) asked.transfer->done.set_error(error);
  if (auto lost = std::exchange(on_lost_, nullptr)) lost(error);
}

void BulkLink::on_events(std::uint32_t events) {
  const auto self = shared_from_this();
  try {
    if ((events & EPOLLOUT) != 0) write();
    if (!ended_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read();
    if (!ended_) write();  // what reading has produced
  } catch (const Error& error) {
    end(error.in(peer_name_));
  } catch (const std::exception& error) {
    end(Error(Errc::internal, peer_name_ + ": " + error.what()));
  }
}

// ----------------------------------------------------------------------------------------------------------- requests

// Asks for more of a transfer, within its window, or ends it.
void BulkLink::pump(const std::shared_ptr<BulkTransfer>& transfer) {
  BulkTransfer& t = *transfer;
  {
    std::lock_guard lock(t.mutex);
    if (t.memory == nullptr && !t.error) t.error = Error(Errc::cancelled, "a transfer that nobody waits for");
  }
  while (!t.error && t.range < t.ranges.size() && t.outstanding < window) {
    if (t.push) send_push(transfer);
    else send_pull(transfer);
  }
  if (t.outstanding == 0) {
    if (t.error) t.done.set_error(*t.error);
    else t.done.set();
  }
  try {
    if (!watching_writes_) write();
  } catch (const Error& error) {
    end(error.in(peer_name_));
  }
}

void BulkLink::send_pull(const std::shared_ptr<BulkTransfer>& transfer) {
  BulkTransfer& t = *transfer;
  BulkHeader header;
  header.kind = BulkKind::pull;
  header.id = next_id_++;
  header.exposure = t.exposure;
  std::vector<BulkRange> ranges;
  while (t.range < t.ranges.size() && ranges.size() < max_chunk_ranges && header.bytes < max_chunk_bytes) {
    const BulkRange& from = t.ranges[t.range];
    const std::uint64_t bytes = std::min(max_chunk_bytes - header.bytes, from.bytes - t.range_at);
    if (bytes > 0) ranges.push_back({from.offset + t.range_at, bytes});
    header.bytes += bytes;
    t.range_at += bytes;
    if (t.range_at == from.bytes) {
      ++t.range;
      t.range_at = 0;
    }
  }
  if (ranges.empty()) return;
  header.count = ranges.size();
  asked_.emplace(header.id, Asked{transfer, t.position, header.bytes});
  t.position += header.bytes;
  ++t.outstanding;
  Out out;
  const auto head = bytes_of(header);
  const auto list = std::as_bytes(std::span(ranges));
  out.head.assign(head.begin(), head.end());
  out.head.insert(out.head.end(), list.begin(), list.end());
  out_.push_back(std::move(out));
}

void BulkLink::send_push(const std::shared_ptr<BulkTransfer>& transfer) {
  BulkTransfer& t = *transfer;
  const BulkRange& to = t.ranges[t.range];
  BulkHeader header;
  header.kind = BulkKind::push;
  header.id = next_id_++;
  header.exposure = t.exposure;
  header.offset = to.offset + t.range_at;
  header.bytes = std::min(max_chunk_bytes, to.bytes - t.range_at);
  t.range_at += header.bytes;
  if (t.range_at == to.bytes) {
    ++t.range;
    t.range_at = 0;
  }
  if (header.bytes == 0) return;
  asked_.emplace(header.id, Asked{transfer, t.position, header.bytes});
  ++t.outstanding;
  Out out;
  const auto head = bytes_of(header);
  out.head.assign(head.begin(), head.end());
  {
    std::lock_guard lock(t.mutex);
    if (t.memory != nullptr) out.body.emplace_back(t.memory + t.position, header.bytes);
  }
  t.position += header.bytes;
  out.body_bytes = header.bytes;
  out.has_trailer = true;
  out.transfer = transfer;
  out_.push_back(std::move(out));
}

void BulkLink::answered(std::uint64_t id, std::uint32_t code) {
  const auto found = asked_.find(id);
  if (found == asked_.end()) throw Error(Errc::protocol, "answered what was not asked");
  const auto transfer = std::move(found->second.transfer);
  asked_.erase(found);
  --transfer->outstanding;
  if (code != 0 && !transfer->error) {
    try {
      std::rethrow_exception(refusal_of(code));
    } catch (const Error& error) {
      transfer->error = error;
    }
  }
  pump(transfer);
}

// ------------------------------------------------------------------------------------------------------------ writing

void BulkLink::send_done(std::uint64_t id, std::uint32_t code) {
  BulkHeader header;
  header.kind = BulkKind::done;
  header.id = id;
  header.code = code;
  Out out;
  const auto head = bytes_of(header);
  out.head.assign(head.begin(), head.end());
  out_.push_back(std::move(out));
}

void BulkLink::write() {
  for (int step = 0; step < steps_per_turn && !out_.empty() && !ended_; ++step) {
    const auto sent = write_some(out_.front());
    if (sent == -EAGAIN || sent == -EWOULDBLOCK) break;
    if (sent < 0) throw Error(Errc::peer_lost, "is gone: " + fabric::errno_text(static_cast<int>(-sent)));
    Out& out = out_.front();
    if (out.sent == out.head.size() + out.body_bytes + (out.has_trailer ? sizeof out.trailer : 0)) out_.pop_front();
  }
  if (ended_ || watching_writes_ == !out_.empty()) return;
  watching_writes_ = !out_.empty();
  loop_->watch(*this, socket_.get(), true, watching_writes_);
}

// One sendmsg of what is left of a message. The body's owner cannot take it away meanwhile.
std::ptrdiff_t BulkLink::write_some(Out& out) {
  iovec parts[most_parts];
  int count = 0;
  const auto add = [&](const std::byte* from, std::size_t bytes) {
    if (bytes > 0) parts[count++] = {const_cast<std::byte*>(from), bytes};
  };
  std::unique_lock<std::mutex> pin;
  bool withdrawn = false;
  if (out.exposure) {
    pin = std::unique_lock(out.exposure->mutex);
    withdrawn = out.exposure->withdrawn;
  } else if (out.transfer) {
    pin = std::unique_lock(out.transfer->mutex);
    withdrawn = out.transfer->memory == nullptr;
  }
  const std::uint64_t head = out.head.size();
  if (out.sent < head) add(out.head.data() + out.sent, head - out.sent);
  const std::uint64_t body_sent = out.sent > head ? std::min(out.sent - head, out.body_bytes) : 0;
  std::uint64_t body_left = out.body_bytes - body_sent;
  if (withdrawn && body_left > 0) {
    out.trailer = static_cast<BulkTrailer>(Errc::invalid_argument);
    const auto bytes = std::min<std::uint64_t>(body_left, zeros.size());
    add(zeros.data(), bytes);
    body_left -= bytes;
  } else {
    for (std::size_t i = out.part; i < out.body.size() && count < most_parts - 1; ++i) {
      const auto part = out.body[i].subspan(i == out.part ? out.part_at : 0);
      add(part.data(), part.size());
      body_left -= part.size();
    }
  }
  if (body_left == 0 && out.has_trailer) {
    const std::uint64_t trailer_sent = out.sent - std::min(out.sent, head + out.body_bytes);
    add(reinterpret_cast<const std::byte*>(&out.trailer) + trailer_sent, sizeof out.trailer - trailer_sent);
  }
  const auto sent = fabric::send_some(socket_.get(), std::span(parts, static_cast<std::size_t>(count)), -1);
  if (sent > 0) advance(out, static_cast<std::uint64_t>(sent));
  return sent;
}

void BulkLink::advance(Out& out, std::uint64_t bytes) {
  const std::uint64_t head = out.head.size();
  const std::uint64_t before = std::clamp(out.sent, head, head + out.body_bytes);
  out.sent += bytes;
  std::uint64_t of_body = std::clamp(out.sent, head, head + out.body_bytes) - before;
  while (of_body > 0 && out.part < out.body.size()) {
    const std::uint64_t left = out.body[out.part].size() - out.part_at;
    const std::uint64_t taken = std::min(left, of_body);
    out.part_at += taken;
    of_body -= taken;
    if (out.part_at < out.body[out.part].size()) break;
    ++out.part;
    out.part_at = 0;
  }
}

// ------------------------------------------------------------------------------------------------------------ reading

void BulkLink::read() {
  for (int step = 0; step < steps_per_turn && !ended_; ++step) {
    while (!ended_ && process()) {
    }
    if (ended_ || !receive()) return;
  }
  while (!ended_ && process()) {
  }
}

std::mutex* BulkLink::body_mutex() {
  return into_transfer_ ? &into_transfer_->mutex : into_exposure_ ? &into_exposure_->mutex : nullptr;
}

// With the mutex held. Null: nobody wants the bytes.
std::byte* BulkLink::body_target() {
  if (into_transfer_) {
    if (into_transfer_->memory == nullptr) return nullptr;
    return into_transfer_->memory + into_offset_ + body_at_;
  }
  if (!into_exposure_) return nullptr;
  if (into_exposure_->withdrawn) {
    refusal_ = static_cast<std::uint32_t>(Errc::invalid_argument);
    return nullptr;
  }
  return into_exposure_->memory.data() + into_offset_ + body_at_;
}

// One receive. False when there is nothing just now.
bool BulkLink::receive() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  iovec parts[2];
  std::size_t count = 0;
  std::size_t direct = 0;
  std::unique_lock<std::mutex> pin;
  if (reading_ == Reading::body) {  // the buffer is empty: its bytes of the body have been moved
    if (auto* mutex = body_mutex()) pin = std::unique_lock(*mutex);
    direct = static_cast<std::size_t>(header_.bytes - body_at_);
    std::byte* to = body_target();
    if (to == nullptr) {
      direct = std::min(direct, scratch.size());
      to = scratch.data();
    }
    parts[count++] = {to, direct};
  }
  const std::size_t limit = reading_ == Reading::body     ? behind_body_bytes
                            : reading_ == Reading::ranges ? buffer_.size()
                                                          : small_read_bytes;
  // Behind bytes that nobody wants there may be more of them.
  if (reading_ != Reading::body || direct == header_.bytes - body_at_)
    parts[count++] = {buffer_.data() + end_, std::min(buffer_.size() - end_, limit)};
  const auto got = fabric::receive_parts(socket_.get(), std::span(parts, count));
  if (got == -EAGAIN || got == -EWOULDBLOCK) return false;
  if (got < 0) throw Error(Errc::peer_lost, "is gone: " + fabric::errno_text(static_cast<int>(-got)));
  if (got == 0) throw Error(Errc::peer_lost, "closed the bulk connection");
  const auto bytes = static_cast<std::size_t>(got);
  body_at_ += std::min(bytes, direct);
  end_ += bytes - std::min(bytes, direct);
  return true;
}

// One step on what has been received. False when more bytes are needed.
bool BulkLink::process() {
  const std::size_t available = end_ - begin_;
  switch (reading_) {
    case Reading::header:
      if (available < sizeof(BulkHeader)) return false;
      take_header();
      return true;
    case Reading::ranges:
      if (available < header_.count * sizeof(BulkRange)) return false;
      take_ranges();
      return true;
    case Reading::body: {
      const std::size_t bytes = std::min<std::size_t>(available, header_.bytes - body_at_);
      if (bytes > 0) {
        std::unique_lock<std::mutex> pin;
        if (auto* mutex = body_mutex()) pin = std::unique_lock(*mutex);
        if (std::byte* to = body_target()) std::memcpy(to, buffer_.data() + begin_, bytes);
        begin_ += bytes;
        body_at_ += bytes;
      }
      if (body_at_ < header_.bytes) return false;
      reading_ = Reading::trailer;
      return true;
    }
    case Reading::trailer:
      if (available < sizeof(BulkTrailer)) return false;
      take_trailer();
      return true;
  }
  return false;
}

void BulkLink::take_header() {
  header_ = decode_bulk_header(std::span<const std::byte>(buffer_).subspan(begin_, sizeof(BulkHeader)));
  begin_ += sizeof(BulkHeader);
  body_at_ = 0;
  refusal_ = 0;
  into_transfer_.reset();
  into_exposure_.reset();
  switch (header_.kind) {
    case BulkKind::pull: reading_ = Reading::ranges; return;
    case BulkKind::done: {
      const auto found = asked_.find(header_.id);
      if (found == asked_.end() || !found->second.transfer->push)
        throw Error(Errc::protocol, "answered what was not asked");
      answered(header_.id, header_.code);
      return;
    }
    case BulkKind::data: {
      const auto found = asked_.find(header_.id);
      if (found == asked_.end() || found->second.transfer->push ||
          (header_.code == 0 && header_.bytes != found->second.bytes))
        throw Error(Errc::protocol, "answered what was not asked");
      into_transfer_ = found->second.transfer;
      into_offset_ = found->second.position;
      refusal_ = header_.code;
      reading_ = Reading::body;
      return;
    }
    case BulkKind::push:
      try {
        into_exposure_ = exposures_->find(header_.exposure, Access::write, header_.offset, header_.bytes);
        into_offset_ = header_.offset;
      } catch (const Error& error) {
        refusal_ = static_cast<std::uint32_t>(error.code());
      }
      reading_ = Reading::body;
      return;
  }
}

void BulkLink::take_ranges() {
  const std::size_t bytes = header_.count * sizeof(BulkRange);
  const auto ranges = decode_bulk_ranges(std::span<const std::byte>(buffer_).subspan(begin_, bytes), header_.bytes);
  begin_ += bytes;
  reading_ = Reading::header;
  BulkHeader reply;
  reply.kind = BulkKind::data;
  reply.id = header_.id;
  reply.bytes = header_.bytes;
  Out out;
  try {
    out.exposure = exposures_->find(header_.exposure, Access::read, ranges);
    for (const BulkRange& range : ranges) out.body.push_back(out.exposure->memory.subspan(range.offset, range.bytes));
    out.body_bytes = header_.bytes;
  } catch (const Error& error) {
    reply.code = static_cast<std::uint32_t>(error.code());
    reply.bytes = 0;
  }
  out.has_trailer = true;
  const auto head = bytes_of(reply);
  out.head.assign(head.begin(), head.end());
  out_.push_back(std::move(out));
}

void BulkLink::take_trailer() {
  BulkTrailer trailer = 0;
  std::memcpy(&trailer, buffer_.data() + begin_, sizeof trailer);
  begin_ += sizeof trailer;
  reading_ = Reading::header;
  if (trailer != 0 && refusal_ == 0) refusal_ = static_cast<std::uint32_t>(Errc::invalid_argument);
  into_exposure_.reset();
  if (header_.kind == BulkKind::push) {
    send_done(header_.id, refusal_);
    return;
  }
  into_transfer_.reset();
  answered(header_.id, refusal_);
}

}  // namespace penstock::transport
