// The one function of libpenstock_python_program.so: an interpreter in this process (base/part.hpp, penstock/python_program.hpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/part.hpp"
#include "penstock/coprocessor.hpp"

namespace penstock::analysis {

struct PythonPart : base::PartHead {
  // As PythonProgram's constructor.
  std::unique_ptr<RunningAnalysis> (*start)(std::vector<std::string> program);
};

// Throws Error(unsupported).
const PythonPart& python_part();

}  // namespace penstock::analysis

// Null where it is not linked into the program.
extern "C" [[gnu::weak]] const penstock::base::PartHead* penstock_python_program_part();
