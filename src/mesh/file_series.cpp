#include "mesh/file_series.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "base/text.hpp"
#include "mesh/stored_source.hpp"
#include "penstock/error.hpp"
#include "stream/api/open.hpp"

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

namespace {

template <class Number>
bool is_number(std::string_view text, Number& out) {
  return std::from_chars(text.data(), text.data() + text.size(), out) ==
         std::from_chars_result{text.data() + text.size(), {}};
}

// Of "", ".4.1", "-s0002" and "-s0002.4.1", also with ".writing": the file's number in the series, from 1. Of anything else 0.
std::size_t number_in_series(std::string_view ending) {
  constexpr std::string_view unfinished = ".writing", next = "-s";
  if (ending.ends_with(unfinished)) ending.remove_suffix(unfinished.size());
  std::size_t number = 1;
  if (ending.starts_with(next)) {
    const auto digits = ending.substr(next.size(), ending.find('.') - next.size());
    if (digits.size() < 4 || !is_number(digits, number)) return 0;
    ending.remove_prefix(next.size() + digits.size());
  }
  return ending.empty() || parts_in_name(ending) ? number : 0;
}

}  // namespace

std::optional<std::pair<std::uint32_t, std::uint32_t>> parts_in_name(std::string_view ending) {
  const auto words = base::split(ending, '.');
  std::uint32_t parts = 0, part = 0;
  if (words.size() != 3 || !words[0].empty() || !is_number(words[1], parts) || !is_number(words[2], part) ||
      part >= parts || words[1].front() == '0' || words[2].size() != words[1].size())
    return std::nullopt;
  return std::pair{parts, part};
}

std::vector<SeriesFile> files_of_series(const std::string& name) {
  const std::filesystem::path path(name);
  const auto stem = path.filename().string();
  std::vector<SeriesFile> files;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(path.has_parent_path() ? path.parent_path() : ".", none)) {
    const auto found = entry.path().filename().string();
    if (!found.starts_with(stem)) continue;
    if (const auto number = number_in_series(std::string_view(found).substr(stem.size())))
      files.push_back({entry.path(), number});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
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
bool SeriesSource::change_to(Next next) {
  const bool same = numbers_[next.file] == numbers_[file_];
  if (same)
    for (const auto& [part, model] : models_)
      if (next.source->parts() != now_->parts() || without_mark(next.source->model(part)) != model)
        throw Error(Errc::invalid_argument,
                    series_path(name_, next.file) + ": does not have the model of the files before it");
  now_ = std::move(next.source);
  file_ = next.file;
  first_state_ = next.first_state;
  if (!same) models_.clear();
  return !same;
}

StateOutcome SeriesSource::next_state(Timeout deadline) {
  for (bool is_complete = false;;) {
    if (next_) {
      if (change_to(*std::exchange(next_, std::nullopt))) return {StateOutcome::Kind::model, 0, 0};
      is_complete = false;
    }
    auto outcome = now_->next_state(deadline);
    outcome.number += first_state_;
    if (outcome.kind != StateOutcome::Kind::end) return outcome;
    if (is_complete) next_.emplace(file_ + 1, first_state_ + now_->times().size(), open(file_ + 1));
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

std::uint32_t SeriesSource::states_per_file() {
  for (std::size_t file = 1; files_.exists(series_path(name_, file)); ++file) {
    open(file);
    if (numbers_[file] == numbers_[file - 1]) return static_cast<std::uint32_t>(open(file - 1)->times().size());
  }
  return 0;
}

void SeriesSource::seek(std::uint64_t state) {
  const auto count = times().size();
  if (state >= count)
    throw Error(Errc::not_found, "there is no state " + std::to_string(state) + "; there are " + std::to_string(count));
  std::size_t file = 0;
  std::uint64_t first = 0;
  for (; file < times_.size() && state - first >= times_[file].size(); ++file) first += times_[file].size();
  if (file == file_) {
    now_->seek(state - first);
    next_.reset();
    return;
  }
  auto source = open(file);
  source->seek(state - first);
  next_.emplace(file, first, std::move(source));
}

SeriesSink::SeriesSink(FileDatabase files, const DatabaseRequest& request)
    : files_(std::move(files)),
      name_(request.name),
      cohort_(request.cohort ? request.cohort : solo()),
      states_per_file_(request.options.states_per_file),
      resume_(request.options.resume) {
  if (resume_ != "no" && resume_ != "append") time_ = base::parse_real(resume_);
}

// The last file, or the last one with a state up to the time. Throws Error(invalid_argument).
std::pair<std::size_t, std::optional<double>> SeriesSink::place_to_resume() const {
  static_cast<void>(files_.takes_more_states(name_));  // or it was written by another number of ranks
  std::size_t file = 0;
  while (files_.exists(series_path(name_, file + 1))) ++file;
  for (;; --file) {
    std::optional<double> last;
    for (const auto time : files_.open(series_path(name_, file))->times())
      if (!time_ || time <= *time_) last = time;
    if (last || !time_) return {file, last};
    if (file == 0)
      throw Error(Errc::invalid_argument, name_ + ": cannot resume after " + resume_ +
                                              ": all of its states are later: remove it, or begin without resume");
  }
}

// Rank 0 looks, once for all.
void SeriesSink::find_place() {
  const auto texts = stream::gather_texts(*cohort_, [&]() -> std::string {
    if (cohort_->rank() != 0) return {};
    const auto [file, last] = place_to_resume();
    return std::to_string(file) + (last ? " " + base::format_real(*last) : "");
  });
  const auto words = base::split(texts.front(), ' ');
  file_ = base::parse_integer(words[0], 0, INT64_MAX);
  if (words.size() > 1) last_time_ = base::parse_real(words[1]);
}

// What earlier runs left of the series from this file on, complete or not. Looked for once: a folder may hold many files.
void SeriesSink::remove_from(std::size_t file) {
  if (std::exchange(is_alone_, true) || cohort_->rank() != 0) return;
  std::error_code none;
  for (const auto& each : files_of_series(name_)) {
    if (each.number <= file || !std::filesystem::is_regular_file(each.path, none)) continue;
    std::error_code error;
    if (!std::filesystem::remove(each.path, error) && error)
      throw Error(Errc::system, each.path + ": cannot remove it: " + error.message());
  }
}

void SeriesSink::lock() {
  try {
    stream::on_every_rank(*cohort_, [&] { lock_ = files_.lock(is_resumed_); });
  } catch (const Error&) {
    lock_.reset();
    throw;
  }
}

void SeriesSink::define(const Model& model) {
  if (model.properties.contains(goes_on_property))
    throw Error(Errc::invalid_argument, name_ + ": the property " + goes_on_property + " is Penstock's own");
  if (now_) close_file();
  if (begun_) ++file_;
  is_resumed_ = !begun_ && resume_ != "no" && files_.exists(name_);
  if (!begun_) lock();
  if (is_resumed_) find_place();
  const auto path = series_path(name_, file_);
  // What is resumed counts as full where a file has so many states.
  is_full_ = is_resumed_ && (states_per_file_ != 0 || !files_.takes_more_states(path));
  keeps_model_ = is_full_ || states_per_file_ != 0;
  written_.clear();
  states_ = 0;
  now_ = is_resumed_ ? files_.resume(path, time_) : create(file_);
  now_->define(model);
  model_ = model;
  begun_ = true;
}

void SeriesSink::write(Slot slot, const void* values) {
  now_->write(slot, values);
  if (in_state_ || !keeps_model_) return;
  const auto& [entity, field] = at(model_, slot);
  const auto* bytes = static_cast<const std::byte*>(values);
  written_.push_back({slot, std::vector(bytes, bytes + values_of(entity, field) * size_of(field.dtype))});
}

// What follows the file that is resumed, once all ranks are known to have its model.
void SeriesSink::drop_later() {
  if (!std::exchange(is_resumed_, false)) return;
  stream::on_every_rank(*cohort_, [&] { remove_from(file_ + 1); });
}

// Older files of the series go when this one is there.
std::unique_ptr<Sink> SeriesSink::create(std::size_t file) {
  return files_.create(series_path(name_, file), file == 0, [this, file] { remove_from(file + 1); });
}

// The next file, with the same model.
void SeriesSink::go_on() {
  if (now_) close_file();
  auto model = model_;
  model.properties[goes_on_property] = std::int64_t{1};
  auto next = create(file_ + 1);
  next->define(model);
  for (const auto& [slot, values] : written_) next->write(slot, values.data());
  now_ = std::move(next);
  ++file_;
  states_ = 0;
  is_full_ = false;
}

void SeriesSink::begin_state(double time) {
  if (is_resumed_ && last_time_ && time <= *last_time_)
    throw Error(Errc::invalid_argument, name_ + ": time " + base::format_real(time) +
                                            " is not after the last state that is there, of time " +
                                            base::format_real(*last_time_) + ": resume after an earlier time");
  if (!now_ || is_full_) go_on();
  now_->begin_state(time);
  drop_later();
  in_state_ = true;
}

void SeriesSink::end_state() {
  now_->end_state();
  in_state_ = false;
  if (++states_ == states_per_file_) close_file();
}

void SeriesSink::abandon_state() {
  now_->abandon_state();
  in_state_ = false;
}

void SeriesSink::close_file() {
  if (now_) now_->close();
  drop_later();
  now_.reset();
}

void SeriesSink::close() {
  close_file();
  lock_.reset();
}

}  // namespace penstock::mesh
