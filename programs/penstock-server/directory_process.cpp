#include "directory_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.hpp"
#include "base/text.hpp"
#include "directory/server.hpp"
#include "events.hpp"
#include "fabric/handshake.hpp"
#include "fabric/registration.hpp"
#include "file_lock.hpp"
#include "memory/unique_fd.hpp"
#include "notice.hpp"
#include "penstock/error.hpp"

namespace penstock::server {
namespace {

using namespace std::chrono_literals;
using base::Deadline;
using base::Level;
namespace fs = std::filesystem;

constexpr auto look_at_directory = 200ms, look_at_users = 100ms, look_again = 20ms;
constexpr std::chrono::milliseconds longest_pause = 5s;  // between two tries to start it
constexpr Timeout start_patience(10'000), end_patience(3000);
constexpr int lock_descriptor = 3, ready_descriptor = 4;  // in the directory's process

// Files in the registration folder.
std::string lock_file(const std::string& registration) { return registration + "/directory.lock"; }
std::string users_file(const std::string& registration) { return registration + "/directory.users"; }
std::string temporary_journal(const std::string& registration) { return registration + "/directory.d"; }

std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

// Makes the folder. Throws Error(authentication) when it is not ours alone: what lies there decides what we start.
std::string registration_folder(const ServeOptions& options) {
  const std::string path = absolute(fabric::resolve_directory(options.node.registration_directory));
  std::error_code failed;
  fs::create_directories(fs::path(path).parent_path(), failed);
  // Nobody sees it open to others, not even for a moment: servers start at once.
  if (!failed && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) failed.assign(errno, std::generic_category());
  if (failed) throw Error(Errc::system, "folder " + path + ": " + failed.message());
  fabric::Directory(path).read(directory::directory_registration);
  return path;
}

std::string journal_folder(const ServeOptions& options, const std::string& registration) {
  return options.folder.empty() ? temporary_journal(registration) : absolute(options.folder + "/directory");
}

std::string settings_of(const ServeOptions& options, const std::string& registration) {
  return "folder=" + journal_folder(options, registration) + "\nregistration=" + registration +
         "\nlisten=" + options.node.server.listen + "\nlog=" + options.log + "\n";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

struct Actions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Actions(int lock, int ready) {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, lock, lock_descriptor);
    ::posix_spawn_file_actions_adddup2(&files, ready, ready_descriptor);
    ::posix_spawn_file_actions_addclosefrom_np(&files, ready_descriptor + 1);
    ::posix_spawn_file_actions_addchdir_np(&files, "/");
    sigset_t every, none;
    sigfillset(&every);
    sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes, &every);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    // A session of its own: what ends the server's terminal or process group does not reach it.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  }
  Actions(const Actions&) = delete;
  ~Actions() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
};

memory::UniqueFd above_fixed_numbers(int fd) {
  memory::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, ready_descriptor + 1));
  if (!copy) throw Error(Errc::system, std::string("descriptors: ") + std::strerror(errno));
  return copy;
}

// The line that the process writes when it serves or has failed; empty: it ended without one, or the deadline passed.
std::string read_line(int fd, Deadline deadline) {
  std::string line;
  char part[512];
  while (!line.ends_with('\n')) {
    pollfd one{fd, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min(deadline.remaining(), start_patience).count()));
    if (ready < 0 && errno == EINTR) continue;
    const auto count = ready > 0 ? ::read(fd, part, sizeof part) : 0;
    if (count <= 0) return "";
    line.append(part, static_cast<std::size_t>(count));
  }
  return line;
}

// Starts the process with the settings in the lock's file; it inherits the lock, which must be taken. Returns when it serves;
// started gets its number, to be waited for. Throws Error(system).
void start_process(FileLock lock, std::vector<pid_t>& started, Deadline deadline) {
  std::vector<std::string> words{"penstock-server", "--directory", "--ready-fd", std::to_string(ready_descriptor)};
  const std::string settings = lock.text();
  for (const std::string_view line : base::split(settings, '\n'))
    if (!line.empty()) words.emplace_back(line);
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pair[2];
  if (::pipe2(pair, O_CLOEXEC) != 0) throw Error(Errc::system, std::string("pipe: ") + std::strerror(errno));
  const memory::UniqueFd ready(pair[0]);
  memory::UniqueFd theirs(pair[1]);
  pid_t pid = -1;
  {
    const auto lock_copy = above_fixed_numbers(lock.fd()), ready_copy = above_fixed_numbers(theirs.get());
    const Actions actions(lock_copy.get(), ready_copy.get());
    const int code = ::posix_spawn(&pid, "/proc/self/exe", &actions.files, &actions.attributes, argv.data(), environ);
    if (code != 0) throw Error(Errc::system, "the directory cannot be started: " + std::string(std::strerror(code)));
  }
  started.push_back(pid);
  theirs.reset();
  const std::string line = read_line(ready.get(), deadline);
  if (line.starts_with("ready")) return;
  // It ends by itself, or is slow: then whoever looks sees that the lock is taken.
  const std::string why = line.starts_with("failed ") ? line.substr(7, line.size() - 8)
                                                      : "it ended, or did not answer in time, without a word";
  throw Error(Errc::system, "the directory did not start: " + why);
}

}  // namespace

class DirectoryKeeper::Impl {
 public:
  explicit Impl(std::string registration) : registration_(std::move(registration)), users_(users_file(registration_)) {}

  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    if (!thread_.joinable()) return;
    thread_.join();
    try {
      leave();
    } catch (const Error& error) {
      base::log(Level::warn, "directory: its end was not waited for", {{"error", error.what()}});
    }
  }

  // options: null for who starts none. Returns what is registered and alive.
  fabric::Registration join(const ServeOptions* options, Deadline deadline) {
    while (true) {
      if (const auto found = try_join(options, deadline)) return *found;
      users_.unlock();  // whoever is alone may start it
      if (deadline.passed()) throw Error(Errc::timeout, "no directory came to be registered in " + registration_);
      std::this_thread::sleep_for(look_again);
    }
  }
  void keep() {
    thread_ = std::thread([this] { look_after(); });
  }
  bool kept() const { return kept_; }  // it is a process of this host, which users_ keeps from ending

 private:
  std::optional<fabric::Registration> try_join(const ServeOptions* options, Deadline deadline) {
    kept_ = true;
    const bool alone = users_.try_exclusive();
    if (!alone && !users_.try_shared()) return {};  // a directory is ending, or somebody starts one
    FileLock lock(lock_file(registration_));
    if (!lock.try_shared()) {  // its process holds it; who only looks, as here, shares it
      if (options != nullptr) require_same(lock, *options);
    } else if (!alone) {
      return {};  // the others start it again
    } else if (options == nullptr) {
      kept_ = false;  // there is none on this host, unless it is no process of its own
      users_.unlock();
    } else {
      if (!lock.try_exclusive()) return {};  // somebody looks just now
      if (const auto other = registered_elsewhere()) throw Error(Errc::wrong_state, *other);
      lock.set_text(settings_of(*options, registration_));
      // Servers that are gone left it; what was in their memory is gone, too.
      if (options->folder.empty()) fs::remove_all(temporary_journal(registration_));
      start_process(std::move(lock), started_, deadline);
    }
    if (kept_ && !users_.try_shared()) return {};
    auto found = fabric::Directory(registration_).read(directory::directory_registration);
    if (!found || !fabric::alive(*found)) return {};
    if (kept_ && found->host == fabric::host_name()) return found;
    if (options != nullptr)
      throw Error(Errc::wrong_state, "a directory on host " + found->host + " is registered in " + registration_);
    kept_ = false;
    users_.unlock();
    return found;
  }

  std::optional<std::string> registered_elsewhere() const {
    const auto found = fabric::Directory(registration_).read(directory::directory_registration);
    if (!found || !fabric::alive(*found)) return {};
    return "a directory of process " + std::to_string(found->pid) + " on " + found->host + " is registered in " +
           registration_;
  }

  void require_same(const FileLock& lock, const ServeOptions& options) const {
    const std::string theirs = first_line(lock.text()), ours = first_line(settings_of(options, registration_));
    if (theirs == ours) return;
    throw Error(Errc::wrong_state, "a directory that keeps its journal in another folder (" + theirs +
                                       ") is registered in " + registration_ + "; directory=registered joins it");
  }

  void look_after() {
    auto pause = look_at_directory;
    bool reported = false;
    std::unique_lock stopping(mutex_);
    while (!stop_.wait_for(stopping, pause, [this] { return stopping_; })) {
      stopping.unlock();
      std::erase_if(started_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
      try {
        start_again();
        pause = look_at_directory;
        reported = false;
      } catch (const std::exception& error) {  // whatever it is, the server outlives it
        if (!std::exchange(reported, true))
          base::log(Level::error, "directory: it cannot be started again; trying on", {{"error", error.what()}});
        pause = std::min(2 * pause, longest_pause);
      }
      stopping.lock();
    }
  }

  void start_again() {
    FileLock lock(lock_file(registration_));
    if (!lock.try_exclusive()) return;
    base::log(Level::warn, "directory: its process has died and is started again", {{"registration", registration_}});
    start_process(std::move(lock), started_, Deadline(start_patience));
  }

  // Until it has ended, if nobody else uses it.
  void leave() {
    users_.unlock();
    const Deadline deadline(end_patience);
    while (!deadline.passed()) {
      if (FileLock(lock_file(registration_)).try_shared()) return;
      if (users_.try_shared()) {  // else it is ending
        if (!users_.try_exclusive()) return;
        users_.unlock();
      }
      std::this_thread::sleep_for(look_again);
    }
  }

  std::string registration_;
  FileLock users_;
  bool kept_ = false;
  std::vector<pid_t> started_;  // to be waited for; the thread's, once there is one
  std::mutex mutex_;            // guards stopping_
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

DirectoryKeeper::DirectoryKeeper(const ServeOptions& options, Deadline deadline) : address_(options.node.directory) {
  const bool embedded = address_ == "embedded", by_address = fabric::is_address(address_);
  if (!embedded && !by_address && address_ != "registered") return;  // etcd
  const std::string registration = registration_folder(options);
  if (by_address) {
    const auto found = fabric::Directory(registration).read(directory::directory_registration);
    if (!found || found->token != fabric::parse_address(address_).token) return;  // another host's, or pool's
  }
  auto impl = std::make_unique<Impl>(registration);
  const auto found = impl->join(embedded ? &options : nullptr, deadline);
  if (!by_address) address_ = fabric::to_address(found);
  if (!impl->kept()) return;
  impl_ = std::move(impl);
  impl_->keep();
}

DirectoryKeeper::~DirectoryKeeper() = default;

int run_directory(const std::vector<std::string>& settings, int ready_fd) {
  ::prctl(PR_SET_NAME, "penstock-dir");
  ServeOptions options;
  for (const std::string& setting : settings) set_argument(options, setting);
  const std::string &listen = options.node.server.listen, &registration = options.node.registration_directory;
  base::set_log_level(options.log.empty() ? Level::info : base::parse_level(options.log));
  Events events;
  bool unused = false;
  const bool temporary = options.folder == temporary_journal(registration);
  FileLock users(users_file(registration));
  auto progress = fabric::Progress::create();
  std::unique_ptr<directory::DirectoryHost> host;
  try {
    directory::DirectoryServerOptions directory;
    directory.folder = options.folder;
    directory.synced = !temporary;
    host = std::make_unique<directory::DirectoryHost>(progress, directory, listen, registration);
  } catch (const Error& error) {
    std::string line = std::string("failed ") + error.what();
    std::ranges::replace(line, '\n', ' ');
    line += '\n';
    if (::write(ready_fd, line.data(), line.size()) < 0) base::log(Level::error, error.what());
    return 1;
  }
  write_ready_line(ready_fd, "{}");
  base::log(Level::info, "directory ready", {{"address", without_token(host->address())}, {"folder", options.folder}});
  while (!unused && !events.wait(look_at_users)) {
    if (!users.try_exclusive()) continue;
    unused = host->leases() == 0;
    if (!unused) users.unlock();
  }
  host.reset();
  progress.reset();
  std::error_code not_removed;  // then the next directory here removes it
  if (unused && temporary) fs::remove_all(options.folder, not_removed);
  base::log(Level::info, "directory ended", {{"unused", unused}});
  return 0;
}

}  // namespace penstock::server
