// What generated clients and services (rpc_generator) are made of: owned structs of flatc's object API to bytes and back.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "rpc/aligned.hpp"
#include "rpc/channel.hpp"

namespace penstock::rpc {

// Any thread.
template <class Table>
std::vector<std::byte> encode(const typename Table::NativeTableType& value) {
  constexpr std::size_t kept_bytes = max_inline_bytes;
  thread_local flatbuffers::FlatBufferBuilder kept(1024);
  flatbuffers::FlatBufferBuilder& builder = kept;
  builder.Clear();
  builder.Finish(Table::Pack(builder, &value));
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  std::vector<std::byte> bytes(data, data + builder.GetSize());
  if (bytes.size() > kept_bytes) kept = flatbuffers::FlatBufferBuilder(1024);
  return bytes;
}

// bytes begin at an address that is a multiple of 8, as those of a vector do. Throws Error(protocol).
template <class Table>
typename Table::NativeTableType decode(const std::vector<std::byte>& bytes, const char* what) {
  constexpr flatbuffers::uoffset_t most_depth = 64;
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (bytes.size() < 8 || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    throw Error(Errc::protocol, std::string("a ") + what + " of " + std::to_string(bytes.size()) + " bytes");
  // A table has four bytes at least; one that is referred to again and again counts each time.
  flatbuffers::Verifier verifier(data, bytes.size(), most_depth,
                                 static_cast<flatbuffers::uoffset_t>(bytes.size() / 4 + 1));
  if (!verifier.VerifyBuffer<Table>(nullptr) ||
      !numbers_are_aligned(flatbuffers::GetRoot<std::uint8_t>(data), *Table::MiniReflectTypeTable()))
    throw Error(Errc::protocol, std::string("a malformed ") + what);
  typename Table::NativeTableType value;
  flatbuffers::GetRoot<Table>(data)->UnPackTo(&value);
  return value;
}

// Decodes a reply on the engine thread and sets the caller's future.
template <class Table>
class ReplyTo final : public Completion {
  using Value = typename Table::NativeTableType;

 public:
  ReplyTo(Progress& progress, const char* what) : promise_(progress), what_(what) {}
  Future<Value> future() { return promise_.future(); }
  void replied(std::vector<std::byte> reply) override {
    try {
      promise_.set(decode<Table>(reply, what_));
    } catch (...) {
      promise_.set_error(std::current_exception());
    }
  }
  void failed(std::exception_ptr error) override { promise_.set_error(std::move(error)); }

 private:
  Promise<Value> promise_;
  const char* what_;
};

// The bodies of generated clients' methods. what: "Method reply".
inline CallOptions named(CallOptions options, std::string_view what) {
  options.method_name = what.substr(0, what.find(' '));
  return options;
}

template <class Request, class Reply>
Future<typename Reply::NativeTableType> start_typed(Channel& channel, std::string_view service, std::uint32_t method,
                                                    const char* what, const typename Request::NativeTableType& request,
                                                    CallOptions options) {
  auto reply = std::make_unique<ReplyTo<Reply>>(*channel.progress(), what);
  auto future = reply->future();
  channel.begin(service, method, encode<Request>(request), named(options, what), std::move(reply));
  return future;
}

template <class Request, class Reply>
Task<typename Reply::NativeTableType> call_typed(std::shared_ptr<Channel> channel, std::string_view service,
                                                 std::uint32_t method, const char* what,
                                                 typename Request::NativeTableType request, CallOptions options) {
  std::vector<std::byte> body = encode<Request>(request);
  const std::vector<std::byte> bytes = co_await channel->call(service, method, std::move(body), named(options, what));
  co_return decode<Reply>(bytes, what);
}

}  // namespace penstock::rpc
