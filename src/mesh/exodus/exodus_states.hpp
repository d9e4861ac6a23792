// The states of an Exodus file that is open for writing. In the classic formats the file is readable after each state, also after a
// crash: the number of states in its header counts those that are complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mesh/exodus/exodus_layout.hpp"
#include "mesh/exodus/netcdf_file.hpp"

namespace penstock::mesh {

class ExodusStates {
 public:
  // states: how many are complete. name: what the file is called once it is readable: a classic file has its model then, a netCDF-4 file is
  // closed.
  ExodusStates(NetcdfFile file, std::uint64_t states, std::string name);
  ExodusStates(const ExodusStates&) = delete;
  ExodusStates& operator=(const ExodusStates&) = delete;
  ~ExodusStates();  // as close, but for a state that is not complete: a classic file is without it, a netCDF-4 file gets no name
  // Model fields, and those of a state that was begun.
  void write(const Entity& entity, const Field& field, const Place& place, const void* values);
  void begin(double time);
  void end();
  void close();

 private:
  void name_file();
  NetcdfFile file_;
  std::string path_, name_;
  int time_variable_;
  std::uint64_t states_;
  std::optional<double> time_;  // of the state that was begun
  bool closed_ = false;
};

}  // namespace penstock::mesh
