// Finds streams in the spaces of pools, by the records that their writers put.
#include <algorithm>
#include <array>
#include <map>

#include "pool/engine/pool_engine.hpp"
#include "pool/engine/pools_finder.hpp"
#include "pool/keys/json_text.hpp"
#include "space/engine/space_engine.hpp"
#include "space/engine/step_records.hpp"
#include "space/engine/writer_lease.hpp"

namespace penstock::space {
namespace {

constexpr std::size_t most_names = 1'000;  // to suggest one

constexpr std::array<std::string_view, 3> state_names{"open", "ended", "lost"};  // by State

StreamRecord need_stream(Pool& records, const std::string& name) {
  if (auto record = find_stream(records, name)) return std::move(*record);
  throw Error(Errc::not_found, "no stream " + name + " in the space of pool " + records.name());
}

class SpaceFinder final : public pool::PoolsFinder {
 public:
  using PoolsFinder::PoolsFinder;
  std::string place() const override { return ""; }  // the finder in pools says it

 private:
  Found look_in(const std::string& pool, base::Deadline deadline) override {
    const auto record = need_stream(records(pool, deadline), name_);
    const bool lives = writer_lives(*client(pool, deadline), record, deadline);
    const auto state = state_of(marks_of(records(pool, deadline), name_, record.incarnation), lives);
    Found found{.live = state == State::open, .where = "the space of pool " + pool};
    found.state = state == State::lost ? "its writer " + record.writer + " did not close it" : "ended";
    found.pool = pool;
    return found;
  }
  std::vector<std::string> names_in(const std::string& pool, base::Deadline deadline) override {
    std::vector<std::string> names;
    const Pattern streams{stream_key("*").row, stream_key("").column};
    for (const auto& object : records(pool, deadline).list(streams, most_names).objects)
      names.push_back(object.key.row.substr(stream_key("").row.size()));
    return names;
  }
  Pool& records(const std::string& pool, base::Deadline deadline) {
    auto found = records_.find(pool);
    if (found == records_.end())
      found = records_.emplace(pool, records_of(client(pool, deadline), pool, pool::look_within)).first;
    return found->second;
  }

  std::map<std::string, Pool> records_;
};

}  // namespace

std::unique_ptr<stream::Finder> find_in_spaces(const stream::EngineContext& context, const std::string& name,
                                               const StreamOptions& options) {
  return std::make_unique<SpaceFinder>(context, name, options);
}

std::string inspect_in_space(const stream::EngineContext& context, const std::string& name,
                             const StreamOptions& options, base::Deadline deadline) {
  const auto client = pool::shared_client(context, options.pool, "read", deadline);
  auto records = records_of(client, options.pool, left(deadline));
  const auto record = need_stream(records, name);
  const bool lives = writer_lives(*client, record, deadline);
  const auto marks = marks_of(records, name, record.incarnation);
  const auto steps = kept_steps(marks, record);
  return pool::json_text({{"stream", name},
                          {"state", state_names.at(static_cast<std::size_t>(state_of(marks, lives)))},
                          {"writer", record.writer},
                          {"ranks", record.ranks},
                          {"steps", steps.size()},
                          {"newest", steps.empty() ? nlohmann::json() : nlohmann::json(steps.back())}});
}

}  // namespace penstock::space
