// What a pool's server offers of arrays, for PoolServerOptions::extend: the generated SpaceService, and the guard of puts.
#pragma once

#include <memory>

#include "pool/node/server.hpp"
#include "pool/server/waiting.hpp"
#include "space/server/parts.hpp"
#include "space/server/replicas.hpp"
#include "space/space_service.hpp"  // generated from space.fbs

namespace penstock::space {

class ArrayService final : public fb::SpaceService {
 public:
  ArrayService(std::weak_ptr<pool::ServerCore> core, std::shared_ptr<Parts> parts, std::shared_ptr<Replicas> replicas)
      : core_(std::move(core)), parts_(std::move(parts)), replicas_(std::move(replicas)) {}
  fabric::Task<fb::FindReplyT> find(rpc::Call& call, fb::FindRequestT request) override;
  fabric::Task<fb::DropReplyT> drop(rpc::Call& call, fb::DropRequestT request) override;
  fabric::Task<fb::ConvertReplyT> convert(rpc::Call& call, fb::ConvertRequestT request) override;
  fabric::Task<fb::RoomReplyT> room(rpc::Call& call, fb::RoomRequestT request) override;
  fabric::Task<fb::NextReplyT> next(rpc::Call& call, fb::NextRequestT request) override;
  fabric::Task<fb::StatusReplyT> status(rpc::Call& call, fb::StatusRequestT request) override;

 private:
  std::weak_ptr<pool::ServerCore> core_;  // which owns this
  std::shared_ptr<Parts> parts_;
  std::shared_ptr<Replicas> replicas_;
  std::shared_ptr<pool::Waits> waits_ = std::make_shared<pool::Waits>();
};

// replica_bytes: the budget of converted replicas; 0: a quarter of the server's memory.
pool::Extension extend_server(std::shared_ptr<pool::ServerCore> core, std::uint64_t replica_bytes = 0);

}  // namespace penstock::space
