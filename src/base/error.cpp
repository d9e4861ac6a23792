#include "penstock/error.hpp"

namespace penstock {

std::string_view name_of(Errc code) {
  switch (code) {
    case Errc::ok: return "ok";
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::wrong_state: return "wrong_state";
    case Errc::not_found: return "not_found";
    case Errc::unknown_option: return "unknown_option";
    case Errc::unsupported: return "unsupported";
    case Errc::step_too_large: return "step_too_large";
    case Errc::step_voided: return "step_voided";
    case Errc::step_gone: return "step_gone";
    case Errc::timeout: return "timeout";
    case Errc::end_of_stream: return "end_of_stream";
    case Errc::writer_lost: return "writer_lost";
    case Errc::stream_closed: return "stream_closed";
    case Errc::peer_lost: return "peer_lost";
    case Errc::authentication: return "authentication";
    case Errc::protocol: return "protocol";
    case Errc::already_exists: return "already_exists";
    case Errc::overloaded: return "overloaded";
    case Errc::pool_full: return "pool_full";
    case Errc::stale_view: return "stale_view";
    case Errc::cancelled: return "cancelled";
    case Errc::forbidden: return "forbidden";
    case Errc::system: return "system";
    case Errc::memory: return "memory";
    case Errc::internal: return "internal";
  }
  return "unknown";
}

}  // namespace penstock
