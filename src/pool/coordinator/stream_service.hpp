// What a pool's server offers of streams: the generated StreamsService over one StreamHome for each stream whose row this
// server owns, and the pulls that other homes order. Engine thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pool/coordinator/stream_home.hpp"

namespace penstock::pool {

class StreamService final : public fb::StreamsService, public std::enable_shared_from_this<StreamService> {
 public:
  static std::shared_ptr<StreamService> create(std::shared_ptr<ServerCore> core);
  ~StreamService() override;
  // Lets all streams go: whoever asks gets stale_view. Before the server stops.
  void stop();

  Task<fb::AttachReplyT> attach(rpc::Call& call, fb::AttachRequestT request) override;
  Task<fb::EmptyT> finish(rpc::Call& call, fb::FinishRequestT request) override;
  Task<fb::OpenReaderReplyT> open_reader(rpc::Call& call, fb::OpenReaderRequestT request) override;
  Task<fb::NextStepReplyT> next_step(rpc::Call& call, fb::NextStepRequestT request) override;
  Task<fb::EmptyT> end_step(rpc::Call& call, fb::EndStepRequestT request) override;
  Task<fb::EmptyT> close_reader(rpc::Call& call, fb::CloseReaderRequestT request) override;
  Task<fb::StreamInfoReplyT> stream_info(rpc::Call& call, fb::StreamInfoRequestT request) override;
  Task<fb::EmptyT> hold(rpc::Call& call, fb::HoldRequestT request) override;
  Task<fb::EmptyT> drop_stream(rpc::Call& call, fb::DropStreamRequestT request) override;

  // What PeerService::pull does.
  Task<fb::PullReplyT> pull(rpc::Call& call, fb::PullRequestT request);

 private:
  explicit StreamService(std::shared_ptr<ServerCore> core);
  struct Entry {
    std::shared_ptr<StreamHome> home;
    bool loaded = false;
    std::shared_ptr<fabric::Signal> loading;
  };
  Task<std::shared_ptr<StreamHome>> home_of(std::string stream, std::uint64_t view, base::Deadline deadline);
  Task<void> load_quietly(std::string stream);
  void view_changed(const View& view);

  std::weak_ptr<ServerCore> core_;  // which owns this
  std::shared_ptr<StripePuller> puller_;
  std::map<std::string, Entry> homes_;
  std::uint64_t last_view_ = 0;
  bool stopped_ = false;
};

}  // namespace penstock::pool
