#include "pool/store/credit.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace penstock::pool {

namespace {

// A lease that ends leaves its object in memory and tells nobody; while somebody waits, what can be evicted is looked at
// again so often.
constexpr std::chrono::milliseconds poll_interval(5);
constexpr std::uint64_t books_beyond = 64 << 10;  // memory that the books may take when there is none left

}  // namespace

std::uint64_t Credit::charge_of(std::span<const std::uint64_t> sizes) const {
  std::uint64_t charge = 0;
  for (const auto size : sizes) {
    const auto one = size > source_.memory->limit() ? size : ObjectMemory::charge_of(size);
    charge += std::min(one, ~std::uint64_t{0} - charge);
  }
  return charge;
}

bool Credit::all_small(std::span<const std::uint64_t> sizes) {
  return std::ranges::all_of(sizes, [](std::uint64_t size) { return size < slab_object_bytes; });
}

// out: those that an earlier try has got, and kept because it was growing.
Credit::Outcome Credit::try_grant(std::span<const std::uint64_t> sizes, std::uint64_t charge, bool books, Blobs& out) {
  const auto rest = [&] {
    auto left = charge;
    for (const auto& blob : out) left -= std::min(left, blob->charged());
    return left;
  };
  source_.make_room(rest());
  auto& memory = *source_.memory;
  if (all_small(sizes)) {
    while (!memory.try_allocate_small(sizes, out))
      if (!source_.evict_one())
        return books && memory.try_allocate_small(sizes, out, books_beyond) ? Outcome::granted : Outcome::later;
    return Outcome::granted;
  }
  out.reserve(sizes.size());
  for (;;) {
    std::size_t refused = 0;
    while (out.size() < sizes.size()) {
      refused = out.size();
      auto blob = memory.try_allocate_mapped(sizes[refused]);
      if (!blob) break;
      out.push_back(std::move(blob));
    }
    if (out.size() == sizes.size()) return Outcome::granted;
    // Those before it stay: what they lie in would be given back to the system when it is much.
    if (memory.used() + rest() <= memory.limit() && memory.could_grow(sizes[refused])) {
      grow(sizes[refused]);
      return Outcome::growing;
    }
    out.clear();
    if (!source_.evict_one()) return Outcome::later;
  }
}

Credit::Blobs Credit::try_take(std::span<const std::uint64_t> sizes, std::uint64_t charge, bool books) {
  Blobs blobs;
  if (stopped_ || !books_.empty() || charge > source_.memory->limit()) return blobs;
  if (!books && (growing_ || !waiting_.empty())) return blobs;
  if (try_grant(sizes, charge, books, blobs) != Outcome::granted) blobs.clear();
  return blobs;
}

std::shared_ptr<Credit::Request> Credit::ask(std::vector<std::uint64_t> sizes,
                                             std::function<void(Blobs, std::exception_ptr)> granted, bool books) {
  const auto charge = charge_of(sizes);
  if (charge > source_.memory->limit())
    throw Error(Errc::invalid_argument, base::format_size(charge) + " of objects do not fit into a memory of " +
                                            base::format_size(source_.memory->limit()));
  auto request = std::make_shared<Request>(Request{std::move(sizes), charge, {}, std::move(granted)});
  (books ? books_ : waiting_).push_back(request);
  waiting_now_ = true;
  // What came free before the flag was set told nobody.
  progress_.post([self = weak_from_this()] {
    if (const auto credit = self.lock()) credit->serve();
  });
  watch();
  return request;
}

void Credit::withdraw(const std::shared_ptr<Request>& request) {
  const auto leads = [&](const auto& queue) { return !queue.empty() && queue.front() == request; };
  const bool first = leads(books_) || leads(waiting_);
  std::erase(waiting_, request);
  std::erase(books_, request);
  request->begun.clear();
  waiting_now_ = waiting() > 0;
  if (first) serve();
}

void Credit::serve() {
  if (serving_) return;
  serving_ = true;
  serve_books();
  while (books_.empty() && !waiting_.empty() && !growing_) {
    const auto request = waiting_.front();
    std::exception_ptr error;
    try {
      if (try_grant(request->sizes, request->charge, false, request->begun) != Outcome::granted) break;
    } catch (...) {
      error = std::current_exception();
      request->begun.clear();
    }
    waiting_.pop_front();
    request->granted(std::exchange(request->begun, {}), error);
  }
  serving_ = false;
  waiting_now_ = waiting() > 0;
  watch();
}

void Credit::serve_books() {
  while (!books_.empty()) {
    const auto request = books_.front();
    Blobs blobs;
    std::exception_ptr error;
    try {
      if (try_grant(request->sizes, request->charge, true, blobs) != Outcome::granted) return;
    } catch (...) {
      error = std::current_exception();
      blobs.clear();
    }
    books_.pop_front();
    request->granted(std::move(blobs), error);
  }
}

void Credit::watch() {
  if (waiting() == 0 || stopped_) {
    poll_ = {};
    return;
  }
  poll_ = progress_.after(poll_interval, [self = weak_from_this()] {
    if (const auto credit = self.lock()) credit->serve();
  });
}

void Credit::grow(std::uint64_t bytes) {
  if (growing_) return;
  growing_ = true;
  source_.run_aside([memory = source_.memory, bytes] { memory->grow(bytes); },
                    [self = weak_from_this()](std::exception_ptr error) {
                      const auto credit = self.lock();
                      if (!credit || credit->stopped_) return;
                      credit->growing_ = false;
                      if (error && !credit->waiting_.empty()) {
                        const auto request = credit->waiting_.front();
                        credit->waiting_.pop_front();
                        request->begun.clear();
                        request->granted({}, error);
                      }
                      credit->serve();
                    });
}

void Credit::stop(std::exception_ptr error) {
  stopped_ = true;
  poll_ = {};
  for (auto& request : std::exchange(books_, {})) request->granted({}, error);
  for (auto& request : std::exchange(waiting_, {})) request->granted({}, error);
  waiting_now_ = false;
}

}  // namespace penstock::pool
