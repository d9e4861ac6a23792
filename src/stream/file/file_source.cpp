// A reader rank of a stream in files: finds steps by their names, and reads them beside whoever writes. Masters appear in the order
// of steps, so all ranks of a cohort find the same step next without speaking to each other.
#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "fabric/token.hpp"
#include "penstock/interrupt.hpp"
#include "stream/api/open.hpp"
#include "stream/file/file_engine.hpp"
#include "stream/file/file_plane.hpp"
#include "stream/file/folder.hpp"

namespace penstock::stream {
namespace {

constexpr Timeout first_pause(1), longest_pause(50);  // between looks at a folder
constexpr std::size_t most_name_bytes = 128;
constexpr int list_share = 20;  // listing a folder takes so small a part of the time

class FileSource final : public StepSource {
 public:
  FileSource(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options);

  const std::string& stream() const override { return name_; }
  std::uint64_t cohort_number() const override { return number_; }
  transport::DataPlane& plane() override { return plane_; }
  Outcome wait_step(Step& step, base::Deadline deadline) override;
  std::string why(Outcome outcome) const override;
  void described(std::span<const std::shared_ptr<const model::RankLayout>> layouts) override {
    plane_.describe(layouts);
  }
  void seek(std::uint64_t step) override {
    next_ = step;
    known_.clear();
    next_list_ = {};
    newest_ = false;
  }
  std::vector<std::uint64_t> steps() override { return list_steps(folder_); }
  void close() override { plane_.read(nullptr); }
  void add_statistics(StreamStatistics& statistics) const override;

 private:
  StreamRecord wait_for_stream(base::Deadline deadline);
  void pause(Timeout& length, base::Deadline deadline);
  std::optional<std::uint64_t> find_next(bool sure);
  void take(std::uint64_t number, Step& step);

  const std::shared_ptr<fabric::Progress> progress_;
  std::string name_;
  const StreamOptions options_;
  std::string folder_;
  FilePlane plane_;
  std::uint64_t number_ = 0, incarnation_ = 0;
  std::uint32_t writer_ranks_ = 0;
  std::string writer_, why_;
  std::uint64_t next_ = 0;  // the least number of the step to come
  bool newest_ = false;     // once, or always (delivery=latest)
  std::vector<std::uint64_t> known_;
  base::Clock::time_point next_list_{};
  std::optional<std::uint64_t> last_;
  std::shared_ptr<const EpochBlobs> epoch_;
  std::string layouts_;  // the epoch's, as they are in files
  std::uint64_t steps_ = 0;
};

FileSource::FileSource(const EngineContext& context, const std::string& name, Cohort& cohort,
                       const StreamOptions& options)
    : progress_(context.progress), name_(name), options_(options) {
  if (fabric::is_address(name))
    throw Error(Errc::unsupported, "a stream in files is opened by its folder, not by an address");
  if (options.delivery == Delivery::latest && cohort.size() > 1)
    throw Error(Errc::unsupported, "stream " + name +
                                       ": delivery=latest of a stream in files is for one rank: the ranks of a cohort "
                                       "would not agree which step is the newest; use start=newest");
  const auto text = share_text(cohort, [&] {
    folder_ = folder_of(name, options);
    const auto record = wait_for_stream(base::Deadline(Timeout(options.open_timeout_ms)));
    auto start = options.start;
    if (start == "newest") {
      const auto steps = list_steps(folder_);
      start = std::to_string(steps.empty() ? 0 : steps.back());
    }
    std::ostringstream out;
    const auto token = fabric::Token::random();
    out << number_made_of(token, "number of the cohort") << ' ' << record.incarnation << ' ' << record.ranks << ' '
        << (start == "oldest" ? "0" : start) << ' ' << record.stream << ' ' << record.host << ':' << record.pid << '\n'
        << folder_;
    return out.str();
  });
  std::istringstream in(text);
  in >> number_ >> incarnation_ >> writer_ranks_ >> next_ >> name_ >> writer_ >> std::ws;
  std::getline(in, folder_);
  newest_ = options.delivery == Delivery::latest;
}

void FileSource::pause(Timeout& length, base::Deadline deadline) {
  progress_->wait_for([] { return false; }, earlier(deadline, base::Deadline(length)));
  length = std::min(2 * length, longest_pause);
}

StreamRecord FileSource::wait_for_stream(base::Deadline deadline) {
  for (auto length = first_pause;; pause(length, deadline)) {
    if (std::filesystem::exists(folder_) && !std::filesystem::is_directory(folder_))
      throw Error(Errc::invalid_argument, folder_ + " is not the folder of a stream");
    if (const auto record = read_record(folder_)) return *record;
    if (!holds_only_a_stream(folder_))
      throw Error(Errc::invalid_argument, "the folder " + folder_ + " holds something else than a stream");
    if (deadline.passed() || interrupted())
      throw Error(Errc::timeout, "stream " + name_ + " did not open within " +
                                     std::to_string(options_.open_timeout_ms) + " ms: no writer has begun it in " +
                                     folder_);
  }
}

// sure: the folder is listed, whatever that costs.
std::optional<std::uint64_t> FileSource::find_next(bool sure) {
  const auto found = [this] { return std::ranges::lower_bound(known_, next_); };
  if (!newest_) {
    if (storage::exists(file_path(folder_, next_, 0))) return next_;
    if (const auto at = found(); at != known_.end()) return *at;
  }
  if (!sure && base::Clock::now() < next_list_) return std::nullopt;
  const auto start = base::Clock::now();
  known_ = list_steps(folder_);
  // A step that appears while a folder is listed may be missed though a later one is found; the next listing has it.
  if (const auto at = found(); !newest_ && at != known_.end() && *at > next_) known_ = list_steps(folder_);
  next_list_ = base::Clock::now() + list_share * (base::Clock::now() - start);
  if (const auto at = found(); at != known_.end()) return newest_ ? known_.back() : *at;
  return std::nullopt;
}

Outcome FileSource::wait_step(Step& step, base::Deadline deadline) {
  for (auto length = first_pause;; pause(length, deadline)) {
    const bool first_look = length == first_pause;
    auto next = first_look ? find_next(false) : std::nullopt;
    if (!next) {
      // What is said of the writer now holds for the steps found after that.
      const auto [record, lost] = read_record_now(folder_);
      const bool replaced = !record || record->incarnation != incarnation_;
      if (!replaced) next = find_next(record->ended || lost);
      if (!next && replaced) {
        why_ = "the stream in " + folder_ + " was replaced or removed";
        return Outcome::writer_lost;
      }
      if (!next && record->ended) return Outcome::end_of_stream;
      if (!next && lost) {
        why_ = "its writer (" + record->host + ":" + std::to_string(record->pid) + ") has ended without closing it" +
               (record->why.empty() ? "" : ": " + record->why);
        return Outcome::writer_lost;
      }
      if (!next) why_ = "its writer is " + record->host + ":" + std::to_string(record->pid);
    }
    if (next) {
      take(*next, step);
      return Outcome::ready;
    }
    if (deadline.passed() || interrupted()) return Outcome::not_ready;
  }
}

void FileSource::take(std::uint64_t number, Step& step) {
  next_ = number + 1;  // a step that is damaged is said to be so once
  auto held = std::make_shared<HeldFiles>();
  held->folder = folder_;
  held->step = number;
  held->incarnation = incarnation_;
  held->ranks.resize(1);
  const auto& master = held->rank(0);
  const auto& path = master.file->path();
  auto layouts = read_range(*master.file, master.header.layouts);
  if (!epoch_ || layouts != layouts_ || epoch_->layouts.size() != master.header.ranks) {
    auto epoch = std::make_shared<EpochBlobs>();
    epoch->number = epoch_ ? epoch_->number + 1 : 1;
    try {
      epoch->layouts = split_layouts(layouts, master.header.ranks);
      std::vector<std::shared_ptr<const model::RankLayout>> decoded;
      for (std::uint32_t rank = 0; rank < epoch->layouts.size(); ++rank)
        decoded.push_back(std::make_shared<const model::RankLayout>(
            wire::decode_layout(rank, std::as_bytes(std::span(*epoch->layouts[rank]))).layout));
      model::Epoch::build(epoch->number, std::move(decoded));
    } catch (const Error& error) {
      throw error.in(path);
    }
    epoch_ = std::move(epoch);
    layouts_ = std::move(layouts);
  }
  held->ranks.resize(master.header.ranks);
  plane_.read(held);
  last_ = number;
  ++steps_;
  step.step = number;
  step.slot = 0;
  step.epoch = epoch_;
  step.lease = std::move(held);
}

std::string FileSource::why(Outcome outcome) const {
  const auto read = last_ ? "the last step read was " + std::to_string(*last_) : std::string("no step was read");
  switch (outcome) {
    case Outcome::not_ready: return "no step in time in " + folder_ + "; " + why_ + "; " + read;
    case Outcome::end_of_stream: return "the writer has closed it; " + read;
    case Outcome::writer_lost: return why_ + "; " + read + ", the last complete one; later ones are lost";
    case Outcome::ready: break;
  }
  return "";
}

void FileSource::add_statistics(StreamStatistics& statistics) const {
  statistics.epochs = epoch_ ? epoch_->number : 0;
  PeerStatistics peer;
  peer.name = writer_;
  peer.ranks = writer_ranks_;
  peer.data_plane = "file";
  peer.steps_delivered = peer.steps_released = steps_;
  statistics.peers.push_back(std::move(peer));
}

}  // namespace

bool locate_files(std::string& name, StreamOptions& options) {
  namespace fs = std::filesystem;
  std::error_code none;
  fs::path folder(name);
  if (name.find('/') == name.npos && !name.ends_with(folder_suffix) && !fs::exists(name + "/stream.json", none))
    return false;
  if (fs::is_regular_file(folder, none)) {
    const auto step = folder.stem().string();
    if (step.find_first_not_of("0123456789") != step.npos)
      throw Error(Errc::invalid_argument, name + " is not the file of a stream's step");
    options.start = step;
    folder = fs::absolute(folder).parent_path();
  } else if (folder.extension() == ".h5" && !fs::exists(folder, none)) {
    throw Error(Errc::not_found, "there is no file " + name);
  }
  options.folder = folder.string();
  options.folder = folder_of(name, options);
  name = fs::path(options.folder).stem().string().substr(0, most_name_bytes);
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '_' && c != '-'; }, '_');
  return true;
}

std::string inspect_files(const EngineContext&, const std::string& name, const StreamOptions& options, base::Deadline) {
  const auto folder = folder_of(name, options);
  const auto [record, lost] = read_record_now(folder);
  if (!record) throw Error(Errc::not_found, "no stream " + name + " was written in " + folder);
  const auto steps = list_steps(folder);
  nlohmann::json json{{"stream", record->stream}, {"state", record->ended ? "ended" : lost ? "lost" : "open"},
                      {"folder", folder},         {"writer", record->host + ":" + std::to_string(record->pid)},
                      {"ranks", record->ranks},   {"steps", steps.size()}};
  if (!steps.empty()) json["first"] = steps.front(), json["last"] = steps.back();
  if (!record->why.empty()) json["why"] = record->why;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // hosts say who they are
}

std::unique_ptr<StepSource> open_file(const EngineContext& context, const std::string& name, Cohort& cohort,
                                      const StreamOptions& options) {
  return std::make_unique<FileSource>(context, name, cohort, options);
}

}  // namespace penstock::stream
