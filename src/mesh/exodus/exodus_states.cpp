#include "mesh/exodus/exodus_states.hpp"

#include <fcntl.h>

#include <filesystem>
#include <utility>

#include "mesh/exodus/classic_header.hpp"
#include "penstock/error.hpp"
#include "storage/file.hpp"

namespace penstock::mesh {

ExodusStates::ExodusStates(NetcdfFile file, std::uint64_t states, std::string name, std::function<void()> before_named,
                           bool sync)
    : file_(std::move(file)),
      path_(file_.path()),
      name_(std::move(name)),
      before_named_(std::move(before_named)),
      states_(states),
      sync_(sync) {
  const auto* times = file_.find("time_whole");
  if (times == nullptr) throw Error(Errc::invalid_argument, path_ + ": it has no variable time_whole for states");
  time_variable_ = times->id;
}

ExodusStates::~ExodusStates() {
  if (closed_) return;
  try {
    if (file_.is_open()) {
      file_.close();
      if (!file_.is_classic() && states_ > 0) name_file();
    }
  } catch (const Error&) {  // a netCDF-4 file has not got its name
  }
  try {
    if (file_.is_classic()) keep_records(path_, states_);
  } catch (const Error&) {  // the file has a state too many, whose time is 0
  }
}

void ExodusStates::write(const Entity& entity, const Field& field, const Place& place, const void* values) {
  if (place.columns.empty()) return;
  const auto rows = rows_of(entity, field);
  const auto components = components_of(field);
  if (time_ && !file_.is_classic()) {
    const auto* bytes = static_cast<const std::byte*>(values);
    held_.push_back({place, field.dtype, components, rows,
                     std::vector(bytes, bytes + values_of(entity, field) * size_of(field.dtype))});
    return;
  }
  const StateNumber state = time_ ? StateNumber(states_) : std::nullopt;
  write_place(file_, place, field.dtype, components, state, {0, rows}, values);
}

void ExodusStates::begin(double time) {
  if (file_.is_classic() && name_ != path_) {
    file_.synchronise();
    name_file();
  }
  time_ = time;
}

void ExodusStates::end() {
  for (const auto& each : std::exchange(held_, {}))
    write_place(file_, each.place, each.dtype, each.components, states_, {0, each.rows}, each.values.data());
  file_.write(time_variable_, DType::float64, {states_}, {1}, &*time_);
  file_.synchronise();
  if (sync_) storage::File(path_, O_RDONLY).sync_data();
  time_.reset();
  ++states_;
}

void ExodusStates::abandon() {
  held_.clear();
  time_.reset();
}

// netCDF-C counts a state that was begun and not ended.
void ExodusStates::close() {
  file_.close();
  if (file_.is_classic()) keep_records(path_, states_);
  name_file();
  closed_ = true;
}

void ExodusStates::name_file() {
  std::error_code error;
  if (sync_) storage::File(path_, O_RDONLY).sync_data();
  if (name_ != path_ && before_named_) before_named_();
  if (name_ != path_) std::filesystem::rename(path_, name_, error);
  if (!error) path_ = name_;
  else throw Error(Errc::system, path_ + ": cannot rename it to " + name_ + ": " + error.message());
  if (sync_) storage::sync_folder(std::filesystem::absolute(name_).parent_path().string());
}

}  // namespace penstock::mesh
