// What hostile peers say and send: bytes, messages, descriptors and mailboxes that are wrong in every way but one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fabric/connect.hpp"
#include "fabric/registration.hpp"
#include "memory/doorbell.hpp"
#include "memory/ring.hpp"
#include "peer.hpp"
#include "wire/control.hpp"

namespace penstock::fault {

using Bytes = std::vector<std::byte>;

inline constexpr Timeout answer_time{5000};
inline constexpr const char* shapes[] = {"noise", "empty", "defaults", "absurd"};

fabric::Registration registration_of(const Arguments& arguments);
memory::UniqueFd connect(const fabric::Registration& to, wire::Purpose purpose, fabric::Reach reach);

// The same bytes each time.
Bytes noise(std::size_t size);
// A message of the kind, wrong in one of the shapes. Absurd numbers are the largest that decode.
Bytes message_of(std::uint16_t kind, const std::string& shape);
// On a socket; the peer may be gone already.
void send_frame(int socket, std::uint16_t kind, const Bytes& bytes, int fd = -1);
// Reads on until a whole frame of the kind has come, and returns its bytes. Throws Error(timeout, peer_lost).
Bytes await_frame(int socket, std::uint16_t kind);

// Descriptors that are not what they should be: the right size without seals, too short, a device, a directory.
struct OddFile {
  const char* name;
  memory::UniqueFd fd;
};
std::vector<OddFile> odd_files(std::size_t right_size);

// A mailbox of one's own with anything in it.
struct Mailing {
  memory::Segment segment = memory::Segment::create(sizeof(memory::Mailbox));
  memory::Doorbell bell = memory::Doorbell::create();
  memory::Mailbox& box() { return *reinterpret_cast<memory::Mailbox*>(segment.data()); }
};
struct Lie {
  std::string name;
  std::function<void(memory::Mailbox&)> tell;
};
// Impossible counters, and one record of every kind with absurd numbers.
std::vector<Lie> lies();

}  // namespace penstock::fault
