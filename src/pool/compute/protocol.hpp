// Messages between a server and its compute workers, over a socket pair with fabric's framing (u32 length, u16 kind, u16
// has_fd). Little-endian numbers; text is a u32 length and bytes. python/penstock/compute_worker.py speaks it too.
//
//   worker   hello                          once, when it is ready
//   server   segment (with descriptor) ...  the memory files that hold the inputs
//            call
//   worker   want_file                      when the result is larger than max_inline_bytes, at most once a call
//   server   file (with descriptor), or refuse
//   worker   reply
//
// decode_* check lengths and ranges and return owned values, whatever the bytes; they throw Error(protocol). Whether a
// reply belongs to the call under way is for the caller to check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/types.hpp"

namespace penstock::pool::compute {

inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t max_inline_bytes = 64u << 10;
inline constexpr std::size_t max_message_text = 16u << 10;  // of an error
inline constexpr std::size_t max_functions = 1u << 12;
// What a server accepts from a worker in one frame.
inline constexpr std::size_t max_reply_bytes = 1u << 20;
inline constexpr std::size_t max_segments = 64;  // of one call

enum class Frame : std::uint16_t {
  segment = 1,
  call = 2,
  file = 3,
  refuse = 4,
  hello = 16,
  want_file = 17,
  reply = 18,
};

enum class WorkerKind : std::uint8_t { native = 0, python = 1 };

struct Hello {
  WorkerKind kind = WorkerKind::native;
  std::vector<std::string> functions;  // of plug-ins
  std::vector<std::string> problems;   // plug-ins that could not be loaded, and why
};

struct SegmentMessage {
  std::uint32_t index = 0;
  std::uint64_t file_bytes = 0;
};

struct CallInput {
  std::string name;
  DType dtype = DType::none;
  Dims shape;
  std::optional<Dims> start;
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct CallMessage {
  std::uint64_t id = 0;
  std::uint64_t result_bytes = 0;  // the most it may give
  std::string module;              // Python: the file
  std::string function;
  std::string arguments;
  std::vector<CallInput> inputs;
};

// want_file and file.
struct FileMessage {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
};

struct Reply {
  std::uint64_t id = 0;
  Errc status = Errc::ok;
  std::string message;  // why it failed
  DType dtype = DType::none;
  Dims shape;
  std::uint64_t bytes = 0;
  bool in_file = false;
  std::string info;
  std::vector<std::byte> data;  // bytes long when inline and ok, else empty
};

using Encoded = std::vector<std::byte>;
Encoded encode(const Hello&);
Encoded encode(const SegmentMessage&);
Encoded encode(const CallMessage&);
Encoded encode(const FileMessage&);
Encoded encode(const Reply&);

Hello decode_hello(std::span<const std::byte>);
SegmentMessage decode_segment(std::span<const std::byte>);
CallMessage decode_call(std::span<const std::byte>);
FileMessage decode_file(std::span<const std::byte>);
Reply decode_reply(std::span<const std::byte>);

// Text from outside, fit for a log or a terminal: at most `longest` bytes, control characters but line ends blanked.
std::string printable(std::string_view text, std::size_t longest);

}  // namespace penstock::pool::compute
