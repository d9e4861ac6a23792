#include "space/server/space_service.hpp"

#include "model/box.hpp"
#include "pool/keys/protocol.hpp"
#include "space/names.hpp"
#include "space/partition.hpp"
#include "space/protocol.hpp"
#include "space/server/parts_impl.hpp"

namespace penstock::space {

using fabric::Task;
using pool::ServerCore;

namespace {

constexpr std::string_view replica_row = "replica";  // in what is said of it; it is no object
constexpr std::size_t most_blocks = 100'000;         // of a reply, but for its last part

}  // namespace

Task<fb::FindReplyT> ArrayService::find(rpc::Call& call, fb::FindRequestT request) {
  ServerCore::require_role(call, "read");
  const auto core = locked(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto view = placement->view().number;
  const auto boxes = unpack_boxes(request.boxes, request.dimensions);
  if (boxes.size() != request.parts.size() || boxes.size() > max_parts)
    throw Error(Errc::protocol, "a box is needed for each part");
  const pool::Waiting waiting(waits_, call.channel(), core->options().max_waits);
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
  const auto core = locked(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  fb::DropReplyT reply;
  if (request.whole) co_await parts_->settle(request.array, call.deadline());
  else
    reply.dropped = co_await parts_->drop(request.array, request.version, request.tag_base, placement->view().number,
                                          call.deadline());
  co_return reply;
}

Task<fb::ConvertReplyT> ArrayService::convert(rpc::Call& call, fb::ConvertRequestT request) {
  ServerCore::require_role(call, "read");
  const auto core = locked(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto boxes = unpack_boxes(request.boxes, request.dimensions);
  if (boxes.size() != request.parts.size() || boxes.size() > max_parts)
    throw Error(Errc::protocol, "a box is needed for each part");
  const pool::Waiting waiting(waits_, call.channel(), core->options().max_waits);
  const auto record = co_await parts_->record(request.array, call.deadline());
  if (!record->fields.empty()) throw Error(Errc::unsupported, "servers do not convert structures");
  Replicas::Request wanted;
  wanted.record = record;
  wanted.layout = unpack_layout(request.dtype, request.order, record->shape.size());
  wanted.in_place = request.in_place;
  wanted.convert_rate = request.convert_rate;
  wanted.copy_rate = request.copy_rate;
  const auto wait_until = pool::answer_in_time(call.deadline());
  fb::ConvertReplyT reply;
  reply.given = std::make_unique<pool::fb::GetReplyT>();
  reply.given->view = placement->view().number;
  std::vector<fabric::Future<Replicas::Given>> given;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    wanted.row = {request.array, request.version, request.parts[i]};
    wanted.box = boxes[i];
    const auto tag = record->tag_base + request.version + request.parts[i];
    if (!model::is_within(wanted.box, record->shape) || request.parts[i] >= record->partition.parts() ||
        model::intersect(wanted.box, record->partition.box_of(request.parts[i])) != wanted.box)
      throw Error(Errc::protocol, "a box outside its part of the array");
    if (!core->is_primary(*placement, arrays_namespace(), block_row(wanted.row), tag))
      throw Error(Errc::stale_view, "this server does not own the part");
    if (request.explain_only) {
      reply.why = replicas_->explain(wanted);
      reply.counts.push_back(0);
    } else {
      given.push_back(fabric::spawn(*core->progress(), replicas_->give(wanted, wait_until)));
    }
  }
  for (auto& one : given) {
    const auto part = co_await std::move(one);
    if (!part.why.empty()) reply.why = part.why;
    reply.counts.push_back(static_cast<std::uint32_t>(part.replicas.size()));
    for (const auto& replica : part.replicas) {
      append_box(reply.boxes, replica.box);
      pool::StoredObject object;
      object.version = 1;
      object.bytes = replica.blob->size();
      object.blob = replica.blob;
      const Key key{std::string(replica_row), ""};
      auto got = core->give(call.channel(), arrays_namespace(), key, object, 0, object.bytes, 0, reply.given->data);
      reply.given->got.push_back(std::make_unique<pool::fb::GotT>(std::move(got)));
    }
  }
  co_return reply;
}

Task<fb::RoomReplyT> ArrayService::room(rpc::Call& call, fb::RoomRequestT request) {
  ServerCore::require_role(call, "write");
  const auto core = locked(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto row = versions_row(request.array);
  if (!core->is_primary(*placement, arrays_namespace(), row, std::nullopt))
    throw Error(Errc::stale_view, "this server does not own the array's versions");
  const pool::Waiting waiting(waits_, call.channel(), core->options().max_waits);
  fb::RoomReplyT reply;
  auto room = co_await parts_->room_for(request.array, request.version, placement->view().number,
                                        pool::answer_in_time(call.deadline()));
  reply.go = std::move(room.go);
  reply.begin = room.begin;
  co_return reply;
}

Task<fb::NextReplyT> ArrayService::next(rpc::Call& call, fb::NextRequestT request) {
  ServerCore::require_role(call, "read");
  const auto core = locked(core_);
  const auto placement = co_await core->check_view(request.view, call.deadline());
  if (request.step == 0) throw Error(Errc::protocol, "versions in steps of 0");
  const auto row = versions_row(request.array);
  if (!core->is_primary(*placement, arrays_namespace(), row, std::nullopt))
    throw Error(Errc::stale_view, "this server does not own the array's versions");
  const pool::Waiting waiting(waits_, call.channel(), core->options().max_waits);
  const auto found = co_await parts_->next_version(request.array, request.first, request.step, placement->view().number,
                                                   pool::answer_in_time(call.deadline()));
  fb::NextReplyT reply;
  reply.found = found.has_value();
  reply.version = found.value_or(0);
  co_return reply;
}

Task<fb::StatusReplyT> ArrayService::status(rpc::Call& call, fb::StatusRequestT) {
  ServerCore::require_role(call, "read");
  locked(core_);
  co_return replicas_->status();
}

pool::Extension extend_server(std::shared_ptr<ServerCore> core, std::uint64_t replica_bytes) {
  const auto parts = Parts::create(core);
  const auto replicas =
      Replicas::create(core, parts, replica_bytes != 0 ? replica_bytes : core->store().memory_limit() / 4);
  return {std::make_shared<ArrayService>(core, parts, replicas), parts};
}

}  // namespace penstock::space
