#include <algorithm>
#include <ctime>

#include <unistd.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "fabric/handshake.hpp"
#include "fabric/launch.hpp"
#include "penstock/interrupt.hpp"
#include "pool/engine/pool_engine.hpp"
#include "pool/keys/stream_keys.hpp"
#include "stream/api/open.hpp"
#include "stream/direct/direct_sink.hpp"

namespace penstock::pool {
namespace {

constexpr auto attach_every = std::chrono::milliseconds(1000);
constexpr auto attach_again = std::chrono::milliseconds(100);  // while the home cannot be reached
constexpr Timeout attach_within(5'000);
constexpr Timeout lose_within(1'000);
constexpr Timeout ask_within(1'000);

// What rank 0 says to the stream's home, again and again: so a home that is new hears of the writer.
class Attachment : public std::enable_shared_from_this<Attachment> {
 public:
  Attachment(std::shared_ptr<PoolClient> client, fb::AttachRequestT request)
      : client_(std::move(client)), request_(std::move(request)), stirred_(*client_->progress()) {}

  const std::string& pool() const { return client_->pool(); }
  const std::shared_ptr<PoolClient>& client() const { return client_; }

  // Engine thread. The number of this writer's first step.
  Task<std::uint64_t> attach(base::Deadline deadline) {
    auto self = shared_from_this();
    auto said = request_;
    said.again = replaced_.has_value();
    said.replaced = replaced_.value_or(0);
    auto request = std::make_shared<const fb::AttachRequestT>(std::move(said));
    std::function<Task<fb::AttachReplyT>(std::shared_ptr<rpc::Channel>, std::uint64_t, PoolClient::Attempt)> call =
        [request, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view, PoolClient::Attempt) {
          auto copy = *request;
          copy.view = view;
          return send_attach(std::move(channel), std::move(copy), deadline);
        };
    const auto reply = co_await client_->at_primary<fb::AttachReplyT>(streams_namespace(), stream_row(request_.stream),
                                                                      std::nullopt, deadline, std::move(call));
    replaced_ = reply.replaced;
    co_return reply.base;
  }

  // refused: called when the pool will never take steps of this writer again, unless it was stopped before.
  Task<void> keep(std::function<void(const std::string& why)> refused) {
    auto self = shared_from_this();
    bool well = true;
    while (!stopped_) {
      const base::Deadline pause(std::chrono::duration_cast<Timeout>(well ? attach_every : attach_again));
      co_await stirred_.wait(pause);
      if (stopped_) break;
      try {
        const base::Deadline deadline(attach_within);
        co_await attach(deadline);
        well = true;
      } catch (const Error& e) {
        if (stopped_) break;
        if (e.code() == Errc::wrong_state || e.code() == Errc::invalid_argument || e.code() == Errc::unsupported) {
          refused("pool " + pool() + ": " + e.what());
          break;
        }
        if (well)
          base::log(base::Level::warn, "the pool is not to be reached",
                    {{"stream", request_.stream}, {"why", e.what()}});
        well = false;
      }
    }
  }
  void stop() {
    stopped_ = true;
    stirred_.notify_all();
  }

  Task<void> finish(std::string why, base::Deadline deadline) {
    auto self = shared_from_this();
    fb::FinishRequestT request;
    request.stream = request_.stream;
    request.life = request_.life;
    request.token = request_.token;
    request.why = std::move(why);
    auto shared = std::make_shared<const fb::FinishRequestT>(std::move(request));
    std::function<Task<fb::EmptyT>(std::shared_ptr<rpc::Channel>, std::uint64_t, PoolClient::Attempt)> call =
        [shared, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view, PoolClient::Attempt) {
          auto copy = *shared;
          copy.view = view;
          return send_finish(std::move(channel), std::move(copy), deadline);
        };
    co_await client_->at_primary<fb::EmptyT>(streams_namespace(), stream_row(request_.stream), std::nullopt, deadline,
                                             std::move(call));
  }

 private:
  static Task<fb::AttachReplyT> send_attach(std::shared_ptr<rpc::Channel> channel, fb::AttachRequestT request,
                                            base::Deadline deadline) {
    fb::StreamsClient client(std::move(channel));
    rpc::CallOptions options;
    options.deadline = deadline;
    co_return co_await client.attach(std::move(request), options);
  }
  static Task<fb::EmptyT> send_finish(std::shared_ptr<rpc::Channel> channel, fb::FinishRequestT request,
                                      base::Deadline deadline) {
    fb::StreamsClient client(std::move(channel));
    rpc::CallOptions options;
    options.deadline = deadline;
    co_return co_await client.finish(std::move(request), options);
  }

  std::shared_ptr<PoolClient> client_;
  const fb::AttachRequestT request_;
  fabric::Signal stirred_;
  std::optional<std::uint64_t> replaced_;  // once it was let in: whom it replaced
  bool stopped_ = false;
};

std::uint64_t random_life() {
  const auto token = fabric::Token::random();
  std::uint64_t life = 0;
  std::copy_n(token.bytes.begin(), sizeof(life), reinterpret_cast<std::uint8_t*>(&life));
  return life | 1;  // 0: no writer
}

// Why a pool takes no step, if its servers have no memory for one; else "".
std::string full_servers(const std::optional<PoolStatus>& now) {
  if (!now) return "";
  std::string full;
  for (const auto& server : now->servers) {
    if (server.waiting == 0) continue;
    const auto percent = server.memory_bytes * 100 / std::max<std::uint64_t>(1, server.memory_limit);
    full += (full.empty() ? "" : ", ") + ("server " + server.name) + " (" + std::to_string(percent) +
            " % of memory=" + base::format_size(server.memory_limit) + " in use";
    full += server.disk_bytes + server.disk_free == 0 ? ", no tiers)" : ")";
  }
  if (full.empty()) return "";
  return ", whose memory is full: " + full +
         "; give the servers more memory (memory=) or tiers, keep fewer steps (retain_steps=, retain_bytes=), or drop "
         "what is not needed any more (penstock stream drop, penstock object drop)";
}

std::string silent_servers(const std::optional<PoolStatus>& now) {
  const auto answers = [](const ServerStatus& server) { return server.state != "lost"; };
  return now && std::ranges::any_of(now->servers, answers) ? "" : ", none of whose servers answers";
}

// The pool's home is the only reader of this writer's memory.
class PoolSink final : public stream::DirectSink {
 public:
  PoolSink(const stream::EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options)
      : DirectSink(context, name, cohort, direct_options(options), {.registered = false, .keep_undelivered = true}),
        said_(options),
        progress_(context.progress) {
    const auto base = stream::share_text(cohort, [&] { return std::to_string(attach(context, cohort)); });
    base_ = std::stoull(base);
    prefault(*progress_);
  }
  ~PoolSink() override {
    if (attachment_) stop_attaching();
  }

  std::string address() const override { return ""; }
  std::uint64_t step() const override { return base_ + DirectSink::step(); }
  stream::Awaited awaited() const override;
  void close(base::Deadline deadline) override;
  void lose(const std::string& how) override;

 private:
  // The home keeps what readers to come may want.
  static StreamOptions direct_options(StreamOptions options) {
    options.rendezvous_readers = 0;
    options.reserve_steps = 0;
    options.keep_first_step = false;
    return options;
  }
  std::uint64_t attach(const stream::EngineContext& context, const Cohort& cohort);
  void stop_attaching();
  void finish_lost(const std::string& why);
  std::optional<PoolStatus> ask_servers() const;

  const StreamOptions said_;  // to the home
  const std::shared_ptr<fabric::Progress> progress_;
  std::uint64_t base_ = 0;                  // number of the first step: of a writer that resumes a stream, not 0
  std::shared_ptr<Attachment> attachment_;  // rank 0
  fabric::Future<void> attaching_;
};

std::uint64_t PoolSink::attach(const stream::EngineContext& context, const Cohort& cohort) {
  const base::Deadline deadline(Timeout(said_.open_timeout_ms));
  auto client = shared_client(context, said_.pool, "write", deadline);
  fb::AttachRequestT request;
  request.stream = stream();
  request.address = fabric::to_text(node().endpoint());
  StreamOptions said = said_;
  said.trace.clear();  // it is about this process
  request.options = to_yaml(said);
  const auto& token = node().token().bytes;
  request.token.assign(token.begin(), token.end());
  request.life = random_life();
  request.host = fabric::host_name();
  request.pid = getpid();
  request.ranks = static_cast<std::uint32_t>(cohort.size());
  const auto launch = fabric::launch_of_environment();
  request.launch = launch.id;
  request.launch_rank = launch.rank;
  auto attachment = std::make_shared<Attachment>(std::move(client), std::move(request));
  std::uint64_t base = 0;
  try {
    auto attaching = fabric::spawn(*progress_, attachment->attach(deadline));
    base = attaching.get(deadline);
  } catch (const Error& e) {
    throw e.in("stream " + stream() + ": pool " + attachment->pool());
  }
  attachment_ = std::move(attachment);
  std::function<void(const std::string&)> refused = [this](const std::string& why) { node().fail(why); };
  attaching_ = fabric::spawn(*progress_, attachment_->keep(std::move(refused)));
  return base;
}

// What it says next would open the stream again: so it has ended before the stream does.
void PoolSink::stop_attaching() {
  progress_->call([this] { attachment_->stop(); });
  const Uninterrupted whole;
  try {
    attaching_.get(base::Deadline(attach_within + lose_within));
  } catch (const std::exception& e) {
    base::log(base::Level::warn, "the pool does not answer", {{"stream", stream()}, {"why", e.what()}});
  }
}

// A pool that says that it is full has readers that are behind, or keeps too much.
stream::Awaited PoolSink::awaited() const {
  using Whom = stream::Awaited::Whom;
  const auto direct = DirectSink::awaited();
  if (!attachment_) return direct;
  const auto pool = "pool " + attachment_->pool();
  const auto now = ask_servers();
  if (const auto full = full_servers(now); !full.empty()) return {pool + full, Whom::readers};
  if (const auto silent = silent_servers(now); !silent.empty()) return {pool + silent, Whom::others};
  if (direct.whom == Whom::others) return {pool + " (" + direct.who + ")", Whom::others};  // a rank of the writer
  return {pool + ", to take the steps that wait for it", Whom::others};
}

// After a timeout; it takes a moment.
std::optional<PoolStatus> PoolSink::ask_servers() const {
  try {
    auto asking = attachment_->client()->status(base::Deadline(ask_within));
    return fabric::run_task(*progress_, std::move(asking), base::Deadline(2 * ask_within));  // it ends by itself
  } catch (const Error&) {
    return std::nullopt;
  }
}

void PoolSink::close(base::Deadline deadline) {
  try {
    DirectSink::close(deadline);
  } catch (const Error& e) {
    if (attachment_) finish_lost("it was closed before every step was in the pool");
    if (!attachment_ || e.code() != Errc::timeout) throw;
    const auto now = ask_servers();
    const auto why = full_servers(now) + silent_servers(now);
    throw Error(Errc::timeout, "stream " + stream() + ": closed before every step was in pool " + attachment_->pool() +
                                   (why.empty() ? std::string("; ") + e.what() : why));
  }
  if (!attachment_) return;
  stop_attaching();
  try {
    fabric::run_task(*progress_, attachment_->finish("", deadline), deadline, "no answer of the stream's home");
  } catch (const Error& e) {
    throw e.in("stream " + stream() + ": every step is in pool " + attachment_->pool() + ", but its end is not");
  }
}

void PoolSink::lose(const std::string& how) {
  const base::Deadline deadline(lose_within);
  node().wait_released(deadline);  // what it committed is worth keeping
  DirectSink::lose(how);
  if (attachment_) finish_lost("it " + how);
}

// Tells the stream's coordinator that no further step comes, and why: what any rank has failed with, or `why`.
void PoolSink::finish_lost(const std::string& why) {
  stop_attaching();
  const base::Deadline deadline(lose_within);
  const auto failure = node().failure();
  try {
    fabric::run_task(*progress_, attachment_->finish(failure.empty() ? why : failure, deadline), deadline);
  } catch (const Error& e) {
    base::log(base::Level::info, "the pool was not told that the writer is lost",
              {{"stream", stream()}, {"why", e.what()}});
  }
}

}  // namespace

std::unique_ptr<stream::StepSink> create_in_pool(const stream::EngineContext& context, const std::string& name,
                                                 Cohort& cohort, const StreamOptions& options) {
  return std::make_unique<PoolSink>(context, name, cohort, options);
}

}  // namespace penstock::pool
