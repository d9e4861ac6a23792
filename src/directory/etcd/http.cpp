#include "directory/etcd/http.hpp"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/uri.hpp"
#include "penstock/error.hpp"

namespace penstock::directory::etcd {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;

namespace {

constexpr Milliseconds connect_timeout = 1s;
// One attempt, when there is another member to ask; less when little time is left.
constexpr Milliseconds longest_attempt = 3s, shortest_attempt = 200ms;
constexpr Milliseconds pause_after_round = 50ms;
constexpr std::size_t max_line_bytes = std::size_t{64} << 20;

void set_timeouts(httplib::Client& client, Milliseconds limit) {
  limit = std::max(limit, Milliseconds(1));
  const auto in_parts = [](Milliseconds t) {
    return std::pair<time_t, time_t>(t.count() / 1000, t.count() % 1000 * 1000);
  };
  const auto connect = in_parts(std::min(limit, connect_timeout));
  const auto transfer = in_parts(limit);
  client.set_connection_timeout(connect.first, connect.second);
  client.set_read_timeout(transfer.first, transfer.second);
  client.set_write_timeout(transfer.first, transfer.second);
}

std::unique_ptr<httplib::Client> make_client(const Member& member) {
  auto client = std::make_unique<httplib::Client>(member.host, member.port);
  client->set_keep_alive(true);
  client->set_tcp_nodelay(true);
  return client;
}

// The request cannot have reached the member.
bool not_sent(httplib::Error error) {
  return error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout ||
         error == httplib::Error::BindIPAddress;
}

// No leader, or too slow: gRPC's unavailable and deadline exceeded.
bool not_now(int status) { return status == 503 || status == 504; }

struct Answer {
  int status = 0;  // 0: none
  std::string body;
  bool clean = false;  // the connection can be used again
  httplib::Error error{};
};

// etcd's refusals end with an HTTP trailer, which cpp-httplib takes for a broken answer, though all of the body has come.
Answer post_once(httplib::Client& client, const std::string& path, const std::string& body) {
  Answer answer;
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.body = body;
  request.set_header("Content-Type", "application/json");
  int status = 0;
  request.response_handler = [&](const httplib::Response& response) {
    status = response.status;
    return true;
  };
  request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    answer.body.append(data, size);
    return answer.body.size() <= max_line_bytes;
  };
  httplib::Response response;
  answer.clean = client.send(request, response, answer.error);
  if (answer.clean) answer.status = response.status;
  else if (status >= 400 && answer.body.ends_with('}')) answer.status = status;
  return answer;
}

}  // namespace

struct Stop::State {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool requested = false;
  httplib::Client* client = nullptr;  // under way
};

Stop::Stop() : state_(std::make_unique<State>()) {}
Stop::~Stop() = default;

void Stop::request() {
  std::lock_guard lock(state_->mutex);
  state_->requested = true;
  if (state_->client != nullptr) state_->client->stop();
  state_->changed.notify_all();
}

bool Stop::requested() const {
  std::lock_guard lock(state_->mutex);
  return state_->requested;
}

bool Stop::wait_for(Milliseconds time) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, time, [&] { return state_->requested; });
}

struct Http::Impl {
  std::vector<Member> members;
  std::atomic<std::size_t> preferred{0};
  Stop stopping;
  std::mutex mutex;  // guards what follows
  std::vector<std::vector<std::unique_ptr<httplib::Client>>> idle;
  std::set<httplib::Client*> busy;
  bool stopped = false;

  std::unique_ptr<httplib::Client> take(std::size_t member) {
    std::lock_guard lock(mutex);
    if (stopped) throw Error(Errc::cancelled, "the directory's client was closed");
    std::unique_ptr<httplib::Client> client;
    if (idle[member].empty()) {
      client = make_client(members[member]);
    } else {
      client = std::move(idle[member].back());
      idle[member].pop_back();
    }
    busy.insert(client.get());
    return client;
  }
  void give(std::size_t member, std::unique_ptr<httplib::Client> client, bool good) {
    std::lock_guard lock(mutex);
    busy.erase(client.get());
    if (good && !stopped) idle[member].push_back(std::move(client));
  }
};

Http::Http(std::vector<Member> members, std::string name) : name_(std::move(name)), impl_(std::make_unique<Impl>()) {
  if (members.empty()) throw Error(Errc::invalid_argument, "etcd without a host");
  impl_->idle.resize(members.size());
  impl_->members = std::move(members);
}

Http::~Http() { stop(); }

void Http::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopped = true;
    for (auto* client : impl_->busy) client->stop();
  }
  impl_->stopping.request();
}

Reply Http::post(const std::string& path, const std::string& body, base::Deadline deadline) {
  const std::size_t count = impl_->members.size();
  bool reached = false, repeated = false;
  std::string last = "not asked";
  for (std::size_t attempt = 0, at = impl_->preferred; !deadline.passed(); ++attempt, at = (at + 1) % count) {
    if (attempt != 0 && attempt % count == 0 &&
        impl_->stopping.wait_for(std::min(pause_after_round, deadline.remaining())))
      break;
    auto client = impl_->take(at);
    const auto left = deadline.remaining();
    const auto share = std::clamp(left / static_cast<int>(count), shortest_attempt, longest_attempt);
    set_timeouts(*client, count > 1 ? std::min(left, share) : left);
    const Answer answer = post_once(*client, path, body);
    impl_->give(at, std::move(client), answer.clean);
    if (answer.status != 0 && !not_now(answer.status)) {
      impl_->preferred = at;
      return {answer.status, answer.body, repeated};
    }
    const bool sent = answer.status != 0 || !not_sent(answer.error);
    reached = reached || sent;
    repeated = repeated || sent;
    last = base::format_endpoint(impl_->members[at].host, impl_->members[at].port) + ": " +
           (answer.status != 0       ? "status " + std::to_string(answer.status)
            : not_sent(answer.error) ? "no connection"
                                     : "error " + httplib::to_string(answer.error));
  }
  if (impl_->stopping.requested()) throw Error(Errc::cancelled, "the directory's client was closed");
  if (reached) throw Error(Errc::timeout, name_ + " did not answer in time (" + last + ")");
  throw Error(Errc::peer_lost, name_ + " cannot be reached (" + last + ")");
}

void Http::stream(const std::string& path, const std::string& body,
                  const std::function<bool(std::string_view)>& on_line, Milliseconds idle, Stop& stop) {
  const std::size_t at = impl_->preferred % impl_->members.size();
  auto client = make_client(impl_->members[at]);
  set_timeouts(*client, idle);
  {
    std::lock_guard lock(stop.state_->mutex);
    if (stop.state_->requested) return;
    stop.state_->client = client.get();
  }
  bool began = false;
  std::exception_ptr thrown;  // not through the library
  std::string partial;
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.body = body;
  request.set_header("Content-Type", "application/json");
  request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    began = true;
    partial.append(data, size);
    std::size_t start = 0;
    try {
      for (std::size_t end; (end = partial.find('\n', start)) != std::string::npos; start = end + 1)
        if (stop.requested() || !on_line(std::string_view(partial).substr(start, end - start))) return false;
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
    partial.erase(0, start);
    return partial.size() <= max_line_bytes;
  };
  httplib::Response response;
  httplib::Error error{};
  client->send(request, response, error);
  {
    std::lock_guard lock(stop.state_->mutex);
    stop.state_->client = nullptr;
  }
  if (thrown) std::rethrow_exception(thrown);
  if (stop.requested()) return;
  // Whoever was silent or ended may be cut off from the others: another one next time.
  impl_->preferred = (at + 1) % impl_->members.size();
  if (!began)
    throw Error(Errc::peer_lost, name_ + ": " +
                                     base::format_endpoint(impl_->members[at].host, impl_->members[at].port) +
                                     " does not answer (" + httplib::to_string(error) + ")");
}

}  // namespace penstock::directory::etcd
