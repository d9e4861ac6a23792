#include "mesh/exodus/file_series.hpp"

#include <array>
#include <cstdio>

#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

// Of a model: the file goes on with the model of the one before.
constexpr const char* goes_on_property = "penstock_same_model";

Model without_mark(Model model) {
  model.properties.erase(goes_on_property);
  return model;
}

}  // namespace

std::string series_path(const std::string& name, std::size_t file) {
  if (file == 0) return name;
  std::array<char, 32> ending{};
  std::snprintf(ending.data(), ending.size(), "-s%04zu", file + 1);
  return name + ending.data();
}

SeriesSource::SeriesSource(FileDatabase files, std::string name) : files_(std::move(files)), name_(std::move(name)) {
  now_ = open(0);
}

// Files are opened in their order at first: each tells whether its model is another one.
std::unique_ptr<Source> SeriesSource::open(std::size_t file) {
  auto source = files_.open(series_path(name_, file));
  if (file < numbers_.size()) return source;
  const bool same = file > 0 && source->model(0).properties.contains(goes_on_property);
  numbers_.push_back(file == 0 ? 0 : numbers_.back() + (same ? 0 : 1));
  return source;
}

const Model& SeriesSource::model(std::uint32_t part) {
  const auto found = models_.find(part);
  return found != models_.end() ? found->second : models_.emplace(part, without_mark(now_->model(part))).first->second;
}

// True where the model is another one.
bool SeriesSource::change_to(std::size_t file, std::unique_ptr<Source> source) {
  const bool same = numbers_[file] == numbers_[file_];
  if (same)
    for (const auto& [part, model] : models_)
      if (source->parts() != now_->parts() || without_mark(source->model(part)) != model)
        throw Error(Errc::invalid_argument,
                    series_path(name_, file) + ": does not have the model of the file that it goes on with");
  now_ = std::move(source);
  file_ = file;
  if (!same) models_.clear();
  return !same;
}

StateOutcome SeriesSource::next_state(Timeout deadline) {
  for (bool is_complete = false;;) {
    if (next_) {
      auto [file, source] = *std::exchange(next_, std::nullopt);
      if (change_to(file, std::move(source))) return {StateOutcome::Kind::model, 0};
      is_complete = false;
    }
    const auto outcome = now_->next_state(deadline);
    if (outcome.kind != StateOutcome::Kind::end) return outcome;
    if (is_complete) next_.emplace(file_ + 1, open(file_ + 1));
    else if (!files_.exists(series_path(name_, file_ + 1))) return outcome;
    is_complete = true;  // a state may have come since it was asked
  }
}

std::vector<double> SeriesSource::times() {
  std::vector<double> all;
  for (std::size_t file = 0;; ++file) {
    const bool last = !files_.exists(series_path(name_, file + 1));
    if (file >= times_.size()) {
      auto times = file == file_ ? now_->times() : open(file)->times();
      all.insert(all.end(), times.begin(), times.end());
      if (!last) times_.push_back(std::move(times));
    } else {
      all.insert(all.end(), times_[file].begin(), times_[file].end());
    }
    if (last) return all;
  }
}

void SeriesSource::seek(std::uint64_t state) {
  const auto count = times().size();
  if (state >= count)
    throw Error(Errc::not_found, "there is no state " + std::to_string(state) + "; there are " + std::to_string(count));
  std::size_t file = 0;
  for (; file < times_.size() && state >= times_[file].size(); ++file) state -= times_[file].size();
  if (file == file_) {
    now_->seek(state);
    next_.reset();
    return;
  }
  auto source = open(file);
  source->seek(state);
  next_.emplace(file, std::move(source));
}

SeriesSink::SeriesSink(FileDatabase files, std::string name, std::uint32_t states_per_file, bool resume)
    : files_(std::move(files)), name_(std::move(name)), states_per_file_(states_per_file), resume_(resume) {}

void SeriesSink::define(const Model& model) {
  if (now_) now_->close();
  if (begun_) ++file_;
  const bool resume = std::exchange(resume_, false);
  if (resume)
    while (files_.exists(series_path(name_, file_ + 1))) ++file_;
  else files_.remove_from(name_, file_ + 1);
  written_.clear();
  // A file that is gone on with is full where files have so many states.
  states_ = resume ? states_per_file_ : 0;
  now_ = files_.create(series_path(name_, file_), resume);
  now_->define(model);
  model_ = model;
  begun_ = true;
}

void SeriesSink::write(Slot slot, const void* values) {
  now_->write(slot, values);
  if (in_state_ || states_per_file_ == 0) return;
  const auto& [entity, field] = at(model_, slot);
  const auto* bytes = static_cast<const std::byte*>(values);
  written_.push_back({slot, std::vector(bytes, bytes + values_of(entity, field) * size_of(field.dtype))});
}

// The next file, with the same model.
void SeriesSink::go_on() {
  close();
  auto model = model_;
  model.properties[goes_on_property] = std::int64_t{1};
  now_ = files_.create(series_path(name_, ++file_), false);
  now_->define(model);
  for (const auto& [slot, values] : written_) now_->write(slot, values.data());
  states_ = 0;
}

void SeriesSink::begin_state(double time) {
  if (!now_ || (states_per_file_ != 0 && states_ == states_per_file_)) go_on();
  now_->begin_state(time);
  in_state_ = true;
}

void SeriesSink::end_state() {
  now_->end_state();
  in_state_ = false;
  if (++states_ == states_per_file_) close();
}

void SeriesSink::close() {
  if (now_) now_->close();
  now_.reset();
}

}  // namespace penstock::mesh
