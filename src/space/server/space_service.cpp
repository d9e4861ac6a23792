#include "space/server/space_service.hpp"

#include "pool/keys/protocol.hpp"
#include "space/names.hpp"
#include "space/partition.hpp"
#include "space/protocol.hpp"

namespace penstock::space {

using fabric::Task;
using pool::ServerCore;

namespace {

constexpr std::size_t most_blocks = 100'000;  // of a reply, but for its last part

std::shared_ptr<ServerCore> running(const std::weak_ptr<ServerCore>& core) {
  auto held = core.lock();
  if (!held) throw Error(Errc::stale_view, "this server is stopping");
  return held;
}

}  // namespace

Task<fb::FindReplyT> ArrayService::find(rpc::Call& call, fb::FindRequestT request) {
  ServerCore::require_role(call, "read");
  const auto core = running(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto view = placement->view().number;
  const auto boxes = unpack_boxes(request.boxes, request.dimensions);
  if (boxes.size() != request.parts.size() || boxes.size() > max_parts)
    throw Error(Errc::protocol, "a box is needed for each part");
  struct Waiting {
    std::shared_ptr<std::map<rpc::Channel*, std::uint32_t>> waits;
    rpc::Channel* channel;
    ~Waiting() {
      if (--(*waits)[channel] == 0) waits->erase(channel);
    }
  } waiting{waits_, &call.channel()};
  if (++(*waits_)[&call.channel()] > core->options().max_waits)
    throw Error(Errc::overloaded, "a client may wait " + std::to_string(core->options().max_waits) +
                                      " times at a server (its max_waits)");
  const auto wait_until = pool::answer_in_time(call.deadline());
  fb::FindReplyT reply;
  reply.view = view;
  std::size_t blocks = 0;
  for (std::size_t i = 0; i < boxes.size() && blocks <= most_blocks; ++i) {
    const BlockRow row{request.array, request.version, request.parts[i]};
    if (!core->is_primary(*placement, arrays_namespace(), block_row(row), request.tag_base + request.parts[i]))
      throw Error(Errc::stale_view, "this server does not own the part");
    const auto found = co_await parts_->find(row, boxes[i], view, request.wait, wait_until);
    reply.counts.push_back(static_cast<std::uint32_t>(found.blocks.size()));
    blocks += found.blocks.size();
    for (const auto& block : found.blocks) append_box(reply.blocks, block);
  }
  co_return reply;
}

Task<fb::DropReplyT> ArrayService::drop(rpc::Call& call, fb::DropRequestT request) {
  ServerCore::require_role(call, "write");
  const auto core = running(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  fb::DropReplyT reply;
  if (request.whole) co_await parts_->settle(versions_row(request.array), call.deadline());
  else reply.dropped = co_await parts_->drop(request.array, request.version, call.deadline());
  co_return reply;
}

pool::Extension extend_server(std::shared_ptr<ServerCore> core) {
  const auto parts = Parts::create(core);
  return {std::make_shared<ArrayService>(core, parts), parts};
}

}  // namespace penstock::space
