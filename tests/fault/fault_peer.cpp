// A writer or a reader that stops, dies or sends garbage at a given moment, and its healthy counterparts.
//
//   fault_peer points | writer | reader | intruder | hostile-reader | hostile-writer   key=value...
//
// Speaks to the driver (run_faults.py) in lines on standard output; "go" lines on standard input let it go on. Exits with
// 0 when it ended in order, whatever the library reported, 3 when it read wrong data, 4 on any other surprise.
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "peer.hpp"

namespace penstock::fault {

namespace {

using Clock = std::chrono::steady_clock;

struct WrongData : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Diverged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int patience = 40;  // waits that may time out before a program gives up

// ------------------------------------------------------------------------------------------------------------ writer

class WriterRole {
 public:
  explicit WriterRole(const Arguments& arguments)
      : arguments_(arguments),
        steps_(arguments.number("steps", 6)),
        cohort_(cohort_of(arguments)),
        context_(context_of(arguments)) {}

  int run() {
    const auto start = Clock::now();
    try {
      writer_.emplace(context_.create_stream(arguments_.text("stream", "s"), cohort_, options_of(arguments_)));
    } catch (const Error& error) {
      say_error("open-failed", error, start);
      return 0;
    }
    say("ready " + writer_->address());
    await_driver();
    try {
      write_all();
    } catch (const Error& error) {
      say_error("ended", error, start_);
      report();
      return 0;
    }
    say("written");
    close();
    report();
    return 0;
  }

 private:
  void write_all() {
    const auto array = writer_->define<double>("array", {length_of(0, steps_)});
    const auto time = writer_->define_value<double>("time");
    for (std::uint64_t written = 0; written < steps_; ++written) {
      start_ = Clock::now();
      auto step = begin();
      if (!step) return;
      if (step->number() == arguments_.number("throw_at", ~0ull)) throw Diverged("the simulation diverged");
      if (step->number() == arguments_.number("void_at", ~0ull) && cohort_->rank() + 1 == cohort_->size()) {
        say("voided " + std::to_string(step->number()));
        continue;
      }
      put(*step, array, time);
      start_ = Clock::now();
      const auto line = "wrote " + std::to_string(step->number()) + (step->dropped() ? " dropped" : "");
      step->end();
      say(line);
    }
  }

  std::optional<WriteStep> begin() {
    for (int tries = 0; tries < patience; ++tries) {
      start_ = Clock::now();
      try {
        return writer_->begin_step();
      } catch (const Error& error) {
        if (error.code() != Errc::timeout) throw;
        say_error("timeout begin_step", error, start_);
      }
    }
    throw Error(Errc::timeout, "the driver left this writer waiting");
  }

  void put(WriteStep& step, Variable<double> array, Variable<double> time) {
    const auto length = length_of(step.number(), steps_);
    const auto ranks = static_cast<std::uint64_t>(cohort_->size()), rank = static_cast<std::uint64_t>(cohort_->rank());
    const auto first = length * rank / ranks, last = length * (rank + 1) / ranks;
    step.set_shape(array, {length});
    auto block = step.put_span(array, Box{{first}, {last - first}});
    for (std::uint64_t i = first; i < last; ++i) block[i - first] = element(step.number(), i);
    if (rank == 0) step.put(time, static_cast<double>(step.number()));
    step.put_attribute("number", static_cast<std::int64_t>(step.number()));
  }

  void close() {
    start_ = Clock::now();
    try {
      writer_->close();
      say("closed");
    } catch (const Error& error) {
      say_error("close-failed", error, start_);
    }
  }

  void report() {
    const auto s = writer_->statistics();
    say("statistics steps=" + std::to_string(s.steps) + " dropped=" + std::to_string(s.steps_dropped) +
        " voided=" + std::to_string(s.steps_voided) + " memory=" + std::to_string(s.memory_bytes) +
        " bound=" + std::to_string(options_of(arguments_).queue_bytes));
  }

  const Arguments& arguments_;
  const std::uint64_t steps_;
  std::shared_ptr<Cohort> cohort_;
  Context context_;
  std::optional<Writer> writer_;
  Clock::time_point start_ = Clock::now();
};

// ------------------------------------------------------------------------------------------------------------ reader

class ReaderRole {
 public:
  explicit ReaderRole(const Arguments& arguments)
      : arguments_(arguments),
        steps_(arguments.number("steps", 6)),
        cohort_(cohort_of(arguments)),
        context_(context_of(arguments)) {}

  int run() {
    const auto start = Clock::now();
    try {
      const auto name = arguments_.text("address", arguments_.text("stream", "s"));
      reader_.emplace(context_.open_stream(name, cohort_, options_of(arguments_)));
    } catch (const Error& error) {
      say_error("open-failed", error, start);
      return 0;
    }
    say("opened " + reader_->statistics().data_plane);
    if (arguments_.number("pause", 0) != 0) await_driver();
    read_all();
    reader_->close();
    const auto s = reader_->statistics();
    say("statistics steps=" + std::to_string(s.steps) + " dropped=" + std::to_string(s.steps_dropped));
    return 0;
  }

 private:
  void read_all() {
    for (int tries = 0; tries < patience;) {
      auto start = Clock::now();
      bool has_step = false;
      try {
        auto step = reader_->begin_step();
        has_step = true;
        start = Clock::now();
        check(step);
        const bool hold = arguments_.number("hold", 0) != 0 && !held_;
        held_ = true;
        if (hold) {
          say("holds " + std::to_string(step.number()));
          await_driver();
        }
        const auto number = step.number();
        step.end();
        say("read " + std::to_string(number));
      } catch (const Error& error) {
        if (error.code() == Errc::end_of_stream || error.code() == Errc::writer_lost) {
          say_error("ended", error, start);
          return;
        }
        say_error(error.code() != Errc::timeout ? "failed"
                  : has_step                    ? "timeout in_step"
                                                : "timeout begin_step",
                  error, start);
        ++tries;
      }
    }
    say("gave up");
  }

  void check(ReadStep& step) {
    const auto number = step.number();
    const auto* info = step.find("array");
    if (info == nullptr || info->shape.size() != 1 || info->shape[0] != length_of(number, steps_))
      throw WrongData("step " + std::to_string(number) + " has another shape");
    const auto attribute = step.attribute("number");
    if (!attribute || attribute->as<std::int64_t>() != static_cast<std::int64_t>(number))
      throw WrongData("step " + std::to_string(number) + " has another attribute");
    if (number % 2 == 0) {
      check_values(number, 0, step.read<double>("array"));
    } else {
      for (const auto& view : step.view(info->id)) check_values(number, view.box().start[0], view.as<double>());
    }
    if (step.read_value<double>("time") != static_cast<double>(number)) throw WrongData("another time");
  }

  void check_values(std::uint64_t number, std::uint64_t first, std::span<const double> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != element(number, first + i))
        throw WrongData("step " + std::to_string(number) + ": element " + std::to_string(first + i) + " is " +
                        std::to_string(values[i]));
  }

  const Arguments& arguments_;
  const std::uint64_t steps_;
  std::shared_ptr<Cohort> cohort_;
  Context context_;
  std::optional<Reader> reader_;
  bool held_ = false;
};

int run(const std::string& role, const Arguments& arguments) {
  try {
    arm(arguments);
    if (role == "points") return list_points();
    if (role == "writer") return WriterRole(arguments).run();
    if (role == "reader") return ReaderRole(arguments).run();
    if (role == "intruder") return run_intruder(arguments);
    if (role == "hostile-reader") return run_hostile_reader(arguments);
    if (role == "hostile-writer") return run_hostile_writer(arguments);
    say("no role " + role);
  } catch (const WrongData& error) {
    say(std::string("wrong data: ") + error.what());
    return 3;
  } catch (const Diverged&) {
    say("diverged");
    return 0;
  } catch (const std::exception& error) {
    say(std::string("unexpected: ") + error.what());
  }
  return 4;
}

}  // namespace
}  // namespace penstock::fault

int main(int argc, char** argv) {
  using namespace penstock::fault;
  if (argc < 2) return 4;
  const Arguments arguments(argc, argv);
  const int code = run(argv[1], arguments);
  report_visits();
  return code;
}
