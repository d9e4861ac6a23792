// What the ranks of a cohort agree on while a stream opens. All functions that take the cohort are collective.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "fabric/connection.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/token.hpp"
#include "penstock/cohort.hpp"

namespace penstock::stream {

inline constexpr std::uint32_t max_queue_slots = 255;  // so that a ring holds every record in flight
inline constexpr std::size_t max_reader_cohorts = 4096;

// Rank 0 runs the action and every rank throws what it throws.
void share_outcome(Cohort& cohort, const std::function<void()>& action);
// Rank 0 makes text (or throws, and every rank throws that); every rank returns it.
std::string share_text(Cohort& cohort, const std::function<std::string()>& make);
// A secret of the cohort's own.
fabric::Token shared_token(Cohort& cohort);
// Every rank's endpoint, by rank.
std::vector<fabric::Endpoint> exchange_endpoints(Cohort& cohort, const fabric::Endpoint& own);
// Connects to the parent in the control tree. Not collective. Throws Error(timeout, peer_lost).
std::shared_ptr<fabric::Connection> connect_tree(fabric::Progress& progress, const fabric::Endpoint& parent,
                                                 const fabric::Token& token, const std::string& stream,
                                                 std::uint32_t rank, base::Deadline deadline);
std::string host_name();

}  // namespace penstock::stream
