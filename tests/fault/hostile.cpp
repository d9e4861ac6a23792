// Peers that do not keep to the protocol: without the token, or with it and something to break.
//
// intruder        a wrong token at the handshake of each purpose
// hostile-reader  every message kind with bytes that are none, with default fields, with absurd fields, before and after
//                 joining; impossible reads; a mailbox that lies
// hostile-writer  the same towards a reader (in this process), in place of an admission and after it
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <mutex>

#include "fabric/connect.hpp"
#include "fabric/listener.hpp"
#include "fabric/registration.hpp"
#include "fabric/socket.hpp"
#include "memory/doorbell.hpp"
#include "memory/ring.hpp"
#include "peer.hpp"
#include "wire/control.hpp"
#include "wire/data.hpp"

namespace penstock::fault {

namespace {

using base::Deadline;
using fabric::FrameHeader;
using fabric::Reach;
using fabric::UniqueFd;
using memory::Mailbox;
using wire::Message;

using Bytes = std::vector<std::byte>;
constexpr Timeout answer_time{5000};

fabric::Registration registration_of(const Arguments& arguments) {
  const fabric::Directory directory(arguments.text("directory"));
  const auto found = directory.read(arguments.text("stream", "s"));
  if (!found) throw Error(Errc::not_found, "no such stream");
  return *found;
}

UniqueFd connect(const fabric::Registration& to, wire::Purpose purpose, Reach reach) {
  const wire::Hello hello{.purpose = purpose, .rank = 1, .stream = to.stream};
  return fabric::connect_blocking(to.endpoint, to.token, hello, reach, Deadline(answer_time));
}

// ------------------------------------------------------------------------------------------------- what to say wrongly

constexpr const char* shapes[] = {"noise", "empty", "defaults", "absurd"};

Bytes noise(std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = 12345;
  for (auto& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

// A message of the kind, wrong in one of the shapes. Absurd numbers are the largest that decode.
Bytes message_of(std::uint16_t kind, const std::string& shape) {
  if (shape == "noise") return noise(200);
  if (shape == "empty") return {};
  Message message{.kind = static_cast<wire::Kind>(kind)};
  if (shape == "absurd") {
    message.step = message.epoch = message.value = ~std::uint64_t{0};
    message.slot = wire::max_slots;
    message.ranks = wire::max_ranks;
    message.flag = true;
    message.text = std::string(4096, 'x');
    const auto layout = std::make_shared<const std::string>("no layout");
    message.layouts = {{wire::max_ranks - 1, layout}, {0, layout}, {0, layout}};
    message.endpoints = {{.unix_name = std::string(300, 'u'), .tcp_hosts = {"no.such.host.invalid"}, .tcp_port = 1}};
  }
  Bytes bytes;
  wire::encode(message, bytes);
  return bytes;
}

void send_frame(int socket, std::uint16_t kind, const Bytes& bytes, int fd = -1) {
  FrameHeader header{static_cast<std::uint32_t>(bytes.size()), kind, static_cast<std::uint16_t>(fd >= 0 ? 1 : 0)};
  Bytes all(sizeof header);
  std::memcpy(all.data(), &header, sizeof header);
  all.insert(all.end(), bytes.begin(), bytes.end());
  const iovec part{all.data(), all.size()};
  fabric::send_some(socket, std::span(&part, 1), fd);  // the peer may be gone already
}

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

// Until the writer has admitted: a whole frame of that kind has come.
void await_admission(int socket) {
  Bytes seen;
  const Deadline deadline(answer_time);
  for (;;) {
    FrameHeader header{};
    while (seen.size() >= sizeof header) {
      std::memcpy(&header, seen.data(), sizeof header);
      if (seen.size() < sizeof header + header.length) break;
      seen.erase(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(sizeof header + header.length));
      if (header.kind == static_cast<std::uint16_t>(wire::Kind::admit)) return;
    }
    pollfd entry{socket, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(deadline.remaining().count())) <= 0)
      throw Error(Errc::timeout, "the writer did not admit the hostile reader");
    std::byte some[4096];
    std::vector<UniqueFd> fds;
    const auto count = fabric::receive_some(socket, some, fds);
    if (count == 0) throw Error(Errc::peer_lost, "the writer did not admit the hostile reader");
    if (count > 0) seen.insert(seen.end(), some, some + count);
  }
}

void join(int socket) {
  Bytes bytes;
  wire::encode(Message{.kind = wire::Kind::join, .ranks = 1, .text = "hostile:1"}, bytes);
  send_frame(socket, static_cast<std::uint16_t>(wire::Kind::join), bytes);
  await_admission(socket);
}

void tell(const std::string& attack, const std::string& fate) { say("attack " + fate + " " + attack); }

// --------------------------------------------------------------------------------------------------------- memory files

UniqueFd plain_file(std::size_t bytes) {
  UniqueFd fd(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw Error(Errc::system, "no memory file");
  return fd;
}

struct OddFile {
  const char* name;
  UniqueFd fd;
};
std::vector<OddFile> odd_files(std::size_t right_size) {
  std::vector<OddFile> files;
  files.push_back({"unsealed", plain_file(right_size)});
  files.push_back({"short", plain_file(100)});
  files.push_back({"device", UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))});
  files.push_back({"directory", UniqueFd(::open("/", O_RDONLY | O_CLOEXEC))});
  return files;
}

// A mailbox of one's own with anything in it.
struct Mailing {
  memory::Segment segment = memory::Segment::create(sizeof(Mailbox));
  memory::Doorbell bell = memory::Doorbell::create();
  Mailbox& box() { return *reinterpret_cast<Mailbox*>(segment.data()); }
};

struct Lie {
  const char* name;
  std::function<void(Mailbox&)> tell;
};
std::vector<Lie> lies() {
  const auto record = [](std::uint32_t kind) {
    return [kind](Mailbox& box) {
      box.entries[0][0] = kind | (std::uint64_t{3} << 32);  // slot 3
      for (int i = 1; i < 8; ++i) box.entries[0][i] = ~std::uint64_t{0};
      box.head = 1;
    };
  };
  std::vector<Lie> all = {
      {"head far ahead", [](Mailbox& box) { box.head = ~std::uint64_t{0}; }},
      {"head beyond capacity", [](Mailbox& box) { box.head = Mailbox::capacity + 1; }},
      {"all records empty", [](Mailbox& box) { box.head = Mailbox::capacity; }},
      {"more read than sent", [](Mailbox& box) { box.tail_seen = 1u << 30; }},
      {"record of no kind", record(0xa5a5a5a5)},
  };
  for (std::uint16_t kind = 1; kind < wire::kind_count; ++kind)
    all.push_back({wire::name_of(static_cast<wire::Kind>(kind)).data(), record(kind)});
  return all;
}

// -------------------------------------------------------------------------------------------------------- hostile reader

void attack_with_messages(const fabric::Registration& to, Reach reach, bool joined) {
  for (std::uint16_t kind = 0; kind < wire::kind_count; ++kind) {
    for (const std::string shape : shapes) {
      const UniqueFd socket = connect(to, wire::Purpose::join, reach);
      if (joined) join(socket.get());
      send_frame(socket.get(), kind, message_of(kind, shape));
      // What is legal there does not end the connection: a join, a poke; the driver knows.
      const auto name = std::string(wire::name_of(static_cast<wire::Kind>(kind)));
      const bool legal = shape != "noise" && shape != "empty" && (joined ? name == "poke" : name == "join");
      tell((joined ? "joined " : "not-joined ") + name + " " + shape, fate_of(socket.get(), legal ? Timeout(20) : answer_time));
    }
  }
}

void attack_with_mailboxes(const fabric::Registration& to) {
  constexpr auto mailbox = static_cast<std::uint16_t>(wire::Kind::mailbox);
  constexpr auto doorbell = static_cast<std::uint16_t>(wire::Kind::doorbell);
  for (const auto& file : odd_files(sizeof(Mailbox))) {
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
    send_frame(socket.get(), static_cast<std::uint16_t>(wire::Kind::poke), message_of(static_cast<std::uint16_t>(wire::Kind::poke), "defaults"));
    // Read counts are looked at with the next record that is sent to this reader, which may be never.
    tell(std::string("ring ") + lie.name, fate_of(socket.get(), lie.name == std::string("more read than sent") ? Timeout(50) : answer_time));
  }
}

Bytes request_of(const std::function<void(wire::ReadRequest&, wire::ReadPiece&)>& change) {
  wire::ReadRequest request{.id = 1};
  wire::ReadPiece piece;
  piece.ndims = 1;
  piece.count[0] = 64;
  piece.strides[0] = 1;
  change(request, piece);
  request.pieces.push_back(piece);
  Bytes bytes;
  wire::encode(request, bytes);
  return bytes;
}

// Requests that decode are answered, most with an error, and the connection stays; the others end it.
void attack_data_server(const fabric::Registration& to) {
  using Request = wire::ReadRequest;
  using Piece = wire::ReadPiece;
  const std::vector<std::pair<const char*, Bytes>> requests = {
      {"noise", noise(300)},
      {"empty", {}},
      {"no such slot", request_of([](Request& r, Piece&) { r.slot = ~0u; })},
      {"no such step", request_of([](Request& r, Piece&) { r.step = ~0ull; })},
      {"no such segment", request_of([](Request&, Piece& p) { p.segment = ~0u; })},
      {"far offset", request_of([](Request&, Piece& p) { p.offset = 1ull << 62; })},
      {"offset that wraps", request_of([](Request&, Piece& p) { p.offset = ~0ull; })},
      {"huge count", request_of([](Request&, Piece& p) { p.count[0] = 1ull << 39; })},
      {"overflowing count", request_of([](Request&, Piece& p) { p.count[0] = ~0ull; })},
      {"backwards", request_of([](Request&, Piece& p) { p.strides[0] = -(1ll << 61); })},
      {"least stride", request_of([](Request&, Piece& p) { p.strides[0] = INT64_MIN; })},
      {"nine dimensions", request_of([](Request&, Piece& p) { p.elem_size = 0; })},
  };
  for (const auto& [name, bytes] : requests) {
    const UniqueFd socket = connect(to, wire::Purpose::data, Reach::tcp_only);
    send_frame(socket.get(), static_cast<std::uint16_t>(wire::DataKind::read_request), bytes);
    tell(std::string("read ") + name, fate_of(socket.get(), Timeout(30)));
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
  // A token that is right, for a stream that is not.
  to = registration_of(arguments);
  to.stream += "x";
  try {
    connect(to, Purpose::join, Reach::unix_only);
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
