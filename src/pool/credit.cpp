#include "pool/credit.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace penstock::pool {

namespace {

// A lease that ends leaves its object in memory and tells nobody; while somebody waits, what can be evicted is looked at
// again so often.
constexpr std::chrono::milliseconds poll_interval(5);

}  // namespace

std::uint64_t Credit::charge_of(std::span<const std::uint64_t> sizes) const {
  std::uint64_t charge = 0;
  for (const auto size : sizes) {
    const auto one = size > source_.memory->limit() ? size : ObjectMemory::charge_of(size);
    charge += std::min(one, ~std::uint64_t{0} - charge);
  }
  return charge;
}

Credit::Outcome Credit::try_grant(std::span<const std::uint64_t> sizes, std::uint64_t charge, Blobs& out) {
  source_.make_room(charge);
  auto& memory = *source_.memory;
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
    // What was refused would fit where those before it lie, which are given back and need their places again.
    const bool beside = !out.empty();
    out.clear();
    if (memory.used() + charge <= memory.limit() && memory.could_grow(sizes[refused], beside)) {
      grow(sizes[refused], beside);
      return Outcome::growing;
    }
    if (!source_.evict_one()) return Outcome::later;
  }
}

Credit::Blobs Credit::try_take(std::span<const std::uint64_t> sizes, std::uint64_t charge) {
  Blobs blobs;
  if (stopped_ || growing_ || !waiting_.empty() || charge > source_.memory->limit()) return blobs;
  if (try_grant(sizes, charge, blobs) != Outcome::granted) blobs.clear();
  return blobs;
}

std::shared_ptr<Credit::Request> Credit::ask(std::vector<std::uint64_t> sizes,
                                             std::function<void(Blobs, std::exception_ptr)> granted) {
  const auto charge = charge_of(sizes);
  if (charge > source_.memory->limit())
    throw Error(Errc::invalid_argument, base::format_size(charge) + " of objects do not fit into a memory of " +
                                            base::format_size(source_.memory->limit()));
  auto request = std::make_shared<Request>(Request{std::move(sizes), charge, std::move(granted)});
  waiting_.push_back(request);
  waiting_now_ = true;
  // What came free before the flag was set told nobody.
  progress_.post([self = weak_from_this()] {
    if (const auto credit = self.lock()) credit->serve();
  });
  watch();
  return request;
}

void Credit::withdraw(const std::shared_ptr<Request>& request) {
  const bool first = !waiting_.empty() && waiting_.front() == request;
  std::erase(waiting_, request);
  waiting_now_ = !waiting_.empty();
  if (first) serve();
}

void Credit::serve() {
  if (serving_) return;
  serving_ = true;
  while (!waiting_.empty() && !growing_) {
    const auto request = waiting_.front();
    Blobs blobs;
    std::exception_ptr error;
    try {
      if (try_grant(request->sizes, request->charge, blobs) != Outcome::granted) break;
    } catch (...) {
      error = std::current_exception();
    }
    waiting_.pop_front();
    request->granted(std::move(blobs), error);
  }
  serving_ = false;
  waiting_now_ = !waiting_.empty();
  watch();
}

void Credit::watch() {
  if (waiting_.empty() || stopped_) {
    poll_ = {};
    return;
  }
  poll_ = progress_.after(poll_interval, [self = weak_from_this()] {
    if (const auto credit = self.lock()) credit->serve();
  });
}

void Credit::grow(std::uint64_t bytes, bool beside) {
  if (growing_) return;
  growing_ = true;
  source_.run_aside([memory = source_.memory, bytes, beside] { memory->grow(bytes, beside); },
                    [self = weak_from_this()](std::exception_ptr error) {
                      const auto credit = self.lock();
                      if (!credit || credit->stopped_) return;
                      credit->growing_ = false;
                      if (error && !credit->waiting_.empty()) {
                        const auto request = credit->waiting_.front();
                        credit->waiting_.pop_front();
                        request->granted({}, error);
                      }
                      credit->serve();
                    });
}

void Credit::stop(std::exception_ptr error) {
  stopped_ = true;
  poll_ = {};
  for (auto& request : std::exchange(waiting_, {})) request->granted({}, error);
  waiting_now_ = false;
}

}  // namespace penstock::pool
