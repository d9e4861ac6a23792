// A channel's parts, as this module's sources see them. Which thread touches what stands beside it.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/fork.hpp"
#include "rpc/channel.hpp"
#include "rpc/deadlines.hpp"
#include "rpc/envelope.hpp"
#include "transport/carrier.hpp"

namespace penstock::rpc {

// Whether a service is one of Penstock itself: users of pools and directories do not know its methods.
inline bool is_own(std::string_view service) {
  return service.starts_with("penstock.") && service.find(".fb.") != std::string_view::npos;
}

struct Channel::Impl : std::enable_shared_from_this<Channel::Impl>, transport::Carrier {
  Impl(std::shared_ptr<Progress> progress, std::shared_ptr<fabric::Connection> connection,
       std::shared_ptr<const ServiceTable> services, ServerOptions options);
  ~Impl() override;

  // Appends to the frame that goes next. Any thread; nothing is sent after the end.
  template <class F>
  void send_item(F append) {
    std::lock_guard lock(out_mutex);
    append(out);
    send_soon();
  }
  void flush();

  void start(std::weak_ptr<Channel> owner);
  void end(const Error& error, bool hang_up = true);  // engine thread
  void finish(bool hang_up);                          // any thread
  bool behind() const;                                // the peer does not read as fast as we send

  // For its bulk memory.
  void pass(std::string_view name, std::span<const std::byte> message, int fd) override;
  std::shared_ptr<void> keep() override { return has_ended ? nullptr : owner.lock(); }
  std::weak_ptr<transport::Carrier> weak() override { return weak_from_this(); }
  bool ended() const override { return has_ended; }
  void fail(const Error& error) override { end(error); }
  bool local() const override { return connection->local(); }
  const transport::Plane* plane() const override { return options.plane; }
  const std::string& peer_name() const override { return connection->peer_name(); }
  const std::shared_ptr<Progress>& engine() const override { return progress; }

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
  std::unique_ptr<transport::LinkEnd> bulk;
  std::weak_ptr<Channel> owner;
  std::atomic<bool> has_ended{false};

  struct Counters {
    std::atomic<std::uint64_t> calls_made{0}, calls_served{0}, frames_sent{0};
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

    // "service.Method"; "" for those of Penstock itself.
    std::string what() const {
      if (is_own(service)) return "";
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

}  // namespace penstock::rpc
