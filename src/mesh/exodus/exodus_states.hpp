// The states of an Exodus file that is open for writing. In the classic formats the file is readable after each state, also after a
// crash: the number of states in its header counts those that are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mesh/exodus/exodus_layout.hpp"
#include "mesh/exodus/netcdf_file.hpp"

namespace penstock::mesh {

class ExodusStates {
 public:
  // states: how many are complete. name: what the file is called once it is readable: a classic file has its model then, a netCDF-4 file is
  // closed.
  // before_named: called then, where the name is another one. sync: a state ends, and a file takes its name, once the disk has it.
  ExodusStates(NetcdfFile file, std::uint64_t states, std::string name, std::function<void()> before_named, bool sync);
  ExodusStates(const ExodusStates&) = delete;
  ExodusStates& operator=(const ExodusStates&) = delete;
  ~ExodusStates();  // as close, without a state that is not complete
  // Model fields, and those of a state that was begun.
  void write(const Entity& entity, const Field& field, const Place& place, const void* values);
  void begin(double time);
  void end();
  void abandon();  // the next state takes its place
  void close();

 private:
  struct Held {
    Place place;
    DType dtype;
    std::uint32_t components;
    std::uint64_t rows;
    std::vector<std::byte> values;
  };
  void name_file();
  NetcdfFile file_;
  std::string path_, name_;
  std::function<void()> before_named_;
  int time_variable_;
  std::uint64_t states_;
  bool sync_;
  std::optional<double> time_;  // of the state that was begun
  std::vector<Held> held_;      // of it, in a netCDF-4 file, which could not forget a state that was begun
  bool closed_ = false;
};

}  // namespace penstock::mesh
