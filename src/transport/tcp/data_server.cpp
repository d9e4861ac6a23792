#include "transport/tcp/data_server.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "base/fault.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "fabric/connection.hpp"
#include "fabric/socket.hpp"
#include "transport/tcp/reply.hpp"
#include "transport/tcp/socket_loop.hpp"

namespace penstock::transport {

namespace {

using base::FaultPhase;

constexpr std::size_t first_request_bytes = std::size_t{64} << 10;
constexpr int batches_per_turn = 4;  // then other readers have theirs

}  // namespace

struct DataServer::Impl {
  explicit Impl(std::shared_ptr<memory::Arena> source) : arena(std::move(source)) {}

  const base::Origin origin;
  const std::shared_ptr<memory::Arena> arena;
  std::once_flag needed;
  std::shared_ptr<SocketLoop> loop;  // since the first connection
  std::atomic<std::uint64_t> served{0};
  std::atomic<std::size_t> count{0};
  std::set<Session*> sessions;  // the loop's own
};

// One reader's connection: reads a request, sends its reply, reads the next. On the loop's thread.
class DataServer::Session final : public SocketLoop::Handler, public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Impl> server, memory::UniqueFd socket, std::string peer)
      : server_(std::move(server)), socket_(std::move(socket)), peer_(std::move(peer)) {
    server_->count.fetch_add(1);
  }
  ~Session() override { server_->count.fetch_sub(1); }

  void start();
  void end(const std::string& why);

 private:
  enum class Wait { input, room };  // the peer's bytes, or a place for ours

  void on_events(std::uint32_t) override;
  void advance();
  bool receive();
  bool take_request();
  bool send();
  void wait(Wait what);

  const std::shared_ptr<Impl> server_;
  memory::UniqueFd socket_;
  const std::string peer_;
  bool ended_ = false;
  Wait waits_for_ = Wait::input;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  wire::ReadRequest request_;
  Reply reply_;
  bool replying_ = false;
  std::span<iovec> batch_;  // what is left of it
  bool watched_ = false;
};

void DataServer::Session::start() {
  server_->sessions.insert(this);
  server_->loop->add(shared_from_this(), socket_.get());
}

// What goes wrong with one reader's request (there may be no memory for it) is the end of that reader's connection only.
void DataServer::Session::on_events(std::uint32_t) {
  if (ended_) return;
  try {
    advance();
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "a request for data failed", {{"peer", peer_}, {"error", error.what()}});
    end(error.what());
  }
}

// Does what can be done without waiting. Each turn ends with a wait or the end.
void DataServer::Session::advance() {
  for (int turn = 0; turn < batches_per_turn && !ended_;) {
    if (replying_) {
      if (!send()) return;
      ++turn;
    } else if (!take_request() && !receive()) {
      return;
    }
  }
  if (!ended_) wait(Wait::room);  // there is: the next turn comes after the others'
}

void DataServer::Session::wait(Wait what) {
  if (std::exchange(waits_for_, what) == what) return;
  server_->loop->watch(*this, socket_.get(), what == Wait::input, what == Wait::room);
}

void DataServer::Session::end(const std::string& why) {
  if (ended_) return;
  ended_ = true;
  base::log(base::Level::debug, "a data connection ended", {{"peer", peer_}, {"why", why}});
  const auto self = shared_from_this();
  server_->sessions.erase(this);
  server_->loop->remove(*this, socket_.get());
  socket_.reset();
  reply_.clear();
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
  std::vector<memory::UniqueFd> fds;
  const auto count = fabric::receive_some(socket_.get(), std::span(buffer_).subspan(end_), fds);
  if (count == -EAGAIN || count == -EWOULDBLOCK) {
    wait(Wait::input);
    return false;
  }
  if (count <= 0 || !fds.empty()) {
    end(count == 0  ? "closed by the peer"
        : count < 0 ? fabric::errno_text(static_cast<int>(-count))
                    : "sent descriptors");
    return false;
  }
  end_ += static_cast<std::size_t>(count);
  return true;
}

// Turns the next complete request, if there is one, into a reply.
bool DataServer::Session::take_request() {
  fabric::FrameHeader header{};
  if (end_ - begin_ < sizeof header) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  if (header.length > fabric::max_frame_bytes || header.has_fd != 0 ||
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
    reply_.prepare(*server_->arena, request_);
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
      fabric::send_some(socket_.get(), std::span(&part, 1), -1);
      end("told to send garbage");
      return false;
    }
    batch_ = reply_.next();
    if (batch_.empty()) {
      replying_ = false;
      server_->served.fetch_add(reply_.payload_bytes(), std::memory_order_relaxed);
      reply_.clear();
      base::fault_point("data-reply", FaultPhase::after);
      return true;
    }
    if (!first) base::fault_point("data-reply", FaultPhase::half);
  }
  const auto sent = fabric::send_some(socket_.get(), batch_, -1);
  if (sent == -EAGAIN || sent == -EWOULDBLOCK) {
    wait(Wait::room);
    return false;
  }
  if (sent < 0) {
    end(fabric::errno_text(static_cast<int>(-sent)));
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

DataServer::DataServer(std::shared_ptr<memory::Arena> arena) : impl_(std::make_shared<Impl>(std::move(arena))) {}

DataServer::~DataServer() {
  if (!impl_->loop || impl_->origin.leave(impl_)) return;
  impl_->loop->call([this] {
    for (auto* session : std::set(impl_->sessions)) session->end("the writer is closed");
  });
}

void DataServer::adopt(memory::UniqueFd socket, std::string peer_name) {
  fabric::set_blocking(socket.get(), false);
  fabric::set_stream_options(socket.get());
  std::call_once(impl_->needed, [this] { impl_->loop = SocketLoop::shared(); });
  auto session = std::make_shared<Session>(impl_, std::move(socket), std::move(peer_name));
  impl_->loop->post([session] { session->start(); });
}

std::uint64_t DataServer::bytes_served() const { return impl_->served.load(std::memory_order_relaxed); }
std::size_t DataServer::connections() const { return impl_->count.load(); }

}  // namespace penstock::transport
