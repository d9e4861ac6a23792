// Who waits for memory, first come, first served: a later request never overtakes an earlier one, however small it is. But
// there are two queues: what a server keeps in its own books may be what makes room for those who wait in the other one. The
// books have a little memory beside the limit, too: that a stream has ended, or is dropped, can be written when all is full.
//
// A request is one or several objects, granted together or not at all. What makes room (eviction) is the caller's. A request
// that only lacks a mapped segment has a worker map one. Engine thread; the memory itself may be given back on any thread
// (wake).
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fabric/task.hpp"
#include "pool/store/object_memory.hpp"

namespace penstock::pool {

class Credit : public std::enable_shared_from_this<Credit> {
 public:
  using Blobs = std::vector<std::shared_ptr<Blob>>;
  struct Request {
    std::vector<std::uint64_t> sizes;
    std::uint64_t charge = 0;                                // of all
    Blobs begun;                                             // the first of them, while memory for the rest is mapped
    std::function<void(Blobs, std::exception_ptr)> granted;  // called once, never from within ask
  };
  struct Source {
    std::shared_ptr<ObjectMemory> memory;
    // Makes room for so many bytes below the watermarks, if it can.
    std::function<void(std::uint64_t charge)> make_room;
    // Evicts something more; false when there is nothing.
    std::function<bool()> evict_one;
    // Runs a job that blocks on another thread, then done on this one.
    std::function<void(std::function<void()> job, std::function<void(std::exception_ptr)> done)> run_aside;
  };

  Credit(fabric::Progress& progress, Source source) : progress_(progress), source_(std::move(source)) {}

  // At once, when nobody waits (in the books' queue, if it is for the books) and nothing blocks; else empty.
  Blobs try_take(std::span<const std::uint64_t> sizes, std::uint64_t charge, bool books = false);
  // books: small objects only. Throws Error(invalid_argument) for more than there is in all.
  std::shared_ptr<Request> ask(std::vector<std::uint64_t> sizes, std::function<void(Blobs, std::exception_ptr)> granted,
                               bool books = false);
  void withdraw(const std::shared_ptr<Request>& request);
  // Something may have come free.
  void serve();
  // Whether a thread that has given memory back should have serve called: at most one such call is under way.
  bool wake() { return waiting_now_.load() && !waking_.exchange(true); }
  void woken() { waking_ = false; }
  // Everyone who waits gets the error.
  void stop(std::exception_ptr error);
  std::size_t waiting() const { return waiting_.size() + books_.size(); }
  // Whether such objects may be of the books.
  static bool all_small(std::span<const std::uint64_t> sizes);
  std::uint64_t charge_of(std::span<const std::uint64_t> sizes) const;

 private:
  enum class Outcome { granted, later, growing };
  Outcome try_grant(std::span<const std::uint64_t> sizes, std::uint64_t charge, bool books, Blobs& out);
  void serve_books();
  void grow(std::uint64_t bytes);
  void watch();

  fabric::Progress& progress_;
  Source source_;
  std::deque<std::shared_ptr<Request>> waiting_, books_;
  bool growing_ = false, serving_ = false, stopped_ = false;
  std::atomic<bool> waiting_now_{false}, waking_{false};
  fabric::Timer poll_;
};

}  // namespace penstock::pool
