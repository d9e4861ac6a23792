// The bulk connection between two processes, served by the thread of the SocketLoop: bulk_wire.hpp says what travels. Bytes go straight between the socket and the memory that they are for. This module's own.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/bulk_exposures.hpp"
#include "transport/tcp/bulk_wire.hpp"
#include "transport/tcp/socket_loop.hpp"

namespace penstock::transport {

// A pull or push of this side. `memory` is looked at with the mutex held, by the link's thread while it moves bytes; drop
// takes it away.
class BulkTransfer {
 public:
  BulkTransfer(std::shared_ptr<fabric::Progress> owner, bool push, std::uint64_t exposure,
               std::vector<BulkRange> ranges, std::byte* memory);
  void drop() {
    std::lock_guard lock(mutex);
    memory = nullptr;
  }

  const std::shared_ptr<fabric::Progress> progress;  // outlives the promise
  fabric::Promise<void> done;
  const bool push;
  const std::uint64_t exposure;
  const std::vector<BulkRange> ranges;
  std::mutex mutex;
  std::byte* memory;  // guarded by the mutex; null: dropped

  // The link's.
  std::size_t range = 0;  // the next to ask for, and from where in it
  std::uint64_t range_at = 0;
  std::uint64_t position = 0;  // in memory, of what was asked for
  unsigned outstanding = 0;    // messages that are not answered
  std::optional<Error> error;
};

class BulkLink : public SocketLoop::Handler, public std::enable_shared_from_this<BulkLink> {
 public:
  // on_lost: once, on the link's thread, unless close() came first.
  BulkLink(std::shared_ptr<SocketLoop> loop, memory::UniqueFd socket, std::shared_ptr<Exposures> exposures,
           std::string peer_name, std::function<void(const Error&)> on_lost);
  ~BulkLink() override;
  void start();
  // Any thread. After the end, the transfer fails.
  void submit(std::shared_ptr<BulkTransfer> transfer);
  void close();

 private:
  // A message that is being sent. Its body is memory of an exposure or of a transfer.
  struct Out {
    std::vector<std::byte> head;
    std::vector<std::span<const std::byte>> body;
    std::uint64_t body_bytes = 0;
    bool has_trailer = false;
    BulkTrailer trailer = 0;
    std::shared_ptr<Exposure::State> exposure;
    std::shared_ptr<BulkTransfer> transfer;
    std::uint64_t sent = 0;
    std::size_t part = 0;  // of the body, where `sent` lies in it
    std::uint64_t part_at = 0;
  };
  struct Asked {
    std::shared_ptr<BulkTransfer> transfer;
    std::uint64_t position = 0, bytes = 0;
  };
  enum class Reading { header, ranges, body, trailer };

  void on_events(std::uint32_t events) override;
  void end(const Error& error);
  // Requests.
  void pump(const std::shared_ptr<BulkTransfer>& transfer);
  void send_pull(const std::shared_ptr<BulkTransfer>& transfer);
  void send_push(const std::shared_ptr<BulkTransfer>& transfer);
  void answered(std::uint64_t id, std::uint32_t code);
  // Writing.
  void write();
  std::ptrdiff_t write_some(Out& out);
  void advance(Out& out, std::uint64_t bytes);
  void send_done(std::uint64_t id, std::uint32_t code);
  // Reading.
  void read();
  bool process();
  void take_header();
  void take_ranges();
  void take_trailer();
  std::byte* body_target();
  std::mutex* body_mutex();
  bool receive();

  const std::shared_ptr<SocketLoop> loop_;
  const std::shared_ptr<Exposures> exposures_;
  const std::string peer_name_;
  memory::UniqueFd socket_;
  std::function<void(const Error&)> on_lost_;
  bool ended_ = false;
  bool watching_writes_ = false;
  std::deque<Out> out_;
  std::unordered_map<std::uint64_t, Asked> asked_;
  std::uint64_t next_id_ = 1;

  Reading reading_ = Reading::header;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  BulkHeader header_;
  std::uint64_t body_at_ = 0;
  std::shared_ptr<Exposure::State> into_exposure_;
  std::shared_ptr<BulkTransfer> into_transfer_;
  std::uint64_t into_offset_ = 0;
  std::uint32_t refusal_ = 0;
};

}  // namespace penstock::transport
