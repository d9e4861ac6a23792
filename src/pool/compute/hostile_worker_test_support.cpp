// A worker that breaks the protocol in the way that its plug-in argument names; for compute_workers_test.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "pool/compute/protocol.hpp"

using namespace penstock;
using namespace penstock::pool::compute;

namespace {

constexpr int server = 3;

void send_bytes(const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const auto sent = ::send(server, at, size, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void send_frame(Frame kind, const Encoded& payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  const auto number = static_cast<std::uint16_t>(kind);
  char header[8] = {};
  std::memcpy(header, &length, 4);
  std::memcpy(header + 4, &number, 2);
  send_bytes(header, sizeof header);
  send_bytes(payload.data(), payload.size());
}

// Until the server says something; then the call's id, which is 1 for the first.
void wait_for_call() {
  char bytes[4096];
  if (::recv(server, bytes, sizeof bytes, 0) <= 0) ::_exit(0);
}

// Until the server has hung up.
void wait_for_the_end() {
  char bytes[4096];
  while (::recv(server, bytes, sizeof bytes, 0) > 0) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 2 ? argv[2] : "";
  const std::string way = path.substr(path.rfind('/') + 1);
  if (way == "bad_hello") {
    send_frame(Frame::hello, Encoded(40, std::byte{0x5a}));
    wait_for_the_end();
    return 0;
  }
  if (way == "dies_at_start") return 9;
  if (way == "silent_start") {
    wait_for_the_end();
    return 0;
  }
  send_frame(Frame::hello, encode(Hello{WorkerKind::native, {"f"}, {}}));
  wait_for_call();
  Reply reply;
  reply.id = 1;
  if (way == "noise") {
    send_bytes(std::string(1 << 16, '\xa5').data(), 1 << 16);
  } else if (way == "short_reply") {
    auto bytes = encode(reply);
    bytes.resize(bytes.size() / 2);
    send_frame(Frame::reply, bytes);
  } else if (way == "wrong_id") {
    reply.id = 99;
    send_frame(Frame::reply, encode(reply));
  } else if (way == "wrong_shape") {
    reply.dtype = DType::float64;
    reply.shape = {std::uint64_t{1} << 40, std::uint64_t{1} << 40};
    reply.bytes = 8;
    reply.data.resize(8);
    send_frame(Frame::reply, encode(reply));
  } else if (way == "file_that_is_not") {
    reply.in_file = true;
    reply.bytes = 1u << 20;
    send_frame(Frame::reply, encode(reply));
  } else if (way == "file_out_of_bounds") {
    send_frame(Frame::want_file, encode(FileMessage{1, 100'000}));
    reply.in_file = true;
    reply.bytes = std::uint64_t{1} << 40;
    send_frame(Frame::reply, encode(reply));
  } else if (way == "two_hellos") {
    send_frame(Frame::hello, encode(Hello{WorkerKind::native, {"f"}, {}}));
  } else if (way == "hangs_up") {
    ::shutdown(server, SHUT_RDWR);
    ::close(server);
    ::pause();
  } else if (way == "bad_status") {
    reply.status = Errc::stale_view;
    send_frame(Frame::reply, encode(reply));
  }
  wait_for_the_end();
  return 0;
}
