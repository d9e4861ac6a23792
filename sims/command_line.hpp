// The command line and main() of a simulation over MPI. A program names its options once, with where their values go; from that the
// words are read and --help is written.
//
// Values are checked when they are read. Errors: UsageError.
#pragma once

#include <charconv>
#include <cstddef>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "usage_error.hpp"

namespace simulation {

class CommandLine {
 public:
  // about: what the program does.
  CommandLine(std::string program, std::string about) : program_(std::move(program)), about_(std::move(about)) {}

  // All references are kept, and have their defaults when they are named here. what: "N", "FILE".
  // A number, from least to most. A default out of this range stands for something else, which `help` says.
  template <class T>
  void number(const std::string& name, const std::string& what, T& value, T least, T most, const std::string& help) {
    const std::string range = shown(least) + " to " + shown(most);
    const bool has_default = value >= least && value <= most;
    option(name, what, help + " (" + range + (has_default ? "; default: " + shown(value) : "") + ")",
           [=, &value](const std::string& text) {
             T read{};
             const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
             if (error != std::errc() || end != text.data() + text.size() || !(read >= least && read <= most))
               throw UsageError(name + " takes a number from " + range + ", not '" + text + "'");
             value = read;
           });
  }
  void text(const std::string& name, const std::string& what, std::string& value, const std::string& help);
  // Calls set with each value that is given.
  void option(const std::string& name, const std::string& what, const std::string& help,
              std::function<void(const std::string&)> set);
  // An option that takes all words after it, of which there is one at least.
  void rest(const std::string& name, const std::string& what, std::vector<std::string>& words, const std::string& help);
  // The one word that is no option. It must be given.
  void operand(const std::string& what, std::string& value, const std::string& help);

  // False where --help is asked for: then what else is there is not read.
  bool parse(int count, char** words);
  std::string help() const;
  const std::string& program() const { return program_; }

 private:
  struct Option {
    std::string name, what, help;
    std::function<void(const std::string&)> set;  // none: of rest()
  };

  template <class T>
  static std::string shown(T value) {
    std::ostringstream out;
    out << value;
    return out.str();
  }
  const Option& find(const std::string& name) const;
  void read_operand(const std::string& word);

  std::string program_, about_;
  std::vector<Option> options_;
  std::vector<std::string>* rest_ = nullptr;
  Option operand_;
  std::string* operand_value_ = nullptr;
};

// main(): reads the command line, and calls run between MPI_Init and MPI_Finalize, whose result is the exit status. Help is written
// without MPI. After a UsageError, which rank 0 writes, the status is 2. After any other error the job is aborted, because other ranks
// may wait for this one.
int run_over_mpi(CommandLine& line, int count, char** words, const std::function<int()>& run);

}  // namespace simulation
