// penstock::Pool: calls on patterns and rows: list, drop_pattern and wait_row.
#include <algorithm>
#include <iterator>
#include <map>

#include "pool/client/client_impl.hpp"
#include "pool/keys/infos.hpp"
#include "pool/keys/object_key.hpp"
#include "pool/keys/protocol.hpp"

namespace penstock {

using fabric::Task;
using pool::PoolClient;
namespace fb = pool::fb;

// Each server gives its part in key order, and says how far it has looked. What all have looked past can be given out.
Task<Listing> Pool::Impl::list(Pattern pattern, std::size_t limit, std::string next, base::Deadline deadline) {
  auto self = shared_from_this();
  for (PoolClient::Attempt attempt = 0;; ++attempt) {
    const auto placement = co_await client->members().at_least(1, deadline);
    const auto number = placement->view().number;
    std::optional<Error> failed;
    try {
      std::vector<fabric::Future<fb::ListReplyT>> asked;
      for (const auto& member : placement->view().members) {
        auto task = list_one(member, number, pattern, limit, next, deadline);
        asked.push_back(fabric::spawn(*client->progress(), std::move(task)));
      }
      if (asked.size() == 1) {  // in order and without doubles as it is
        auto reply = co_await std::move(asked.front());
        Listing listing{pool::unpack_infos(reply.objects.get()), {reply.next.begin(), reply.next.end()}};
        co_return listing;
      }
      std::map<std::string, ObjectInfo> found;
      std::optional<std::string> looked;  // the least of what the servers have looked at; empty: everything
      for (auto& a : asked) {
        auto reply = co_await std::move(a);
        if (!reply.next.empty()) {
          std::string to(reply.next.begin(), reply.next.end());
          if (!looked || to < *looked) looked = std::move(to);
        }
        for (auto& object : pool::unpack_infos(reply.objects.get())) {
          auto packed = pool::pack_key(ns, object.key.row, object.key.column);
          auto [it, fresh] = found.try_emplace(std::move(packed), object);
          if (!fresh && it->second.version < object.version) it->second = std::move(object);
        }
      }
      Listing listing;
      std::string last;
      for (auto& [packed, info] : found) {
        if (looked && packed > *looked) break;
        if (listing.objects.size() == limit) {
          listing.next = last;
          break;
        }
        last = packed;
        listing.objects.push_back(std::move(info));
      }
      if (listing.next.empty() && looked) listing.next = *looked;
      co_return listing;
    } catch (const Error& error) {
      PoolClient::throw_unless_retry(error, deadline);
      failed = error;
    }
    const Error why = *failed;
    co_await client->before_retry(number, attempt, why, deadline);
  }
}

Task<fb::ListReplyT> Pool::Impl::list_one(pool::Member member, std::uint64_t view, Pattern pattern, std::size_t limit,
                                          std::string next, base::Deadline deadline) {
  auto self = shared_from_this();
  auto channel = co_await client->members().channel(std::move(member), deadline);
  fb::ListRequestT request;
  request.view = view;
  request.ns = {ns.bytes.begin(), ns.bytes.end()};
  request.row = {pattern.row.begin(), pattern.row.end()};
  request.column = {pattern.column.begin(), pattern.column.end()};
  request.limit = static_cast<std::uint32_t>(std::min(limit, pool::max_listed));
  request.after = {next.begin(), next.end()};
  rpc::CallOptions call_options{deadline};
  co_return co_await fb::ObjectsClient(channel).list(std::move(request), call_options);
}

Task<std::uint64_t> Pool::Impl::drop_pattern(Pattern pattern, base::Deadline deadline) {
  auto self = shared_from_this();
  std::uint64_t dropped = 0;
  for (PoolClient::Attempt attempt = 0;; ++attempt) {
    const auto placement = co_await client->members().at_least(1, deadline);
    const auto number = placement->view().number;
    std::optional<Error> failed;
    for (const auto& member : placement->view().members) {
      try {
        auto channel = co_await client->members().channel(member, deadline);
        fb::DropPatternRequestT request;
        request.view = number;
        request.ns = {ns.bytes.begin(), ns.bytes.end()};
        request.row = {pattern.row.begin(), pattern.row.end()};
        request.column = {pattern.column.begin(), pattern.column.end()};
        rpc::CallOptions call_options{deadline};
        auto reply = co_await fb::ObjectsClient(channel).drop_pattern(std::move(request), call_options);
        dropped += reply.dropped;
        if (reply.more) failed = Error(Errc::stale_view, "the pool's membership changed");
      } catch (const Error& error) {
        PoolClient::throw_unless_retry(error, deadline);
        failed = error;
      }
    }
    if (!failed) co_return dropped;
    const Error why = *failed;
    co_await client->before_retry(number, attempt, why, deadline);
  }
}

Task<std::vector<ObjectInfo>> Pool::Impl::wait_row(std::string row, std::size_t count, std::string column,
                                                   base::Deadline deadline) {
  auto self = shared_from_this();
  auto request = std::make_shared<fb::WaitRowRequestT>();
  request->ns = {ns.bytes.begin(), ns.bytes.end()};
  request->row = {row.begin(), row.end()};
  request->column = {column.begin(), column.end()};
  request->count = static_cast<std::uint32_t>(count);
  std::vector<ObjectInfo> infos;
  std::uint64_t first_view = 0;  // of the first page
  for (;;) {
    std::function<Task<fb::ListReplyT>(std::shared_ptr<rpc::Channel>, std::uint64_t, PoolClient::Attempt)> call =
        [request, deadline](std::shared_ptr<rpc::Channel> channel, std::uint64_t view, PoolClient::Attempt) {
          return send_wait_row(std::move(channel), view, request, deadline);
        };
    auto reply = co_await client->at_primary<fb::ListReplyT>(ns, row, std::nullopt, deadline, std::move(call));
    if (request->after.empty()) first_view = reply.view;
    if (reply.view != first_view) {  // the row's server may be another one, which does not have all of it yet
      infos.clear();
      request->after.clear();
      request->count = static_cast<std::uint32_t>(count);
      continue;
    }
    auto page = pool::unpack_infos(reply.objects.get());
    if (infos.empty()) infos = std::move(page);  // all of it, for most rows
    else std::ranges::move(page, std::back_inserter(infos));
    if (reply.next.empty()) co_return infos;
    request->after = std::move(reply.next);
    request->count = 0;
  }
}

Task<fb::ListReplyT> Pool::Impl::send_wait_row(std::shared_ptr<rpc::Channel> channel, std::uint64_t view,
                                               std::shared_ptr<const fb::WaitRowRequestT> row,
                                               base::Deadline deadline) {
  auto request = *row;
  request.view = view;
  rpc::CallOptions call_options{deadline};
  co_return co_await fb::ObjectsClient(channel).wait_row(std::move(request), call_options);
}

}  // namespace penstock
