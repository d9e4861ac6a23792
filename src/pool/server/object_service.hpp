// What clients of a pool may ask one of its servers: the generated ObjectsService and PeersService over ServerCore.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "pool/server/server_core.hpp"
#include "pool/server/waiting.hpp"

namespace penstock::pool {

// Computing beside the data: given by the program that has workers; none: Error(unsupported).
using Compute = std::function<Task<fb::ComputeReplyT>(rpc::Call&, fb::ComputeRequestT)>;
// Changes of the server itself ("drain", ...), by the program. Returns JSON.
using Admin = std::function<Task<std::string>(std::string command, std::string argument)>;

// Held while an object that a guard has admitted is put.
struct PutToken {
  virtual ~PutToken() = default;
  bool in_doubt = true;  // the put ended without saying how; false: it was done, or refused
};
// Who is asked before an object of a namespace is put.
class PutGuard {
 public:
  virtual ~PutGuard() = default;
  virtual const Namespace& of() const = 0;
  // Throws Error: it is refused. put stays until the task has ended.
  virtual Task<std::shared_ptr<PutToken>> admit(const ServerCore::Put& put, IfExists if_exists,
                                                base::Deadline deadline) = 0;
};

class ObjectService final : public fb::ObjectsService {
 public:
  // guard: may be null.
  ObjectService(std::shared_ptr<ServerCore> core, Compute compute, Admin admin, std::shared_ptr<PutGuard> guard = {});

  Task<fb::PutReplyT> put(rpc::Call& call, fb::PutRequestT request) override;
  Task<fb::GetReplyT> get(rpc::Call& call, fb::GetRequestT request) override;
  Task<fb::EmptyT> release(rpc::Call& call, fb::ReleaseRequestT request) override;
  Task<fb::ListReplyT> list(rpc::Call& call, fb::ListRequestT request) override;
  Task<fb::DropReplyT> drop(rpc::Call& call, fb::DropRequestT request) override;
  Task<fb::DropPatternReplyT> drop_pattern(rpc::Call& call, fb::DropPatternRequestT request) override;
  Task<fb::ListReplyT> wait_row(rpc::Call& call, fb::WaitRowRequestT request) override;
  Task<fb::SubscribeReplyT> subscribe(rpc::Call& call, fb::SubscribeRequestT request) override;
  Task<fb::EmptyT> unsubscribe(rpc::Call& call, fb::UnsubscribeRequestT request) override;
  Task<fb::ComputeReplyT> compute(rpc::Call& call, fb::ComputeRequestT request) override;
  Task<fb::StatusReplyT> status(rpc::Call& call, fb::StatusRequestT request) override;
  Task<fb::AdminReplyT> admin(rpc::Call& call, fb::AdminRequestT request) override;

 private:
  class Subscriber;
  struct Subscribers {                                               // of one channel
    std::map<std::uint64_t, std::shared_ptr<Subscriber>> by_number;  // the client's
    std::shared_ptr<std::size_t> event_bytes = std::make_shared<std::size_t>(0);
  };
  class Ahead;
  using Load = fabric::Future<std::optional<ObjectStore::Loaded>>;
  Task<fb::GotT> get_one(rpc::Call& call, const fb::GetRequestT& request, std::uint64_t view, Namespace ns, Key key,
                         Load begun, std::vector<std::uint8_t>& data);
  bool give_simply(const fb::GetRequestT& request, const Namespace& ns, const ViewedKey& key, std::uint32_t index,
                   fb::GetReplyT& reply);
  Task<ServerCore::PassingBy> fetch_newer(const Placement& placement, const fb::GetRequestT& request,
                                          const ViewedKeys& keys, base::Deadline deadline);
  // Subscriptions (object_subscriptions.cpp).
  std::shared_ptr<Subscriber> begin_subscription(rpc::Call& call, const fb::SubscribeRequestT& request);
  void end(Subscriber& subscriber);
  void end_subscriptions(const rpc::Channel* channel);
  // Putting (object_put.cpp).
  struct PutPart;
  PutPart part_after(const PutPart& last, const fb::PutRequestT& request) const;
  Task<std::vector<ServerCore::PutResult>> put_part(rpc::Call& call, const fb::PutRequestT& request,
                                                    const std::vector<ViewedKey>& keys,
                                                    const ServerCore::PutTerms& terms, PutPart part,
                                                    base::Deadline wait_until);
  Task<std::vector<ServerCore::PutResult>> put_guarded(std::vector<ServerCore::Put> objects,
                                                       const ServerCore::PutTerms& terms, base::Deadline deadline);
  Task<void> take_bytes(rpc::Call& call, const fb::PutRequestT& request, PutPart part, const ObjectStore::Blobs& blobs);
  std::shared_ptr<ServerCore> core_;
  Compute compute_;
  Admin admin_;
  std::shared_ptr<PutGuard> guard_;
  std::map<const rpc::Channel*, Subscribers> subscribers_;  // a channel that had one is here until it is closed
  std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
};

class PeerService final : public fb::PeersService {
 public:
  // pull: what a server takes from elsewhere than the pool, if it does (coordinator/stripe_puller.hpp).
  using Pull = std::function<Task<fb::PullReplyT>(rpc::Call&, fb::PullRequestT)>;
  PeerService(std::shared_ptr<ServerCore> core, Pull pull) : core_(std::move(core)), pull_(std::move(pull)) {}
  Task<fb::ReplicateReplyT> replicate(rpc::Call& call, fb::ReplicateRequestT request) override;
  Task<fb::HaveReplyT> have(rpc::Call& call, fb::HaveRequestT request) override;
  Task<fb::GetReplyT> fetch(rpc::Call& call, fb::FetchRequestT request) override;
  Task<fb::MissingReplyT> missing(rpc::Call& call, fb::MissingRequestT request) override;
  Task<fb::PullReplyT> pull(rpc::Call& call, fb::PullRequestT request) override;

 private:
  std::shared_ptr<ServerCore> core_;
  Pull pull_;
};

// The server's state as JSON (status_json.cpp): for the Status call and the HTTP page; its part about a drain.
std::string status_json(ServerCore& core);
nlohmann::json drain_json(const ServerCore::DrainStatus& drain);

}  // namespace penstock::pool
