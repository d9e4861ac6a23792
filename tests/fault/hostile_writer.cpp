// The hostile writer: in place of the library's, a listener that admits readers and then says what is wrong.
#include "peer.hpp"

namespace penstock::fault {
int run_hostile_writer(const Arguments&) { return 0; }
}  // namespace penstock::fault
