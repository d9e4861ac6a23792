#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "penstock/python_program.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "analysis/python_part.hpp"
#include "penstock/error.hpp"
#include "penstock/version.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// As `python3 SCRIPT` or `python3 -m MODULE`; Py_RunMain would end the process at SystemExit.
constexpr const char* runner = R"(
import os, runpy, sys, traceback
status = 0
try:
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else int(end.code is not None)
    if not isinstance(end.code, int) and end.code is not None:
        print(end.code, file=sys.stderr)
except BaseException:
    traceback.print_exc()
    status = 1
for stream in sys.stdout, sys.stderr:
    try:
        stream.flush()
    except (AttributeError, ValueError):  # the program has closed it
        pass
)";

std::atomic<bool> used{false};

std::string find_python() {
  if (const char* named = std::getenv("PENSTOCK_PYTHON"); named && *named) {
    if (::access(named, X_OK) == 0 && fs::path(named).filename().string().starts_with("python")) return named;
    throw Error(Errc::not_found, std::string("PENSTOCK_PYTHON=") + named + " is not a Python interpreter");
  }
  const char* path = std::getenv("PATH");
  const std::string folders = path ? path : "";
  for (std::size_t at = 0; at < folders.size();) {
    const auto end = std::min(folders.find(':', at), folders.size());
    const auto candidate = folders.substr(at, end - at) + "/python3";
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = end + 1;
  }
  throw Error(Errc::not_found, "there is no python3 in $PATH; name one by PENSTOCK_PYTHON");
}

void require(PyStatus status) {
  if (PyStatus_Exception(status)) throw Error(Errc::internal, std::string("Python did not start: ") + status.err_msg);
}

// Extension modules find the interpreter's symbols in the process. Those are hidden where libpenstock has loaded this library.
void show_interpreter() {
  Dl_info interpreter{};
  if (::dladdr(reinterpret_cast<const void*>(&Py_InitializeFromConfig), &interpreter) != 0)
    ::dlopen(interpreter.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

void start_python(const std::string& python, const std::vector<std::string>& arguments) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  struct Clear {
    PyConfig& config;
    ~Clear() { PyConfig_Clear(&config); }
  } clear{config};
  config.install_signal_handlers = 0;
  config.parse_argv = 0;
  require(PyConfig_SetBytesString(&config, &config.program_name, python.c_str()));
  std::vector<char*> words;
  for (const auto& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  require(PyConfig_SetBytesArgv(&config, static_cast<Py_ssize_t>(words.size()), words.data()));
  require(Py_InitializeFromConfig(&config));
}

int run(const std::string& python, const std::vector<std::string>& arguments) {
  show_interpreter();
  start_python(python, arguments);
  int status = 1;
  PyObject* names = PyDict_New();
  PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
  if (PyObject* done = PyRun_String(runner, Py_file_input, names, names)) {
    Py_DECREF(done);
    if (PyObject* said = PyDict_GetItemString(names, "status")) status = static_cast<int>(PyLong_AsLong(said));
  } else {
    PyErr_Print();
  }
  Py_DECREF(names);
  return Py_FinalizeEx() < 0 && status == 0 ? 1 : status;
}

bool is_module(const std::vector<std::string>& arguments) { return arguments.size() > 1 && arguments[0] == "-m"; }

std::string name_of(const std::vector<std::string>& arguments) {
  return is_module(arguments) ? arguments[1] : arguments.empty() ? "" : arguments[0];
}

// For libpenstock, which loads this library when an analysis runs in the process of a simulation that does not link it.
class Program final : public RunningAnalysis {
 public:
  explicit Program(std::vector<std::string> arguments) : program_(std::move(arguments)) {}
  int wait(Timeout deadline) override { return program_.wait(deadline); }

 private:
  PythonProgram program_;
};

}  // namespace

PythonProgram::PythonProgram(std::vector<std::string> arguments) : script_(name_of(arguments)) {
  if (!is_module(arguments) && !fs::is_regular_file(script_))
    throw Error(Errc::not_found, "there is no Python program '" + script_ + "'");
  const auto python = find_python();
  if (used.exchange(true))
    throw Error(Errc::wrong_state, script_ + ": this process has run a Python program already; it can run one");
  std::packaged_task<int()> task([python, arguments = std::move(arguments)] { return run(python, arguments); });
  status_ = task.get_future();
  thread_ = std::thread(std::move(task));
}

PythonProgram::~PythonProgram() { thread_.join(); }

int PythonProgram::wait(Timeout deadline) {
  if (deadline != forever && status_.wait_for(deadline) != std::future_status::ready)
    throw Error(Errc::timeout, "the Python program " + script_ + " has not ended in time");
  return status_.get();
}

}  // namespace penstock

const penstock::base::PartHead* penstock_python_program_part() {
  using namespace penstock;
  static const analysis::PythonPart part{{version},
                                         [](std::vector<std::string> program) -> std::unique_ptr<RunningAnalysis> {
                                           return std::make_unique<Program>(std::move(program));
                                         }};
  return &part;
}
