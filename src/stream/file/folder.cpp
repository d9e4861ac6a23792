#include "stream/file/folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/fault.hpp"
#include "base/fork.hpp"
#include "fabric/handshake.hpp"
#include "fabric/json_integer.hpp"
#include "fabric/registration.hpp"
#include "penstock/error.hpp"
#include "stream/file/step_header.hpp"

namespace penstock::stream {
namespace {

constexpr int format_version = 1;
constexpr std::size_t step_digits = 8;  // at least

// What a file in a stream's folder is.
struct Entry {
  enum class What : std::uint8_t { other, ours, part, master, rank } what = What::other;
  std::uint64_t step = 0;
};

bool take_number(std::string_view& text, std::size_t digits, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || static_cast<std::size_t>(end - text.data()) < digits) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

Entry entry_of(std::string_view name) {
  if (name == "stream.json" || name == "stream.json.part" || name == "stream.lock") return {Entry::What::ours};
  const bool part = name.starts_with('.') && name.ends_with(".part");
  if (part) name = name.substr(1, name.size() - 6);
  Entry entry;
  std::uint64_t rank = 0;
  if (!take_number(name, step_digits, entry.step)) return {};
  if (name == ".h5") entry.what = Entry::What::master;
  else if (name.starts_with(".rank") && (name.remove_prefix(5), take_number(name, 1, rank)) && name.empty())
    entry.what = Entry::What::rank;
  else return {};
  if (part) entry.what = Entry::What::part;
  return entry;
}

template <class F>
void for_each_file(const std::string& folder, F&& body) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    body(name, at->is_regular_file() ? entry_of(name) : Entry{});
  }
  if (error && error != std::errc::no_such_file_or_directory) storage::fail("list", folder, error.value());
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string lock_path(const std::string& folder) { return folder + "/stream.lock"; }

}  // namespace

std::optional<StreamRecord> read_record(const std::string& folder) {
  const auto path = folder + "/stream.json";
  if (!storage::exists(path)) return std::nullopt;
  const auto text = storage::read_small_file(path);
  try {
    const auto json = nlohmann::json::parse(text);
    if (fabric::json_integer<int>(json, "penstock_files") != format_version)
      throw Error(Errc::protocol, "was written by another release of Penstock");
    StreamRecord record;
    record.stream = json.at("stream").get<std::string>();
    fabric::check_stream_name(record.stream);
    record.host = json.at("host").get<std::string>();
    record.pid = fabric::json_integer<std::int64_t>(json, "pid");
    record.started = fabric::json_integer<std::int64_t>(json, "started");
    record.ranks = fabric::json_integer<std::uint32_t>(json, "ranks", 1);
    record.incarnation = fabric::json_integer<std::uint64_t>(json, "incarnation");
    record.ended = json.at("ended").get<bool>();
    record.why = json.value("why", "");
    return record;
  } catch (const Error& error) {
    throw error.in(path);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, path + " is damaged (" + fabric::problem_of(error) +
                                    "): restore it, or read the steps beside it as HDF5 files");
  }
}

void write_record(const std::string& folder, const StreamRecord& record, bool sync) {
  const nlohmann::json json = {{"penstock_files", format_version},
                               {"stream", record.stream},
                               {"host", record.host},
                               {"pid", record.pid},
                               {"started", record.started},
                               {"ranks", record.ranks},
                               {"incarnation", record.incarnation},
                               {"ended", record.ended},
                               {"why", record.why}};
  const auto path = folder + "/stream.json", part = path + ".part";
  errno = 0;
  std::ofstream out(part, std::ios::trunc);
  out << json.dump(2) << '\n';
  out.close();
  if (!out) storage::fail("write", part, errno);
  if (sync) storage::File(part, O_RDONLY).sync_data();
  storage::rename_file(part, path);
  if (sync) storage::sync_folder(folder);
}

std::string folder_of(const std::string& stream, const StreamOptions& options) {
  const auto folder = options.folder.empty() ? stream + std::string(folder_suffix) : options.folder;
  auto path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it ended in a slash
  return path.string();
}

bool holds_only_a_stream(const std::string& folder) {
  bool only = true;
  for_each_file(folder, [&](const std::string&, Entry entry) { only = only && entry.what != Entry::What::other; });
  return only;
}

void require_own_files(const std::string& folder) {
  const bool stream = storage::exists(folder + "/stream.json");
  std::string foreign;
  for_each_file(folder, [&](const std::string& name, Entry entry) {
    if (!foreign.empty() || entry.what == Entry::What::ours || (stream && entry.what == Entry::What::part)) return;
    if (stream && entry.what != Entry::What::other) try {
        read_header(storage::File(folder + "/" + name, O_RDONLY));
        return;
      } catch (const Error& error) {
        if (error.code() != Errc::protocol) throw;
      }
    foreign = name;
  });
  if (!foreign.empty())
    throw Error(Errc::wrong_state, "the folder " + folder + " holds '" + foreign +
                                       "', which no stream has written: choose another folder, or move that file away");
}

std::optional<storage::File> lock_for_writing(const std::string& folder) {
  const auto path = lock_path(folder);
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (made < 0) storage::fail("create", path, errno);
  ::close(made);
  storage::File file(path, O_RDWR);
  auto lock = whole_file(F_WRLCK);
  if (::fcntl(file.fd(), F_OFD_SETLK, &lock) == 0) {
    base::leave_to_parent(file.fd());
    return file;
  }
  if (errno == EAGAIN || errno == EACCES) return std::nullopt;
  storage::fail("lock", path, errno);
}

storage::File lock_to_watch(const std::string& folder) { return {lock_path(folder), O_RDONLY}; }

bool still_ours(const storage::File& lock) {
  struct stat mine {
  }, there{};
  return ::fstat(lock.fd(), &mine) == 0 && ::stat(lock.path().c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

void require_ours(const storage::File& lock) {
  if (still_ours(lock)) return;
  const auto folder = std::filesystem::path(lock.path()).parent_path().string();
  if (errno == EACCES) storage::fail("look into", folder, errno);
  throw Error(Errc::wrong_state, "the folder " + folder +
                                     " was removed, renamed or replaced while the stream was written there; the steps "
                                     "that were complete are where the folder went");
}

namespace {

bool writer_is_gone(const std::string& folder, const StreamRecord& record) {
  if (record.host != fabric::host_name()) return false;
  const auto file = storage::File::open_if_there(lock_path(folder), O_RDONLY);
  if (!file) return false;
  auto lock = whole_file(F_RDLCK);
  return ::fcntl(file->fd(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace

RecordNow read_record_now(const std::string& folder) {
  RecordNow now{read_record(folder)};
  if (!now.record || now.record->ended) return now;
  base::fault_point("writer-lock", base::FaultPhase::before);
  if (!writer_is_gone(folder, *now.record)) return now;
  // Since the record was read it may have closed the stream, or another may have resumed or replaced it.
  const auto [incarnation, pid] = std::pair(now.record->incarnation, now.record->pid);
  now.record = read_record(folder);
  now.lost = now.record && now.record->incarnation == incarnation && now.record->pid == pid && !now.record->ended;
  return now;
}

std::string file_name(std::uint64_t step, std::uint32_t rank) {
  auto number = std::to_string(step);
  number.insert(0, number.size() < step_digits ? step_digits - number.size() : 0, '0');
  return number + (rank == 0 ? ".h5" : ".rank" + std::to_string(rank));
}
std::string file_path(const std::string& folder, std::uint64_t step, std::uint32_t rank) {
  return folder + "/" + file_name(step, rank);
}
std::string part_path(const std::string& folder, std::uint64_t step, std::uint32_t rank) {
  return folder + "/." + file_name(step, rank) + ".part";
}

std::vector<std::uint64_t> list_steps(const std::string& folder) {
  std::vector<std::uint64_t> steps;
  for_each_file(folder, [&](const std::string&, Entry entry) {
    if (entry.what == Entry::What::master) steps.push_back(entry.step);
  });
  std::ranges::sort(steps);
  return steps;
}

void remove_steps(const std::string& folder, bool every) {
  const auto complete = list_steps(folder);
  if (every)  // what is left in a crash is rank files without masters
    for (const auto step : complete) storage::remove_file(file_path(folder, step, 0));
  std::vector<std::string> others;
  for_each_file(folder, [&](const std::string& name, Entry entry) {
    const bool incomplete = every || !std::ranges::binary_search(complete, entry.step);
    if (entry.what == Entry::What::part || (entry.what == Entry::What::rank && incomplete)) others.push_back(name);
  });
  for (const auto& name : others) storage::remove_file(folder + "/" + name);
}

}  // namespace penstock::stream
