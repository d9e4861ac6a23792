// ADIOS2's streaming engine (SST) on the same workloads, through its C++ API.
//
// --queue 0 leaves every engine parameter as installed; another number sets QueueLimit. The environment (glibc keeping
// freed blocks, TCP_NODELAY by nodelay_preload) is the driver's business. The PyPI wheel has no MPI: no W2.
#include <adios2.h>

#include "common.hpp"

namespace penstock::bench {
namespace {

class Sst {
 public:
  explicit Sst(const Options& options)
      : options_(options), page_(options.directory), figures_(options), writing_(options.role == "writer") {}

  void run() {
    if (options_.workload == "W1") writing_ ? w1_write() : w1_read();
    else if (options_.workload == "W3") writing_ ? w3_write() : w3_read();
    else if (options_.workload == "W4") w4();
    else unknown_case(options_);
    figures_.print();
  }

 private:
  using Double = adios2::Variable<double>;

  adios2::IO io(const std::string& stream) {
    adios2::IO io = adios_.DeclareIO(stream);
    io.SetEngine("SST");
    if (options_.queue > 0) io.SetParameter("QueueLimit", std::to_string(options_.queue));
    return io;
  }
  std::string path(const std::string& stream) const { return options_.directory + "/" + stream; }
  int steps() const { return steps_of(options_); }
  void start() {
    page_.meet(2);
    figures_.start();
  }
  static void begin(adios2::Engine& engine) {
    const auto status = engine.BeginStep(adios2::StepMode::Read, 60);
    require(status == adios2::StepStatus::OK, "no step within 60 s");
  }

  void w1_write() {
    std::vector<double> own(w1_elements);
    ramp(own.data(), own.size());
    adios2::IO out = io("field");
    const adios2::Dims shape(std::begin(w1_shape), std::end(w1_shape));
    auto variable = out.DefineVariable<double>("T", shape, {0, 0, 0}, shape, adios2::ConstantDims);
    adios2::Engine engine = out.Open(path("field"), adios2::Mode::Write);
    start();
    for (int step = 0; step < steps(); ++step) {
      stamp(own.data(), own.size(), step);
      engine.BeginStep();
      engine.Put(variable, own.data(), adios2::Mode::Sync);
      engine.EndStep();
      figures_.step_done(step);
    }
    figures_.loop_done();
    engine.Close();
  }

  void w1_read() {
    std::vector<double> own(w1_elements, 0.0);
    adios2::IO in = io("field");
    adios2::Engine engine = in.Open(path("field"), adios2::Mode::Read);
    start();
    for (int step = 0; step < steps(); ++step) {
      begin(engine);
      engine.Get(in.InquireVariable<double>("T"), own.data(), adios2::Mode::Deferred);
      engine.EndStep();
      check_samples(own.data(), own.size(), step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    check_all(own.data(), own.size(), steps() - 1);
    engine.Close();
  }

  void w3_write() {
    std::vector<double> own(w3_variables * w3_elements, 0.0);
    adios2::IO out = io("many");
    std::vector<Double> variables;
    for (int v = 0; v < w3_variables; ++v)
      variables.push_back(
          out.DefineVariable<double>(w3_name(v), {w3_elements}, {0}, {w3_elements}, adios2::ConstantDims));
    adios2::Engine engine = out.Open(path("many"), adios2::Mode::Write);
    start();
    for (int step = 0; step < steps(); ++step) {
      w3_stamp(own.data(), step);
      engine.BeginStep();
      for (std::size_t v = 0; v < w3_variables; ++v)
        engine.Put(variables[v], own.data() + v * w3_elements, adios2::Mode::Sync);
      engine.EndStep();
      figures_.step_done(step);
    }
    figures_.loop_done();
    engine.Close();
  }

  void w3_read() {
    std::vector<double> own(w3_variables * w3_elements, 0.0);
    std::vector<std::string> names;
    for (int v = 0; v < w3_variables; ++v) names.push_back(w3_name(v));
    adios2::IO in = io("many");
    adios2::Engine engine = in.Open(path("many"), adios2::Mode::Read);
    start();
    for (int step = 0; step < steps(); ++step) {
      begin(engine);
      for (std::size_t v = 0; v < w3_variables; ++v)
        engine.Get(in.InquireVariable<double>(names[v]), own.data() + v * w3_elements, adios2::Mode::Deferred);
      engine.EndStep();
      w3_check(own.data(), step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    engine.Close();
  }

  // One stream each way; the order of opening follows from Open waiting for the other side.
  void w4() {
    adios2::IO out = io(writing_ ? "there" : "back");
    adios2::IO in = io(writing_ ? "back" : "there");
    auto variable = out.DefineVariable<double>("x", {1}, {0}, {1}, adios2::ConstantDims);
    adios2::Engine sender, receiver;
    if (writing_) sender = out.Open(path("there"), adios2::Mode::Write);
    receiver = in.Open(path(writing_ ? "back" : "there"), adios2::Mode::Read);
    if (!writing_) sender = out.Open(path("back"), adios2::Mode::Write);
    auto send = [&](double value) {
      sender.BeginStep();
      sender.Put(variable, &value, adios2::Mode::Sync);
      sender.EndStep();
    };
    auto receive = [&] {
      double value = -1;
      begin(receiver);
      receiver.Get(in.InquireVariable<double>("x"), &value, adios2::Mode::Deferred);
      receiver.EndStep();
      return value;
    };
    start();
    for (int i = 0; i < steps(); ++i) {
      if (writing_) send(i);
      const double value = receive();
      require(value == i, "an element");
      if (!writing_) send(value);
      figures_.step_done(i);
    }
    figures_.loop_done();
    sender.Close();
    receiver.Close();
  }

  const Options& options_;
  SharedPage page_;
  Figures figures_;
  bool writing_;
  adios2::ADIOS adios_;
};

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  return penstock::bench::run_program(
      argc, argv, [](const penstock::bench::Options& options) { penstock::bench::Sst(options).run(); });
}
