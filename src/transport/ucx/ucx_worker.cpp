#include "transport/ucx/ucx_worker.hpp"

#include <netinet/in.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "transport/ucx/ucx_link.hpp"

namespace penstock::transport {

namespace {

constexpr int steps_per_turn = 256;  // then the loop's other sockets have theirs
constexpr Timeout closing_time{5'000};
// Of connections to UCX whose first message has not come.
constexpr Timeout claiming_time{10'000};
constexpr std::ptrdiff_t most_unclaimed = 64;  // beside one for each link that is to begin
// For connections that nobody claims; and UCX can be up to 20 s late to say that a message has come (rapidsai/ucxx, issue 15).
constexpr long look_every_ns = 100'000'000;

ucs_log_func_rc_t log_line(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                           const char* message, va_list arguments) {
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), message, arguments);
  base::log(level <= UCS_LOG_LEVEL_ERROR ? base::Level::warn : base::Level::debug, "UCX", {{"says", text.data()}});
  return UCS_LOG_FUNC_RC_STOP;
}

// UCX speaks through the library's logger, and leaves signals to the application.
void make_guest() {
  ucs_log_push_handler(log_line);
  for (const int number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(number);
}

// The workers that UCX has. UCX's own end, when the process exits, must not meet one: what is left is ended before it.
struct Living {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  unsigned workers = 0;
  std::weak_ptr<UcxWorker> newest;
  std::weak_ptr<SocketLoop> loop;
  const base::Origin origin;
};
struct AtExit {
  Living& living = *new Living;  // the SocketLoop's thread may outlive this
  ~AtExit() {
    if (living.origin.inherited()) return;
    std::unique_lock lock(living.mutex);
    const auto loop = living.loop.lock();
    if (loop && living.workers > 0) {
      loop->post([worker = living.newest] {
        if (const auto still = worker.lock()) still->end();
      });
    }
    living.changed.wait_for(lock, closing_time, [&] { return living.workers == 0; });
  }
};
Living& living() {
  static AtExit exit;  // made after UCX was loaded, so destroyed before it
  return exit.living;
}

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw Error(Errc::unsupported, std::string("UCX ") + what + ": " + ucs_status_string(status));
}

}  // namespace

std::uint16_t Address::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void Address::set_port(std::uint16_t port) {
  if (storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  else reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
}

Error error_of(ucs_status_t status, const std::string& what) {
  const Errc code = status == UCS_ERR_NO_MEMORY ? Errc::memory : Errc::peer_lost;
  return Error(code, what + ": " + ucs_status_string(status));
}

std::shared_ptr<UcxWorker> UcxWorker::shared(const std::shared_ptr<SocketLoop>& loop) {
  if (living().origin.inherited())
    throw Error(Errc::unsupported, "UCX was in use before this process was forked: it must be the first to use it");
  {
    std::unique_lock lock(living().mutex);
    auto newest = living().newest.lock();
    if (newest && newest->loop_.lock() == loop) return newest;
    lock.unlock();
    newest.reset();  // perhaps the last to hold it
    lock.lock();
    // That of an earlier loop, whose thread is ending, goes first.
    living().changed.wait_for(lock, closing_time, [] { return living().workers == 0; });
    ++living().workers;
  }
  const std::shared_ptr<UcxWorker> made(new UcxWorker(loop));
  made->begin();
  loop->add(made, made->wake_);
  loop->add(made, made->timer_.get());
  made->advance();
  const std::lock_guard lock(living().mutex);
  living().newest = made;
  living().loop = loop;
  return made;
}

void UcxWorker::begin() {
  make_guest();
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  check(ucp_init(&params, nullptr, &context_), "does not start");
  ucp_worker_params_t how{};
  how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  how.thread_mode = UCS_THREAD_MODE_SINGLE;
  check(ucp_worker_create(context_, &how, &worker_), "has no network");
  check(ucp_worker_get_efd(worker_, &wake_), "has no network that it can wait for");
  timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_) throw Error(Errc::system, "no descriptor for a timer");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = 0;
  handler.cb = &UcxWorker::on_message;
  handler.arg = this;
  check(ucp_worker_set_am_recv_handler(worker_, &handler), "takes no messages");
}

// At the loop's end, or where it could not be made.
UcxWorker::~UcxWorker() { destroy(); }

void UcxWorker::end() {
  while (!links_.empty()) links_.begin()->second->end(Error(Errc::peer_lost, "this process exits"));
  if (const auto loop = loop_.lock()) {
    loop->remove(*this, wake_);
    loop->remove(*this, timer_.get());
  }
  destroy();
}

void UcxWorker::destroy() {
  if (std::exchange(destroyed_, true)) return;
  for (const auto& [address, each] : std::exchange(listeners_, {})) ucp_listener_destroy(each.listener);
  if (worker_ != nullptr) ucp_worker_destroy(std::exchange(worker_, nullptr));
  if (context_ != nullptr) ucp_cleanup(std::exchange(context_, nullptr));
  const std::lock_guard lock(living().mutex);
  --living().workers;
  living().changed.notify_all();
}

std::uint64_t UcxWorker::add(UcxLink& link) {
  std::uint64_t number = 0;
  do std::memcpy(&number, base::random_bytes(sizeof number).data(), sizeof number);
  while (!links_.emplace(number, &link).second);
  look(true);
  return number;
}

void UcxWorker::remove(std::uint64_t number) { links_.erase(number); }

void UcxWorker::look(bool now_and_then) {
  itimerspec every{};
  if (now_and_then) every.it_value.tv_nsec = every.it_interval.tv_nsec = look_every_ns;
  ::timerfd_settime(timer_.get(), 0, &every, nullptr);
}

void UcxWorker::on_events(std::uint32_t) {
  std::uint64_t times = 0;
  if (::read(timer_.get(), &times, sizeof times) > 0 && worker_ != nullptr) {
    drop_unclaimed();
    drop_listeners();
    if (links_.empty() && endpoints_.empty()) look(false);
  }
  advance();
}

// One for each address at which links of this process are to begin.
std::uint16_t UcxWorker::listen(Address at) {
  if (worker_ == nullptr) throw Error(Errc::peer_lost, "this process exits");
  at.set_port(0);
  const std::string key(reinterpret_cast<const char*>(&at.storage), at.size);
  if (const auto found = listeners_.find(key); found != listeners_.end()) return found->second.port;
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&at.storage), at.size};
  auto& made = listeners_[key];
  made.worker = this;
  params.conn_handler = {&UcxWorker::on_connection, &made};
  if (const auto status = ucp_listener_create(worker_, &params, &made.listener); status != UCS_OK) {
    listeners_.erase(key);
    check(status, "does not listen");
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  check(ucp_listener_query(made.listener, &attributes), "does not say where it listens");
  std::memcpy(&at.storage, &attributes.sockaddr, sizeof at.storage);
  return made.port = at.port();
}

ucp_ep_h UcxWorker::connect(const Address& to, UcxLink& link) {
  if (worker_ == nullptr) throw Error(Errc::peer_lost, "this process exits");
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&to.storage), to.size};
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxWorker::on_error, this};
  ucp_ep_h endpoint = nullptr;
  if (const auto status = ucp_ep_create(worker_, &params, &endpoint); status != UCS_OK)
    throw error_of(status, "UCX does not reach it");
  endpoints_[endpoint].link = &link;
  return endpoint;
}

void UcxWorker::on_connection(ucp_conn_request_h request, void* listener) {
  const auto& at = *static_cast<const Listener*>(listener);
  auto& worker = *at.worker;
  const auto unclaimed =
      std::ranges::count_if(worker.endpoints_, [](const auto& each) { return each.second.link == nullptr; });
  const auto awaited = std::ranges::count_if(worker.links_, [](const auto& each) { return each.second->awaited(); });
  if (unclaimed >= most_unclaimed + awaited) {
    ucp_listener_reject(at.listener, request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxWorker::on_error, &worker};
  ucp_ep_h endpoint = nullptr;
  if (ucp_ep_create(worker.worker_, &params, &endpoint) == UCS_OK)
    worker.endpoints_[endpoint] = {nullptr, base::Deadline(claiming_time), false};
}

bool UcxWorker::claim(ucp_ep_h endpoint, UcxLink& link) {
  const auto found = endpoints_.find(endpoint);
  if (found == endpoints_.end() || found->second.link != nullptr) return false;
  found->second.link = &link;
  return true;
}

void UcxWorker::drop_unclaimed() {
  std::vector<ucp_ep_h> dropped;
  for (const auto& [endpoint, of] : endpoints_)
    if (of.link == nullptr && (of.lost || of.until.passed())) dropped.push_back(endpoint);
  for (auto* const endpoint : dropped) {  // what ends meanwhile may be another of these
    const auto still = endpoints_.find(endpoint);
    if (still != endpoints_.end() && still->second.link == nullptr) close(endpoint, 0);
  }
}

// UCX listens only while a link is to begin: strangers who speak to its port can make version 1.13 crash.
void UcxWorker::drop_listeners() {
  if (std::ranges::any_of(links_, [](const auto& each) { return each.second->awaited(); })) return;
  for (const auto& [address, each] : std::exchange(listeners_, {})) ucp_listener_destroy(each.listener);
}

bool UcxWorker::close(ucp_ep_h endpoint, const unsigned& operations) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  endpoints_.erase(endpoint);
  advancing_ = true;  // callbacks that run here change no more than their own link
  void* const request = ucp_ep_close_nbx(endpoint, &param);
  const bool pending = request != nullptr && !UCS_PTR_IS_ERR(request);
  const base::Deadline deadline(closing_time);
  const auto ended = [&] {
    return operations == 0 && (!pending || ucp_request_check_status(request) != UCS_INPROGRESS);
  };
  while (!ended() && !deadline.passed()) ucp_worker_progress(worker_);
  const bool well = ended();
  if (pending) ucp_request_free(request);
  advancing_ = false;
  return well;
}

void UcxWorker::advance() {
  if (advancing_ || worker_ == nullptr) return;
  advancing_ = true;
  bool more = true;
  for (int step = 0; more && step < steps_per_turn; ++step)
    if (ucp_worker_progress(worker_) == 0) more = ucp_worker_arm(worker_) == UCS_ERR_BUSY;
  advancing_ = false;
  if (!more) return;
  if (const auto loop = loop_.lock()) {
    loop->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->advance();
    });
  }
}

ucs_status_t UcxWorker::on_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t* param) {
  auto& worker = *static_cast<UcxWorker*>(self);
  UcxLink::Head head;
  if (header_bytes < sizeof head) return UCS_OK;
  std::memcpy(&head, header, sizeof head);
  const auto found = worker.links_.find(head.link);
  if (found == worker.links_.end()) return UCS_OK;  // of a link that has ended
  const auto* behind = static_cast<const std::byte*>(header) + sizeof head;
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (head.kind == UcxLink::Kind::hello) {
    const bool can_answer = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
    found->second->on_hello(head, can_answer ? param->reply_ep : nullptr);
    return UCS_OK;
  }
  return found->second->on_message(head, {behind, header_bytes - sizeof head}, {data, bytes, rendezvous});
}

void UcxWorker::on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) {
  auto& worker = *static_cast<UcxWorker*>(self);
  const auto found = worker.endpoints_.find(endpoint);
  if (found == worker.endpoints_.end()) return;
  if (found->second.link != nullptr) found->second.link->fail_later(error_of(status, "UCX lost it"));
  else found->second.lost = true;
}

}  // namespace penstock::transport
