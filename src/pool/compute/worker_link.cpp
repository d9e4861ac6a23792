#include "pool/compute/worker_link.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "pool/compute/result_file.hpp"

namespace penstock::pool::compute {

using fabric::Task;
using namespace std::chrono_literals;

namespace {

// A thread's stack and an allocator's reserve are address space, not memory.
constexpr std::uint64_t address_room = std::uint64_t{512} << 20;
// A worker that holds this much more than when it was fresh is replaced: something it ran keeps memory.
constexpr std::uint64_t worn_bytes = std::uint64_t{64} << 20;
constexpr auto end_grace = 500ms;
constexpr auto cpu_tick = 5ms;

// Without overflow: the greatest number is no limit at all.
std::uint64_t sum_of(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t sum = 0;
  for (const auto part : parts)
    if (__builtin_add_overflow(sum, part, &sum)) return ~std::uint64_t{0};
  return sum;
}

std::string text_of(std::chrono::milliseconds time) { return std::to_string(time.count()) + " ms"; }

}  // namespace

WorkerLink::WorkerLink(fabric::Progress& progress, std::shared_ptr<fabric::Workers> spawner, WorkerKind kind,
                       Process process)
    : progress_(progress),
      spawner_(std::move(spawner)),
      kind_(kind),
      process_(std::move(process)),
      name_((kind == WorkerKind::python ? "Python worker " : "compute worker ") + std::to_string(process_.pid())) {}

WorkerLink::~WorkerLink() {
  if (connection_) connection_->close();
  reap();
}

// Reaping may take the kernel a while (a large memory to take down), so another thread does it.
void WorkerLink::reap() {
  if (process_.pid() <= 0) return;
  process_.kill();
  spawner_->submit([process = std::make_shared<Process>(std::move(process_))]() mutable { process.reset(); });
}

Task<std::shared_ptr<WorkerLink>> WorkerLink::start(fabric::Progress& progress,
                                                    std::shared_ptr<fabric::Workers> spawner, Launch launch,
                                                    base::Deadline deadline) {
  const auto kind = launch.kind;
  auto job = [launch = std::move(launch)] { return Process::start(launch.argv, launch.environment); };
  Process process = co_await spawner->run(std::move(job));
  const std::shared_ptr<WorkerLink> link(new WorkerLink(progress, std::move(spawner), kind, std::move(process)));
  link->waiting_.emplace(progress);
  auto future = link->waiting_->future();
  link->listen();
  const std::weak_ptr weak = link;
  if (!deadline.is_never())
    link->wall_timer_ = progress.after(deadline.remaining(), [weak] {
      if (const auto self = weak.lock()) self->fail(Error(Errc::timeout, self->name_ + " was not ready in time"));
    });
  Event event = co_await std::move(future);
  link->wall_timer_.cancel();
  link->hello_ = std::move(event.hello);
  link->idle_sizes_ = link->process_.sizes();
  for (const auto& problem : link->hello_.problems)
    base::log(base::Level::warn, "a compute plug-in is not usable", {{"problem", problem}});
  co_return link;
}

void WorkerLink::listen() {
  connection_ = fabric::Connection::adopt(progress_, process_.take_socket(), name_);
  connection_->limit_frames(max_reply_bytes);
  const std::weak_ptr weak = weak_from_this();
  connection_->start(
      [weak](std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd) {
        if (const auto self = weak.lock()) self->on_message(kind, bytes, static_cast<bool>(fd));
      },
      [weak](const Error& error) {
        if (const auto self = weak.lock()) self->on_closed(error);
      });
}

bool WorkerLink::fit() const {
  if (dead_ || worn_ || waiting_ || id_ != 0 || !greeted_) return false;
  const auto sizes = process_.sizes();
  return sizes.data != 0 && sizes.data <= idle_sizes_.data + worn_bytes;
}

void WorkerLink::fail(Error error) {
  if (dead_) return;
  dead_ = true;
  wall_timer_.cancel();
  cpu_timer_.cancel();
  connection_->close();
  reap();
  if (waiting_) {
    waiting_->set_error(error);
    waiting_.reset();
  }
}

void WorkerLink::on_message(std::uint16_t kind, std::span<const std::byte> bytes, bool has_fd) {
  try {
    if (has_fd) throw Error(Errc::protocol, "it sent a descriptor");
    const auto frame = static_cast<Frame>(kind);
    if (frame == Frame::hello && !greeted_) {
      auto hello = decode_hello(bytes);
      if (hello.kind != kind_) throw Error(Errc::protocol, "it is another kind of worker");
      greeted_ = true;
      waiting_->set(Event{std::move(hello), {}});
      waiting_.reset();
    } else if (frame == Frame::want_file && id_ != 0) {
      on_want_file(decode_file(bytes));
    } else if (frame == Frame::reply && id_ != 0) {
      on_reply(decode_reply(bytes));
    } else {
      throw Error(Errc::protocol, "it spoke out of turn");
    }
  } catch (const Error& error) {
    fail(Error(error.code(),
               name_ + (id_ != 0 ? " broke the protocol in function '" + function_ + "': " : ": ") + error.what()));
  }
}

void WorkerLink::on_want_file(const FileMessage& wanted) {
  if (wanted.id != id_ || wanted.bytes == 0 || file_) throw Error(Errc::protocol, "it asked for a file out of turn");
  if (wanted.bytes > limits_.result_bytes) {
    connection_->send(static_cast<std::uint16_t>(Frame::refuse), "refuse", {});
    return;
  }
  file_ = create_result_file(wanted.bytes);
  file_bytes_ = wanted.bytes;
  const auto bytes = encode(wanted);
  connection_->send(static_cast<std::uint16_t>(Frame::file), "file", bytes, file_.get());
}

void WorkerLink::on_reply(Reply reply) {
  if (reply.id != id_) throw Error(Errc::protocol, "it replied to another call");
  if (reply.in_file && (!file_ || reply.bytes != file_bytes_)) throw Error(Errc::protocol, "its result is nowhere");
  id_ = 0;
  wall_timer_.cancel();
  cpu_timer_.cancel();
  worn_ = worn_ || reply.status == Errc::memory;
  Event event;
  event.call.cpu = process_.cpu_time() - cpu_begin_;
  if (reply.in_file) event.call.file = std::move(file_);
  event.call.reply = std::move(reply);
  file_.reset();
  waiting_->set(std::move(event));
  waiting_.reset();
}

// The process ended, or closed the socket, or broke fabric's framing.
void WorkerLink::on_closed(const Error& error) {
  if (dead_) return;
  const std::string where = id_ != 0 ? " in function '" + function_ + "'" : "";
  if (error.code() == Errc::protocol) {
    fail(Error(Errc::protocol, name_ + " broke the protocol" + where + ": " + error.what()));
    return;
  }
  dead_ = true;
  wall_timer_.cancel();
  cpu_timer_.cancel();
  if (!waiting_) {
    base::log(base::Level::warn, "an idle compute worker ended", {{"pid", process_.pid()}});
    return;
  }
  // How it ended is known once it is reaped.
  auto process = std::make_shared<Process>(std::move(process_));
  auto promise = std::make_shared<fabric::Promise<Event>>(std::move(*waiting_));
  waiting_.reset();
  const auto code = greeted_ ? Errc::peer_lost : Errc::system;
  const std::string what = name_ + (greeted_ ? " " : " did not start: it ");
  spawner_->submit([=] { promise->set_error(Error(code, what + process->how_it_ended(end_grace) + where)); });
}

void WorkerLink::watch_cpu() {
  static const auto cores = std::max(1u, std::thread::hardware_concurrency());
  const auto used = process_.cpu_time() - cpu_begin_;
  if (used >= limits_.cpu) {
    fail(Error(Errc::timeout,
               "function '" + function_ + "' used all of its CPU time (" + text_of(limits_.cpu) + ") and was stopped"));
    return;
  }
  // The soonest that it could be over, with all cores at work.
  const auto next = std::max<std::chrono::nanoseconds>(cpu_tick, (limits_.cpu - used) / cores);
  cpu_timer_ = progress_.after(next, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->watch_cpu();
  });
}

Task<CallReply> WorkerLink::call(CallMessage message, std::vector<SegmentRef> segments, ComputeLimits limits,
                                 base::Deadline deadline) {
  const auto self = shared_from_this();
  if (dead_) throw Error(Errc::peer_lost, name_ + " has ended");
  const auto bytes = encode(message);
  if (bytes.size() > fabric::max_frame_bytes)
    throw Error(Errc::invalid_argument,
                "the call's inputs have names of " + base::format_size(bytes.size()) + " in all");
  id_ = message.id;
  function_ = message.function;
  limits_ = limits;
  file_.reset();
  std::uint64_t mapped = 0;
  for (const auto& segment : segments) mapped += segment.bytes;
  process_.limit_memory(
      sum_of({idle_sizes_.address_space, mapped, limits.result_bytes, limits.memory_bytes, address_room}),
      sum_of({idle_sizes_.data, limits.memory_bytes}));
  cpu_begin_ = process_.cpu_time();
  waiting_.emplace(progress_);
  auto future = waiting_->future();
  for (std::uint32_t i = 0; i < segments.size(); ++i)
    connection_->send(static_cast<std::uint16_t>(Frame::segment), "segment",
                      encode(SegmentMessage{i, segments[i].bytes}), segments[i].fd);
  connection_->send(static_cast<std::uint16_t>(Frame::call), "call", bytes);

  const base::Deadline wall(limits.wall);
  const bool own_limit = wall.when() <= deadline.when();
  const auto until = own_limit ? wall : deadline;
  const auto on_time = [weak = weak_from_this(), own_limit] {
    const auto link = weak.lock();
    if (!link) return;
    const std::string what = own_limit
                                 ? "ran for more than its limit of " + text_of(link->limits_.wall) + " and was stopped"
                                 : "was stopped at the call's deadline";
    link->fail(Error(Errc::timeout, "function '" + link->function_ + "' " + what));
  };
  if (!until.is_never()) wall_timer_ = progress_.after(until.remaining(), on_time);
  watch_cpu();
  Event event = co_await std::move(future);
  co_return std::move(event.call);
}

}  // namespace penstock::pool::compute
