// A channel's parts, as this module's sources see them. Which thread touches what stands beside it.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/fork.hpp"
#include "rpc/bulk.hpp"
#include "rpc/channel.hpp"
#include "rpc/deadlines.hpp"
#include "rpc/envelope.hpp"

namespace penstock::rpc {

class ChannelBulk;

// How the connecting side opens the bulk connection.
struct BulkDoor {
  fabric::Endpoint endpoint;
  fabric::Token token;
  std::string realm_and_role;
  fabric::Reach reach = fabric::Reach::automatic;
};

struct Channel::Impl : std::enable_shared_from_this<Channel::Impl> {
  Impl(std::shared_ptr<Progress> progress, std::shared_ptr<fabric::Connection> connection,
       std::shared_ptr<const ServiceTable> services, ServerOptions options);
  ~Impl();

  // Appends to the frame that goes next. Any thread; nothing is sent after the end.
  template <class F>
  void send_item(F append) {
    std::lock_guard lock(out_mutex);
    append(out);
    send_soon();
  }
  // A frame of its own, after the items before it. fd stays the caller's.
  void send_frame(FrameKind kind, const char* name, std::span<const std::byte> bytes, int fd);
  void flush();

  void start(std::weak_ptr<Channel> owner);
  void end(const Error& error, bool hang_up = true);  // engine thread
  void finish(bool hang_up);                          // any thread
  bool behind() const;                                // the peer does not read as fast as we send

  // Calls made.
  std::uint64_t begin(std::string_view service, std::uint32_t method, std::vector<std::byte> body, CallOptions options,
                      std::unique_ptr<Completion> completion);
  void cancel(std::uint64_t id);

  const base::Origin origin;
  const std::shared_ptr<Progress> progress;
  const std::shared_ptr<fabric::Connection> connection;
  const std::shared_ptr<const ServiceTable> services;
  const ServerOptions options;
  std::string realm, role;
  std::shared_ptr<Budget> budget;
  std::unique_ptr<ChannelBulk> bulk;
  std::weak_ptr<Channel> owner;
  std::atomic<bool> ended{false};

  struct Counters {
    std::atomic<std::uint64_t> calls_made{0}, calls_served{0}, frames_sent{0}, bytes_pulled{0}, bytes_pushed{0};
  } counters;

  std::mutex end_mutex;  // guards what follows
  std::vector<std::function<void(const Error&)>> on_closed;
  std::optional<Error> end_error;

 private:
  // A body that is too long for a frame, exposed until the receiver has it.
  struct LongBody {
    std::vector<std::byte> bytes;
    Exposure exposure;
  };
  struct Pending {
    std::unique_ptr<Completion> completion;
    std::string_view service;
    std::uint32_t method = 0;
    std::string_view method_name;
    base::Deadline deadline = base::Deadline::never();
    std::unique_ptr<LongBody> request;

    std::string what() const {  // "service.Method"
      return std::string(service) + "." + (method_name.empty() ? std::to_string(method) : std::string(method_name));
    }
  };
  struct Serving {
    explicit Serving(std::shared_ptr<Channel> channel, base::Deadline deadline) : call(std::move(channel), deadline) {}
    Call call;
    std::unique_ptr<LongBody> reply;
  };

  void send_soon();     // with out_mutex held
  void flush_locked();  // with out_mutex held
  std::unique_ptr<LongBody> expose_body(std::vector<std::byte> bytes);

  void on_frame(std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd);
  void on_item(Item& item);
  void on_call(const Item& item);
  void on_reply(const Item& item);
  void on_failure(const Item& item);
  void on_due_calls();
  void on_due_serving();
  WireBulk long_request_of(std::uint64_t id);
  std::optional<Pending> take_pending(std::uint64_t id);
  void cancel_serving(std::uint64_t id);
  void reply(std::uint64_t id, const std::shared_ptr<Serving>& serving, std::vector<std::byte> body);
  void fail(std::uint64_t id, const std::shared_ptr<Serving>& serving, const std::string& where, Errc code,
            std::string_view message);
  static fabric::detail::Detached serve(std::shared_ptr<Channel> channel, std::uint64_t id,
                                        std::shared_ptr<Serving> serving, std::shared_ptr<Service> service,
                                        std::uint32_t method, std::vector<std::byte> body,
                                        std::optional<WireBulk> long_body);
  static fabric::detail::Detached fetch(std::shared_ptr<Channel> channel, std::uint64_t id, WireBulk body,
                                        base::Deadline deadline);

  std::mutex out_mutex;  // guards what follows, and the order of frames; taken before the connection's
  std::vector<std::byte> out;
  bool flush_posted = false;

  std::mutex calls_mutex;  // guards what follows
  std::unordered_map<std::uint64_t, Pending> pending;
  std::uint64_t next_call = 1;
  Deadlines call_deadlines;
  std::atomic<std::uint32_t> in_flight{0};

  // The engine's own.
  std::unordered_map<std::uint64_t, std::shared_ptr<Serving>> serving;
  Deadlines serving_deadlines;
  bool delivering = false;
};

// ------------------------------------------------------------------------------------------------------------ bulk's part

// What a channel's bulk memory needs of the channel's events. Engine thread.
class ChannelBulk : public BulkSpace {
 public:
  // A frame of kind segment or leases. Throws Error(protocol, memory, system).
  virtual void on_frame(FrameKind kind, std::span<const std::byte> bytes, memory::UniqueFd fd) = 0;
  virtual void on_item(const Item& item) = 0;  // welcome, want_bulk, atomic, atomic_reply, and failures of atomics
  virtual void end(const Error& error) = 0;
  // The side that accepts: its ticket, and the connection of a peer that had it (blocking mode).
  virtual Ticket make_ticket() = 0;
  virtual void attach(memory::UniqueFd socket) = 0;
  // The side that connects.
  virtual void set_door(BulkDoor door) = 0;
};

std::unique_ptr<ChannelBulk> make_channel_bulk(Channel::Impl& channel);

// Numbers of atomics have this bit, numbers of calls do not.
inline constexpr std::uint64_t atomic_bit = std::uint64_t{1} << 63;

inline BulkDescriptor to_descriptor(const WireBulk& b) {
  return BulkDescriptor(b.id, b.bytes, b.offset, b.segment, static_cast<std::uint8_t>(b.access));
}
inline WireBulk to_wire(const BulkDescriptor& b) { return {b.id(), b.bytes(), b.offset(), b.segment(), b.access()}; }

}  // namespace penstock::rpc
