#include "space/engine/writer_lease.hpp"

#include <utility>

#include "penstock/interrupt.hpp"

namespace penstock::space {

struct WriterLease::Held {
  std::shared_ptr<pool::PoolClient> client;
  std::string path;
  std::uint64_t lease = 0;  // on the engine thread, as `ended`
  bool ended = false;
};

namespace {

using HeldPtr = std::shared_ptr<WriterLease::Held>;
using pool::Task;

constexpr std::chrono::seconds lease_ttl(10), lease_ttl_explicit(60);  // beats only when the application makes progress
constexpr Timeout directory_within(1'000);

std::string path_of(std::uint64_t incarnation) { return "/array-streams/" + std::to_string(incarnation); }

Task<void> announce_again(HeldPtr held);

Task<void> announce(HeldPtr held, base::Deadline deadline) {
  auto& directory = *held->client->directory();
  if (held->lease == 0) {
    auto lost = [weak = std::weak_ptr(held)] {
      const auto self = weak.lock();
      if (!self) return;
      self->lease = 0;
      if (!self->ended) fabric::spawn(*self->client->progress(), announce_again(self));
    };
    const std::chrono::milliseconds ttl = held->client->progress()->threaded() ? lease_ttl : lease_ttl_explicit;
    held->lease = co_await directory.grant(ttl, std::move(lost), deadline);
  }
  auto path = held->path;
  std::string value;
  co_await directory.put(std::move(path), std::move(value), std::nullopt, held->lease, deadline);
  if (held->ended) co_await directory.revoke(held->lease, deadline);
}

// The directory was away, or this process was stopped.
Task<void> announce_again(HeldPtr held) {
  while (!held->ended) {
    try {
      const base::Deadline deadline(directory_within);
      co_await announce(held, deadline);
      co_return;
    } catch (const Error& error) {
      base::log(base::Level::warn, "the directory cannot be told of a stream's writer", {{"why", error.what()}});
    }
    co_await fabric::pause_for(*held->client->progress(), std::chrono::milliseconds(500));
  }
}

Task<void> end(HeldPtr held, base::Deadline deadline) {
  held->ended = true;
  if (held->lease != 0) co_await held->client->directory()->revoke(held->lease, deadline);
}

}  // namespace

WriterLease::WriterLease(std::shared_ptr<pool::PoolClient> client, std::uint64_t incarnation, base::Deadline deadline)
    : held_(std::make_shared<Held>()) {
  held_->path = path_of(incarnation);
  auto progress = client->progress();
  held_->client = std::move(client);
  fabric::run_task(*progress, announce(held_, deadline), base::Deadline::never());  // it ends by its own deadline
}

WriterLease::~WriterLease() {
  const Uninterrupted whole;
  try {
    fabric::run_task(*held_->client->progress(), end(held_, base::Deadline(directory_within)), base::Deadline::never());
  } catch (const Error&) {
  }
}

bool writer_lives(pool::PoolClient& client, const StreamRecord& record, base::Deadline deadline) {
  if (!record.leased) return true;
  try {
    auto asking =
        client.directory()->get(path_of(record.incarnation), earlier(deadline, base::Deadline(directory_within)));
    return fabric::run_task(*client.progress(), std::move(asking), base::Deadline::never()).has_value();
  } catch (const Error& error) {
    if (error.code() != Errc::timeout && error.code() != Errc::peer_lost) throw;
    return true;
  }
}

}  // namespace penstock::space
