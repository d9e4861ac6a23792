#include "fabric/data_server.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "fabric/asio.hpp"
#include "fabric/connection.hpp"
#include "fabric/reply.hpp"
#include "fabric/socket.hpp"

namespace penstock::fabric {

namespace {

using base::FaultPhase;

constexpr std::size_t first_request_bytes = std::size_t{64} << 10;
constexpr int batches_per_turn = 4;  // then other readers have theirs

}  // namespace

struct DataServer::Impl {
  explicit Impl(std::shared_ptr<memory::Arena> source) : arena(std::move(source)) {}

  const std::shared_ptr<memory::Arena> arena;
  std::atomic<std::uint64_t> served{0};
  std::atomic<std::size_t> count{0};
  std::mutex mutex;  // guards the making of the worker
  // The worker's own.
  std::unordered_map<Session*, std::shared_ptr<Session>> sessions;
  std::unique_ptr<Progress> worker;  // last: its thread ends before the rest goes
};

// One reader's connection: reads a request, sends its reply, reads the next. On the worker thread.
class DataServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Impl& server, UniqueFd socket, std::string peer)
      : server_(server), socket_(context_of(*server.worker), socket.release()), peer_(std::move(peer)) {
    server_.count.fetch_add(1);
  }
  ~Session() { server_.count.fetch_sub(1); }

  void run();

 private:
  void advance();
  bool receive();
  bool take_request();
  bool send();
  void end(const std::string& why);
  void wait(asio::posix::descriptor_base::wait_type what);

  Impl& server_;
  asio::posix::stream_descriptor socket_;
  const std::string peer_;
  bool ended_ = false;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  wire::ReadRequest request_;
  Reply reply_;
  bool replying_ = false;
  std::span<iovec> batch_;  // what is left of it
  bool watched_ = false;
};

// What goes wrong with one reader's request (there may be no memory for it) is the end of that reader's connection only.
void DataServer::Session::run() {
  try {
    advance();
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "a request for data failed", {{"peer", peer_}, {"error", error.what()}});
    end(error.what());
  }
}

// Does what can be done without waiting; each turn ends with a wait, a post, or the end.
void DataServer::Session::advance() {
  for (int turn = 0; turn < batches_per_turn && !ended_;) {
    if (replying_) {
      if (!send()) return;
      ++turn;
    } else if (!take_request() && !receive()) {
      return;
    }
  }
  if (!ended_) asio::post(socket_.get_executor(), [self = shared_from_this()] { self->run(); });
}

void DataServer::Session::wait(asio::posix::descriptor_base::wait_type what) {
  socket_.async_wait(what, [weak = weak_from_this()](const asio::error_code& error) {
    const auto self = weak.lock();
    if (self && !error && !self->ended_) self->run();
  });
}

void DataServer::Session::end(const std::string& why) {
  if (ended_) return;
  ended_ = true;
  base::log(base::Level::debug, "a data connection ended", {{"peer", peer_}, {"why", why}});
  asio::error_code ignored;
  socket_.close(ignored);
  reply_.clear();
  server_.sessions.erase(this);  // the caller still holds a reference
}

// One receive. False when the session waits or has ended.
bool DataServer::Session::receive() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.empty()) buffer_.resize(first_request_bytes);
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  std::vector<UniqueFd> fds;
  const auto count = receive_some(socket_.native_handle(), std::span(buffer_).subspan(end_), fds);
  if (count == -EAGAIN || count == -EWOULDBLOCK) {
    wait(asio::posix::descriptor_base::wait_read);
    return false;
  }
  if (count <= 0 || !fds.empty()) {
    end(count == 0 ? "closed by the peer" : count < 0 ? errno_text(static_cast<int>(-count)) : "sent descriptors");
    return false;
  }
  end_ += static_cast<std::size_t>(count);
  return true;
}

// Turns the next complete request, if there is one, into a reply.
bool DataServer::Session::take_request() {
  FrameHeader header{};
  if (end_ - begin_ < sizeof header) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  if (header.length > max_frame_bytes || header.has_fd != 0 ||
      header.kind != static_cast<std::uint16_t>(wire::DataKind::read_request)) {
    end("sent what is no read request");
    return true;
  }
  if (end_ - begin_ < sizeof header + header.length) return false;
  base::fault_point("data-request", FaultPhase::before);
  request_.id = 0;
  try {
    const auto bytes = std::span<const std::byte>(buffer_).subspan(begin_ + sizeof header, header.length);
    wire::decode_read_request(bytes, request_);
    reply_.prepare(*server_.arena, request_);
  } catch (const Error& error) {
    base::log(base::Level::debug, "a reader sent a malformed request", {{"peer", peer_}, {"error", error.what()}});
    reply_.refuse(request_.id, error);
  }
  replying_ = true;
  batch_ = {};
  watched_ = false;
  begin_ += sizeof header + header.length;
  if (begin_ == end_) begin_ = end_ = 0;
  return true;
}

// Sends up to one batch. False when the session waits or has ended.
bool DataServer::Session::send() {
  if (batch_.empty()) {
    const bool first = !watched_;
    watched_ = true;
    if (first && base::fault_point("data-reply", FaultPhase::before)) {
      static std::byte garbage[64];
      std::memset(garbage, 0xa5, sizeof garbage);
      const iovec part{garbage, sizeof garbage};
      send_some(socket_.native_handle(), std::span(&part, 1), -1);
      end("told to send garbage");
      return false;
    }
    batch_ = reply_.next();
    if (batch_.empty()) {
      replying_ = false;
      server_.served.fetch_add(reply_.payload_bytes(), std::memory_order_relaxed);
      reply_.clear();
      base::fault_point("data-reply", FaultPhase::after);
      return true;
    }
    if (!first) base::fault_point("data-reply", FaultPhase::half);
  }
  const auto sent = send_some(socket_.native_handle(), batch_, -1);
  if (sent == -EAGAIN || sent == -EWOULDBLOCK) {
    wait(asio::posix::descriptor_base::wait_write);
    return false;
  }
  if (sent < 0) {
    end(errno_text(static_cast<int>(-sent)));
    return false;
  }
  auto left = static_cast<std::size_t>(sent);
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

DataServer::DataServer(std::shared_ptr<memory::Arena> arena) : impl_(std::make_unique<Impl>(std::move(arena))) {}

DataServer::~DataServer() {
  if (impl_->worker) impl_->worker->call([this] { impl_->sessions.clear(); });
}

void DataServer::adopt(UniqueFd socket, std::string peer_name) {
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->worker) impl_->worker = std::make_unique<Progress>();
  }
  set_blocking(socket.get(), false);
  set_stream_options(socket.get());
  // Shared, because a task must be copyable.
  auto owned = std::make_shared<UniqueFd>(std::move(socket));
  impl_->worker->post([impl = impl_.get(), owned, peer = std::move(peer_name)] {
    auto session = std::make_shared<Session>(*impl, std::move(*owned), peer);
    impl->sessions.emplace(session.get(), session);
    session->run();
  });
}

std::uint64_t DataServer::bytes_served() const { return impl_->served.load(std::memory_order_relaxed); }
std::size_t DataServer::connections() const { return impl_->count.load(); }

}  // namespace penstock::fabric
