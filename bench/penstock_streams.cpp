// Penstock on the four workloads, through its C++ API.
//
// W1  put_get | put_view (sampled in place) | put_view_sum | span_view_sum (filled in place, summed in place) | handshake
//     (neither filled nor touched); --plane shm, tcp or ucx
// W2  put_get | span_get (the writer's array lives in the stream); built with MPI: each side is one MPI cohort
// W3  put_get
// W4  put_get, one stream each way; --spin-us says how long a wait spins before it sleeps
//
// --count-after N, with counters_preload: allocations and page faults of the whole process from step N to the last.
#include <dlfcn.h>

#include <map>

#include "common.hpp"
#include "penstock/penstock.hpp"
#include "plane.hpp"
#ifdef PENSTOCK_BENCH_MPI
#include "penstock/mpi.hpp"
#endif

namespace penstock::bench {
namespace {

// What must stand still in the steady state.
class StandStill {
 public:
  explicit StandStill(int from) : from_(from) {
    allocations_ = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "penstock_bench_allocations"));
  }
  void before(int step) {
    if (step == from_ && from_ > 0) first_ = read();
  }
  void report(Figures& figures, int steps) const {
    if (from_ <= 0 || steps <= from_) return;
    figures.add("counted_steps", steps - from_);
    if (allocations_) figures.add("allocations", last_.allocations - first_.allocations);
    figures.add("minor_faults", last_.minor - first_.minor);
    figures.add("major_faults", last_.major - first_.major);
  }
  void after_last() { last_ = read(); }

 private:
  struct Counts {
    double allocations = 0, minor = 0, major = 0;
  };
  Counts read() const {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return {allocations_ ? static_cast<double>(allocations_()) : 0, static_cast<double>(use.ru_minflt),
            static_cast<double>(use.ru_majflt)};
  }
  int from_;
  unsigned long (*allocations_)() = nullptr;
  Counts first_, last_;
};

Box box_of(const Part& part) {
  return {{part.start[0], part.start[1], part.start[2]}, {part.count[0], part.count[1], part.count[2]}};
}

class Streams {
 public:
  Streams(const Options& options, std::shared_ptr<Cohort> cohort)
      : options_(options),
        cohort_(std::move(cohort)),
        page_(options.directory),
        figures_(options, cohort_->rank()),
        counter_(options.count_after),
        writing_(options.role == "writer") {}

  void run() {
    if (options_.workload == "W1") writing_ ? w1_write() : w1_read();
    else if (options_.workload == "W2") writing_ ? w2_write() : w2_read_steps();
    else if (options_.workload == "W3") writing_ ? w3_write() : w3_read();
    else w4();
    figures_.print();
  }

 private:
  bool is(const char* variant) const { return options_.variant == variant; }
  int steps() const { return steps_of(options_); }

  StreamOptions stream_options(std::uint64_t step_bytes) const {
    StreamOptions chosen;
    chosen.data_plane = plane_of(options_.plane);
    chosen.step_bytes = step_bytes;
    if (options_.queue > 0) chosen.queue_steps = static_cast<std::uint32_t>(options_.queue);
    if (options_.spin_us >= 0) chosen.spin_us = static_cast<std::uint32_t>(options_.spin_us);
    return chosen;
  }
  Writer create(const char* name, std::uint64_t step_bytes) {
    return context_.create_stream(name, cohort_, stream_options(step_bytes));
  }
  Reader open(const char* name) { return context_.open_stream(name, cohort_, stream_options(0)); }

  // The barrier from which the clock runs.
  void start() {
    page_.meet(static_cast<std::uint32_t>(2 * cohort_->size()));
    figures_.start();
  }
  template <class Step>
  void loop(Step step_body) {
    start();
    for (int step = 0; step < steps(); ++step) {
      counter_.before(step);
      step_body(step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    counter_.after_last();
    counter_.report(figures_, steps());
  }
  // What came in is marked: in W4 a program both writes and reads.
  void report(const StreamStatistics& statistics, const std::string& mark) {
    figures_.add(mark + "announcement_bytes", static_cast<double>(statistics.announcement_bytes));
    figures_.add(mark + "epochs", static_cast<double>(statistics.epochs));
    figures_.add(mark + "copies", static_cast<double>(statistics.copies));
    figures_.add(mark + "copy_s", statistics.copy_s);
    figures_.add(mark + "wait_s", statistics.wait_s);
    figures_.add(mark + "arena_mb", static_cast<double>(statistics.memory_bytes) / (1 << 20));
  }
  void finish(Writer& writer) {
    report(writer.statistics(), "");
    writer.close();
  }
  void finish(Reader& reader) {
    report(reader.statistics(), "in_");
    reader.close();
  }

  void w1_write() {
    const bool fills = is("span_view_sum"), untouched = is("handshake");
    std::vector<double> own(w1_elements);
    ramp(own.data(), own.size());
    const Box all = whole({w1_shape[0], w1_shape[1], w1_shape[2]});
    Writer writer = create("field", own.size() * 8);
    const auto variable = writer.define<double>("T", all.count);
    loop([&](int number) {
      if (!fills && !untouched) stamp(own.data(), own.size(), number);
      WriteStep step = writer.begin_step();
      if (fills) ramp(step.put_span(variable, all).data(), w1_elements, number);
      else if (untouched) step.put_span(variable, all);
      else step.put(variable, all, own.data());
      step.end();
    });
    finish(writer);
  }

  void w1_read() {
    std::vector<double> own(w1_elements, 0.0);
    Reader reader = open("field");
    const Selection everything = Selection::all();
    loop([&](int number) {
      ReadStep step = reader.begin_step();
      const VariableInfo& variable = step.variables().front();
      if (is("put_get")) {
        step.get(variable, everything, own.data());
        step.wait();
        check_samples(own.data(), own.size(), number);
      } else {
        w1_view(step, variable, number);
      }
      step.end();
    });
    if (is("put_get")) check_all(own.data(), own.size(), steps() - 1);
    finish(reader);
  }

  void w1_view(ReadStep& step, const VariableInfo& variable, int number) {
    const auto views = step.view(variable.id);
    require(views.size() == 1 && views[0].as<double>().size() == w1_elements, "a view's size");
    const double* data = views[0].as<double>().data();
    if (is("put_view")) check_samples(data, w1_elements, number);
    else if (is("put_view_sum")) require(sum(data, w1_elements) == stamped_sum(w1_elements, number), "the sum");
    else if (is("span_view_sum")) require(sum(data, w1_elements) == ramp_sum(w1_elements, number), "the sum");
    else if (!is("handshake")) unknown_case(options_);
  }

  void w2_write() {
    const int rank = cohort_->rank();
    const bool in_place = is("span_get");
    std::vector<double> own(in_place ? 0 : w2_part);
    if (!in_place) w2_ramp(own.data(), rank);
    const Box mine = box_of(w2_written(rank));
    Writer writer = create("slabs", w2_part * 8);
    const auto variable = writer.define<double>("T", {w2_side, w2_side, w2_side});
    loop([&](int number) {
      WriteStep step = writer.begin_step();
      if (in_place) {
        w2_stamp(step.put_span(variable, mine).data(), rank, number);
      } else {
        w2_stamp(own.data(), rank, number);
        step.put(variable, mine, own.data());
      }
      step.end();
    });
    finish(writer);
  }

  void w2_read_steps() {
    const int rank = cohort_->rank();
    std::vector<double> own(w2_part, 0.0);
    Reader reader = open("slabs");
    const Selection mine = Selection::box(box_of(w2_read(rank)));
    loop([&](int number) {
      ReadStep step = reader.begin_step();
      step.get(step.variables().front(), mine, own.data());
      step.end();
      w2_check(own.data(), rank, number);
    });
    if (is("put_get")) w2_check_all(own.data(), rank, steps() - 1);
    finish(reader);
  }

  void w3_write() {
    std::vector<double> own(w3_variables * w3_elements, 0.0);
    Writer writer = create("many", own.size() * 8);
    const Box all = whole({w3_elements});
    std::vector<Variable<double>> variables;
    for (int v = 0; v < w3_variables; ++v) variables.push_back(writer.define<double>(w3_name(v), all.count));
    loop([&](int number) {
      w3_stamp(own.data(), number);
      WriteStep step = writer.begin_step();
      for (std::size_t v = 0; v < w3_variables; ++v) step.put(variables[v], all, own.data() + v * w3_elements);
      step.end();
    });
    finish(writer);
  }

  // Where each variable is in a step's list.
  static std::vector<std::size_t> w3_index(const std::vector<VariableInfo>& variables) {
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < variables.size(); ++i) places[variables[i].name] = i;
    std::vector<std::size_t> index;
    for (int v = 0; v < w3_variables; ++v) index.push_back(places.at(w3_name(v)));
    return index;
  }

  // Names are looked up when the list of variables is another one; in between, a variable is an index into it.
  void w3_read() {
    std::vector<double> own(w3_variables * w3_elements, 0.0);
    std::vector<std::size_t> index;
    const VariableInfo* known = nullptr;
    Reader reader = open("many");
    const Selection everything = Selection::all();
    loop([&](int number) {
      ReadStep step = reader.begin_step();
      const auto& variables = step.variables();
      if (variables.data() != known) {
        known = variables.data();
        index = w3_index(variables);
      }
      for (std::size_t v = 0; v < w3_variables; ++v)
        step.get(variables[index[v]], everything, own.data() + v * w3_elements);
      step.end();
      w3_check(own.data(), number);
    });
    finish(reader);
  }

  void w4() {
    Writer writer = create(writing_ ? "there" : "back", 8);
    const auto variable = writer.define<double>("x", {1});
    const Box all = whole({1});
    Reader reader = open(writing_ ? "back" : "there");
    const Selection everything = Selection::all();
    auto send = [&](double value) {
      WriteStep step = writer.begin_step();
      step.put(variable, all, &value);
      step.end();
    };
    auto receive = [&] {
      double value = -1;
      ReadStep step = reader.begin_step();
      step.get(step.variables().front(), everything, &value);
      step.end();
      return value;
    };
    loop([&](int number) {
      if (writing_) send(number);
      const double value = receive();
      require(value == number, "an element");
      if (!writing_) send(value);
    });
    finish(writer);
    finish(reader);
  }

  const Options& options_;
  std::shared_ptr<Cohort> cohort_;
  SharedPage page_;
  Figures figures_;
  StandStill counter_;
  bool writing_;
  Context context_;
};

void run(const Options& options) {
#ifdef PENSTOCK_BENCH_MPI
  MPI_Init(nullptr, nullptr);
  Streams(options, mpi_cohort(MPI_COMM_WORLD)).run();
  MPI_Finalize();
#else
  Streams(options, solo()).run();
#endif
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_program(argc, argv, penstock::bench::run); }
