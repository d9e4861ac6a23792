#include "command_line.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>
#include <utility>

namespace simulation {

void CommandLine::text(const std::string& name, const std::string& what, std::string& value, const std::string& help) {
  option(name, what, help + (value.empty() ? "" : " (default: " + value + ")"),
         [&value](const std::string& text) { value = text; });
}

void CommandLine::option(const std::string& name, const std::string& what, const std::string& help,
                         std::function<void(const std::string&)> set) {
  options_.push_back({name, what, help, std::move(set)});
}

void CommandLine::rest(const std::string& name, const std::string& what, std::vector<std::string>& words,
                       const std::string& help) {
  option(name, what, help, nullptr);
  rest_ = &words;
}

void CommandLine::operand(const std::string& what, std::string& value, const std::string& help) {
  operand_ = {what, "", help, nullptr};
  operand_value_ = &value;
}

bool CommandLine::parse(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--help" || word == "-h") return false;
    if (!word.starts_with("-")) {
      read_operand(word);
      continue;
    }
    const auto equals = word.find('=');
    const Option& found = find(word.substr(0, equals));
    if (equals == std::string::npos && i + 1 == count) throw UsageError(word + " needs a value, " + found.what);
    const std::string value = equals == std::string::npos ? words[++i] : word.substr(equals + 1);
    if (found.set) {
      found.set(value);
    } else {
      *rest_ = {value};
      rest_->insert(rest_->end(), words + i + 1, words + count);
      break;
    }
  }
  if (operand_value_ && operand_value_->empty()) throw UsageError(operand_.name + " is missing: " + operand_.help);
  return true;
}

const CommandLine::Option& CommandLine::find(const std::string& name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  if (found != options_.end()) return *found;
  std::string names;
  for (const auto& option : options_) names += option.name + ", ";
  throw UsageError("unknown option " + name + "; there are " + names + "--help");
}

void CommandLine::read_operand(const std::string& word) {
  if (!operand_value_) throw UsageError("'" + word + "' is no option; --help lists them");
  if (!operand_value_->empty())
    throw UsageError("more than one " + operand_.name + ": " + *operand_value_ + ", " + word);
  *operand_value_ = word;
}

std::string CommandLine::help() const {
  auto lines = options_;
  if (operand_value_) lines.insert(lines.begin(), operand_);
  lines.push_back({"--help", "", "writes this", nullptr});
  const auto begin = [](const Option& line) { return "  " + line.name + (line.what.empty() ? "" : " " + line.what); };
  std::size_t width = 0;
  for (const auto& line : lines) width = std::max(width, begin(line).size());
  std::string text = "usage: mpiexec -n RANKS " + program_ + (operand_value_ ? " " + operand_.name : "") +
                     " [OPTION VALUE]...\n\n" + about_ + "\n\n";
  for (const auto& line : lines) {
    const auto first = begin(line);
    text += first + std::string(width + 2 - first.size(), ' ') + line.help + "\n";
  }
  return text;
}

namespace {

// As the launcher says, before MPI_Init. A process without a launcher is the first.
bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  return true;
}

}  // namespace

int run_over_mpi(CommandLine& line, int count, char** words, const std::function<int()>& run) {
  std::exception_ptr wrong;
  try {
    if (!line.parse(count, words)) {
      if (is_first_rank()) std::cout << line.help();
      return 0;
    }
  } catch (const UsageError&) {
    wrong = std::current_exception();
  }
  int threads = 0, rank = 0, status = 0;  // MPI is called by the main thread alone
  MPI_Init_thread(&count, &words, MPI_THREAD_FUNNELED, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    if (wrong) std::rethrow_exception(wrong);
    status = run();
  } catch (const UsageError& e) {
    if (rank == 0) std::cerr << line.program() << ": " << e.what() << std::endl;
    status = 2;
  } catch (const std::exception& e) {
    std::cerr << line.program() << ": " << e.what() << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}

}  // namespace simulation
