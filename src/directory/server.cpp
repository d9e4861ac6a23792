#include "directory/server.hpp"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <map>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "directory/codec.hpp"
#include "directory/directory_service.hpp"
#include "directory/journal.hpp"
#include "fabric/handshake.hpp"
#include "fabric/task.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {

using namespace std::chrono_literals;
using base::Clock;
using base::Deadline;

namespace {

// Of one answer: well below what would be sent in two phases.
constexpr std::size_t answer_bytes = std::size_t{768} << 10;
constexpr std::size_t answer_items = 4096;
constexpr std::chrono::milliseconds longest_poll = 60s;
// A timer that is later than this says that the server was stopped, or its host asleep: owners could not be heard. It is worth
// a warning from long_away on.
constexpr auto away = 20ms, long_away = 500ms;
// Leases that a journal names last so much longer after the start: their owners have to connect again first, which they try
// every 500 ms at least.
constexpr auto recovery_grace = 2s;

std::string_view text_of(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t random_tree() {
  const std::string bytes = base::random_bytes(sizeof(std::uint64_t));
  std::uint64_t tree;
  std::memcpy(&tree, bytes.data(), sizeof tree);
  return tree | 1;  // 0 is what a watch that knows nothing says
}

// Changes that go to disk together.
struct Batch {
  explicit Batch(Progress& progress) : settled(progress) {}
  std::vector<DirectoryChange> changes;
  fabric::Signal settled;
  bool done = false;
  std::exception_ptr error;
};

}  // namespace

class DirectoryServer::Impl final : public fb::DirectoryService, public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::shared_ptr<Progress> progress, DirectoryServerOptions options)
      : progress_(std::move(progress)),
        options_(std::move(options)),
        state_(random_tree(), options_.limits),
        changed_(*progress_) {
    if (options_.folder.empty()) return;
    journal_ = std::make_shared<DirectoryJournal>(options_.folder, options_.synced);
    state_ = journal_->recover(options_.limits, Clock::now() + recovery_grace);
    disk_ = std::make_unique<fabric::Workers>(*progress_, 1, "journal");
  }

  void start() {
    progress_->call([this] { arm(); });
  }
  std::size_t leases() {
    std::size_t count = 0;
    progress_->call([&] { count = state_.leases(); });
    return count;
  }
  void close() {
    progress_->call([this] {
      closed_ = true;
      expiry_.cancel();
      disk_.reset();  // waits for the disk
      journal_.reset();
      changed_.notify_all();
    });
  }

  Task<fb::PutReplyT> put(rpc::Call& call, fb::PutRequestT request) override {
    co_await ready_to_change(call);
    std::optional<std::uint64_t> expected;
    if (request.conditional) expected = request.expected;
    auto change = state_.put(request.path, text_of(request.value), expected, request.lease);
    fb::PutReplyT reply;
    reply.done = change.has_value();
    reply.revision = state_.revision();
    auto in = change ? commit(std::move(*change)) : latest();
    co_await settle(std::move(in), call.deadline(), reply.done);
    co_return reply;
  }

  Task<fb::GetReplyT> get(rpc::Call& call, fb::GetRequestT request) override {
    check_open();
    fb::GetReplyT reply;
    if (auto entry = state_.get(request.path); entry && !hidden(call, entry->path))
      reply.entry = to_wire(std::move(*entry));
    auto shown = latest();
    co_await settle(std::move(shown), call.deadline(), false);
    co_return reply;
  }

  Task<fb::ListReplyT> list(rpc::Call& call, fb::ListRequestT request) override {
    check_open();
    auto page =
        state_.list(request.prefix, request.after, std::min<std::size_t>(request.limit, answer_items), answer_bytes);
    fb::ListReplyT reply;
    for (auto& entry : page.entries)
      if (!hidden(call, entry.path)) reply.entries.push_back(to_wire(std::move(entry)));
    reply.more = page.more;
    reply.tree = state_.tree();
    reply.revision = state_.revision();
    auto shown = latest();
    co_await settle(std::move(shown), call.deadline(), false);
    co_return reply;
  }

  Task<fb::RemoveReplyT> remove(rpc::Call& call, fb::RemoveRequestT request) override {
    co_await ready_to_change(call);
    std::optional<std::uint64_t> expected;
    if (request.conditional) expected = request.expected;
    auto change = state_.remove(request.path, expected);
    fb::RemoveReplyT reply;
    reply.done = change.has_value();
    auto in = change ? commit(std::move(*change)) : latest();
    co_await settle(std::move(in), call.deadline(), reply.done);
    co_return reply;
  }

  Task<fb::GrantReplyT> grant(rpc::Call& call, fb::GrantRequestT request) override {
    co_await ready_to_change(call);
    auto change = state_.grant(std::chrono::milliseconds(request.ttl_ms), Clock::now());
    arm();
    fb::GrantReplyT reply;
    reply.lease = change.lease;
    auto in = commit(std::move(change));
    co_await settle(std::move(in), call.deadline(), true);
    co_return reply;
  }

  Task<fb::HeartbeatReplyT> heartbeat(rpc::Call& call, fb::LeaseRequestT request) override {
    check_role(call);
    check_open();
    fb::HeartbeatReplyT reply;
    reply.alive = state_.heartbeat(request.lease, Clock::now());
    co_return reply;
  }

  Task<fb::RevokeReplyT> revoke(rpc::Call& call, fb::LeaseRequestT request) override {
    co_await ready_to_change(call);
    auto change = state_.revoke(request.lease);
    fb::RevokeReplyT reply;
    reply.done = change.has_value();
    auto in = change ? commit(std::move(*change)) : latest();
    co_await settle(std::move(in), call.deadline(), reply.done);
    co_return reply;
  }

  Task<fb::WatchReplyT> watch(rpc::Call& call, fb::WatchRequestT request) override {
    check_open();
    check_prefix(request.prefix);
    const Polling polling(*this, call.channel());
    const Deadline until = earlier(call.deadline(), Deadline(std::min<std::chrono::milliseconds>(
                                                        longest_poll, std::chrono::milliseconds(request.wait_ms))));
    call.on_cancelled([self = shared_from_this()] { self->changed_.notify_all(); });
    DirectoryState::Events events;
    while (true) {
      events = state_.events_since(request.prefix, request.revision, answer_items, answer_bytes);
      events.reset = events.reset || request.tree != state_.tree();
      if (events.reset || !events.events.empty() || call.cancelled() || until.passed()) break;
      request.revision = events.revision;
      co_await changed_.wait(until);
      check_open();
    }
    fb::WatchReplyT reply;
    reply.revision = events.revision;
    reply.reset = events.reset;
    if (!events.reset) {
      for (auto& event : events.events) {
        if (hidden(call, event.entry.path)) continue;
        auto out = std::make_unique<fb::EventT>();
        out->removed = event.removed;
        out->entry = to_wire(std::move(event.entry));
        reply.events.push_back(std::move(out));
      }
    }
    auto shown = latest();
    co_await settle(std::move(shown), call.deadline(), false);
    co_return reply;
  }

 private:
  // One long poll of a channel.
  struct Polling {
    Polling(Impl& impl, const rpc::Channel& channel) : counts(impl.polls_), at(counts.try_emplace(&channel).first) {
      if (at->second >= impl.options_.max_watches)
        throw Error(Errc::overloaded,
                    "more than " + std::to_string(impl.options_.max_watches) + " watches of one client");
      ++at->second;
    }
    ~Polling() {
      if (--at->second == 0) counts.erase(at);
    }
    Polling(const Polling&) = delete;
    std::map<const rpc::Channel*, std::size_t>& counts;
    std::map<const rpc::Channel*, std::size_t>::iterator at;
  };

  void check_open() const {
    if (closed_) throw Error(Errc::peer_lost, "the directory is closing");
  }
  static void check_role(const rpc::Call& call) {
    if (call.channel().role() == "read") throw Error(Errc::forbidden, "the role 'read' may not change the directory");
  }

  static bool hidden(const rpc::Call& call, std::string_view path) {
    return call.channel().role() == "read" && path.ends_with(secret_suffix);
  }

  // Changes nothing in memory that the disk is known not to take.
  Task<void> ready_to_change(rpc::Call& call) {
    check_role(call);
    check_open();
    if (!broken_) co_return;
    auto repair = batch();
    write_soon();
    co_await settle(std::move(repair), call.deadline(), true);
    check_open();
  }

  std::shared_ptr<Batch> batch() {
    if (!pending_) pending_ = std::make_shared<Batch>(*progress_);
    return pending_;
  }
  // What must be on disk before an answer that shows the state as it is now; null when all is.
  std::shared_ptr<Batch> latest() const { return pending_ ? pending_ : writing_; }

  std::shared_ptr<Batch> commit(DirectoryChange change) {
    changed_.notify_all();
    if (!journal_) return nullptr;
    auto in = batch();
    in->changes.push_back(std::move(change));
    write_soon();
    return in;
  }

  // strict: the caller's own change, which has failed when the batch has.
  Task<void> settle(std::shared_ptr<Batch> in, Deadline deadline, bool strict) {
    if (!in) co_return;
    while (!in->done) {
      const bool settled = co_await in->settled.wait(deadline);
      if (!settled && !in->done) throw Error(Errc::timeout, "the directory's disk is too slow");
    }
    if (strict && in->error) std::rethrow_exception(in->error);
  }

  void write_soon() {
    if (std::exchange(loop_running_, true)) return;
    fabric::spawn(*progress_, write(shared_from_this()));
  }

  static Task<void> write(std::shared_ptr<Impl> self) {
    while (self->pending_) {
      self->writing_ = std::exchange(self->pending_, nullptr);
      try {
        co_await self->write_batch();
        if (std::exchange(self->broken_, false)) base::log(base::Level::info, "directory journal: goes on");
      } catch (const Error& error) {
        if (!std::exchange(self->broken_, true))
          base::log(base::Level::error, "directory journal: changes are refused", {{"error", error.what()}});
        self->writing_->error = std::make_exception_ptr(error.in("the directory"));
      } catch (const std::exception& error) {  // out of memory: the next change may find some
        self->writing_->error =
            std::make_exception_ptr(Error(Errc::memory, std::string("the directory: ") + error.what()));
      }
      self->writing_->done = true;
      self->writing_->settled.notify_all();
      self->writing_.reset();
    }
    self->loop_running_ = false;
  }

  Task<void> write_batch() {
    if (!journal_) throw Error(Errc::peer_lost, "closing");
    if (broken_ || std::exchange(compact_, false)) {
      // The snapshot holds what was changed meanwhile too: that must not be appended after it.
      auto snapshot = state_.snapshot();
      if (pending_) {
        for (auto& change : pending_->changes) writing_->changes.push_back(std::move(change));
        pending_->changes.clear();
      }
      auto compact = [journal = journal_, snapshot = std::move(snapshot)]() -> std::exception_ptr {
        try {
          journal->compact(snapshot);
        } catch (...) {
          return std::current_exception();
        }
        return nullptr;
      };
      const auto error = co_await disk_->run(std::move(compact));
      if (!error) co_return;
      // Without room for a second file the first one may still grow.
      if (broken_ || !journal_ || journal_->broken()) std::rethrow_exception(error);
    }
    auto job = [journal = journal_, batch = writing_] {
      journal->append(batch->changes);
      return journal->wants_compaction();
    };
    compact_ = co_await disk_->run(std::move(job));
    if (compact_) batch();  // the loop goes on with it, and whoever waits for this one does not wait for that
  }

  void arm() {
    const auto next = state_.next_expiry();
    if (closed_ || !next || (armed_ && *armed_ <= *next)) return;
    armed_ = *next;
    expiry_ = progress_->after(std::max<Clock::duration>(*next - Clock::now(), 0ms), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->expire();
    });
  }

  void expire() {
    const auto now = Clock::now();
    const auto late = now - *armed_;
    armed_.reset();
    if (closed_) return;
    if (late > away) state_.spare_leases(now);
    if (late > long_away)
      base::log(base::Level::warn, "directory: was away, leases last longer",
                {{"ms", std::chrono::duration_cast<std::chrono::milliseconds>(late).count()}});
    for (auto& change : state_.expire(now)) commit(std::move(change));
    arm();
  }

  std::shared_ptr<Progress> progress_;
  const DirectoryServerOptions options_;
  // All that follows: engine thread. The journal is used by the disk's thread.
  DirectoryState state_;
  std::shared_ptr<DirectoryJournal> journal_;
  std::shared_ptr<Batch> pending_, writing_;
  bool loop_running_ = false, broken_ = false, compact_ = false, closed_ = false;
  fabric::Signal changed_;
  std::map<const rpc::Channel*, std::size_t> polls_;
  fabric::Timer expiry_;
  std::optional<Clock::time_point> armed_;
  std::unique_ptr<fabric::Workers> disk_;
};

DirectoryServer::DirectoryServer(std::shared_ptr<Progress> progress, DirectoryServerOptions options)
    : impl_(std::make_shared<Impl>(std::move(progress), std::move(options))) {
  impl_->start();
}

DirectoryServer::~DirectoryServer() { impl_->close(); }

std::shared_ptr<rpc::Service> DirectoryServer::service() const { return impl_; }

std::size_t DirectoryServer::leases() const { return impl_->leases(); }

DirectoryHost::DirectoryHost(std::shared_ptr<Progress> progress, DirectoryServerOptions options,
                             const std::string& listen, std::string registration_directory)
    : registration_directory_(std::move(registration_directory)), directory_(progress, options) {
  auto table = std::make_shared<rpc::ServiceTable>();
  table->add(directory_.service());
  registration_.stream = directory_registration;
  registration_.token = fabric::Token::random();
  const auto server_options = use_last_address(options.folder);
  registration_.pid = ::getpid();
  registration_.host = fabric::host_name();
  registration_.ranks = 1;
  registration_.started = std::time(nullptr);
  auto token_of = [token = registration_.token](const std::string& name) -> std::optional<fabric::Token> {
    if (name == "directory/write" || name == directory_registration) return token;  // the latter: whether it is alive
    if (name == "directory/read") return reader_token(token);
    return std::nullopt;
  };
  server_ = std::make_unique<rpc::Server>(progress, table, std::move(token_of), listen, server_options);
  registration_.endpoint = server_->endpoint();
  keep_address(options.folder);
  if (!registration_directory_.empty()) register_in(registration_directory_);
}

void DirectoryHost::register_in(const std::string& folder) {
  const fabric::Directory registrations(folder);
  try {
    registrations.write(registration_);
  } catch (const Error& error) {
    if (error.code() != Errc::wrong_state) throw;
    const auto other = registrations.read(directory_registration);
    const std::string who =
        other ? "process " + std::to_string(other->pid) + " on " + other->host : std::string("another process");
    throw Error(Errc::wrong_state, who + " runs the directory service of " + registrations.path() +
                                       ": use it (directory=registered), or another folder (registration=FOLDER)");
  }
}

// The folder is this process's alone by now.
rpc::ServerOptions DirectoryHost::use_last_address(const std::string& folder) {
  rpc::ServerOptions options;
  if (folder.empty()) return options;
  try {
    if (const auto last = fabric::Directory(folder).read(directory_registration)) {
      registration_.token = last->token;
      options.port = last->endpoint.tcp_port;
    }
  } catch (const Error& error) {
    if (error.code() != Errc::protocol) throw;
    base::log(base::Level::warn, "directory: it gets another address", {{"error", error.what()}});
  }
  return options;
}

void DirectoryHost::keep_address(const std::string& folder) const {
  if (folder.empty()) return;
  try {
    fabric::Directory(folder).write(registration_);
  } catch (const Error& error) {
    if (error.code() != Errc::system) throw;
    base::log(base::Level::warn, "directory: after a restart it may have another address", {{"error", error.what()}});
  }
}

DirectoryHost::~DirectoryHost() {
  if (registration_directory_.empty()) return;
  try {
    fabric::Directory(registration_directory_).remove(registration_);
  } catch (const Error& error) {
    base::log(base::Level::warn, "directory: its registration stays", {{"error", error.what()}});
  }
}

}  // namespace penstock::directory
