#include "pool/compute/compute_workers.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "memory/segment.hpp"
#include "penstock/error.hpp"
#include "pool/compute/arguments.hpp"
#include "pool/compute/result_file.hpp"
#include "pool/compute/worker_link.hpp"

namespace penstock::pool::compute {

using fabric::Promise;
using fabric::Task;

namespace {

enum class Place { server, native, python };

ComputeLimits clamp(const ComputeLimits& wanted, const ComputeLimits& most) {
  return {std::clamp(wanted.wall, std::chrono::milliseconds(1), most.wall),
          std::clamp(wanted.cpu, std::chrono::milliseconds(1), most.cpu),
          std::min(wanted.memory_bytes, most.memory_bytes), std::min(wanted.result_bytes, most.result_bytes)};
}

void check_request(const ComputeRequest& request) {
  if (request.inputs.size() > max_inputs) throw Error(Errc::invalid_argument, "too many inputs");
  for (const auto& input : request.inputs) check(input);
  check_arguments(request.arguments);
}

// The memory files that a call needs, and where its inputs lie in them. Inputs without a file are copied into one.
struct Placed {
  std::vector<SegmentRef> segments;
  std::vector<CallInput> inputs;
  std::optional<memory::Segment> copies;
};

Placed place(const std::vector<ComputeInput>& inputs) {
  constexpr std::uint64_t alignment = 64;
  Placed placed;
  std::map<int, std::uint32_t> known;
  std::uint64_t copied = 0;
  for (const auto& input : inputs) {
    CallInput made{input.name, input.dtype, input.shape, std::nullopt, 0, 0, input.bytes.size()};
    if (input.box) made.start = input.box->start;
    if (!input.bytes.empty() && input.fd >= 0) {
      const auto [at, fresh] = known.try_emplace(input.fd, static_cast<std::uint32_t>(placed.segments.size()));
      if (fresh) placed.segments.push_back({input.fd, 0});
      auto& segment = placed.segments[at->second];
      segment.bytes = std::max(segment.bytes, input.offset + input.bytes.size());
      made.segment = at->second;
      made.offset = input.offset;
    } else if (!input.bytes.empty()) {
      made.offset = copied;
      copied += (input.bytes.size() + alignment - 1) / alignment * alignment;
    }
    placed.inputs.push_back(std::move(made));
  }
  if (placed.segments.size() >= max_segments) throw Error(Errc::invalid_argument, "the inputs lie in too many files");
  if (copied == 0) return placed;
  placed.copies.emplace(memory::Segment::create(copied));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].bytes.empty() || inputs[i].fd >= 0) continue;
    placed.inputs[i].segment = static_cast<std::uint32_t>(placed.segments.size());
    std::memcpy(placed.copies->data() + placed.inputs[i].offset, inputs[i].bytes.data(), inputs[i].bytes.size());
  }
  placed.segments.push_back({placed.copies->fd(), placed.copies->size()});
  return placed;
}

ComputeResult run_here(const Builtin& builtin, const ComputeRequest& request, std::uint64_t result_bytes,
                       const std::atomic<bool>& stop) {
  ComputeResult result;
  Output output([&](std::uint64_t bytes) {
    if (bytes > result_bytes)
      throw Error(Errc::memory, "a result of " + std::to_string(bytes) + " bytes is larger than the " +
                                    std::to_string(result_bytes) + " allowed");
    result.bytes.assign(bytes, std::byte{});
    return result.bytes.data();
  });
  const std::vector<Input> inputs(request.inputs.begin(), request.inputs.end());
  builtin.function(inputs, request.arguments, output, Stop(&stop));
  result.dtype = output.dtype;
  result.shape = output.shape;
  result.info = std::move(output.info);
  return result;
}

}  // namespace

// Alive until the last call has ended, so that a call that was cut off finds it.
struct ComputeWorkers::Impl : std::enable_shared_from_this<Impl> {
  // The right to have one process; given back with its worker, if that may go on.
  struct Slot {
    std::shared_ptr<Impl> owner;
    std::shared_ptr<WorkerLink> link;
    Slot() = default;
    Slot(std::shared_ptr<Impl> impl, std::shared_ptr<WorkerLink> worker)
        : owner(std::move(impl)), link(std::move(worker)) {}
    Slot(Slot&&) noexcept = default;
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (owner) owner->give_back(std::move(link));
    }
  };
  struct Waiter {
    WorkerKind kind;
    std::shared_ptr<Promise<Slot>> promise;
    fabric::Timer timer;
  };

  Impl(fabric::Progress& p, fabric::Workers& w, ComputeOptions o)
      : progress(p),
        workers(w),
        options(std::move(o)),
        most(options.workers != 0 ? options.workers : std::max(1u, std::thread::hardware_concurrency())) {}

  fabric::Progress& progress;
  fabric::Workers& workers;
  const ComputeOptions options;
  const unsigned most;
  // Workers die with the thread that starts them: it is ours, and begun with the first of them.
  std::shared_ptr<fabric::Workers> spawner;
  unsigned slots = 0;                             // given out or idle
  std::vector<std::shared_ptr<WorkerLink>> idle;  // the one used last is last
  std::vector<std::weak_ptr<WorkerLink>> alive;
  std::deque<Waiter> queue;
  std::optional<std::vector<std::string>> plugin_functions;  // once a worker has told
  ComputeStatistics counts;
  std::uint64_t last_id = 0;
  bool closing = false;

  Launch launch(WorkerKind kind) const;
  Place place_of(const std::string& function) const;
  std::vector<FunctionInfo> known_functions() const;
  std::shared_ptr<WorkerLink> take_idle(WorkerKind kind);
  void serve_queue();
  void give_back(std::shared_ptr<WorkerLink> link);
  void end_when_idle(const std::shared_ptr<WorkerLink>& link);
  void close();
  void count_failure(const Error& error);

  // g++ 12 and coroutines: what they need comes as arguments.
  static Task<Slot> acquire(std::shared_ptr<Impl> self, WorkerKind kind, base::Deadline deadline);
  static Task<void> fill(std::shared_ptr<Impl> self, WorkerKind kind, std::shared_ptr<WorkerLink>& link,
                         base::Deadline deadline);
  static Task<void> learn(std::shared_ptr<Impl> self, base::Deadline deadline);
  static Task<ComputeResult> run_in_server(std::shared_ptr<Impl> self, ComputeRequest request, ComputeLimits limits,
                                           base::Deadline deadline);
  static Task<ComputeResult> run_in_worker(std::shared_ptr<Impl> self, ComputeRequest request, ComputeLimits limits,
                                           WorkerKind kind, base::Deadline deadline);
  static Task<ComputeResult> run(std::shared_ptr<Impl> self, ComputeRequest request, base::Deadline deadline);
  static Task<ComputeResult> run_counted(std::shared_ptr<Impl> self, ComputeRequest request, base::Deadline deadline);
  static Task<std::vector<FunctionInfo>> functions(std::shared_ptr<Impl> self, base::Deadline deadline);
};

// ---------------------------------------------------------------------------------------------------------- processes

Launch ComputeWorkers::Impl::launch(WorkerKind kind) const {
  const auto program =
      options.worker_program.empty() ? find_program("penstock-compute-worker") : options.worker_program;
  if (program.empty())
    throw Error(Errc::not_found, "there is no penstock-compute-worker beside this program or in PATH");
  Launch made{kind, {program, std::to_string(::getpid())}, worker_environment()};
  if (kind == WorkerKind::native) {
    made.argv.insert(made.argv.end(), options.plugins.begin(), options.plugins.end());
    return made;
  }
  // -P: neither the worker's folder nor the current one is searched for modules.
  made.argv.insert(made.argv.end(), {"--exec", options.python, "-P"});
  if (options.python_worker.empty()) made.argv.insert(made.argv.end(), {"-m", "penstock.compute_worker"});
  else made.argv.push_back(options.python_worker);
  return made;
}

std::shared_ptr<WorkerLink> ComputeWorkers::Impl::take_idle(WorkerKind kind) {
  // Those that died meanwhile give their slots back.
  const auto dead = std::erase_if(idle, [](const auto& link) { return !link->alive(); });
  slots -= static_cast<unsigned>(dead);
  counts.workers_lost += dead;
  for (auto at = idle.rbegin(); at != idle.rend(); ++at) {
    if ((*at)->kind() != kind) continue;
    auto link = std::move(*at);
    idle.erase(std::next(at).base());
    link->idle_timer.cancel();
    return link;
  }
  return nullptr;
}

// In order: the first in the queue waits for whatever it needs, and the others behind it.
void ComputeWorkers::Impl::serve_queue() {
  while (!queue.empty() && !closing) {
    auto& front = queue.front();
    auto link = take_idle(front.kind);
    if (!link && slots >= most) {
      if (idle.empty()) return;
      idle.erase(idle.begin());  // one of the other kind makes room
      --slots;
    }
    if (!link) ++slots;
    const auto waiter = std::move(front);
    queue.pop_front();
    // One that gave up meanwhile drops the slot, which comes back here.
    waiter.promise->set(Slot(shared_from_this(), std::move(link)));
  }
}

void ComputeWorkers::Impl::give_back(std::shared_ptr<WorkerLink> link) {
  if (link && link->fit() && !closing) {
    end_when_idle(link);
    idle.push_back(std::move(link));
  } else {
    if (link) ++counts.workers_lost;
    --slots;
    link.reset();
  }
  serve_queue();
}

void ComputeWorkers::Impl::end_when_idle(const std::shared_ptr<WorkerLink>& link) {
  link->idle_timer = progress.after(options.idle_time, [weak = weak_from_this(), which = link.get()] {
    const auto self = weak.lock();
    if (!self) return;
    const auto at = std::find_if(self->idle.begin(), self->idle.end(), [&](auto& one) { return one.get() == which; });
    if (at == self->idle.end()) return;
    const auto ended = std::move(*at);  // dies after the list is in order
    self->idle.erase(at);
    --self->slots;
    self->serve_queue();
  });
}

void ComputeWorkers::Impl::close() {
  closing = true;
  const Error error(Errc::cancelled, "the server's compute workers are closing");
  for (auto& waiter : std::exchange(queue, {})) waiter.promise->set_error(error);
  for (auto& weak : alive)
    if (const auto link = weak.lock()) link->fail(error);
  slots -= static_cast<unsigned>(idle.size());
  idle.clear();
}

Task<ComputeWorkers::Impl::Slot> ComputeWorkers::Impl::acquire(std::shared_ptr<Impl> self, WorkerKind kind,
                                                               base::Deadline deadline) {
  if (self->closing) throw Error(Errc::cancelled, "the server's compute workers are closing");
  if (self->queue.size() >= self->options.max_waiting)
    throw Error(Errc::overloaded, std::to_string(self->queue.size()) + " calls wait for a compute worker already");
  auto promise = std::make_shared<Promise<Slot>>(self->progress);
  Waiter waiter{kind, promise, {}};
  if (!deadline.is_never()) {
    const std::weak_ptr weak = promise;
    waiter.timer = self->progress.after(deadline.remaining(), [weak, owner = self->weak_from_this()] {
      const auto waiting = weak.lock();
      const auto impl = owner.lock();
      if (!waiting || !impl) return;
      waiting->set_error(Error(Errc::timeout, "no compute worker came free by the call's deadline"));
      std::erase_if(impl->queue, [&](const Waiter& one) { return one.promise == waiting; });
    });
  }
  auto future = promise->future();
  self->queue.push_back(std::move(waiter));
  promise.reset();
  self->serve_queue();
  co_return co_await std::move(future);
}

Task<void> ComputeWorkers::Impl::fill(std::shared_ptr<Impl> self, WorkerKind kind, std::shared_ptr<WorkerLink>& link,
                                      base::Deadline deadline) {
  if (link) co_return;
  if (!self->spawner) self->spawner = std::make_shared<fabric::Workers>(self->progress, 1, "compute");
  auto launch = self->launch(kind);
  const auto ready = earlier(deadline, base::Deadline(self->options.start_time));
  ++self->counts.workers_started;
  auto made = co_await WorkerLink::start(self->progress, self->spawner, std::move(launch), ready);
  if (self->closing) throw Error(Errc::cancelled, "the server's compute workers are closing");
  link = std::move(made);
  std::erase_if(self->alive, [](const auto& weak) { return weak.expired(); });
  self->alive.push_back(link);
  if (kind == WorkerKind::native) self->plugin_functions = link->hello().functions;
}

// ------------------------------------------------------------------------------------------------------------- functions

Place ComputeWorkers::Impl::place_of(const std::string& function) const {
  if (find_builtin(function) != nullptr) return options.builtins_in_server ? Place::server : Place::native;
  if (options.python_functions.contains(function)) return Place::python;
  if (plugin_functions && std::ranges::find(*plugin_functions, function) != plugin_functions->end())
    return Place::native;
  std::vector<std::string> names;
  for (const auto& known : known_functions()) names.push_back(known.name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  throw Error(Errc::not_found, base::unknown_name("function", function, views));
}

std::vector<FunctionInfo> ComputeWorkers::Impl::known_functions() const {
  std::vector<FunctionInfo> all;
  for (const auto& builtin : builtins()) all.push_back({std::string(builtin.name), "built-in"});
  for (const auto& [name, function] : options.python_functions) all.push_back({name, "python"});
  for (const auto& name : plugin_functions.value_or(std::vector<std::string>()))
    if (find_builtin(name) == nullptr && !options.python_functions.contains(name)) all.push_back({name, "plug-in"});
  return all;
}

// Asks a worker which functions the plug-ins have.
Task<void> ComputeWorkers::Impl::learn(std::shared_ptr<Impl> self, base::Deadline deadline) {
  if (self->plugin_functions || self->options.plugins.empty()) co_return;
  Slot slot = co_await acquire(self, WorkerKind::native, deadline);
  co_await fill(self, WorkerKind::native, slot.link, deadline);
}

Task<std::vector<FunctionInfo>> ComputeWorkers::Impl::functions(std::shared_ptr<Impl> self, base::Deadline deadline) {
  co_await learn(self, deadline);
  co_return self->known_functions();
}

// ------------------------------------------------------------------------------------------------------------------ calls

Task<ComputeResult> ComputeWorkers::Impl::run_in_server(std::shared_ptr<Impl> self, ComputeRequest request,
                                                        ComputeLimits limits, base::Deadline deadline) {
  struct Job {
    ComputeRequest request;
    std::atomic<bool> stop{false};
  };
  // Whoever drops this task, the thread's work ends soon after.
  struct Guard {
    std::shared_ptr<Job> job;
    ~Guard() { job->stop = true; }
  };
  ++self->counts.in_server;
  const Guard guard{std::make_shared<Job>()};
  guard.job->request = std::move(request);
  const auto until = earlier(deadline, base::Deadline(limits.wall));
  fabric::Timer timer;
  if (!until.is_never()) timer = self->progress.after(until.remaining(), [job = guard.job] { job->stop = true; });
  auto work = [job = guard.job, most = limits.result_bytes] {
    return run_here(*find_builtin(job->request.function), job->request, most, job->stop);
  };
  try {
    co_return co_await self->workers.run(std::move(work));
  } catch (const Error& error) {
    if (error.code() == Errc::cancelled && until.passed())
      throw Error(Errc::timeout, "function '" + guard.job->request.function + "' was stopped at its time limit");
    throw;
  }
}

Task<ComputeResult> ComputeWorkers::Impl::run_in_worker(std::shared_ptr<Impl> self, ComputeRequest request,
                                                        ComputeLimits limits, WorkerKind kind,
                                                        base::Deadline deadline) {
  // First a place in the queue: copies are made only for calls that are about to run.
  Slot slot = co_await acquire(self, kind, deadline);
  co_await fill(self, kind, slot.link, deadline);
  const bool copies =
      std::ranges::any_of(request.inputs, [](const auto& in) { return in.fd < 0 && !in.bytes.empty(); });
  const auto kept = std::make_shared<ComputeRequest>(std::move(request));  // outlives a task that is dropped meanwhile
  Placed placed;
  if (copies) {
    auto job = [kept] { return place(kept->inputs); };
    placed = co_await self->workers.run(std::move(job));
  } else {
    placed = place(kept->inputs);
  }
  CallMessage message;
  message.id = ++self->last_id;
  message.result_bytes = limits.result_bytes;
  message.function = kept->function;
  if (kind == WorkerKind::python) {
    const auto& function = self->options.python_functions.at(kept->function);
    message.module = function.file;
    message.function = function.function;
  }
  message.arguments = kept->arguments;
  message.inputs = std::move(placed.inputs);
  CallReply answer = co_await slot.link->call(std::move(message), std::move(placed.segments), limits, deadline);
  if (answer.reply.status != Errc::ok) throw Error(answer.reply.status, answer.reply.message);
  if (answer.reply.bytes > limits.result_bytes)
    throw Error(Errc::memory, "a result of " + std::to_string(answer.reply.bytes) + " bytes is larger than allowed");

  ComputeResult result;
  result.dtype = answer.reply.dtype;
  result.shape = answer.reply.shape;
  result.info = std::move(answer.reply.info);
  result.cpu = answer.cpu;
  if (answer.reply.in_file) {
    auto read = [file = std::make_shared<memory::UniqueFd>(std::move(answer.file)), bytes = answer.reply.bytes] {
      std::vector<std::byte> data(bytes);
      read_result_file(file->get(), data);
      return data;
    };
    result.bytes = co_await self->workers.run(std::move(read));
  } else {
    result.bytes = std::move(answer.reply.data);
  }
  co_return result;
}

Task<ComputeResult> ComputeWorkers::Impl::run(std::shared_ptr<Impl> self, ComputeRequest request,
                                              base::Deadline deadline) {
  check_request(request);
  if (self->closing) throw Error(Errc::cancelled, "the server's compute workers are closing");
  if (find_builtin(request.function) == nullptr && !self->options.python_functions.contains(request.function))
    co_await learn(self, deadline);
  const auto where = self->place_of(request.function);
  const auto limits = clamp(request.limits.value_or(self->options.limits), self->options.limits);
  if (where == Place::server) co_return co_await run_in_server(self, std::move(request), limits, deadline);
  const auto kind = where == Place::python ? WorkerKind::python : WorkerKind::native;
  co_return co_await run_in_worker(self, std::move(request), limits, kind, deadline);
}

Task<ComputeResult> ComputeWorkers::Impl::run_counted(std::shared_ptr<Impl> self, ComputeRequest request,
                                                      base::Deadline deadline) {
  ++self->counts.calls;
  const auto begin = base::Clock::now();
  const std::string function = request.function.substr(0, 200);
  try {
    ComputeResult result = co_await run(self, std::move(request), deadline);
    result.wall = base::Clock::now() - begin;
    co_return result;
  } catch (const Error& error) {
    self->count_failure(error);
    throw error.in("compute '" + function + "'");
  } catch (const std::bad_alloc&) {  // the server's own memory, for a copy or a result
    const Error error(Errc::memory, "the server has no memory for the call");
    self->count_failure(error);
    throw error.in("compute '" + function + "'");
  }
}

void ComputeWorkers::Impl::count_failure(const Error& error) {
  ++counts.failed;
  switch (error.code()) {
    case Errc::timeout: ++counts.timeouts; break;
    case Errc::memory: ++counts.out_of_memory; break;
    case Errc::peer_lost: ++counts.crashes; break;
    case Errc::protocol: ++counts.garbage; break;
    case Errc::overloaded: ++counts.overloaded; break;
    case Errc::not_found: ++counts.unknown; break;
    default: break;
  }
}

// ----------------------------------------------------------------------------------------------------------------- public

ComputeWorkers::ComputeWorkers(fabric::Progress& progress, fabric::Workers& workers, ComputeOptions options) {
  for (const auto& [name, function] : options.python_functions) {
    if (find_builtin(name) != nullptr)
      throw Error(Errc::invalid_argument, "Python function '" + name + "' has the name of a built-in");
    if (!std::filesystem::exists(function.file))
      throw Error(Errc::not_found, "Python function '" + name + "': there is no file " + function.file);
  }
  for (auto& plugin : options.plugins) {
    if (!std::filesystem::exists(plugin)) throw Error(Errc::not_found, "there is no compute plug-in " + plugin);
    plugin = std::filesystem::absolute(plugin).string();  // workers live in another folder
  }
  for (auto& [name, function] : options.python_functions)
    function.file = std::filesystem::absolute(function.file).string();
  impl_ = std::make_shared<Impl>(progress, workers, std::move(options));
}

ComputeWorkers::~ComputeWorkers() {
  impl_->progress.call([this] {
    impl_->close();
    impl_.reset();
  });
}

Task<ComputeResult> ComputeWorkers::run(ComputeRequest request, base::Deadline deadline) {
  return Impl::run_counted(impl_, std::move(request), deadline);
}

Task<std::vector<FunctionInfo>> ComputeWorkers::functions(base::Deadline deadline) {
  return Impl::functions(impl_, deadline);
}

ComputeStatistics ComputeWorkers::statistics() const {
  ComputeStatistics counts = impl_->counts;
  counts.workers_idle = static_cast<unsigned>(impl_->idle.size());
  counts.workers_busy = impl_->slots - counts.workers_idle;
  counts.waiting = impl_->queue.size();
  return counts;
}

}  // namespace penstock::pool::compute
