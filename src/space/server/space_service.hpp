// What a pool's server offers of arrays, for PoolServerOptions::extend: the generated SpaceService, and the guard of puts.
#pragma once

#include <map>
#include <memory>

#include "pool/node/server.hpp"
#include "space/server/parts.hpp"
#include "space/space_service.hpp"  // generated from space.fbs

namespace penstock::space {

class ArrayService final : public fb::SpaceService {
 public:
  ArrayService(std::weak_ptr<pool::ServerCore> core, std::shared_ptr<Parts> parts)
      : core_(std::move(core)), parts_(std::move(parts)) {}
  fabric::Task<fb::FindReplyT> find(rpc::Call& call, fb::FindRequestT request) override;
  fabric::Task<fb::DropReplyT> drop(rpc::Call& call, fb::DropRequestT request) override;

 private:
  std::weak_ptr<pool::ServerCore> core_;  // which owns this
  std::shared_ptr<Parts> parts_;
  std::shared_ptr<std::map<rpc::Channel*, std::uint32_t>> waits_ =
      std::make_shared<std::map<rpc::Channel*, std::uint32_t>>();
};

pool::Extension extend_server(std::shared_ptr<pool::ServerCore> core);

}  // namespace penstock::space
