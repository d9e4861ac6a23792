// broadcast_reduce [SERVERS [VALUES]]
//
// A protocol over more than two parties is a plain coroutine: an array goes down a binary tree of servers, each adds its part
// (here: the sum of the values times its number), and the sums come back up the tree. Who is where stands in the request.
#include <iostream>
#include <numeric>

#include "examples/rpc/reduce_service.hpp"
#include "fabric/endpoint.hpp"
#include "rpc/channel.hpp"

namespace {

namespace rpc = penstock::rpc;
namespace fabric = penstock::fabric;
using namespace penstock::examples::reduce;

const std::string group = "reduce/member";

class Reducer final : public ReducerService {
 public:
  Reducer(std::shared_ptr<rpc::Progress> progress, fabric::Token token, int number)
      : progress_(std::move(progress)), token_(token), number_(number) {}

  rpc::Task<ReplyT> broadcast_reduce(rpc::Call& call, RequestT request) override {
    // All children at once, then our own part while they work, then their answers in any order.
    std::vector<rpc::Future<ReplyT>> below;
    for (auto& child : request.children)
      below.push_back(fabric::spawn(*progress_, ask(std::move(child), request.values, call.deadline())));
    ReplyT reply;
    reply.sum = number_ * std::accumulate(request.values.begin(), request.values.end(), 0.0);
    reply.servers = 1;
    for (auto& each : below) {
      const ReplyT part = co_await std::move(each);
      reply.sum += part.sum;
      reply.servers += part.servers;
    }
    co_return reply;
  }

 private:
  // One subtree. Takes what it needs by value: it may outlive the call, when another subtree fails. The channel would be kept
  // in a longer-lived service.
  rpc::Task<ReplyT> ask(std::unique_ptr<ChildT> child, std::vector<double> values, penstock::base::Deadline deadline) {
    RequestT request;
    request.values = std::move(values);
    request.children = std::move(child->children);
    const auto endpoint = fabric::endpoint_from_text(child->endpoint);
    const auto channel = co_await rpc::connect(progress_, endpoint, token_, group, nullptr, deadline);
    rpc::CallOptions options;
    options.deadline = deadline;
    co_return co_await ReducerClient(channel).broadcast_reduce(std::move(request), options);
  }

  std::shared_ptr<rpc::Progress> progress_;
  const fabric::Token token_;
  const int number_;
};

// The tree below server `i` of `endpoints`, as a binary heap.
ChildT tree_of(const std::vector<std::string>& endpoints, std::size_t i) {
  ChildT node;
  node.endpoint = endpoints[i];
  for (const std::size_t child : {2 * i + 1, 2 * i + 2})
    if (child < endpoints.size()) node.children.push_back(std::make_unique<ChildT>(tree_of(endpoints, child)));
  return node;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int servers = argc > 1 ? std::stoi(argv[1]) : 5;
    const int values = argc > 2 ? std::stoi(argv[2]) : 1000;
    const penstock::base::Deadline deadline(penstock::Timeout(30'000));
    const auto token = fabric::Token::random();
    auto progress = std::make_shared<rpc::Progress>();
    std::vector<std::unique_ptr<rpc::Server>> all;
    std::vector<std::string> endpoints;
    for (int number = 1; number <= servers; ++number) {
      auto services = std::make_shared<rpc::ServiceTable>();
      services->add(std::make_shared<Reducer>(progress, token, number));
      all.push_back(std::make_unique<rpc::Server>(
          progress, services, [token](const std::string&) -> std::optional<fabric::Token> { return token; },
          "127.0.0.1"));
      endpoints.push_back(fabric::to_text(all.back()->endpoint()));
    }
    RequestT request;
    for (int i = 0; i < values; ++i) request.values.push_back(i);
    const auto root = tree_of(endpoints, 0);
    for (const auto& child : root.children) request.children.push_back(std::make_unique<ChildT>(*child));
    const auto channel = fabric::run_task(
        *progress, rpc::connect(progress, all[0]->endpoint(), token, group, nullptr, deadline), deadline);
    const auto reply = ReducerClient(channel).start_broadcast_reduce(request, {deadline}).get(deadline);
    const double expected = servers * (servers + 1) / 2.0 * (values * (values - 1.0) / 2.0);
    std::cout << reply.servers << " servers, sum " << reply.sum << "\n";
    return reply.sum == expected && static_cast<int>(reply.servers) == servers ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "broadcast_reduce: " << error.what() << "\n";
    return 1;
  }
}
