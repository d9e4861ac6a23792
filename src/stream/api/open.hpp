// What the ranks of a cohort agree on while a stream opens. All functions that take the cohort are collective.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "fabric/connection.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/token.hpp"
#include "penstock/cohort.hpp"
#include "stream/api/registry.hpp"

namespace penstock::stream {

inline constexpr std::uint32_t max_queue_slots = 255;  // so that a ring holds every record in flight
inline constexpr std::size_t max_reader_cohorts = 4096;

// Rank 0 runs the action and every rank throws what it throws.
void share_outcome(Cohort& cohort, const std::function<void()>& action);
// Rank 0 makes text (or throws, and every rank throws that); every rank returns it.
std::string share_text(Cohort& cohort, const std::function<std::string()>& make);
// A secret of the cohort's own.
fabric::Token shared_token(Cohort& cohort);
// Every rank makes a text; returns all of them, by rank, on every rank. When ranks fail every rank throws what the first of
// them threw, saying which it was: one that fails alone would leave the others waiting for it.
std::vector<std::string> gather_texts(Cohort& cohort, const std::function<std::string()>& make);
// As that, for what yields something of the rank's own, or nothing.
template <class Make>
auto on_every_rank(Cohort& cohort, Make make) {
  using Made = decltype(make());
  if constexpr (std::is_void_v<Made>) {
    gather_texts(cohort, [&] {
      make();
      return std::string();
    });
  } else {
    std::optional<Made> made;
    gather_texts(cohort, [&] {
      made.emplace(make());
      return std::string();
    });
    return std::move(*made);
  }
}
// A number made of the token, which all ranks of a cohort have; it does not tell the token.
std::uint64_t number_made_of(const fabric::Token& token, std::string_view purpose);
// The name of a data plane; empty for `automatic`.
std::string_view plane_name(DataPlane plane);
// That of the options. Throws Error(unsupported) where it is not to be had.
std::string_view wanted_plane(const StreamOptions& options);
// Every rank's endpoint, by rank, once every rank listens.
std::vector<fabric::Endpoint> exchange_endpoints(Cohort& cohort, const std::function<fabric::Endpoint()>& listen);
// Connects to the parent in the control tree. Not collective. Throws Error(timeout, peer_lost).
std::shared_ptr<fabric::Connection> connect_tree(fabric::Progress& progress, const fabric::Endpoint& parent,
                                                 const fabric::Token& token, const std::string& stream,
                                                 std::uint32_t rank, base::Deadline deadline);

// After the registry has refused `mine` for another writer: when both are ranks of one launch, each on its own, the other one
// fails too (Kind::lost). It goes on with half of the data otherwise.
void warn_other_writer(fabric::Progress& progress, Registry& registry, const fabric::Registration& mine);

}  // namespace penstock::stream
