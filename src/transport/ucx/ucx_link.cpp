#include "transport/ucx/ucx_link.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "fabric/connection.hpp"
#include "fabric/socket.hpp"
#include "penstock/version.hpp"
#include "transport/ucx/part.hpp"

namespace penstock::transport {

namespace {

constexpr std::size_t greeting_bytes = sizeof(std::uint64_t) + sizeof(std::uint16_t);

// This socket's own, or its peer's. Of sockets of this host: the loopback.
Address address_of(int socket, int (*get)(int, sockaddr*, socklen_t*)) {
  Address address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (get(socket, generic, &address.size) != 0) throw Error(Errc::peer_lost, "the connection is gone");
  if (address.storage.ss_family == AF_INET || address.storage.ss_family == AF_INET6) return address;
  auto& loopback = reinterpret_cast<sockaddr_in&>(address.storage);
  loopback = {};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.size = sizeof loopback;
  return address;
}

}  // namespace

UcxLink::UcxLink(LinkSide side)
    : source_(std::move(side.source)),
      peer_name_(std::move(side.peer_name)),
      accepted_(side.accepted),
      socket_(std::move(side.socket)),
      on_end_(std::move(side.on_end)) {
  fabric::set_blocking(socket_.get(), false);
}

UcxLink::~UcxLink() = default;

// ---------------------------------------------------------------------------------------------------------- beginning

void UcxLink::start() {
  loop_->post([self = shared_from_this()] {
    if (self->ended_) return;
    try {
      self->worker_ = UcxWorker::shared(self->loop_);
      self->number_ = self->worker_->add(*self);
      self->loop_->add(self, self->socket_.get());
      if (self->accepted_) self->greet();
    } catch (const Error& error) {
      self->end(self->in_words(error));
    }
  });
}

// Where the side that connected finds this one.
void UcxLink::greet() {
  const std::uint16_t port = worker_->listen(address_of(socket_.get(), ::getsockname));
  std::array<std::byte, greeting_bytes> bytes;
  std::memcpy(bytes.data(), &number_, sizeof number_);
  std::memcpy(bytes.data() + sizeof number_, &port, sizeof port);
  const iovec part{bytes.data(), bytes.size()};
  if (fabric::send_some(socket_.get(), std::span(&part, 1), -1) != static_cast<std::ptrdiff_t>(bytes.size()))
    throw Error(Errc::peer_lost, "closed the connection");
}

// The connecting side's first message brings the endpoint to answer on; the answer to it says that this side may ask. UCX does
// not keep messages in order: nothing else is sent before.
void UcxLink::on_hello(const Head& head, ucp_ep_h endpoint) {
  if (begun_ || (accepted_ && (endpoint == nullptr || !worker_->claim(endpoint, *this)))) {
    fail_later(Error(Errc::protocol, "begins a link that has begun"));
    return;
  }
  begun_ = true;
  try {
    if (accepted_) {
      endpoint_ = endpoint;
      peer_number_ = head.id;
      send({.kind = Kind::hello}, {}, {}, {}, {});
    }
    ask();
  } catch (const std::exception& error) {
    fail_later(Error(Errc::memory, error.what()));
  }
}

void UcxLink::on_events(std::uint32_t) {
  const auto self = shared_from_this();
  try {
    read_socket();
    if (!ended_) ask();
  } catch (const Error& error) {
    end(in_words(error));
  } catch (const std::exception& error) {
    end(in_words(Error(Errc::internal, error.what())));
  }
  if (worker_) worker_->advance();
}

// The peer's greeting, and later its end.
void UcxLink::read_socket() {
  std::byte bytes[64];
  const iovec part{bytes, sizeof bytes};
  const auto count = fabric::receive_parts(socket_.get(), std::span(&part, 1));
  if (count == -EAGAIN || count == -EWOULDBLOCK) return;
  if (count < 0) throw Error(Errc::peer_lost, fabric::errno_text(static_cast<int>(-count)));
  if (count == 0) throw Error(Errc::peer_lost, "closed the connection");
  if (accepted_ || greeting_.size() + static_cast<std::size_t>(count) > greeting_bytes)
    throw Error(Errc::protocol, "sent what is no greeting");
  greeting_.insert(greeting_.end(), bytes, bytes + count);
  if (greeting_.size() < greeting_bytes) return;
  std::uint16_t port = 0;
  std::memcpy(&peer_number_, greeting_.data(), sizeof peer_number_);
  std::memcpy(&port, greeting_.data() + sizeof peer_number_, sizeof port);
  auto to = address_of(socket_.get(), ::getpeername);
  to.set_port(port);
  endpoint_ = worker_->connect(to, *this);
  send({.id = number_, .kind = Kind::hello}, {}, {}, {}, {});
}

Error UcxLink::in_words(const Error& error) const { return peer_name_.empty() ? error : error.in(peer_name_); }

// -------------------------------------------------------------------------------------------------------------- ending

void UcxLink::close() {
  loop_->post([self = shared_from_this()] {
    self->on_end_ = nullptr;
    self->end(self->in_words(Error(Errc::peer_lost, "the channel is closed")));
  });
}

void UcxLink::fail_later(Error error) {
  loop_->post([self = shared_from_this(), error = std::move(error)] { self->end(self->in_words(error)); });
}

void UcxLink::end(const Error& error) {
  if (ended_) return;
  ended_ = error;
  const auto self = shared_from_this();
  loop_->remove(*this, socket_.get());
  socket_.reset();
  if (worker_) worker_->remove(number_);
  if (endpoint_ != nullptr && !worker_->close(endpoint_, operations_))
    base::log(base::Level::error, "UCX did not end what it was doing; the memory concerned is kept",
              {{"peer", peer_name_}, {"operations", std::to_string(operations_)}});
  endpoint_ = nullptr;
  if (worker_) worker_->advance();
  requests_.clear();
  for (auto& asking : std::exchange(waiting_, {})) {
    asking.transfer->outstanding = 0;
    if (!asking.transfer->done) asking.transfer->fail(error);
  }
  for (auto& [id, question] : std::exchange(questions_, {})) {
    question.transfer->outstanding = 0;
    if (!question.transfer->done) question.transfer->fail(error);
  }
  if (const auto tell = std::exchange(on_end_, nullptr)) tell(error);
}

// ---------------------------------------------------------------------------------------------------------- operations

// behind: goes with the head. bytes: stay where they are until done is called; owned: a place for them here.
void UcxLink::send(Head head, std::span<const std::byte> behind, std::vector<std::byte> owned,
                   std::span<const std::byte> bytes, Done done) {
  head.link = peer_number_;
  auto operation = std::make_unique<Operation>();
  operation->link = shared_from_this();
  operation->header.resize(sizeof head + behind.size());
  std::memcpy(operation->header.data(), &head, sizeof head);
  std::copy(behind.begin(), behind.end(), operation->header.begin() + sizeof head);
  operation->bytes = std::move(owned);
  if (bytes.empty()) bytes = operation->bytes;
  operation->done = std::move(done);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = [](void* request, ucs_status_t status, void* user) {
    std::unique_ptr<Operation> ended(static_cast<Operation*>(user));
    auto& link = *ended->link;
    --link.operations_;
    link.settle(std::move(ended), request, status);
  };
  param.user_data = operation.get();
  if (head.kind == Kind::hello && !accepted_) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
  }
  void* const request = ucp_am_send_nbx(endpoint_, 0, operation->header.data(), operation->header.size(), bytes.data(),
                                        bytes.size(), &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    settle(std::move(operation), nullptr, request == nullptr ? UCS_OK : UCS_PTR_STATUS(request));
  } else {
    ++operations_;
    static_cast<void>(operation.release());  // its callback's
  }
}

void UcxLink::receive(const Data& data, std::span<std::byte> into, std::vector<std::byte> owned, Done done) {
  auto operation = std::make_unique<Operation>();
  operation->link = shared_from_this();
  operation->bytes = std::move(owned);
  operation->done = std::move(done);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user) {
    std::unique_ptr<Operation> ended(static_cast<Operation*>(user));
    auto& link = *ended->link;
    --link.operations_;
    link.settle(std::move(ended), request, status);
  };
  param.user_data = operation.get();
  void* const request = ucp_am_recv_data_nbx(worker_->get(), data.data, into.data(), into.size(), &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) {
    settle(std::move(operation), nullptr, request == nullptr ? UCS_OK : UCS_PTR_STATUS(request));
  } else {
    ++operations_;
    static_cast<void>(operation.release());
  }
}

void UcxLink::settle(std::unique_ptr<Operation> operation, void* request, ucs_status_t status) {
  if (request != nullptr) ucp_request_free(request);
  if (status != UCS_OK && !ended_) fail_later(error_of(status, "UCX lost it"));
  try {
    if (operation->done) operation->done(status);
  } catch (const Error& error) {
    fail_later(error);
  } catch (const std::exception& error) {
    fail_later(Error(Errc::internal, error.what()));
  }
}

ucs_status_t UcxLink::on_message(const Head& head, std::span<const std::byte> behind, Data data) {
  try {
    if (endpoint_ == nullptr) throw Error(Errc::protocol, "sends before the link has begun");
    switch (head.kind) {
      case Kind::hello: break;  // on_hello
      case Kind::read: {
        if (data.bytes > fabric::max_frame_bytes) throw Error(Errc::protocol, "asks in too many words");
        if (!data.rendezvous) {
          take_request({data.here().begin(), data.here().end()});
          return UCS_OK;
        }
        const auto frame = std::make_shared<std::vector<std::byte>>(data.bytes);
        receive(data, *frame, {}, [this, frame](ucs_status_t status) {
          if (status == UCS_OK && !ended_) take_request(std::move(*frame));
        });
        return UCS_OK;
      }
      case Kind::write: take_write(head, behind, data); return UCS_OK;
      case Kind::body:
      case Kind::answer: {
        const auto at = questions_.find(head.id);
        if (at == questions_.end()) throw Error(Errc::protocol, "answered what was not asked");
        if (head.kind == Kind::body) take_body(at, data);
        else take_answer(at, head, data);
        return UCS_OK;
      }
    }
    throw Error(Errc::protocol, "sent what is neither an answer nor a request for data");
  } catch (const Error& error) {
    fail_later(error);
  } catch (const std::exception& error) {
    fail_later(Error(Errc::internal, error.what()));
  }
  return UCS_OK;
}

namespace {

std::shared_ptr<ServedLink> make_link(LinkSide side) { return std::make_shared<UcxLink>(std::move(side)); }

}  // namespace

}  // namespace penstock::transport

const penstock::base::PartHead* penstock_ucx_part() {
  using namespace penstock::transport;
  static constexpr UcxPart part{{PENSTOCK_VERSION}, &make_link};
  return &part;
}
