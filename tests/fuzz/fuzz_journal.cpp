// A journal that is cut off, over and over: the input says what is appended, synced and released, and what a machine that lost its
// power, or a disk that fails or rots, makes of the files in between. Whatever comes back is what was appended; what was synced comes
// back unless it rotted.
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>
#include <set>

#include "base/log.hpp"
#include "fuzz.hpp"
#include "storage/disk_faults.hpp"
#include "storage/journal.hpp"

using namespace penstock;
using storage::Journal;
using Call = storage::DiskCall::Kind;

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t file_bytes = 1024;
constexpr std::size_t most_steps = 60;

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool ended() const { return bytes_.empty(); }
  std::size_t next(std::size_t below) {
    if (ended()) return 0;
    std::size_t value = bytes_[0];
    bytes_ = bytes_.subspan(1);
    if (below > 256 && !ended()) {
      value = value << 8 | bytes_[0];
      bytes_ = bytes_.subspan(1);
    }
    return value % below;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// In memory where there is such a file system: syncs of it cost nothing.
const std::string& folder() {
  static const std::string path = [] {
    const fs::path above = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    return (above / ("penstock-fuzz-journal-" + std::to_string(::getpid()))).string();
  }();
  return path;
}

class World {
 public:
  explicit World(Input input) : input_(input) {
    base::set_log_sink([](base::Level, std::string_view) {});
    fs::remove_all(folder());
    fs::create_directory(folder());
    open();
  }
  ~World() {
    journal_.reset();
    fs::remove_all(folder());
  }

  void step() {
    switch (input_.next(10)) {
      case 0:
      case 1:
      case 2: return append();
      case 3: return sync();
      case 4: return release();
      case 5: return open();
      case 6: return lose_power();
      case 7: return rot();
      case 8: return fail(Call::write);
      case 9: return fail(Call::sync);
    }
  }
  bool ended() const { return input_.ended(); }

 private:
  void append() {
    const std::size_t bytes = input_.next(2 * file_bytes);
    std::string body(bytes, static_cast<char>(++appended_));
    if (bytes >= 4) std::memcpy(body.data(), &appended_, 4);
    const auto number = journal_->append(body, [](const Journal::Place&) {});
    fuzz::check(number == last() + 1);
    frames_[number] = std::move(body);
  }
  void sync() {
    journal_->sync();
    synced_ = last();
  }
  // The disk fails once, when something is appended or synced.
  void fail(Call call) {
    failing_ = call;
    const bool appends = input_.next(2) == 0;
    fuzz::refuses_with({Errc::system}, [&] { appends ? append() : sync(); });
    failing_.reset();
    if (!journal_->failed()) return;
    // Everything is brought over.
    fuzz::check(journal_->last() == last());
    journal_->release(released_ = synced_ = last());
    journal_->restart();
    frames_.clear();
  }
  // What is released is durable where it was brought to.
  void release() {
    if (frames_.empty()) return;
    released_ += 1 + input_.next(last() - released_);
    synced_ = std::max(synced_, released_);
    journal_->release(released_);
    frames_.erase(frames_.begin(), frames_.upper_bound(released_));
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder()))
      if (entry.path().extension() == ".log") out.insert(entry.path().string());
    return out;
  }
  void note_sync(const std::string& path) {
    if (path != folder()) {
      durable_[path] = read(path);
      return;
    }
    durable_names_ = names();
    std::erase_if(durable_, [&](const auto& file) { return !durable_names_.contains(file.first); });
  }
  // Of what was written since its last sync each file has a first part; files that were made since the folder's are gone, or
  // not, and those that were removed are back, or not.
  void lose_power() {
    journal_.reset();
    for (const auto& path : names()) {
      if (!durable_names_.contains(path) && input_.next(2) == 0) {
        fs::remove(path);
        continue;
      }
      std::string content = read(path), before = durable_[path];
      before.resize(content.size());
      const std::size_t kept = input_.next(content.size() + 1);
      write(path, content.substr(0, kept) + before.substr(kept));
    }
    for (const auto& path : durable_names_)
      if (!fs::exists(path) && input_.next(2) == 0) write(path, durable_[path]);
    durable_names_ = names();
    for (const auto& path : durable_names_) durable_[path] = read(path);
    lost_ = true;
    open();
  }
  // A byte that changes once, or a file's end that is missing.
  void rot() {
    journal_.reset();
    const auto files = names();
    if (!files.empty()) {
      const auto path = *std::next(files.begin(), static_cast<std::ptrdiff_t>(input_.next(files.size())));
      std::string content = read(path);
      const std::size_t at = input_.next(content.size());
      if (input_.next(4) == 0) content.resize(at);
      else if (rotten_.insert({path, at}).second) content[at] = static_cast<char>(~content[at]);
      write(path, content);
      durable_[path] = content;
      synced_ = released_;
      lost_ = true;
    }
    open();
  }
  void open() {
    journal_.reset();
    std::map<Journal::Number, std::string> found;
    Journal::Number number = released_;
    journal_ =
        std::make_unique<Journal>(folder(), file_bytes, released_, [&](Journal::Number given, std::string_view body) {
          fuzz::check(given == ++number);
          const auto at = frames_.find(given);
          fuzz::check(at != frames_.end() && at->second == body);
          found[given] = body;
        });
    fuzz::check(journal_->last() == number && !journal_->failed());
    fuzz::check(number >= synced_);  // unless it rotted
    if (!lost_) fuzz::check(found == frames_);
    lost_ = false;
    frames_ = std::move(found);
    synced_ = last();
  }
  Journal::Number last() const { return frames_.empty() ? released_ : frames_.rbegin()->first; }

  Input input_;
  std::unique_ptr<Journal> journal_;
  std::map<Journal::Number, std::string> frames_;  // which are not released
  Journal::Number released_ = 0, synced_ = 0;
  std::set<std::string> durable_names_;
  std::map<std::string, std::string> durable_;  // files' bytes
  std::optional<Call> failing_;
  storage::DiskFaults disk_{[this](const storage::DiskCall& call) {
    if (failing_ == call.kind) {
      failing_.reset();
      return EIO;
    }
    if (call.kind == Call::sync) note_sync(call.path);
    return 0;
  }};
  std::set<std::pair<std::string, std::size_t>> rotten_;
  bool lost_ = false;
  std::uint32_t appended_ = 0;
};

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  const auto bytes = [](std::initializer_list<int> values) {
    Bytes out;
    for (const int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  return {bytes({0, 0, 9, 0, 1, 90, 3, 0, 0, 80, 5, 0, 3, 3, 4, 1, 5}),
          bytes({0, 1, 0, 0, 2, 0, 3, 0, 1, 0, 6, 1, 0, 0, 3, 0, 0, 0, 20, 5}),
          bytes({0, 0, 50, 0, 0, 50, 3, 0, 0, 50, 7, 0, 0, 90, 1, 0, 0, 60, 3, 6, 0, 9, 5}),
          bytes({0, 3, 0, 0, 3, 0, 0, 3, 0, 3, 4, 2, 0, 3, 0, 0, 3, 0, 6, 1, 1, 1, 0, 2, 2, 5})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World world(Input({data, size}));
  for (std::size_t steps = 0; steps < most_steps && !world.ended(); ++steps) world.step();
  return 0;
}
