// Where a conversion of layout or type runs: the chooser behind the placement `auto`. A pure function of what was measured; the
// server records the costs, and says the choice and its reason in statistics and replies.
//
// A placement's price is the time that all expected requests for these bytes spend together:
//   at_reader    each reader converts for itself                  requests x (bytes / link + bytes / reader rate)
//   on_request   the first request converts at the server         queue + bytes / server rate + requests x bytes / link
//   in_advance   the server converts the whole part on its put    what of queue + whole / server rate the idle time before
//                                                                 the first request does not hide + requests x bytes / link
//                                                                 + (whole - wanted) / server rate, also where it is hidden:
//                                                                 nobody wants these, and others lack the processor
// The cheapest that has room wins; when two cost the same, the one that holds less memory.
// Source: the placements R1, R2, R3 of SAND2021-10271, whose choice the paper leaves to future work.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/space.hpp"

namespace penstock::space {

struct ConversionCosts {
  // On a put, all three are weighed, and any but in_advance means: not yet. On a request, in_advance is too late.
  bool on_put = false;
  double bytes = 0;                                       // that a request wants
  double wanted_bytes = 0;                                // that any of the requests wants; 0: each wants the same
  double whole_bytes = 0;                                 // of the part that was put
  double server_bytes_per_s = 0, reader_bytes_per_s = 0;  // of this conversion, as measured; 0: not measured yet
  double link_bytes_per_s = 0;                            // from the server to a reader; 0: not measured yet
  bool fused_at_reader = false;   // the reader reads the server's memory in place: its conversion is the transfer
  double requests = 1;            // expected for these bytes, this one included; on a put, 0: nothing is done
  double queue_s = 0;             // until the server begins: conversions before it, and puts, to which it yields
  double idle_s = 0;              // on a put: expected until the first request
  std::uint64_t memory_left = 0;  // of the server's budget for replicas
};

struct ConversionChoice {
  ConvertAt place = ConvertAt::at_reader;
  std::array<double, 3>
      seconds{};    // by place, which ascend in the memory that they hold at the server; infinity: not possible
  std::string why;  // one line for people
};

// What was not measured is taken for as fast as what was, else as 1 GB/s: so nothing is tried once and avoided for ever.
ConversionChoice choose_conversion(const ConversionCosts& costs);

}  // namespace penstock::space
