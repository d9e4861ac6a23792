#include "hostile.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fabric/socket.hpp"

namespace penstock::fault {

using fabric::FrameHeader;
using fabric::Reach;
using fabric::UniqueFd;
using memory::Mailbox;
using wire::Message;

fabric::Registration registration_of(const Arguments& arguments) {
  const fabric::Directory directory(arguments.text("directory"));
  const auto found = directory.read(arguments.text("stream", "s"));
  if (!found) throw Error(Errc::not_found, "no such stream");
  return *found;
}

UniqueFd connect(const fabric::Registration& to, wire::Purpose purpose, Reach reach) {
  const bool data = purpose == wire::Purpose::data;
  const wire::Hello hello{.purpose = purpose, .rank = 1, .stream = to.stream, .plane = data ? "tcp" : ""};
  return fabric::connect_blocking(to.endpoint, to.token, hello, reach, base::Deadline(answer_time));
}

Bytes noise(std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = 12345;
  for (auto& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

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
    message.addresses = {std::string(300, 'u')};
  }
  Bytes bytes;
  wire::encode(message, bytes);
  return bytes;
}

void send_frame(int socket, std::uint16_t kind, const Bytes& bytes, int fd) {
  FrameHeader header{static_cast<std::uint32_t>(bytes.size()), kind, static_cast<std::uint16_t>(fd >= 0 ? 1 : 0)};
  Bytes all(sizeof header);
  std::memcpy(all.data(), &header, sizeof header);
  all.insert(all.end(), bytes.begin(), bytes.end());
  const iovec part{all.data(), all.size()};
  fabric::send_some(socket, std::span(&part, 1), fd);  // the peer may be gone already
}

Bytes await_frame(int socket, std::uint16_t kind) {
  Bytes seen;
  const base::Deadline deadline(answer_time);
  for (;;) {
    FrameHeader header{};
    while (seen.size() >= sizeof header) {
      std::memcpy(&header, seen.data(), sizeof header);
      if (seen.size() < sizeof header + header.length) break;
      const auto first = seen.begin() + sizeof header;
      if (header.kind == kind) return Bytes(first, first + static_cast<std::ptrdiff_t>(header.length));
      seen.erase(seen.begin(), first + static_cast<std::ptrdiff_t>(header.length));
    }
    pollfd entry{socket, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(deadline.remaining().count())) <= 0)
      throw Error(Errc::timeout, "no frame of kind " + std::to_string(kind) + " in time");
    std::byte some[4096];
    std::vector<UniqueFd> fds;
    const auto count = fabric::receive_some(socket, some, fds);
    if (count == 0) throw Error(Errc::peer_lost, "the end instead of a frame of kind " + std::to_string(kind));
    if (count > 0) seen.insert(seen.end(), some, some + count);
  }
}

namespace {

UniqueFd plain_file(std::size_t bytes) {
  UniqueFd fd(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw Error(Errc::system, "no memory file");
  return fd;
}

}  // namespace

std::vector<OddFile> odd_files(std::size_t right_size) {
  std::vector<OddFile> files;
  files.push_back({"unsealed", plain_file(right_size)});
  files.push_back({"short", plain_file(100)});
  files.push_back({"device", UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))});
  files.push_back({"directory", UniqueFd(::open("/", O_RDONLY | O_CLOEXEC))});
  return files;
}

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
    all.push_back({std::string(wire::name_of(static_cast<wire::Kind>(kind))), record(kind)});
  return all;
}

}  // namespace penstock::fault
