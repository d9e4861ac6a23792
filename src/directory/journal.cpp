#include "directory/journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/bytes.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "penstock/error.hpp"
#include "storage/tier.hpp"

namespace penstock::directory {
using memory::UniqueFd;

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::string_view magic = "PSTKDIR1";
constexpr std::size_t file_header_bytes = 16;
constexpr std::size_t record_header_bytes = 24;
constexpr std::size_t max_body_bytes = max_value_bytes + max_path_bytes + 256;
constexpr std::uint64_t least_compaction_bytes = std::uint64_t{1} << 20;

// First byte of a body. Changes have their DirectoryChange::Kind.
enum Body : std::uint8_t { snapshot_body = 16, lease_body = 17, entry_body = 18 };

Error damaged(const std::string& what) { return Error(Errc::protocol, "the directory's journal is damaged: " + what); }

Error failed(const std::string& what, const std::string& path, int error) {
  return Error(Errc::system, "cannot " + what + " " + path + ": " + std::generic_category().message(error));
}

class Encoder {
 public:
  Encoder(std::string& out, std::uint32_t salt, std::uint64_t durable) : out_(out), salt_(salt), durable_(durable) {}

  void begin(std::uint8_t kind) {
    start_ = out_.size();
    number(salt_);
    number(std::uint64_t{0});
    number(std::uint32_t{0});
    number(durable_);
    number(kind);
  }
  template <class T>
  void number(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out_.append(bytes, sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
  }
  void end() {
    const auto length = static_cast<std::uint32_t>(out_.size() - start_ - record_header_bytes);
    std::memcpy(out_.data() + start_ + 12, &length, sizeof length);
    const auto sum = storage::checksum(std::as_bytes(std::span(out_)).subspan(start_ + 12));
    std::memcpy(out_.data() + start_ + 4, &sum, sizeof sum);
  }

 private:
  std::string& out_;
  std::uint32_t salt_;
  std::uint64_t durable_;
  std::size_t start_ = 0;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    if (bytes_.size() < sizeof(T)) throw damaged("a record is too short");
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::string text() {
    const auto length = number<std::uint32_t>();
    if (length > bytes_.size()) throw damaged("a record is too short");
    std::string value(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return value;
  }
  void end() const {
    if (!bytes_.empty()) throw damaged("a record is too long");
  }

 private:
  std::span<const std::byte> bytes_;
};

struct Record {
  std::span<const std::byte> body;
  std::uint64_t durable = 0;
  std::uint64_t end = 0;  // offset in the file
};

template <class T>
T number_at(std::span<const std::byte> file, std::uint64_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// The record at the offset, if there is a whole one.
std::optional<Record> record_at(std::span<const std::byte> file, std::uint64_t offset, std::uint32_t salt) {
  if (file.size() - offset < record_header_bytes || number_at<std::uint32_t>(file, offset) != salt) return {};
  const std::uint64_t length = number_at<std::uint32_t>(file, offset + 12);
  if (length == 0 || length > max_body_bytes || length > file.size() - offset - record_header_bytes) return {};
  const auto checked = file.subspan(offset + 12, record_header_bytes - 12 + length);
  if (storage::checksum(checked) != number_at<std::uint64_t>(file, offset + 4)) return {};
  return Record{file.subspan(offset + record_header_bytes, length), number_at<std::uint64_t>(file, offset + 16),
                offset + record_header_bytes + length};
}

// How far the file was synced, as far as the whole records after a broken one know.
std::uint64_t durable_after(std::span<const std::byte> file, std::uint64_t offset, std::uint32_t salt) {
  std::uint64_t durable = 0;
  const char* const pattern = reinterpret_cast<const char*>(&salt);
  while (offset < file.size()) {
    const void* found = ::memmem(file.data() + offset, file.size() - offset, pattern, sizeof salt);
    if (found == nullptr) break;
    offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(found) - file.data());
    if (const auto record = record_at(file, offset, salt)) {
      durable = std::max(durable, record->durable);
      offset = record->end;
    } else {
      ++offset;
    }
  }
  return durable;
}

DirectoryChange decode_change(std::span<const std::byte> body) {
  Decoder in(body);
  DirectoryChange change;
  change.kind = static_cast<DirectoryChange::Kind>(in.number<std::uint8_t>());
  change.revision = in.number<std::uint64_t>();
  change.lease = in.number<std::uint64_t>();
  change.ttl_ms = in.number<std::uint32_t>();
  change.path = in.text();
  change.value = in.text();
  in.end();
  return change;
}

// Collects a snapshot's records.
class SnapshotReader {
 public:
  void begin(std::span<const std::byte> body) {
    Decoder in(body);
    if (in.number<std::uint8_t>() != snapshot_body) throw damaged("it does not begin with a snapshot");
    snapshot_.tree = in.number<std::uint64_t>();
    snapshot_.revision = in.number<std::uint64_t>();
    snapshot_.next_lease = in.number<std::uint64_t>();
    leases_ = in.number<std::uint64_t>();
    entries_ = in.number<std::uint64_t>();
    in.end();
  }
  void add(std::span<const std::byte> body) {
    Decoder in(body);
    const auto kind = in.number<std::uint8_t>();
    if (kind == lease_body && snapshot_.leases.size() < leases_) {
      const auto id = in.number<std::uint64_t>();
      snapshot_.leases.emplace_back(id, in.number<std::uint32_t>());
    } else if (kind == entry_body && snapshot_.entries.size() < entries_) {
      DirectoryEntry entry;
      entry.revision = in.number<std::uint64_t>();
      entry.created = in.number<std::uint64_t>();
      entry.lease = in.number<std::uint64_t>();
      entry.path = in.text();
      entry.value = in.text();
      snapshot_.entries.push_back(std::move(entry));
    } else {
      throw damaged("its snapshot is not whole");
    }
    in.end();
  }
  bool whole() const { return snapshot_.leases.size() == leases_ && snapshot_.entries.size() == entries_; }
  DirectorySnapshot take() { return std::move(snapshot_); }

 private:
  DirectorySnapshot snapshot_;
  std::uint64_t leases_ = 0, entries_ = 0;
};

ReplayedJournal replay(std::span<const std::byte> file, DirectoryLimits limits, DirectoryState::Time now) {
  if (file.size() < file_header_bytes || std::memcmp(file.data(), magic.data(), magic.size()) != 0)
    throw Error(Errc::protocol, "it is not a directory's journal");
  const auto salt = number_at<std::uint32_t>(file, magic.size());
  std::uint64_t offset = file_header_bytes;
  SnapshotReader reader;
  const auto next_of_snapshot = [&] {
    const auto record = record_at(file, offset, salt);
    // The snapshot was synced before the file got its name.
    if (!record) throw damaged("its snapshot is broken at byte " + std::to_string(offset));
    offset = record->end;
    return record->body;
  };
  reader.begin(next_of_snapshot());
  while (!reader.whole()) reader.add(next_of_snapshot());

  ReplayedJournal result;
  result.state = std::make_unique<DirectoryState>(reader.take(), limits, now);
  while (offset < file.size()) {
    const auto record = record_at(file, offset, salt);
    if (!record) {
      if (durable_after(file, offset, salt) > offset)
        throw damaged("broken at byte " + std::to_string(offset) + ", which had been written safely");
      break;
    }
    result.state->apply(decode_change(record->body), now);
    offset = record->end;
  }
  result.dropped_bytes = file.size() - offset;
  return result;
}

void write_all(int fd, std::string_view bytes, std::uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw failed("write", path, n < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

// In two halves when a test watches, so that it can stop between them.
void write_with_faults(int fd, std::string_view bytes, std::uint64_t offset, const std::string& path) {
  base::fault_point("directory-journal:write", base::FaultPhase::before);
  const std::size_t half = base::fault_hook.load(std::memory_order_relaxed) != nullptr ? bytes.size() / 2 : 0;
  if (half != 0) {
    write_all(fd, bytes.substr(0, half), offset, path);
    base::fault_point("directory-journal:write", base::FaultPhase::half);
  }
  write_all(fd, bytes.substr(half), offset + half, path);
  base::fault_point("directory-journal:write", base::FaultPhase::after);
}

void sync_folder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw failed("sync", folder, errno);
}

std::string read_file(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw failed("read", path, errno);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t have = 0; have < bytes.size();) {
    const ssize_t n = ::pread(fd, bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw failed("read", path, n < 0 ? errno : EIO);
    have += static_cast<std::size_t>(n);
  }
  return bytes;
}

template <class T>
T random_number() {
  const std::string bytes = base::random_bytes(sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

std::string encode_journal(const DirectorySnapshot& snapshot, std::uint32_t salt) {
  std::string out(magic);
  out.append(reinterpret_cast<const char*>(&salt), sizeof salt);
  out.append(4, '\0');
  Encoder encoder(out, salt, 0);
  encoder.begin(snapshot_body);
  encoder.number(snapshot.tree);
  encoder.number(snapshot.revision);
  encoder.number(snapshot.next_lease);
  encoder.number(std::uint64_t{snapshot.leases.size()});
  encoder.number(std::uint64_t{snapshot.entries.size()});
  encoder.end();
  for (const auto& [id, ttl_ms] : snapshot.leases) {
    encoder.begin(lease_body);
    encoder.number(id);
    encoder.number(ttl_ms);
    encoder.end();
  }
  for (const auto& entry : snapshot.entries) {
    encoder.begin(entry_body);
    encoder.number(entry.revision);
    encoder.number(entry.created);
    encoder.number(entry.lease);
    encoder.text(entry.path);
    encoder.text(entry.value);
    encoder.end();
  }
  return out;
}

std::string encode_changes(std::span<const DirectoryChange> changes, std::uint32_t salt, std::uint64_t durable) {
  std::string out;
  Encoder encoder(out, salt, durable);
  for (const auto& change : changes) {
    encoder.begin(static_cast<std::uint8_t>(change.kind));
    encoder.number(change.revision);
    encoder.number(change.lease);
    encoder.number(change.ttl_ms);
    encoder.text(change.path);
    encoder.text(change.value);
    encoder.end();
  }
  return out;
}

ReplayedJournal replay_journal(std::span<const std::byte> file, DirectoryLimits limits, DirectoryState::Time now) {
  try {
    return replay(file, limits, now);
  } catch (const Error& error) {
    // A path or value that the tree refuses has the code of a caller's mistake.
    if (error.code() != Errc::invalid_argument) throw;
    throw damaged(error.what());
  }
}

DirectoryJournal::DirectoryJournal(std::string folder, bool synced) : folder_(std::move(folder)), synced_(synced) {
  path_ = folder_ + "/directory.journal";
  for (std::size_t at = folder_.find('/', 1); at != std::string::npos; at = folder_.find('/', at + 1))
    ::mkdir(folder_.substr(0, at).c_str(), 0755);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) throw failed("make the folder", folder_, errno);
  const std::string lock = folder_ + "/lock";
  lock_ = UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) throw failed("open", lock, errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error(Errc::wrong_state, "another process keeps its directory in " + folder_);
}

DirectoryState DirectoryJournal::recover(DirectoryLimits limits, Time now) {
  ReplayedJournal replayed;
  if (const UniqueFd old{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)}) {
    const std::string bytes = read_file(old.get(), path_);
    try {
      replayed = replay_journal(std::as_bytes(std::span(bytes)), limits, now);
    } catch (const Error& error) {
      throw error.in(path_);
    }
    if (replayed.dropped_bytes != 0)
      base::log(base::Level::info, "directory journal: dropped what was never acknowledged",
                {{"path", path_}, {"bytes", replayed.dropped_bytes}});
  } else if (errno != ENOENT) {
    throw failed("open", path_, errno);
  } else {
    replayed.state = std::make_unique<DirectoryState>(random_number<std::uint64_t>(), limits);
  }
  compact(replayed.state->snapshot());
  return std::move(*replayed.state);
}

void DirectoryJournal::append(std::span<const DirectoryChange> changes) {
  if (changes.empty()) return;
  if (broken_) throw Error(Errc::system, path_ + " could not be written before");
  const std::string bytes = encode_changes(changes, salt_, end_);
  broken_ = true;
  write_with_faults(file_.get(), bytes, end_, path_);
  if (synced_ && ::fdatasync(file_.get()) != 0) throw failed("sync", path_, errno);
  base::fault_point("directory-journal:sync", base::FaultPhase::after);
  end_ += bytes.size();
  broken_ = false;
}

void DirectoryJournal::compact(const DirectorySnapshot& snapshot) {
  const auto salt = random_number<std::uint32_t>();
  const std::string bytes = encode_journal(snapshot, salt);
  const std::string fresh = path_ + ".new";
  UniqueFd file(::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) throw failed("open", fresh, errno);
  try {
    write_with_faults(file.get(), bytes, 0, fresh);
    if (synced_ && ::fsync(file.get()) != 0) throw failed("sync", fresh, errno);
  } catch (const Error&) {
    ::unlink(fresh.c_str());  // on a full disk it would hold what others need
    throw;
  }
  broken_ = true;  // until it is sure which of the two files a recovery finds
  base::fault_point("directory-journal:rename", base::FaultPhase::before);
  if (::rename(fresh.c_str(), path_.c_str()) != 0) throw failed("rename", fresh, errno);
  base::fault_point("directory-journal:rename", base::FaultPhase::after);
  if (synced_) sync_folder(folder_);
  file_ = std::move(file);
  salt_ = salt;
  end_ = snapshot_ = bytes.size();
  broken_ = false;
}

bool DirectoryJournal::wants_compaction() const {
  return end_ - snapshot_ > std::max<std::uint64_t>(least_compaction_bytes, 2 * snapshot_);
}

}  // namespace penstock::directory
