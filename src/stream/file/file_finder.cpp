// Finds streams in files, by the folder that has the stream's name or is that of its options.
#include <ctime>
#include <filesystem>
#include <utility>

#include "penstock/error.hpp"
#include "stream/file/file_engine.hpp"
#include "stream/file/folder.hpp"

namespace penstock::stream {
namespace {

namespace fs = std::filesystem;

constexpr Timeout look_again(50);

// When the record was written the last time, which is when the stream ended; local time.
std::string time_of_record(const std::string& folder) {
  std::error_code none;
  const auto written = fs::last_write_time(folder + "/stream.json", none);
  if (none) return "";
  const auto when = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(std::chrono::file_clock::to_sys(written)));
  std::tm local{};
  char text[32];
  return {text, std::strftime(text, sizeof(text), " %F %T", ::localtime_r(&when, &local))};
}

class FolderFinder final : public Finder {
 public:
  explicit FolderFinder(std::string folder) : folder_(std::move(folder)) {}

  std::optional<Found> look(base::Deadline) override {
    problem_.clear();
    try {
      const auto [record, lost] = read_record_now(folder_);
      if (!record) return std::nullopt;
      Found found{.live = !record->ended && !lost, .where = "files in " + folder_};
      if (lost) found.state = "its writer " + record->host + ":" + std::to_string(record->pid) + " did not close it";
      if (record->ended) found.state = "ended" + time_of_record(folder_);
      return found;
    } catch (const Error& error) {
      problem_ = error.what();
      return std::nullopt;
    }
  }
  std::string place() const override { return "files in " + folder_ + (problem_.empty() ? "" : " (" + problem_ + ")"); }
  // Beside the folder.
  std::vector<std::string> names(base::Deadline) override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(fs::path(folder_).parent_path(), error), end; !error && at != end;
         at.increment(error)) {
      const auto& path = at->path();
      if (path.extension() == folder_suffix && storage::exists((path / "stream.json").string()))
        names.push_back(path.stem().string());
    }
    return names;
  }
  Timeout pause() const override { return look_again; }

 private:
  const std::string folder_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<Finder> find_files(const EngineContext&, const std::string& name, const StreamOptions& options) {
  return std::make_unique<FolderFinder>(folder_of(name, options));
}

}  // namespace penstock::stream
