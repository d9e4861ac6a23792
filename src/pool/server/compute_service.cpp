#include "pool/server/compute_service.hpp"

#include <nlohmann/json.hpp>

#include "pool/keys/protocol.hpp"

namespace penstock::pool {
namespace {

constexpr std::size_t max_reply_bytes = std::size_t{512} << 20;

// None when it is there but no list of natural numbers: metadata of the user's own.
std::optional<Dims> dims_of(const nlohmann::json& described, const char* name) {
  if (!described.contains(name)) return Dims{};
  const auto& list = described.at(name);
  if (!list.is_array()) return std::nullopt;
  std::vector<std::uint64_t> values;
  for (const auto& value : list) {
    if (!value.is_number_unsigned()) return std::nullopt;  // nlohmann would make one of anything
    values.push_back(value.get<std::uint64_t>());
  }
  return Dims(values);
}

}  // namespace

compute::ComputeInput described_input(const Key& key, const StoredObject& object) {
  compute::ComputeInput input;
  input.name = key.column.empty() ? key.row : key.row + "/" + key.column;
  input.bytes = object.blob->bytes();
  input.owner = object.blob;
  if (!object.metadata || object.metadata->empty() || object.metadata->front() != '{') return input;
  try {
    const auto json = nlohmann::json::parse(*object.metadata);
    if (!json.contains("dtype")) return input;
    const auto shape = dims_of(json, "shape"), start = dims_of(json, "start");
    if (!shape || !start) return input;
    input.dtype = dtype_from_name(json.at("dtype").get<std::string>());
    input.shape = *shape;
    if (json.contains("start")) input.box = Box{*start, *shape};
  } catch (const nlohmann::json::exception&) {
    return input;  // metadata of the user's own
  }
  compute::check(input);
  return input;
}

std::string describe_result(const compute::ComputeResult& result) {
  if (result.dtype == DType::none && result.info.empty()) return "";
  nlohmann::json json = nlohmann::json::object();
  if (result.dtype != DType::none) {
    json["dtype"] = std::string(name_of(result.dtype));
    json["shape"] = std::vector<std::uint64_t>(result.shape.begin(), result.shape.end());
  }
  if (!result.info.empty()) {
    auto info = nlohmann::json::parse(result.info, nullptr, false);
    if (info.is_discarded()) throw Error(Errc::invalid_argument, "what the function says of its result is no JSON");
    json["info"] = std::move(info);
  }
  return json.dump();
}

namespace {

// A function that crashed, or ran for too long, would do so again: its caller must not take that for a server that is lost.
Error of_function(const Error& error, base::Deadline deadline) {
  const bool in_vain = error.code() == Errc::timeout && deadline.passed();
  const bool of_server =
      error.code() != Errc::peer_lost && error.code() != Errc::timeout && error.code() != Errc::protocol;
  return in_vain || of_server ? error : Error(Errc::cancelled, error.what());
}

Task<fb::ComputeReplyT> run(std::shared_ptr<ServerCore> core, std::shared_ptr<compute::ComputeWorkers> workers,
                            base::Deadline deadline, fb::ComputeRequestT request) {
  const auto placement = co_await core->check_view(request.view, deadline);
  const auto keys = unpack_keys(request.keys.get());
  std::optional<std::uint64_t> tag;
  if (request.tagged) tag = request.tag;
  compute::ComputeRequest wanted;
  wanted.function = request.function;
  wanted.arguments = request.arguments == "{}" ? "" : request.arguments;
  compute::ComputeLimits limits;
  if (request.time_ms != 0) limits.wall = limits.cpu = std::chrono::milliseconds(request.time_ms);
  if (request.memory_bytes != 0) limits.memory_bytes = request.memory_bytes;
  wanted.limits = limits;
  for (const auto& key : keys.keys) {
    ServerCore::require_for_clients(keys.ns, key.row, key.column);
    auto loaded = co_await core->load_anywhere(keys.ns, key.row, key.column, tag, request.wait, deadline);
    if (!loaded) throw Error(Errc::not_found, "no object " + key.row + "/" + key.column);
    wanted.inputs.push_back(described_input(key, loaded->object));
  }
  compute::ComputeResult result;
  try {
    result = co_await workers->run(std::move(wanted), deadline);
  } catch (const Error& error) {
    throw of_function(error, deadline);
  }
  if (result.bytes.size() > max_reply_bytes) throw Error(Errc::memory, "the result is too large to be sent");
  fb::ComputeReplyT reply;
  reply.metadata = describe_result(result);
  const auto* from = reinterpret_cast<const std::uint8_t*>(result.bytes.data());
  reply.bytes.assign(from, from + result.bytes.size());
  co_return reply;
}

}  // namespace

Compute make_compute(std::shared_ptr<ServerCore> core, std::shared_ptr<compute::ComputeWorkers> workers) {
  // The core owns what owns this: no circle.
  return [weak = std::weak_ptr(core), workers](rpc::Call& call, fb::ComputeRequestT request) {
    auto held = weak.lock();
    if (!held) throw Error(Errc::stale_view, "this server is stopping");
    return run(std::move(held), workers, call.deadline(), std::move(request));
  };
}

}  // namespace penstock::pool
