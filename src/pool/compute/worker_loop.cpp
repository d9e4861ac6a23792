#include "pool/compute/worker_loop.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <system_error>

#include "memory/mapping.hpp"
#include "penstock/compute.hpp"
#include "pool/compute/function.hpp"
#include "pool/compute/plugins.hpp"
#include "pool/compute/protocol.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace penstock::pool::compute {

namespace {

using memory::Mapping;
using memory::UniqueFd;

[[noreturn]] void fail_errno(const std::string& what) {
  throw Error(Errc::system, what + ": " + std::generic_category().message(errno));
}

struct Received {
  Frame kind{};
  Encoded bytes;
  UniqueFd fd;
};

// Fabric's frames, blocking.
class Channel {
 public:
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {}

  void send(Frame kind, const Encoded& bytes) {
    Encoded out(8);
    const auto length = static_cast<std::uint32_t>(bytes.size());
    const auto number = static_cast<std::uint16_t>(kind);
    std::memcpy(out.data(), &length, 4);
    std::memcpy(out.data() + 4, &number, 2);
    out.insert(out.end(), bytes.begin(), bytes.end());
    for (std::size_t at = 0; at < out.size();) {
      const auto sent = ::send(socket_.get(), out.data() + at, out.size() - at, MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) fail_errno("sending to the server");
      if (sent > 0) at += static_cast<std::size_t>(sent);
    }
  }
  // Empty when the server is gone.
  std::optional<Received> receive() {
    Received received;
    std::byte header[8];
    if (!fill(header, sizeof header, &received.fd)) return std::nullopt;
    std::uint32_t length = 0;
    std::uint16_t kind = 0;
    std::memcpy(&length, header, 4);
    std::memcpy(&kind, header + 4, 2);
    received.kind = static_cast<Frame>(kind);
    received.bytes.resize(length);
    if (!fill(received.bytes.data(), length, nullptr)) return std::nullopt;
    return received;
  }

 private:
  bool fill(std::byte* into, std::size_t size, UniqueFd* fd) {
    for (std::size_t at = 0; at < size;) {
      iovec part{into + at, size - at};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      if (fd != nullptr) message.msg_control = control, message.msg_controllen = sizeof control;
      const auto count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != ECONNRESET) fail_errno("receiving from the server");
      if (count <= 0) return false;
      at += static_cast<std::size_t>(count);
      const cmsghdr* head = fd != nullptr ? CMSG_FIRSTHDR(&message) : nullptr;
      if (head == nullptr || head->cmsg_type != SCM_RIGHTS) continue;
      int received = -1;
      std::memcpy(&received, CMSG_DATA(head), sizeof received);
      fd->reset(received);
    }
    return true;
  }
  UniqueFd socket_;
};

Mapping map(int fd, std::uint64_t offset, std::uint64_t bytes, int protection) {
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) fail_errno("mapping " + std::to_string(bytes) + " bytes");
  return {static_cast<std::byte*>(address), bytes};
}

// One call's inputs, mapped for as long as it lives.
class Mapped {
 public:
  Mapped(const CallMessage& call, const std::map<std::uint32_t, UniqueFd>& segments) {
    static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    // What is close together is mapped once: a step's blocks are often neighbours.
    struct Reach {
      std::uint64_t begin, end;
    };
    std::map<std::uint32_t, Reach> reaches;
    for (const auto& input : call.inputs) {
      if (input.bytes == 0) continue;
      auto& reach = reaches.try_emplace(input.segment, Reach{input.offset, input.offset}).first->second;
      reach.begin = std::min(reach.begin, input.offset / page * page);
      reach.end = std::max(reach.end, input.offset + input.bytes);
    }
    std::map<std::uint32_t, const std::byte*> bases;
    for (auto& [index, reach] : reaches) {
      const auto segment = segments.find(index);
      if (segment == segments.end()) throw Error(Errc::protocol, "an input in memory that was not sent");
      reach.begin = reach.begin / page * page;
      mappings_.push_back(map(segment->second.get(), reach.begin, reach.end - reach.begin, PROT_READ));
      bases[index] = mappings_.back().data() - reach.begin;
    }
    for (const auto& input : call.inputs) {
      const std::byte* data = input.bytes == 0 ? nullptr : bases[input.segment] + input.offset;
      if (input.bytes >= worth_populating) populate(data, input.bytes, page);
      add(input, data);
    }
  }
  std::vector<Input> inputs;

 private:
  static constexpr std::uint64_t worth_populating = 256u << 10;

  // All page-table entries at once instead of a fault for every few; a kernel that cannot (before 5.14) goes without.
  static void populate(const std::byte* data, std::uint64_t bytes, std::uint64_t page) {
    const auto first = reinterpret_cast<std::uintptr_t>(data) / page * page;
    ::madvise(reinterpret_cast<void*>(first), reinterpret_cast<std::uintptr_t>(data) + bytes - first,
              MADV_POPULATE_READ);
  }
  void add(const CallInput& input, const std::byte* data) {
    const auto size = std::min<std::size_t>(16, std::max<std::size_t>(1, size_of(input.dtype)));
    if (reinterpret_cast<std::uintptr_t>(data) % size != 0) {  // functions may count on aligned elements
      copies_.emplace_back(data, data + input.bytes);
      data = copies_.back().data();
    }
    Input made{input.name, input.dtype, input.shape, std::nullopt, {data, input.bytes}};
    if (input.start) made.box = Box{*input.start, input.shape};
    inputs.push_back(std::move(made));
  }
  std::vector<Mapping> mappings_;
  std::vector<std::vector<std::byte>> copies_;
};

class Worker {
 public:
  Worker(UniqueFd socket, const std::vector<std::string>& paths) : channel_(std::move(socket)), plugins_(paths) {}

  void serve() {
    channel_.send(Frame::hello, encode(Hello{WorkerKind::native, plugins_.names(), plugins_.problems()}));
    while (auto received = channel_.receive()) {
      if (received->kind == Frame::segment) {
        segments_[decode_segment(received->bytes).index] = std::move(received->fd);
      } else if (received->kind == Frame::call) {
        answer(decode_call(received->bytes));
        segments_.clear();
      } else {
        throw Error(Errc::protocol, "the server sent something that is no call");
      }
    }
  }

 private:
  void answer(const CallMessage& call) {
    Reply reply;
    reply.id = call.id;
    inline_.clear();
    file_ = Mapping();
    try {
      const Mapped mapped(call, segments_);
      Output output([&](std::uint64_t bytes) { return allocate(call, bytes); });
      if (const auto function = plugins_.find(call.function)) run_plugin(function, mapped, call, output);
      else if (const Builtin* builtin = find_builtin(call.function))
        builtin->function(mapped.inputs, call.arguments, output, Stop());
      else throw Error(Errc::not_found, "the worker has no function '" + call.function + "'");
      reply.dtype = output.dtype;
      reply.shape = output.shape;
      reply.bytes = output.bytes;
      reply.info = output.info;
      reply.in_file = static_cast<bool>(file_);
      if (!reply.in_file) reply.data = std::move(inline_);
    } catch (const Error& error) {
      reply.status = error.code();
      reply.message = error.what();
    } catch (const std::bad_alloc&) {
      reply.status = Errc::memory;
      reply.message = "out of memory";
    } catch (const std::exception& error) {
      reply.status = Errc::invalid_argument;
      reply.message = error.what();
    }
    channel_.send(Frame::reply, encode(reply));
  }

  std::byte* allocate(const CallMessage& call, std::uint64_t bytes) {
    inline_.clear();
    if (bytes > call.result_bytes)
      throw Error(Errc::memory, "a result of " + std::to_string(bytes) + " bytes is larger than the " +
                                    std::to_string(call.result_bytes) + " allowed");
    if (bytes <= max_inline_bytes) {
      file_ = Mapping();
      inline_.resize(bytes);
      return inline_.data();
    }
    if (asked_ == call.id) throw Error(Errc::invalid_argument, "it gave two large results");
    asked_ = call.id;
    channel_.send(Frame::want_file, encode(FileMessage{call.id, bytes}));
    const auto answer = channel_.receive();
    if (!answer) throw Error(Errc::system, "the server is gone");
    if (answer->kind != Frame::file) throw Error(Errc::memory, "the server has no room for the result");
    file_ = map(answer->fd.get(), 0, bytes, PROT_READ | PROT_WRITE);
    return file_.data();
  }

  // What a plug-in's callbacks work on.
  struct Context {
    Output& output;
    std::string failure;
    std::optional<Error> error;
  };

  static void* plugin_output(void* context, std::uint64_t bytes, std::uint32_t dtype, std::uint32_t ndims,
                             const std::uint64_t* shape) {
    auto& self = *static_cast<Context*>(context);
    try {
      // One byte at least, so that null means failure only.
      static std::byte nothing[1];
      std::byte* data = nullptr;
      if (dtype == 0) {
        data = self.output.raw(bytes);
      } else {
        if (dtype >= dtype_count || ndims > max_dims) throw Error(Errc::invalid_argument, "no such array");
        data = self.output.array(static_cast<DType>(dtype), Dims(std::span(shape, ndims)));
        if (self.output.bytes != bytes) throw Error(Errc::invalid_argument, "a shape that does not fit its bytes");
      }
      return bytes == 0 ? nothing : data;
    } catch (const Error& error) {
      self.error = error;
    } catch (const std::exception& error) {
      self.error = Error(Errc::memory, error.what());
    }
    return nullptr;
  }

  static void run_plugin(decltype(penstock_compute_entry::function) function, const Mapped& mapped,
                         const CallMessage& call, Output& output) {
    std::vector<penstock_compute_input> inputs;
    for (const auto& input : mapped.inputs) {
      penstock_compute_input made{};
      made.name = input.name.data();
      made.name_bytes = input.name.size();
      made.dtype = static_cast<std::uint32_t>(input.dtype);
      made.ndims = static_cast<std::uint32_t>(input.shape.size());
      std::copy(input.shape.begin(), input.shape.end(), made.shape);
      made.has_start = input.box.has_value();
      if (input.box) std::copy(input.box->start.begin(), input.box->start.end(), made.start);
      made.data = input.bytes.data();
      made.bytes = input.bytes.size();
      inputs.push_back(made);
    }
    Context context{output, {}, {}};
    penstock_compute_call made{};
    made.size = sizeof made;
    made.inputs = inputs.data();
    made.input_count = inputs.size();
    made.arguments = call.arguments.c_str();
    made.context = &context;
    made.output = plugin_output;
    made.info = [](void* c, const char* text, std::uint64_t bytes) {
      static_cast<Context*>(c)->output.info.assign(text, std::min<std::uint64_t>(bytes, max_info_bytes));
    };
    made.fail = [](void* c, const char* text, std::uint64_t bytes) {
      static_cast<Context*>(c)->failure.assign(text, std::min<std::uint64_t>(bytes, max_message_text));
    };
    const int result = function(&made);
    if (context.error) throw *context.error;
    if (result == 2) throw Error(Errc::memory, context.failure.empty() ? "out of memory" : context.failure);
    if (result != 0)
      throw Error(Errc::invalid_argument,
                  context.failure.empty() ? "it returned " + std::to_string(result) : context.failure);
  }

  Channel channel_;
  Plugins plugins_;
  std::map<std::uint32_t, UniqueFd> segments_;
  std::uint64_t asked_ = 0;  // the call that asked for a file; calls count from 1
  std::vector<std::byte> inline_;
  Mapping file_;
};

}  // namespace

void serve_calls(UniqueFd socket, const std::vector<std::string>& plugins) {
  Worker(std::move(socket), plugins).serve();
}

}  // namespace penstock::pool::compute
