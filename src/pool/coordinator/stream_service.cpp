#include "pool/coordinator/stream_service.hpp"

#include <utility>

#include "base/log.hpp"
#include "fabric/registration.hpp"
#include "pool/keys/stream_keys.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout load_within(10'000);

}  // namespace

std::shared_ptr<StreamService> StreamService::create(std::shared_ptr<ServerCore> core) {
  std::shared_ptr<StreamService> service(new StreamService(core));
  core->on_view([weak = std::weak_ptr<StreamService>(service)](const View& view) {
    if (const auto self = weak.lock()) self->view_changed(view);
  });
  return service;
}

StreamService::StreamService(std::shared_ptr<ServerCore> core)
    : core_(core), puller_(std::make_shared<StripePuller>(core, core->progress())) {}

StreamService::~StreamService() { stop(); }

void StreamService::stop() {
  stopped_ = true;
  for (auto& [name, entry] : homes_) entry.home->retire();
  homes_.clear();
}

// The home of a stream, if this server is it. Throws stale_view otherwise.
Task<std::shared_ptr<StreamHome>> StreamService::home_of(std::string stream, std::uint64_t view,
                                                         base::Deadline deadline) {
  auto self = shared_from_this();
  auto core = core_.lock();
  if (!core || stopped_) throw Error(Errc::stale_view, "this server is stopping");
  fabric::check_stream_name(stream);
  for (;;) {
    // Again after each wait: the view may have changed meanwhile.
    const auto placement = co_await core->check_view(view, deadline);
    if (stopped_ || !core->is_primary(*placement, streams_namespace(), stream_row(stream), std::nullopt))
      throw Error(Errc::stale_view, "this server is not the home of stream " + stream);
    auto& entry = homes_[stream];
    if (entry.loaded) co_return entry.home;
    if (entry.loading) {
      auto loading = entry.loading;
      co_await loading->wait(deadline);
      if (deadline.passed()) throw Error(Errc::timeout, "stream " + stream + " is being loaded");
      continue;
    }
    auto loading = std::make_shared<fabric::Signal>(*core->progress());
    entry.loading = loading;
    entry.home = std::make_shared<StreamHome>(core, puller_, stream);
    auto home = entry.home;
    struct Loaded {
      StreamService& service;
      const std::string& stream;
      std::shared_ptr<StreamHome> home;
      std::shared_ptr<fabric::Signal> loading;
      bool well = false;
      ~Loaded() {
        const auto found = service.homes_.find(stream);
        if (found != service.homes_.end() && found->second.home == home) {
          found->second.loading.reset();
          found->second.loaded = well;
          if (!well) service.homes_.erase(found);
        }
        loading->notify_all();
      }
    } loaded{*this, stream, home, loading};
    co_await home->load(deadline);
    loaded.well = true;
    co_return home;
  }
}

// Streams that this server became the home of are taken up before anybody asks: their writers wait. Others are let go.
// After a view that this server did not see another may have been the home meanwhile: what is known is not enough.
void StreamService::view_changed(const View& view) {
  const bool follows = view.number == std::exchange(last_view_, view.number) + 1;
  auto core = core_.lock();
  if (!core || stopped_) return;
  const auto placement = core->placement();
  const auto ours = [&](const std::string& row) {
    return core->is_primary(*placement, streams_namespace(), row, std::nullopt);
  };
  for (auto it = homes_.begin(); it != homes_.end();) {
    if (follows && ours(stream_row(it->first))) {
      ++it;
      continue;
    }
    it->second.home->retire();
    it = homes_.erase(it);
  }
  Pattern pattern;
  pattern.row = std::string(stream_row_prefix) + "*";
  pattern.column = std::string(record_column);
  const KeyPattern keys(pattern);
  std::vector<std::string> found;
  core->store().table().scan(streams_namespace(), keys, "", ~std::size_t{0}, [&](const ObjectTable::Entry& entry) {
    const std::string row(entry.row);
    if (ours(row)) found.push_back(stream_of_row(row));
    return true;
  });
  for (auto& stream : found)
    if (!homes_.contains(stream)) fabric::spawn(*core->progress(), load_quietly(std::move(stream)));
}

Task<void> StreamService::load_quietly(std::string stream) {
  auto self = shared_from_this();
  try {
    const base::Deadline deadline(load_within);
    co_await home_of(stream, 0, deadline);
  } catch (const std::exception& e) {
    base::log(base::Level::info, "a stream was not taken up", {{"stream", stream}, {"why", e.what()}});
  }
}

Task<fb::AttachReplyT> StreamService::attach(rpc::Call& call, fb::AttachRequestT request) {
  ServerCore::require_role(call, "write");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  co_return co_await home->attach(std::move(request), call.deadline());
}

Task<fb::EmptyT> StreamService::finish(rpc::Call& call, fb::FinishRequestT request) {
  ServerCore::require_role(call, "write");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  co_await home->finish(std::move(request), call.deadline());
  co_return fb::EmptyT{};
}

Task<fb::OpenReaderReplyT> StreamService::open_reader(rpc::Call& call, fb::OpenReaderRequestT request) {
  ServerCore::require_role(call, "read");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  co_return co_await home->open_reader(std::move(request), call.deadline());
}

Task<fb::NextStepReplyT> StreamService::next_step(rpc::Call& call, fb::NextStepRequestT request) {
  ServerCore::require_role(call, "read");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  co_return co_await home->next_step(call.shared_channel(), std::move(request), call.deadline());
}

Task<fb::EmptyT> StreamService::end_step(rpc::Call& call, fb::EndStepRequestT request) {
  ServerCore::require_role(call, "read");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  co_await home->end_step(std::move(request), call.deadline());
  co_return fb::EmptyT{};
}

Task<fb::EmptyT> StreamService::close_reader(rpc::Call& call, fb::CloseReaderRequestT request) {
  ServerCore::require_role(call, "read");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  home->close_reader(request);
  co_return fb::EmptyT{};
}

Task<fb::StreamInfoReplyT> StreamService::stream_info(rpc::Call& call, fb::StreamInfoRequestT request) {
  ServerCore::require_role(call, "read");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  if (!home->known()) throw Error(Errc::not_found, "the pool has no stream " + request.stream);
  co_return home->info();
}

Task<fb::EmptyT> StreamService::hold(rpc::Call& call, fb::HoldRequestT request) {
  ServerCore::require_role(call, "read");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  home->hold(call.shared_channel(), request);
  co_return fb::EmptyT{};
}

Task<fb::EmptyT> StreamService::drop_stream(rpc::Call& call, fb::DropStreamRequestT request) {
  ServerCore::require_role(call, "write");
  auto home = co_await home_of(request.stream, request.view, call.deadline());
  co_await home->drop_stream(call.deadline());
  co_return fb::EmptyT{};
}

Task<fb::PullReplyT> StreamService::pull(rpc::Call& call, fb::PullRequestT request) {
  ServerCore::require_role(call, "server");
  auto core = core_.lock();
  if (!core) throw Error(Errc::stale_view, "this server is stopping");
  co_await core->check_view(request.view, call.deadline());
  co_return co_await puller_->pull(std::move(request), call.deadline());
}

}  // namespace penstock::pool
