#include "fabric/registration.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/uri.hpp"
#include "fabric/connect.hpp"
#include "fabric/endpoint_json.hpp"
#include "fabric/json_integer.hpp"
#include "fabric/socket.hpp"
#include "penstock/error.hpp"

namespace penstock::fabric {

namespace {

constexpr int format_version = 1;
constexpr std::size_t max_file_bytes = 64 << 10;
constexpr std::string_view extension = ".json";
constexpr Timeout lock_patience(5000);  // asking a writer whether it lives takes half a second at most
constexpr int lock_retry_ms = 2;

// Whether only this user can see and change it; says how to put it right.
void check_private(const struct stat& status, const std::string& path, const char* what) {
  if (status.st_uid != ::geteuid())
    throw Error(Errc::authentication, std::string(what) + " " + path + " belongs to user " +
                                          std::to_string(status.st_uid) +
                                          ": choose another directory with PENSTOCK_DIRECTORY");
  if ((status.st_mode & 077) != 0)
    throw Error(Errc::authentication, std::string(what) + " " + path +
                                          " is open to other users, who could read the stream's token: chmod go= it");
}

// Opens the directory, making it if asked; empty when it is not there.
UniqueFd open_directory(const std::string& path, bool make) {
  if (make) {
    // Parents get the usual mode; only ours is private.
    for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
      ::mkdir(path.substr(0, at).c_str(), 0755);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      throw Error(Errc::system, "cannot make the directory " + path + ": " + errno_text(errno));
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT && !make) return fd;
    throw Error(Errc::system, "cannot open the directory " + path + ": " + errno_text(errno));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw Error(Errc::system, path + ": " + errno_text(errno));
  check_private(status, path, "the directory");
  return fd;
}

// Empty when there is no such file.
std::optional<std::string> read_private_file(int directory, const std::string& name, const std::string& path) {
  UniqueFd fd(::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    throw Error(Errc::system, "cannot open " + path + ": " + errno_text(errno));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw Error(Errc::system, path + ": " + errno_text(errno));
  check_private(status, path, "the file");
  if (!S_ISREG(status.st_mode) || status.st_size > static_cast<off_t>(max_file_bytes))
    throw Error(Errc::protocol, path + " is not a stream's registration");
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t at = 0;
  while (at < text.size()) {
    const auto count = ::read(fd.get(), text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    at += static_cast<std::size_t>(count);
  }
  text.resize(at);
  return text;
}

void write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const auto count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(Errc::system, "cannot write " + path + ": " + errno_text(errno));
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// Until the folder is closed: of several writers that come at once only one finds a name free. Goes on without the lock
// where a file system has none, or its holder is stopped.
void lock(int directory) {
  const base::Deadline deadline{lock_patience};
  while (::flock(directory, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || deadline.passed()) return;
    ::poll(nullptr, 0, lock_retry_ms);
  }
}

}  // namespace

std::string forgotten_communicator(const Registration& one, const Registration& other) {
  return one.ranks == 1 && other.ranks == 1 ? forgotten_communicator(one.launch, other.launch) : "";
}

void refuse_taken(const Registration& mine, const Registration& other) {
  const auto why = forgotten_communicator(mine, other);
  throw Error(Errc::wrong_state, "stream '" + mine.stream + "' is already being written by process " +
                                     std::to_string(other.pid) + " on " + other.host + (why.empty() ? "" : ": " + why));
}

std::string registration_text(const Registration& registration) {
  const nlohmann::json json = {{"version", format_version},
                               {"stream", registration.stream},
                               {"endpoint", to_json(registration.endpoint)},
                               {"token", registration.token.hex()},
                               {"pid", registration.pid},
                               {"host", registration.host},
                               {"ranks", registration.ranks},
                               {"started", registration.started},
                               {"launch", registration.launch.id},
                               {"launch_rank", registration.launch.rank}};
  return json.dump(2) + "\n";
}

Registration registration_from_text(const std::string& text, const std::string& where) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json_integer<int>(json, "version") != format_version)
      throw Error(Errc::protocol, "it was written by another release of Penstock; both sides need the same one");
    Registration registration;
    registration.stream = json.at("stream").get<std::string>();
    registration.endpoint = endpoint_from_json(json.at("endpoint"));
    registration.token = Token::from_hex(json.at("token").get<std::string>());
    registration.pid = json_integer<std::int64_t>(json, "pid");
    registration.host = json.at("host").get<std::string>();
    registration.ranks = json_integer<std::uint32_t>(json, "ranks");
    registration.started = json_integer<std::int64_t>(json, "started");
    if (json.contains("launch"))
      registration.launch = {json.at("launch").get<std::string>(), json_integer<int>(json, "launch_rank")};
    return registration;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, where + " is damaged, or no registration of a stream (" + problem_of(error) +
                                    "): remove it and start the writer again");
  } catch (const Error& error) {
    throw Error(Errc::protocol, where + ": " + error.what());
  }
}

void check_stream_name(std::string_view stream) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (stream.empty() || stream.size() > 128 || !std::all_of(stream.begin(), stream.end(), allowed) || stream == "." ||
      stream == "..")
    throw Error(Errc::invalid_argument, "'" + std::string(stream.substr(0, 160)) +
                                            "' cannot name a stream: use 1 to 128 letters, digits, '.', '_' and '-'");
}

std::string Directory::file_of(std::string_view stream) const {
  check_stream_name(stream);
  return std::string(stream).append(extension);
}

void Directory::write(const Registration& registration) const {
  const std::string name = file_of(registration.stream);
  const std::string path = path_ + "/" + name;
  const UniqueFd directory = open_directory(path_, true);
  lock(directory.get());
  std::optional<Registration> other;
  try {
    other = read(registration.stream);
  } catch (const Error& error) {
    if (error.code() != Errc::protocol) throw;  // what is no registration may be replaced
  }
  if (other && other->token != registration.token && alive(*other)) refuse_taken(registration, *other);
  const std::string temporary = "." + name + "." + base::to_hex(base::random_bytes(8));
  UniqueFd fd(::openat(directory.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) throw Error(Errc::system, "cannot write " + path + ": " + errno_text(errno));
  try {
    write_all(fd.get(), registration_text(registration), path);
    if (::renameat(directory.get(), temporary.c_str(), directory.get(), name.c_str()) != 0)
      throw Error(Errc::system, "cannot write " + path + ": " + errno_text(errno));
  } catch (...) {
    ::unlinkat(directory.get(), temporary.c_str(), 0);
    throw;
  }
}

std::optional<Registration> Directory::read(std::string_view stream) const {
  const std::string name = file_of(stream);
  const UniqueFd directory = open_directory(path_, false);
  if (!directory) return std::nullopt;
  const auto text = read_private_file(directory.get(), name, path_ + "/" + name);
  if (!text) return std::nullopt;
  return registration_from_text(*text, path_ + "/" + name);
}

void Directory::remove(const Registration& registration) const {
  const auto found = read(registration.stream);
  if (!found || !(found->token == registration.token)) return;
  ::unlink((path_ + "/" + file_of(registration.stream)).c_str());
}

std::vector<Registration> Directory::list() const {
  std::vector<Registration> out;
  UniqueFd directory = open_directory(path_, false);
  if (!directory) return out;
  DIR* entries = ::fdopendir(directory.get());
  if (entries == nullptr) throw Error(Errc::system, "cannot list " + path_ + ": " + errno_text(errno));
  directory.release();  // now closed by closedir
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.front() == '.' || !name.ends_with(extension)) continue;
    try {
      if (auto found = read(name.substr(0, name.size() - extension.size()))) out.push_back(std::move(*found));
    } catch (const Error& error) {
      base::log(base::Level::warn, "a registration was left out", {{"file", name}, {"error", error.what()}});
    }
  }
  ::closedir(entries);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.stream < b.stream; });
  return out;
}

std::string resolve_directory(const std::string& configured) {
  if (!configured.empty()) return configured;
  if (const char* path = std::getenv("PENSTOCK_DIRECTORY");
      path != nullptr && *path != '\0' && !is_directory_service(path))
    return path;
  if (const char* path = std::getenv("XDG_RUNTIME_DIR"); path != nullptr && *path != '\0')
    return std::string(path) + "/penstock";
  return "/tmp/penstock-" + std::to_string(::geteuid());
}

bool is_directory_service(std::string_view where) { return where.find("://") != std::string_view::npos; }

bool alive(const Registration& registration) {
  return answers(registration.endpoint, registration.token, registration.stream, base::Deadline{Timeout(500)});
}

std::string to_address(const Registration& registration) {
  const auto& bytes = registration.token.bytes;
  base::StreamUri uri;
  uri.host = registration.endpoint.tcp_hosts.empty() ? "127.0.0.1" : registration.endpoint.tcp_hosts.front();
  uri.port = registration.endpoint.tcp_port;
  uri.stream = registration.stream;
  uri.token.assign(bytes.begin(), bytes.end());
  return base::format_uri(uri);
}

Registration parse_address(std::string_view address) {
  const base::StreamUri uri = base::parse_uri(address);
  Registration registration;
  check_stream_name(uri.stream);
  registration.stream = uri.stream;
  registration.host = uri.host;
  registration.endpoint.tcp_hosts = {uri.host};
  registration.endpoint.tcp_port = uri.port;
  if (uri.token.size() != registration.token.bytes.size())
    throw Error(Errc::invalid_argument,
                "the address of stream '" + uri.stream + "' needs its token: ?token= and 64 hexadecimal digits");
  std::copy(uri.token.begin(), uri.token.end(), registration.token.bytes.begin());
  return registration;
}

bool is_address(std::string_view text) { return base::is_uri(text); }

}  // namespace penstock::fabric
