// Memory for requests and transfers, which is taken before they begin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "fabric/task.hpp"

namespace penstock::rpc {

using fabric::Task;

// Memory credits of a process: transfers and requests take what they need before they begin. Smaller ones may overtake a
// waiting larger one, but not for ever (each waiter is overtaken at most max_overtakes times). Engine thread.
class Budget {
 public:
  Budget(fabric::Progress& progress, std::uint64_t bytes);
  ~Budget();
  class Credit {  // given back by the destructor (engine thread or any other)
   public:
    Credit() = default;
    Credit(Credit&&) noexcept;
    Credit& operator=(Credit&&) noexcept;
    ~Credit();
    std::uint64_t bytes() const { return bytes_; }

   private:
    friend class Budget;
    struct Owner;
    std::shared_ptr<Owner> owner_;
    std::uint64_t bytes_ = 0;
  };
  // Throws Error(timeout); Error(invalid_argument) for more than there is in all.
  Task<Credit> acquire(std::uint64_t bytes, base::Deadline deadline);
  // At once, or nothing: not while others wait.
  std::optional<Credit> try_acquire(std::uint64_t bytes);
  std::uint64_t total_bytes() const;
  std::uint64_t free_bytes() const;
  std::uint64_t waiting() const;
  static constexpr int max_overtakes = 64;

 private:
  std::shared_ptr<Credit::Owner> owner_;
};

}  // namespace penstock::rpc
