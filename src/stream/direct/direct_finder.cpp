// Finds streams that living writers have registered.
#include <utility>

#include "penstock/error.hpp"
#include "stream/api/registry.hpp"
#include "stream/direct/direct_engine.hpp"

namespace penstock::stream {
namespace {

constexpr Timeout answer_within(2'000);

class RegistrationFinder final : public Finder {
 public:
  RegistrationFinder(const EngineContext& context, std::string name, IsHere is_here)
      : registry_(open_registry(context.progress, context.directory)),
        name_(std::move(name)),
        is_here_(std::move(is_here)) {}

  std::optional<Found> look(base::Deadline deadline) override {
    problem_.clear();
    try {
      const auto there = registry_->read(name_, earlier(deadline, base::Deadline(answer_within)));
      if (!there || !is_here_(*there)) return std::nullopt;
      if (fabric::alive(*there)) return Found{.live = true, .where = "its writer's memory"};
      problem_ =
          "its writer " + there->host + ":" + std::to_string(there->pid) + " is registered there but does not answer";
    } catch (const Error& error) {
      if (error.code() != Errc::peer_lost && error.code() != Errc::timeout) throw error.in("stream " + name_);
      problem_ = error.what();
    }
    return std::nullopt;
  }
  std::string place() const override {
    return "registrations in " + registry_->describe() + (problem_.empty() ? "" : " (" + problem_ + ")");
  }
  std::vector<std::string> names(base::Deadline deadline) override {
    std::vector<std::string> names;
    for (const auto& one : registry_->list(deadline)) names.push_back(one.stream);
    return names;
  }
  Timeout pause() const override { return registry_->patience(); }

 private:
  const std::unique_ptr<Registry> registry_;
  const std::string name_;
  const IsHere is_here_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<Finder> find_registered(const EngineContext& context, const std::string& name, IsHere is_here) {
  return std::make_unique<RegistrationFinder>(context, name, std::move(is_here));
}

std::unique_ptr<Finder> find_direct(const EngineContext& context, const std::string& name, const StreamOptions&) {
  return find_registered(context, name, [](const fabric::Registration&) { return true; });
}

}  // namespace penstock::stream
