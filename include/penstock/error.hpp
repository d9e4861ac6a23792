// The one exception type of Penstock, and its codes.
//
// Codes are grouped by the largest thing that broke: the call, the step, the stream, the peer, or a service. What a
// correct program meets (no step yet, end of stream, writer lost on a poll) is a value, not an exception.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace penstock {

enum class Errc : int {
  ok = 0,
  // The call was wrong; nothing changed.
  invalid_argument = 1,  // a value out of range, a wrong type or shape
  wrong_state = 2,       // a call that does not fit here: put outside a step, use after close
  not_found = 3,         // no such variable, attribute, stream
  unknown_option = 4,    // a misspelt option; the message suggests the nearest name
  unsupported = 5,       // not built in, or not defined for this type
  // The step is lost; the stream goes on.
  step_too_large = 20,  // the step outgrew the stream's memory bound; it is void on every rank
  step_voided = 21,     // this rank's step is void: an earlier call of it failed
  step_gone = 22,       // the step's memory was taken back (lease revoked)
  // The stream cannot go on.
  timeout = 40,        // a deadline passed; the message names who was awaited
  end_of_stream = 41,  // the writer closed and every step was read
  writer_lost = 42,    // the writer died; the message names the last step
  stream_closed = 43,
  // One peer broke; others are unharmed.
  peer_lost = 60,
  authentication = 61,  // a peer did not prove that it knows the stream's token
  protocol = 62,        // a peer sent what the protocol does not allow
  // A service or pool refused the call; it may be made again.
  already_exists = 70,  // a write-once object or name is there
  overloaded = 71,      // too many calls under way
  pool_full = 72,       // no memory (or disk) came free within the deadline
  stale_view = 73,      // the pool's membership has changed since the caller looked
  cancelled = 74,
  forbidden = 75,  // the caller's role does not allow it
  // The machine or a library failed.
  system = 80,  // the operating system refused; the message carries errno's text
  memory = 81,
  internal = 82,  // a defect in Penstock
};

// The code's name ("step_too_large").
std::string_view name_of(Errc);

class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const noexcept { return code_; }
  // The same error with "context: " put in front of its message.
  Error in(std::string_view context) const { return Error(code_, std::string(context) + ": " + what()); }

 private:
  Errc code_;
};

}  // namespace penstock
