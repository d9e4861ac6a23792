// What the roles of fault_peer share: arguments, status lines, the armed fault, a cohort over pipes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/penstock.hpp"

namespace penstock::fault {

// "key=value" words of the command line. An unknown key is an error once all were asked for.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  std::string text(const std::string& key, const std::string& fallback = "") const;
  std::uint64_t number(const std::string& key, std::uint64_t fallback) const;

 private:
  std::map<std::string, std::string> values_;
};

// One line to the driver: what happened, in one write, so that it is complete or absent.
void say(const std::string& line);
// The error as "<what> code=<name> ms=<since start> <message>".
void say_error(const std::string& what, const Error& error, std::chrono::steady_clock::time_point start);
// Until the driver says anything, or is gone.
void await_driver();

// Arms the fault of "fault=<point> phase=<before|half|after> occurrence=<n> action=<kill|stop|garbage>", if there is one.
void arm(const Arguments& arguments);
// "visited <point> <phase> <count>" for every fault point of this process so far, when record=1.
void report_visits();

// Two ranks joined by pipes. Throws Error(peer_lost) when the other is gone, Error(timeout) after a while.
// garble=n: a digit of the n-th token that comes by broadcast is changed.
std::shared_ptr<Cohort> cohort_of(const Arguments& arguments);

StreamOptions options_of(const Arguments& arguments);
ContextOptions context_of(const Arguments& arguments);

// The element of the array that every step holds: all differ between steps and along the array.
inline double element(std::uint64_t step, std::uint64_t index) {
  return static_cast<double>(step) * 1e7 + static_cast<double>(index);
}
// Steps grow half-way: a new epoch and new segments in the middle of the stream.
std::uint64_t length_of(std::uint64_t step, std::uint64_t steps);

int run_writer(const Arguments& arguments);
int run_reader(const Arguments& arguments);
int run_intruder(const Arguments& arguments);
int run_hostile_reader(const Arguments& arguments);
int run_hostile_writer(const Arguments& arguments);
int list_points();

}  // namespace penstock::fault
