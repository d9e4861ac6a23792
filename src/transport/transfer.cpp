#include "transport/transfer.hpp"

#include "base/clock.hpp"

namespace penstock::transport {

namespace {

// What an operation of a healthy network takes at most: it moves a part of a transfer.
constexpr Timeout patience{500};

}  // namespace

void Transfer::drop() {
  {
    std::unique_lock lock(mutex);
    dropped = true;
    if (owner) return;
    if (idle.wait_for(lock, patience, [this] { return busy == 0; })) return;
  }
  cut();
}

void Transfer::settle() {
  if (done || outstanding > 0 || (!error && next < parts.size())) return;
  done = true;
  if (on_done) on_done(error ? &*error : nullptr);
}

void Transfer::fail(const Error& why) {
  if (!error) error = why;
  settle();
}

}  // namespace penstock::transport
