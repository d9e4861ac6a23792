#include "pool/compute/protocol.hpp"

#include <algorithm>
#include <cstring>

#include "pool/compute/function.hpp"

namespace penstock::pool::compute {

namespace {

constexpr std::uint32_t magic = 0x31435350;  // "PSC1"

class Writer {
 public:
  template <class T>
    requires std::is_integral_v<T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
  }
  void put(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  void put(const Dims& dims) {
    put(static_cast<std::uint8_t>(dims.size()));
    for (const auto size : dims) put(size);
  }
  void put_bytes(std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
  Encoded out;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text(std::size_t longest) {
    const auto size = number<std::uint32_t>();
    if (size > longest) refuse("text that is too long");
    const auto bytes = take(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  Dims dims() {
    const auto ndims = number<std::uint8_t>();
    if (ndims > max_dims) refuse("too many dimensions");
    Dims dims = Dims::filled(ndims, 0);
    for (auto& size : dims) size = number<std::uint64_t>();
    return dims;
  }
  DType dtype() {
    const auto value = number<std::uint8_t>();
    if (value >= dtype_count) refuse("no such element type");
    return static_cast<DType>(value);
  }
  bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) refuse("a flag that is neither 0 nor 1");
    return value == 1;
  }
  // How many items follow, of which each takes `least` bytes.
  std::uint32_t count(std::size_t most, std::size_t least) {
    const auto value = number<std::uint32_t>();
    if (value > most || value > rest_.size() / least) refuse("a list longer than the message");
    return value;
  }
  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) refuse("a message that is too short");
    const auto bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }
  std::size_t left() const { return rest_.size(); }
  void end() const {
    if (!rest_.empty()) refuse("a message that is too long");
  }
  [[noreturn]] static void refuse(const std::string& what) { throw Error(Errc::protocol, "compute: " + what); }

 private:
  std::span<const std::byte> rest_;
};

// Bytes of the elements; refuses what overflows.
std::uint64_t array_bytes(DType dtype, const Dims& shape) {
  std::uint64_t bytes = size_of(dtype);
  for (const auto size : shape)
    if (size == 0) return 0;
  for (const auto size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) Reader::refuse("an array that is too large");
  return bytes;
}

// No elements without a size, and as many bytes as the shape says.
void check_array(DType dtype, const Dims& shape, std::uint64_t bytes) {
  if (size_of(dtype) == 0 ? !shape.empty() : array_bytes(dtype, shape) != bytes)
    Reader::refuse("a shape that does not fit its bytes");
}

// What a worker may say of its failure; the rest is the server's to find.
bool is_worker_status(Errc code) {
  return code == Errc::ok || code == Errc::invalid_argument || code == Errc::not_found ||
         code == Errc::unknown_option || code == Errc::unsupported || code == Errc::memory || code == Errc::system ||
         code == Errc::internal;
}

}  // namespace

Encoded encode(const Hello& hello) {
  Writer w;
  w.put(magic);
  w.put(protocol_version);
  w.put(static_cast<std::uint8_t>(hello.kind));
  for (const auto* list : {&hello.functions, &hello.problems}) {
    w.put(static_cast<std::uint32_t>(list->size()));
    for (const auto& text : *list) w.put(std::string_view(text));
  }
  return std::move(w.out);
}

Hello decode_hello(std::span<const std::byte> bytes) {
  Reader r(bytes);
  if (r.number<std::uint32_t>() != magic) Reader::refuse("a greeting in another language");
  if (r.number<std::uint16_t>() != protocol_version) Reader::refuse("a worker of another version");
  Hello hello;
  hello.kind = r.flag() ? WorkerKind::python : WorkerKind::native;
  for (auto* list : {&hello.functions, &hello.problems})
    for (auto left = r.count(max_functions, 4); left > 0; --left)
      list->push_back(printable(r.text(max_message_text), max_message_text));
  r.end();
  return hello;
}

Encoded encode(const SegmentMessage& segment) {
  Writer w;
  w.put(segment.index);
  w.put(segment.file_bytes);
  return std::move(w.out);
}

SegmentMessage decode_segment(std::span<const std::byte> bytes) {
  Reader r(bytes);
  SegmentMessage segment;
  segment.index = r.number<std::uint32_t>();
  segment.file_bytes = r.number<std::uint64_t>();
  if (segment.index >= max_segments) Reader::refuse("too many memory files");
  r.end();
  return segment;
}

Encoded encode(const CallMessage& call) {
  Writer w;
  w.put(call.id);
  w.put(call.result_bytes);
  w.put(std::string_view(call.module));
  w.put(std::string_view(call.function));
  w.put(std::string_view(call.arguments));
  w.put(static_cast<std::uint32_t>(call.inputs.size()));
  for (const auto& input : call.inputs) {
    w.put(std::string_view(input.name));
    w.put(static_cast<std::uint8_t>(input.dtype));
    w.put(input.shape);
    w.put(static_cast<std::uint8_t>(input.start.has_value()));
    if (input.start) w.put(*input.start);
    w.put(input.segment);
    w.put(input.offset);
    w.put(input.bytes);
  }
  return std::move(w.out);
}

CallMessage decode_call(std::span<const std::byte> bytes) {
  Reader r(bytes);
  CallMessage call;
  call.id = r.number<std::uint64_t>();
  call.result_bytes = r.number<std::uint64_t>();
  call.module = r.text(max_message_text);
  call.function = r.text(max_message_text);
  call.arguments = r.text(max_arguments_bytes);
  const auto count = r.count(max_inputs, 27);
  for (std::uint32_t i = 0; i < count; ++i) {
    CallInput input;
    input.name = r.text(max_name_bytes);
    input.dtype = r.dtype();
    input.shape = r.dims();
    if (r.flag()) input.start = r.dims();
    if (input.start && input.start->size() != input.shape.size()) Reader::refuse("a box of another shape");
    input.segment = r.number<std::uint32_t>();
    input.offset = r.number<std::uint64_t>();
    input.bytes = r.number<std::uint64_t>();
    if (input.segment >= max_segments || input.offset + input.bytes < input.offset) Reader::refuse("no such memory");
    check_array(input.dtype, input.shape, input.bytes);
    call.inputs.push_back(std::move(input));
  }
  r.end();
  return call;
}

Encoded encode(const FileMessage& file) {
  Writer w;
  w.put(file.id);
  w.put(file.bytes);
  return std::move(w.out);
}

FileMessage decode_file(std::span<const std::byte> bytes) {
  Reader r(bytes);
  FileMessage file;
  file.id = r.number<std::uint64_t>();
  file.bytes = r.number<std::uint64_t>();
  r.end();
  return file;
}

Encoded encode(const Reply& reply) {
  Writer w;
  w.put(reply.id);
  w.put(static_cast<std::uint16_t>(reply.status));
  w.put(std::string_view(reply.message).substr(0, max_message_text));
  w.put(static_cast<std::uint8_t>(reply.dtype));
  w.put(reply.shape);
  w.put(reply.bytes);
  w.put(static_cast<std::uint8_t>(reply.in_file));
  w.put(std::string_view(reply.info));
  w.put_bytes(reply.data);
  return std::move(w.out);
}

Reply decode_reply(std::span<const std::byte> bytes) {
  Reader r(bytes);
  Reply reply;
  reply.id = r.number<std::uint64_t>();
  reply.status = static_cast<Errc>(r.number<std::uint16_t>());
  if (!is_worker_status(reply.status)) Reader::refuse("a status that no worker may give");
  reply.message = printable(r.text(max_message_text), max_message_text);
  reply.dtype = r.dtype();
  reply.shape = r.dims();
  reply.bytes = r.number<std::uint64_t>();
  reply.in_file = r.flag();
  reply.info = r.text(max_info_bytes);
  if (reply.status != Errc::ok) {
    r.end();
    return reply;
  }
  check_array(reply.dtype, reply.shape, reply.bytes);
  if (reply.dtype == DType::string) Reader::refuse("a result of strings");
  if (!reply.in_file) {
    if (reply.bytes > max_inline_bytes || reply.bytes != r.left()) Reader::refuse("a result of another length");
    const auto data = r.take(reply.bytes);
    reply.data.assign(data.begin(), data.end());
  }
  r.end();
  return reply;
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string clean(text.substr(0, longest));
  for (char& c : clean)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = ' ';
  return clean;
}

}  // namespace penstock::pool::compute
