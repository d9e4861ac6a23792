#include "stream/api/registry.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "directory/open.hpp"
#include "directory/server.hpp"
#include "fabric/task.hpp"
#include "penstock/error.hpp"

namespace penstock::stream {

namespace {

using base::Deadline;
using fabric::Registration;
using fabric::Task;

constexpr std::string_view entries_prefix = "/streams/";
constexpr std::size_t listed_at_once = 1000;
constexpr Timeout removal_patience(2000);
constexpr std::chrono::seconds lease_ttl(10);
constexpr std::chrono::seconds lease_ttl_explicit(60);  // beats only when the application makes progress

std::string path_of(std::string_view stream) {
  fabric::check_stream_name(stream);
  return std::string(entries_prefix).append(stream);
}

class Folder final : public Registry {
 public:
  explicit Folder(const std::string& path) : directory_(path) {}
  std::string describe() const override { return directory_.path(); }
  Timeout patience() const override { return Timeout(20); }
  void write(const Registration& registration, Deadline) override { directory_.write(registration); }
  std::optional<Registration> read(std::string_view stream, Deadline) override {
    if (stream == directory::directory_registration) return std::nullopt;  // a service in the same folder: no stream
    return directory_.read(stream);
  }
  void remove(const Registration& registration) override { directory_.remove(registration); }
  std::vector<Registration> list(Deadline) override {
    auto all = directory_.list();
    std::erase_if(all, [](const auto& one) { return one.stream == directory::directory_registration; });
    return all;
  }

 private:
  fabric::Directory directory_;
};

// What a service knows of this writer. On the engine thread, except the two pointers.
struct Held : std::enable_shared_from_this<Held> {
  std::shared_ptr<fabric::Progress> progress;
  std::shared_ptr<directory::Directory> directory;
  std::optional<Registration> registration;  // to be announced again when the lease was lost
  std::uint64_t lease = 0;

  std::chrono::milliseconds ttl() const { return progress->threaded() ? lease_ttl : lease_ttl_explicit; }
};
using HeldPtr = std::shared_ptr<Held>;

Task<void> announce_again(HeldPtr held);

// False when the entry is not as expected.
Task<bool> announce(HeldPtr held, Registration registration, std::uint64_t expected, Deadline deadline) {
  if (held->lease == 0) {
    auto lost = [weak = std::weak_ptr(held)] {
      const auto self = weak.lock();
      if (!self) return;
      self->lease = 0;
      fabric::spawn(*self->progress, announce_again(self));
    };
    held->lease = co_await held->directory->grant(held->ttl(), std::move(lost), deadline);
  }
  auto text = fabric::registration_text(registration);
  const auto put =
      co_await held->directory->put(path_of(registration.stream), std::move(text), expected, held->lease, deadline);
  if (put) held->registration = std::move(registration);
  co_return put.has_value();
}

Task<void> announce_again(HeldPtr held) {
  while (held->registration) {
    const auto mine = *held->registration;
    try {
      const Deadline deadline{removal_patience};
      const auto there = co_await held->directory->get(path_of(mine.stream), deadline);
      if (there && !(fabric::registration_from_text(there->value, there->path).token == mine.token)) {
        base::log(base::Level::warn,
                  "another writer has registered under this stream's name; readers will find that one",
                  {{"stream", mine.stream}, {"directory", held->directory->describe()}});
        co_return;
      }
      const bool done = co_await announce(held, mine, there ? there->revision : 0, deadline);
      if (done) co_return;
    } catch (const Error& error) {
      base::log(base::Level::warn, "the directory cannot be told of this stream",
                {{"stream", mine.stream}, {"why", error.what()}});
    }
    co_await fabric::pause_for(*held->progress, std::chrono::milliseconds(500));
  }
}

Task<void> withdraw(HeldPtr held, Registration registration, Deadline deadline) {
  held->registration.reset();
  const auto there = co_await held->directory->get(path_of(registration.stream), deadline);
  if (there && fabric::registration_from_text(there->value, there->path).token == registration.token)
    co_await held->directory->remove(path_of(registration.stream), there->revision, deadline);
  if (held->lease != 0) co_await held->directory->revoke(held->lease, deadline);
  held->lease = 0;
}

class Service final : public Registry {
 public:
  Service(std::shared_ptr<fabric::Progress> progress, const std::string& where) : held_(std::make_shared<Held>()) {
    held_->directory = directory::open_directory(progress, where, "");
    held_->progress = std::move(progress);
  }
  ~Service() override {
    held_->progress->call([this] { held_->registration.reset(); });  // a lost lease is not renewed any more
  }

  std::string describe() const override { return held_->directory->describe(); }
  Timeout patience() const override { return Timeout(100); }

  void write(const Registration& registration, Deadline deadline) override {
    do {
      const auto there = run(held_->directory->get(path_of(registration.stream), deadline));
      if (there) {
        const auto other = fabric::registration_from_text(there->value, there->path);
        if (!(other.token == registration.token) && fabric::alive(other)) fabric::refuse_taken(registration, other);
      }
      if (run(announce(held_, registration, there ? there->revision : 0, deadline))) return;
    } while (!deadline.passed());  // somebody else was faster: see who
    throw Error(Errc::timeout, "stream '" + registration.stream + "' could not be registered with " + describe() +
                                   ": its entry keeps changing");
  }

  std::optional<Registration> read(std::string_view stream, Deadline deadline) override {
    const auto there = run(held_->directory->get(path_of(stream), deadline));
    if (!there) return std::nullopt;
    return fabric::registration_from_text(there->value, there->path);
  }

  void remove(const Registration& registration) override {
    const Deadline deadline{removal_patience};
    try {
      run(withdraw(held_, registration, deadline));
    } catch (const Error& error) {
      base::log(base::Level::warn, "a stream's entry was left to its lease",
                {{"stream", registration.stream}, {"why", error.what()}});
    }
  }

  std::vector<Registration> list(Deadline deadline) override {
    std::vector<Registration> out;
    std::string after;
    for (;;) {
      const auto entries = run(held_->directory->list(std::string(entries_prefix), after, listed_at_once, deadline));
      for (const auto& entry : entries) try {
          out.push_back(fabric::registration_from_text(entry.value, entry.path));
        } catch (const Error& error) {
          base::log(base::Level::warn, "a registration was left out", {{"entry", entry.path}, {"error", error.what()}});
        }
      if (entries.size() < listed_at_once) return out;
      after = entries.back().path;
    }
  }

 private:
  template <class T>
  T run(Task<T> task) {
    return fabric::run_task(*held_->progress, std::move(task), Deadline::never());  // it ends by its own deadline
  }

  HeldPtr held_;
};

}  // namespace

std::unique_ptr<Registry> open_registry(std::shared_ptr<fabric::Progress> progress, const std::string& where) {
  if (fabric::is_directory_service(where)) return std::make_unique<Service>(std::move(progress), where);
  return std::make_unique<Folder>(where);
}

}  // namespace penstock::stream
