// A Python program that runs inside the process of a simulation: an analysis in situ.
//
// The program is the script that would run beside the simulation: it opens streams and loops over their steps. In the
// simulation's process, streams of engine insitu lend it the simulation's own arrays.
//
//   penstock::PythonProgram analysis({"analysis.py", "heat", "--output", "pictures"});
//   ...                                       // create the stream, write its steps, close it
//   const int status = analysis.wait();       // 0: it ended well
//
// The program has a thread of its own, and an interpreter that ends with it. It is found as `python3` of $PATH, or named by
// $PENSTOCK_PYTHON: the packages are those of that Python. One in a process, once: Python's packages do not start twice. An
// error of the program is printed to its standard error, as Python does, and never ends the process. Signals stay the
// simulation's. Link Penstock::python_program (built where Python's embedding library was found).
#pragma once

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "penstock/options.hpp"

namespace penstock {

class PythonProgram {
 public:
  // The script and its arguments, or "-m", a module and its arguments. Throws Error: wrong_state (the process has or had one), not_found (the script, or Python).
  explicit PythonProgram(std::vector<std::string> arguments);
  // Waits for the program, as long as it takes.
  ~PythonProgram();
  PythonProgram(const PythonProgram&) = delete;

  // Waits for its end; returns its exit status. Throws Error(timeout) naming the script. Call it after the streams that it reads
  // are closed, or lost.
  int wait(Timeout deadline = forever);

 private:
  const std::string script_;
  std::shared_future<int> status_;
  std::thread thread_;
};

}  // namespace penstock
