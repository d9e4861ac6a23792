#include "analysis/request_listener.hpp"

#include <utility>

#include "base/log.hpp"
#include "penstock/interrupt.hpp"

namespace penstock::analysis {
namespace {

constexpr std::uint32_t open_patience_ms = 250;  // for the stream, if it is there
constexpr Timeout pause_between(750);            // and until the next look, when it was not
constexpr Timeout slice(100);

}  // namespace

RequestListener::RequestListener(const Context& context, std::string stream)
    : context_(context), stream_(std::move(stream)), state_("the stream " + stream_ + ", which the analysis creates") {
  thread_ = std::thread([this] { run(); });
}

RequestListener::~RequestListener() {
  stop_ = true;
  {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  thread_.join();
}

bool RequestListener::asked_to_stop(void* self) { return static_cast<RequestListener*>(self)->stop_; }

std::optional<std::string> RequestListener::take() {
  if (!news_.load(std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(mutex_);
  news_ = false;
  last_ = std::exchange(newest_, {});
  return last_;
}

bool RequestListener::wait(base::Deadline deadline, const std::function<bool()>& give_up) {
  urgent_ = true;
  std::unique_lock lock(mutex_);
  changed_.notify_all();
  while (!news_ && !deadline.passed()) {
    changed_.wait_until(lock, earlier(deadline, base::Deadline(slice)).when());
    lock.unlock();
    const bool over = give_up();
    lock.lock();
    if (over) break;
  }
  urgent_ = false;
  return news_;
}

std::string RequestListener::awaited() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void RequestListener::note(std::string text) {
  std::lock_guard lock(mutex_);
  if (text == (news_ ? newest_ : last_)) return;  // kept for late joiners, and heard before
  newest_ = std::move(text);
  news_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void RequestListener::run() {
  const InterruptHandler handler(&asked_to_stop, this);
  std::string told;
  while (!stop_) {
    try {
      listen();
    } catch (const std::exception& error) {
      const auto* known = dynamic_cast<const Error*>(&error);
      const bool nobody = known && (known->code() == Errc::timeout || known->code() == Errc::cancelled);
      if (!nobody && std::exchange(told, error.what()) != error.what())
        base::log(base::Level::warn, "requests cannot be read", {{"stream", stream_}, {"why", error.what()}});
    }
    pause();
  }
}

void RequestListener::pause() {
  std::unique_lock lock(mutex_);
  const base::Deadline end(pause_between);
  while (!stop_ && !urgent_ && !end.passed()) changed_.wait_until(lock, end.when());
}

// Until the stream ends, or there is none.
void RequestListener::listen() {
  StreamOptions options;
  options.delivery = Delivery::latest;
  options.open_timeout_ms = open_patience_ms;
  options.trace = "off";
  auto reader = context_.open_stream(stream_, solo(), options);
  const auto state = [&](std::string text) {
    std::lock_guard lock(mutex_);
    state_ = std::move(text);
  };
  state("a request on the stream " + stream_);
  const auto closed = "the stream " + stream_ + ", which has ended";
  while (!stop_) {
    auto [outcome, step] = reader.try_begin_step(pause_between);
    if (outcome == Outcome::not_ready) continue;
    if (!step) break;
    const auto* request = step->find("request");
    if (request && request->dtype == DType::string) {
      auto texts = step->read_strings(request->id);
      if (!texts.empty()) note(std::move(texts.front()));
    }
    step->end();
  }
  state(closed);
}

}  // namespace penstock::analysis
