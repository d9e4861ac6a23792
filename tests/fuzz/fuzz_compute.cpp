// What compute workers send to their server, and callers' arguments. A decoded reply is consistent in itself.
#include "fuzz.hpp"
#include "pool/compute/arguments.hpp"
#include "pool/compute/function.hpp"
#include "pool/compute/protocol.hpp"

using namespace penstock;
using namespace penstock::pool::compute;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { hello, reply, file, call, arguments, builtin, targets };

void check_reply(std::span<const std::byte> bytes) {
  Reply r;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { r = decode_reply(bytes); })) return;
  if (r.status != Errc::ok) return;
  fuzz::check(r.in_file ? r.data.empty() : r.data.size() == r.bytes);
  if (r.dtype != DType::none) fuzz::check(element_count(r.shape) * size_of(r.dtype) == r.bytes);
  fuzz::check(encode(r).size() == bytes.size());
}

// A call's inputs, with no memory behind them, keep what function.hpp's check demands.
void check_call(std::span<const std::byte> bytes) {
  CallMessage c;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { c = decode_call(bytes); })) return;
  fuzz::check(encode(c).size() == bytes.size());
  for (const auto& input : c.inputs)
    fuzz::check(input.segment < max_segments && input.offset + input.bytes >= input.offset &&
                (!input.start || input.start->size() == input.shape.size()));
}

// Arguments from outside never lead a built-in out of its input or its output.
void check_builtin(std::span<const std::byte> bytes) {
  const auto which = static_cast<std::size_t>(bytes[0]) % builtins().size();
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  Input input{"x", DType::float32, {2, 3}, Box{{4, 1}, {2, 3}}, std::as_bytes(std::span(values))};
  std::vector<std::byte> result;
  Output output([&](std::uint64_t size) {
    if (size > (1u << 20)) throw Error(Errc::memory, "too large");
    result.assign(size, {});
    return result.data();
  });
  fuzz::refuses_with({Errc::invalid_argument, Errc::unknown_option, Errc::unsupported, Errc::memory}, [&] {
    builtins()[which].function(std::span(&input, 1), fuzz::text(bytes.subspan(1)), output, Stop());
  });
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  Reply ok;
  ok.id = 1;
  ok.dtype = DType::float64;
  ok.shape = {1, 2};
  ok.bytes = 16;
  ok.info = "{}";
  ok.data.resize(16);
  Reply failed;
  failed.status = Errc::memory;
  failed.message = "out of memory";
  CallMessage message;
  message.function = "f";
  message.inputs.push_back({"x", DType::float32, {2}, Dims{3}, 0, 4096, 8});
  return {choose(hello, encode(Hello{WorkerKind::native, {"f", "g"}, {"no"}})),
          choose(reply, encode(ok)),
          choose(reply, encode(failed)),
          choose(file, encode(FileMessage{1, 1 << 20})),
          choose(call, encode(message)),
          choose(arguments, R"({"bins": 32, "range": [0, 1], "factor": [2, 3], "box": {"start": [1], "count": [2]}})"),
          choose(builtin, "\x03{\"bins\": 3, \"range\": [0, 1e3]}"),
          choose(builtin, "\x04{\"box\": {\"start\": [4, 1], \"count\": [1, 2]}}"),
          choose(builtin, "\x05{\"factor\": [2, 1]}")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case hello: fuzz::refuses_with({Errc::protocol}, [&] { decode_hello(bytes); }); break;
    case reply: check_reply(bytes); break;
    case file: fuzz::refuses_with({Errc::protocol}, [&] { decode_file(bytes); }); break;
    case call: check_call(bytes); break;
    case arguments: {
      static constexpr std::string_view all[] = {"bins", "range", "factor", "box"};
      fuzz::refuses_with({Errc::invalid_argument, Errc::unknown_option},
                         [&] { parse_arguments(fuzz::text(bytes), all); });
      break;
    }
    case builtin: check_builtin(bytes); break;
  }
  return 0;
}
