// Readers that do not keep to the protocol, against a healthy writer in another process.
//
// intruder        a wrong token at the handshake of each purpose, and a right one for another stream
// hostile-reader  every message kind as bytes that are none, with default fields, with absurd fields, before and after
//                 joining; impossible reads; mailboxes that lie
#include <poll.h>

#include "fabric/socket.hpp"
#include "hostile.hpp"
#include "wire/data.hpp"

namespace penstock::fault {

namespace {

using base::Deadline;
using fabric::Reach;
using fabric::UniqueFd;
using memory::Mailbox;
using wire::Message;

// Reads on until the peer closes ("closed") or, when it does not, for `patience` ("open").
std::string fate_of(int socket, Timeout patience) {
  const Deadline deadline(patience);
  for (;;) {
    pollfd entry{socket, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(deadline.remaining().count())) <= 0) return "open";
    std::byte waste[4096];
    std::vector<UniqueFd> fds;
    const auto count = fabric::receive_some(socket, waste, fds);
    if (count == 0 || (count < 0 && count != -EAGAIN)) return "closed";
    if (deadline.passed()) return "open";
  }
}

void join(int socket) {
  Bytes bytes;
  wire::encode(Message{.kind = wire::Kind::join, .ranks = 1, .text = "hostile:1"}, bytes);
  send_frame(socket, static_cast<std::uint16_t>(wire::Kind::join), bytes);
  await_frame(socket, static_cast<std::uint16_t>(wire::Kind::admit));
}

void tell(const std::string& attack, const std::string& fate) { say("attack " + fate + " " + attack); }

// -------------------------------------------------------------------------------------------------------- hostile reader

void attack_with_messages(const fabric::Registration& to, Reach reach, bool joined) {
  for (std::uint16_t kind = 0; kind < wire::kind_count; ++kind) {
    for (const std::string shape : shapes) {
      const UniqueFd socket = connect(to, wire::Purpose::join, reach);
      if (joined) join(socket.get());
      send_frame(socket.get(), kind, message_of(kind, shape));
      // What is legal there does not end the connection: a join, a poke, the release of the first step, which it was
      // told of. The driver knows.
      const auto name = std::string(wire::name_of(static_cast<wire::Kind>(kind)));
      const bool legal = shape != "noise" && shape != "empty" &&
                         (joined ? name == "poke" || (name == "release" && shape == "defaults") : name == "join");
      tell((joined ? "joined " : "not-joined ") + name + " " + shape,
           fate_of(socket.get(), legal ? Timeout(20) : answer_time));
    }
  }
}

void attack_with_mailboxes(const fabric::Registration& to) {
  constexpr auto mailbox = static_cast<std::uint16_t>(wire::Kind::mailbox);
  constexpr auto doorbell = static_cast<std::uint16_t>(wire::Kind::doorbell);
  for (const auto& file : odd_files(memory::whole_pages(sizeof(Mailbox)))) {
    const UniqueFd socket = connect(to, wire::Purpose::join, Reach::unix_only);
    send_frame(socket.get(), mailbox, {}, file.fd.get());
    tell(std::string("mailbox ") + file.name, fate_of(socket.get(), answer_time));
  }
  for (const auto& file : odd_files(4096)) {
    Mailing mailing;
    const UniqueFd socket = connect(to, wire::Purpose::join, Reach::unix_only);
    send_frame(socket.get(), mailbox, {}, mailing.segment.fd());
    send_frame(socket.get(), doorbell, {}, file.fd.get());
    tell(std::string("doorbell ") + file.name, fate_of(socket.get(), answer_time));
  }
  for (const auto& lie : lies()) {
    Mailing mailing;
    const UniqueFd socket = connect(to, wire::Purpose::join, Reach::unix_only);
    send_frame(socket.get(), mailbox, {}, mailing.segment.fd());
    send_frame(socket.get(), doorbell, {}, mailing.bell.fd());
    join(socket.get());
    lie.tell(mailing.box());
    send_frame(socket.get(), static_cast<std::uint16_t>(wire::Kind::poke),
               message_of(static_cast<std::uint16_t>(wire::Kind::poke), "defaults"));
    // Read counts are looked at with the next record that is sent to this reader, which may be never.
    tell(std::string("ring ") + lie.name,
         fate_of(socket.get(), lie.name == std::string("more read than sent") ? Timeout(50) : answer_time));
  }
}

Bytes request_of(const std::function<void(wire::DataRequest&, wire::DataPiece&)>& change) {
  wire::DataRequest request{.id = 1};
  wire::DataPiece piece;
  piece.ndims = 1;
  piece.count[0] = 64;
  piece.strides[0] = 1;
  change(request, piece);
  request.pieces.push_back(piece);
  Bytes bytes;
  wire::encode(request, bytes);
  return bytes;
}

// What the server makes of a request: "closed" when it refuses, in words or by closing; "open" when bytes come.
std::string answer_of(int socket) {
  try {
    const auto reply = wire::decode_data_reply(await_frame(socket, static_cast<std::uint16_t>(wire::DataKind::reply)));
    return reply.status == Errc::ok ? "open" : "closed";
  } catch (const Error& error) {
    return error.code() == Errc::peer_lost ? "closed" : "open";
  }
}

void attack_data_server(const fabric::Registration& to) {
  using Request = wire::DataRequest;
  using Piece = wire::DataPiece;
  const std::vector<std::pair<const char*, Bytes>> requests = {
      {"noise", noise(300)},
      {"empty", {}},
      {"no such slot", request_of([](Request& r, Piece&) { r.slot = ~0u; })},
      {"no such step", request_of([](Request& r, Piece&) { r.region = ~0ull; })},
      {"no such segment", request_of([](Request&, Piece& p) { p.segment = ~0u; })},
      {"far offset", request_of([](Request&, Piece& p) { p.offset = 1ull << 62; })},
      {"offset that wraps", request_of([](Request&, Piece& p) { p.offset = ~0ull; })},
      {"huge count", request_of([](Request&, Piece& p) { p.count[0] = 1ull << 39; })},
      {"overflowing count", request_of([](Request&, Piece& p) { p.count[0] = ~0ull; })},
      {"backwards", request_of([](Request&, Piece& p) { p.strides[0] = -(1ll << 61); })},
      {"no stride", request_of([](Request&, Piece& p) { p.count[0] = 1ull << 28, p.strides[0] = 0; })},
      {"least stride", request_of([](Request&, Piece& p) { p.strides[0] = INT64_MIN; })},
      {"elements of no size", request_of([](Request&, Piece& p) { p.elem_size = 0; })},
  };
  for (const auto& [name, bytes] : requests) {
    const UniqueFd socket = connect(to, wire::Purpose::data, Reach::tcp_only);
    send_frame(socket.get(), static_cast<std::uint16_t>(wire::DataKind::read_request), bytes);
    tell(std::string("read ") + name, answer_of(socket.get()));
  }
}

}  // namespace

int run_intruder(const Arguments& arguments) {
  auto to = registration_of(arguments);
  to.token.bytes.back() ^= 1;
  using wire::Purpose;
  for (const auto purpose : {Purpose::join, Purpose::tree, Purpose::data, Purpose::segments, Purpose::inspect}) {
    for (const auto reach : {Reach::unix_only, Reach::tcp_only}) {
      const std::string name = std::string(wire::name_of(purpose)) + (reach == Reach::unix_only ? " shm" : " tcp");
      try {
        connect(to, purpose, reach);
        say("intruder let-in " + name);
      } catch (const Error& error) {
        say("intruder " + std::string(penstock::name_of(error.code())) + " " + name);
      }
    }
  }
  // A token that is right: to look at the writer's statistics, and for a stream that is not.
  try {
    to = registration_of(arguments);
    await_frame(connect(to, Purpose::inspect, Reach::automatic).get(),
                static_cast<std::uint16_t>(wire::Kind::statistics));
    to.stream += "x";
    connect(to, Purpose::join, Reach::automatic);
    say("intruder let-in other stream");
  } catch (const Error& error) {
    say("intruder " + std::string(penstock::name_of(error.code())) + " other stream");
  }
  return 0;
}

int run_hostile_reader(const Arguments& arguments) {
  const auto to = registration_of(arguments);
  for (const auto reach : {Reach::unix_only, Reach::tcp_only}) {
    attack_with_messages(to, reach, false);
    attack_with_messages(to, reach, true);
  }
  attack_with_mailboxes(to);
  {
    const UniqueFd socket = connect(to, wire::Purpose::segments, Reach::unix_only);
    send_frame(socket.get(), static_cast<std::uint16_t>(wire::DataKind::segment_announce), noise(40));
    tell("segments noise", fate_of(socket.get(), answer_time));
  }
  attack_data_server(to);
  say("attacks over");
  return 0;
}

}  // namespace penstock::fault
