// Finds a stream in the pools that the directory knows, or in that of the option `pool`. What keeps streams in pools derives from it, and
// says how one pool is asked. Where no directory service is known it finds nothing. One application thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "directory/directory.hpp"
#include "pool/client/client_core.hpp"
#include "stream/api/engine.hpp"

namespace penstock::pool {

inline constexpr Timeout look_within(1'000);  // at a pool, and at the directory

class PoolsFinder : public stream::Finder {
 public:
  PoolsFinder(const stream::EngineContext& context, std::string name, StreamOptions options)
      : context_(context), name_(std::move(name)), options_(std::move(options)) {}

  std::optional<Found> look(base::Deadline deadline) override;
  std::string place() const override;
  std::vector<std::string> names(base::Deadline deadline) override;
  Timeout pause() const override;

 protected:
  // One pool. Throws Error: not_found where it has no such stream, any other where it does not answer.
  virtual Found look_in(const std::string& pool, base::Deadline deadline) = 0;
  virtual std::vector<std::string> names_in(const std::string& pool, base::Deadline deadline) = 0;

  // Kept for the next look, and for whoever opens the stream.
  std::shared_ptr<PoolClient> client(const std::string& pool, base::Deadline deadline);

  const stream::EngineContext context_;
  const std::string name_;
  const StreamOptions options_;

 private:
  // One that did not answer: why, and when it is asked again.
  struct Silent {
    std::string why;
    base::Deadline again;
  };
  bool spared(const std::string& pool) const;
  void note_silent(const std::string& pool, const Error& error);
  void learn_pools(base::Deadline deadline);
  bool directory_is_known() const;

  std::shared_ptr<directory::Directory> directory_;  // null: none is known
  std::set<std::string> pools_;
  std::map<std::string, Silent> silent_;  // by pool; "": the directory
  std::map<std::string, std::shared_ptr<PoolClient>> clients_;
};

}  // namespace penstock::pool
