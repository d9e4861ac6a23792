// Streams in a pool: a Gray-Scott-like writer of N ranks (threads), and a reader that comes later.
//
//   pool_steps --role writer --study io      [--steps N]    time in begin, put and end; then until the pool has everything
//                            [--compute-ms N]               with so long a pause before each step, in which the ranks keep busy
//   pool_steps --role writer --study room    [--bursts N]   the same while the queue has room, beside one copy into memory;
//                            [--beside memory]            in turns with a second stream, acknowledged so, of the same pool
//   pool_steps --role writer --study sustain [--lengths N]  N queue lengths at full speed, then at 80 % of what that gave
//   pool_steps --role writer --study overlap [--compute-ms N] [--origin S]   when each step was computed and written
//   pool_steps --role reader --study io                     reads all kept steps, whole fields, checked
//   pool_steps --role reader --study overlap [--late-ms N]  the same while they are written, and when each was read
//   common: --ranks 2 --side 128 --queue 4 --acknowledge memory|durable --retain N --many V --plane shm|tcp|ucx
//
// room: a burst is as many steps as the queue holds; the next one begins when the pool has taken all. The reference is a
// memcpy of the same arrays into as many slots of memory with pages made, by the same threads, just before each burst; the
// first burst counts for neither. Two streams take turns at being first.
// sustain: two queue lengths make the pool's memory before the clock starts. The reference is made after sleeps of the same
// length, and back to back in bursts, half of it before and half after the steps; the faster of the two counts.
// sustain, overlap: programs sleep where a simulation or an analysis would compute. overlap prints spans (start, end, ...) in
// seconds since the origin, a time of the kernel's monotonic clock.
#include <barrier>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "penstock/penstock.hpp"
#include "plane.hpp"
#include "steps.hpp"

namespace penstock::bench {
namespace {

constexpr const char* stream_name = "fields";
constexpr double producing_share = 0.8;  // of the measured pull bandwidth
const Timeout patience(300'000);

Acknowledge acknowledge_of(const std::string& text) {
  if (text == "durable") return Acknowledge::durable;
  if (text != "memory") throw std::runtime_error("no acknowledgement level " + text);
  return Acknowledge::memory;
}

StreamOptions stream_options(const Arguments& arguments, const StepPlan& plan) {
  StreamOptions options;
  options.engine = "pool";
  options.queue_steps = static_cast<std::uint32_t>(arguments.number("queue", 4));
  options.retain_steps = static_cast<std::uint32_t>(arguments.number("retain", 0));
  options.step_bytes = plan.rank_elements() * 8 + 65536;
  options.step_timeout_ms = options.close_timeout_ms = 300'000;
  options.acknowledge = acknowledge_of(arguments.text("acknowledge", "memory"));
  options.data_plane = plane_of(arguments.text("plane"));
  return options;
}

// Seconds of a step or a copy: on the clock, and of them on a processor.
struct Spent {
  double wall = 0, cpu = 0;
};
class Watch {
 public:
  Spent read() const { return {now() - wall_, thread_cpu_seconds() - cpu_}; }

 private:
  double wall_ = now(), cpu_ = thread_cpu_seconds();
};

// What all ranks meet at, and where they leave their figures.
struct Shared {
  explicit Shared(int ranks)
      : meet(ranks),
        stalls(static_cast<std::size_t>(ranks)),
        beside(stalls),
        copies(stalls),
        slept_copies(stalls),
        stalls_cpu(stalls),
        copies_cpu(stalls) {}
  std::barrier<> meet;
  std::mutex mutex;                                                       // guards what follows
  std::vector<std::vector<double>> stalls, beside, copies, slept_copies;  // beside: of the second stream
  std::vector<std::vector<double>> stalls_cpu, copies_cpu;                // seconds on a processor
  double process_cpu_s = 0;                                               // room: of all threads, copies included
  double announced = 0;                                                   // bytes, of rank 0
  double all_s = 0, pull_gb_per_s = 0, wall_s = 0, waited_s = 0;
  std::vector<double> computing, writing;  // spans of rank 0

  // Of each step or copy, the slowest rank.
  static std::vector<double> slowest(const std::vector<std::vector<double>>& ranks) {
    std::vector<double> out = ranks.front();
    for (const auto& one : ranks)
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], one[i]);
    return out;
  }
};

// The reference: a rank's arrays, copied into slots of memory with pages made.
class CopySlots {
 public:
  CopySlots(const StepPlan& plan, std::size_t slots)
      : plan_(plan), slots_(slots), memory_(populated(slots * plan.rank_elements() * 8)) {}
  CopySlots(const CopySlots&) = delete;
  ~CopySlots() { munmap(memory_.data(), memory_.size()); }

  // Into the next slot, field by field as they are put.
  Spent copy(std::vector<double>& own) {
    next_values(plan_, own, -1);
    std::byte* slot = memory_.data() + next_++ % slots_ * own.size() * 8;
    const std::size_t bytes = plan_.slab() * 8;
    const Watch watch;
    for (std::size_t f = 0; f < StepPlan::fields; ++f)
      std::memcpy(slot + f * bytes, own.data() + f * plan_.slab(), bytes);
    asm volatile("" : : "r"(slot) : "memory");
    return watch.read();
  }

 private:
  const StepPlan& plan_;
  const std::size_t slots_;
  const std::span<std::byte> memory_;
  std::size_t next_ = 0;
};

class RankWriter {
 public:
  RankWriter(Context& context, const StepPlan& plan, const StreamOptions& options, std::shared_ptr<Cohort> cohort,
             Shared& shared, const char* name = stream_name)
      : plan_(plan),
        options_(options),
        rank_(static_cast<std::size_t>(cohort->rank())),
        shared_(shared),
        own_(plan.rank_elements()),
        writer_(context.create_stream(name, cohort, options)) {
    first_values(own_);
    const Dims shape{plan.side, plan.side, plan.side};
    if (plan.many > 0) {
      for (int v = 0; v < plan.many; ++v) variables_.push_back(writer_.define_local<double>(small_name(v)));
    } else {
      for (int f = 0; f < StepPlan::fields; ++f) variables_.push_back(writer_.define<double>(field_name(f), shape));
    }
    if (rank_ == 0)
      for (const char* name : {"Du", "Dv", "F", "k", "dt"}) writer_.put_attribute(name, Attribute::of(0.1));
  }

  // One step; what begin, put and end took.
  Spent write(int number) {
    next_values(plan_, own_, number);
    const Watch watch;
    WriteStep step = writer_.begin_step(patience);
    waited_s_ += watch.read().wall;
    if (plan_.many > 0) {
      const Box all = whole({StepPlan::small_elements});
      for (std::size_t v = 0; v < variables_.size(); ++v)
        step.put(variables_[v], all, own_.data() + v * StepPlan::small_elements);
    } else {
      const Box mine{{rank_ * plan_.planes(), 0, 0}, {plan_.planes(), plan_.side, plan_.side}};
      for (std::size_t f = 0; f < variables_.size(); ++f) step.put(variables_[f], mine, own_.data() + f * plan_.slab());
    }
    const double filled = now();
    step.end();
    waited_s_ += now() - filled;
    return watch.read();
  }

  // Until the pool has taken everything.
  void drain() {
    const double limit = now() + 300;
    while (writer_.statistics().queue_depth > 0) {
      if (now() > limit) throw std::runtime_error("the pool did not take the steps");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  void io(double compute_s) {
    std::vector<double> stalls;
    double computed = 0;
    shared_.meet.arrive_and_wait();
    const double start = now();
    for (int step = 0; step < plan_.steps; ++step) {
      if (compute_s > 0) computed += compute_for(compute_s);
      stalls.push_back(write(step).wall);
    }
    close();
    const double all = now() - start - computed;
    const std::lock_guard lock(shared_.mutex);
    if (rank_ == 0) shared_.announced = static_cast<double>(writer_.statistics().announcement_bytes);
    shared_.stalls[rank_] = std::move(stalls);
    shared_.all_s = std::max(shared_.all_s, all);
  }

  void overlap(std::chrono::milliseconds compute, double origin) {
    std::vector<double> computing, writing;
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the reader opens the stream meanwhile
    for (int step = 0; step < plan_.steps; ++step) {
      shared_.meet.arrive_and_wait();
      const double start = now();
      std::this_thread::sleep_for(compute);
      const double computed = now();
      (void)write(step);
      computing.insert(computing.end(), {start - origin, computed - origin});
      writing.insert(writing.end(), {computed - origin, now() - origin});
    }
    close();
    if (rank_ != 0) return;
    shared_.computing = std::move(computing);
    shared_.writing = std::move(writing);
  }

  void room(int bursts, RankWriter* beside) {
    const std::size_t slots = options_.queue_steps;
    CopySlots reference(plan_, slots);
    std::vector<double> stalls, copies, theirs, stalls_cpu, copies_cpu;
    double began = 0;
    for (int burst = 0; burst <= bursts; ++burst) {
      if (burst == 1) began = cpu_seconds();
      std::vector<RankWriter*> turns{this};
      if (beside) turns.insert(burst % 2 == 0 ? turns.begin() : turns.end(), beside);
      for (RankWriter* writer : turns) {
        shared_.meet.arrive_and_wait();
        for (std::size_t slot = 0; slot < slots; ++slot) {
          const Spent copy = reference.copy(own_);
          if (burst == 0) continue;
          copies.push_back(copy.wall);
          copies_cpu.push_back(copy.cpu);
        }
        shared_.meet.arrive_and_wait();
        for (std::size_t slot = 0; slot < slots; ++slot) {
          const Spent stall = writer->write(burst * static_cast<int>(slots) + static_cast<int>(slot));
          if (burst == 0) continue;
          (writer == this ? stalls : theirs).push_back(stall.wall);
          if (writer == this) stalls_cpu.push_back(stall.cpu);
        }
        writer->drain();
      }
    }
    const double cpu_s = cpu_seconds() - began;
    close();
    if (beside) beside->close();
    const std::lock_guard lock(shared_.mutex);
    shared_.process_cpu_s = std::max(shared_.process_cpu_s, cpu_s);
    shared_.stalls[rank_] = std::move(stalls);
    shared_.beside[rank_] = std::move(theirs);
    shared_.copies[rank_] = std::move(copies);
    shared_.stalls_cpu[rank_] = std::move(stalls_cpu);
    shared_.copies_cpu[rank_] = std::move(copies_cpu);
  }

  void sustain(int lengths) {
    const int queue = static_cast<int>(options_.queue_steps), steps = lengths * queue;
    int number = 0;
    for (int step = 0; step < 2 * queue; ++step) (void)write(number++);
    drain();
    shared_.meet.arrive_and_wait();
    const double start = now();
    for (int step = 0; step < steps; ++step) (void)write(number++);
    drain();
    shared_.meet.arrive_and_wait();
    if (rank_ == 0) shared_.pull_gb_per_s = plan_.step_bytes() * steps / 1e9 / (now() - start);
    shared_.meet.arrive_and_wait();
    const double period = plan_.step_bytes() / 1e9 / (producing_share * shared_.pull_gb_per_s);

    CopySlots reference(plan_, options_.queue_steps);
    std::vector<double> copies, slept_copies, stalls;
    copy_half(reference, steps / 2, period, copies, slept_copies);
    shared_.meet.arrive_and_wait();
    const double begun = now(), waited_before = waited_s_;
    for (int step = 0; step < steps; ++step) {
      sleep_until(begun + step * period);
      stalls.push_back(write(number++).wall);
    }
    const double wall = now() - begun, waited = waited_s_ - waited_before;
    drain();
    copy_half(reference, steps / 2, period, copies, slept_copies);
    close();
    const std::lock_guard lock(shared_.mutex);
    shared_.stalls[rank_] = std::move(stalls);
    shared_.copies[rank_] = std::move(copies);
    shared_.slept_copies[rank_] = std::move(slept_copies);
    shared_.wall_s = std::max(shared_.wall_s, wall);
    shared_.waited_s = std::max(shared_.waited_s, waited);
  }

 private:
  void close() { writer_.close(patience); }
  static void sleep_until(double time) {
    const double early = time - now();
    if (early > 0) std::this_thread::sleep_for(std::chrono::duration<double>(early));
  }

  // So many copies after sleeps, and as many back to back, in bursts as long as the queue.
  void copy_half(CopySlots& reference, int count, double period, std::vector<double>& copies,
                 std::vector<double>& slept_copies) {
    shared_.meet.arrive_and_wait();
    const double begun = now();
    for (int i = 0; i < count; ++i) {
      sleep_until(begun + i * period);
      slept_copies.push_back(reference.copy(own_).wall);
    }
    for (int i = 0; i < count; ++i) {
      if (i % static_cast<int>(options_.queue_steps) == 0) shared_.meet.arrive_and_wait();
      copies.push_back(reference.copy(own_).wall);
    }
  }

  const StepPlan& plan_;
  const StreamOptions options_;
  std::size_t rank_;
  Shared& shared_;
  std::vector<double> own_;
  double waited_s_ = 0;  // in begin and end
  Writer writer_;
  std::vector<Variable<double>> variables_;
};

double sum_of(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

// What the stalls consist of: the ranks' own processor time, and time in which they have no processor; and the processor time
// of this program for a step without the copies that it is compared with.
void write_processor_time(const Shared& shared, std::size_t steps, FigureLine& line) {
  const double stall = median(Shared::slowest(shared.stalls_cpu)), copy = median(Shared::slowest(shared.copies_cpu));
  line.add("stall_cpu_ms", 1e3 * stall);
  line.add("copy_cpu_ms", 1e3 * copy);
  line.add("cpu_per_copy", stall / copy);
  double copies = 0;
  for (const auto& rank : shared.copies_cpu) copies += sum_of(rank);
  const auto all = static_cast<double>(steps + shared.beside.front().size());
  line.add("writer_cpu_ms", 1e3 * (shared.process_cpu_s - copies) / all);
}

void write_figures(const std::string& study, const StepPlan& plan, const Shared& shared, FigureLine& line) {
  if (study == "overlap") {
    line.add("computing_s", shared.computing);
    line.add("writing_s", shared.writing);
    return;
  }
  const auto stalls = Shared::slowest(shared.stalls);
  line.add("step_mb", plan.step_bytes() / 1e6);
  line.add("stall_ms", 1e3 * median(stalls));
  std::vector<double> each(stalls);
  for (double& one : each) one *= 1e3;
  line.add("steps_ms", each);
  if (study == "io") {
    line.add("io_s", sum_of(stalls));
    line.add("announced_bytes", shared.announced / plan.steps);
    line.add("until_safe_s", shared.all_s);
    line.add("gb_per_s", plan.step_bytes() * plan.steps / 1e9 / shared.all_s);
    return;
  }
  double copy = median(Shared::slowest(shared.copies));
  if (study == "sustain") {
    const double slept = median(Shared::slowest(shared.slept_copies));
    line.add("burst_copy_ms", 1e3 * copy);
    line.add("slept_copy_ms", 1e3 * slept);
    copy = std::min(copy, slept);
    line.add("pull_gb_per_s", shared.pull_gb_per_s);
    line.add("io_percent", 100 * sum_of(stalls) / shared.wall_s);
    const double beyond = sum_of(stalls) - copy * static_cast<double>(stalls.size());
    line.add("wait_percent", 100 * shared.waited_s / shared.wall_s);
    line.add("stall_percent", 100 * std::max(0.0, beyond) / shared.wall_s);
  }
  line.add("copy_ms", 1e3 * copy);
  line.add("stall_per_copy", median(stalls) / copy);
  if (study == "room") write_processor_time(shared, stalls.size(), line);
  if (!shared.beside.front().empty()) {
    const double beside = median(Shared::slowest(shared.beside));
    line.add("beside_ms", 1e3 * beside);
    line.add("stall_per_beside", median(stalls) / beside);
  }
}

void write_stream(Context& context, const Arguments& arguments) {
  const StepPlan plan(arguments);
  const auto options = stream_options(arguments, plan);
  const std::string study = arguments.text("study", "io");
  const int bursts = static_cast<int>(arguments.number("bursts", 10));
  const int lengths = static_cast<int>(arguments.number("lengths", 10));
  const std::chrono::milliseconds compute(arguments.number("compute-ms", study == "overlap" ? 40 : 0));
  const double origin = std::stod(arguments.text("origin", "0"));
  const std::string beside = arguments.text("beside");
  if (!beside.empty() && study != "room") throw std::runtime_error("two streams: only in the study room");
  arguments.check();
  Shared shared(plan.ranks);
  run_thread_cohort(plan.ranks, [&](std::shared_ptr<Cohort> cohort) {
    RankWriter writer(context, plan, options, cohort, shared);
    std::optional<RankWriter> second;
    if (!beside.empty()) {
      auto others = options;
      others.acknowledge = acknowledge_of(beside);
      second.emplace(context, plan, others, cohort, shared, "beside");
    }
    if (study == "io") writer.io(std::chrono::duration<double>(compute).count());
    else if (study == "room") writer.room(bursts, second ? &*second : nullptr);
    else if (study == "sustain") writer.sustain(lengths);
    else if (study == "overlap") writer.overlap(compute, origin);
    else throw std::runtime_error("no study " + study);
  });
  FigureLine line;
  write_figures(study, plan, shared, line);
  line.print();
}

void read_stream(Context& context, const Arguments& arguments) {
  const StepPlan plan(arguments);
  const auto options = stream_options(arguments, plan);
  const bool overlap = arguments.text("study") == "overlap";
  const std::chrono::milliseconds analyse(overlap ? arguments.number("compute-ms", 40) : 0);
  const double origin = std::stod(arguments.text("origin", "0"));
  const std::chrono::milliseconds late(arguments.number("late-ms", 0));
  arguments.check();
  std::this_thread::sleep_for(late);
  std::vector<double> reading, analysing;  // spans
  std::vector<double> own(StepPlan::fields * plan.side * plan.side * plan.side, 0.0);
  Reader reader = context.open_stream(stream_name, solo(), options);
  int steps = 0;
  double read_s = 0, first_s = 0;
  Use before;
  try {
    for (;; ++steps) {
      const double start = now();
      ReadStep step = reader.begin_step(patience);
      const double found = now();
      if (plan.many == 0)
        for (int f = 0; f < StepPlan::fields; ++f)
          step.get(field_name(f), Selection::all(), own.data() + static_cast<std::size_t>(f) * own.size() / 2);
      const int number = static_cast<int>(step.number());
      step.end();
      const double taken = now() - start;
      if (overlap) {
        const double read = now();
        std::this_thread::sleep_for(analyse / 2);
        reading.insert(reading.end(), {found - origin, read - origin});
        analysing.insert(analysing.end(), {read - origin, now() - origin});
      }
      (steps == 0 ? first_s : read_s) += taken;  // the first one opens connections and maps memory
      if (steps == 0) before = use_of_process();
      if (plan.many == 0)
        for (int part = 0; part < plan.ranks * StepPlan::fields; ++part)
          check_slab(plan, own.data() + static_cast<std::size_t>(part) * plan.slab(), number);
    }
  } catch (const Error& error) {
    if (error.code() != Errc::end_of_stream) throw;
  }
  require(steps == plan.steps, "the number of steps");
  const Use after = use_of_process();
  reader.close();
  FigureLine line;
  if (overlap) {
    line.add("reading_s", reading);
    line.add("analysing_s", analysing);
    line.print();
    return;
  }
  line.add("read_gb_per_s", plan.step_bytes() * (steps - 1) / 1e9 / read_s);
  line.add("read_s", first_s + read_s);
  const double gigabytes = plan.step_bytes() * (steps - 1) / 1e9;
  line.add("reader_cpu_ms_per_gb", 1e3 * (after.cpu_s() - before.cpu_s()) / gigabytes);
  line.add("reader_faults_per_gb", (after.faults - before.faults) / gigabytes);
  line.print();
}

void run(const Arguments& arguments) {
  Context context;
  if (arguments.text("role", "writer") == "writer") write_stream(context, arguments);
  else read_stream(context, arguments);
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
