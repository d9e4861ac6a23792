// A read or a write of a peer's memory, as who wants it gives it to a link (link.hpp). This module's own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "model/plan.hpp"
#include "penstock/error.hpp"

namespace penstock::transport {

class Transfer {
 public:
  // Filled before the transfer is submitted.
  struct Part {
    model::Piece piece;  // its source lies at the peer, whichever way the bytes go. Of a write: a range of bytes
    std::byte* memory = nullptr;  // what the destination's offsets count from
  };
  bool write = false;
  std::uint64_t region = 0;  // wire::DataRequest says what these name
  std::uint32_t slot = 0;
  bool ordered = false;  // a read whose parts may overlap here: they take effect in order
  std::vector<Part> parts;
  // Once, in the link's thread; null: it went well. A write's memory may be touched until drop(): a peer may answer early.
  std::function<void(const Error* why)> on_done;

  std::shared_ptr<const void> owner;  // of the parts' memory; null: the caller, who must not be left with it in use

  // Any thread but the link's. Nothing touches the parts' memory any more once this returns: if the network still uses it, waits
  // 500 ms, and then closes the link. With an owner it waits for nobody.
  void drop();

  std::mutex mutex;  // held while the memory is touched, or `busy` is changed
  bool dropped = false;
  unsigned busy = 0;  // operations of the network on the memory, which go on without the mutex
  std::condition_variable idle;
  std::function<void()> cut;  // of the link that has such operations: returns when there are none

  // The link's.
  std::size_t next = 0;      // the first part that is not asked for
  unsigned outstanding = 0;  // requests that are not answered
  std::optional<Error> error;
  bool done = false;
  // Says that it is done, when it is.
  void settle();
  void fail(const Error& why);
};

using TransferPtr = std::shared_ptr<Transfer>;

}  // namespace penstock::transport
