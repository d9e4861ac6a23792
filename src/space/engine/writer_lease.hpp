// Whether the writer of a stream in a space lives. Rank 0 keeps an entry in the pool's directory under a lease, which ends a while
// after its process. Application threads.
#pragma once

#include <cstdint>
#include <memory>

#include "space/engine/step_records.hpp"

namespace penstock::space {

class WriterLease {
 public:
  // Throws Error: forbidden (a directory's address for readers), timeout, peer_lost.
  WriterLease(std::shared_ptr<pool::PoolClient> client, std::uint64_t incarnation, base::Deadline deadline);
  // Ends the lease: after the marks that say how the stream ended. A directory that does not answer lets it end by itself.
  ~WriterLease();
  WriterLease(const WriterLease&) = delete;
  WriterLease& operator=(const WriterLease&) = delete;

  struct Held;

 private:
  std::shared_ptr<Held> held_;
};

// False: the writer of the stream that find_stream has found had a lease, which has ended. A directory that does not answer says nothing.
bool writer_lives(pool::PoolClient& client, const StreamRecord& record, base::Deadline deadline);

}  // namespace penstock::space
