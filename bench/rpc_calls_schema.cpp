// The generated header of this folder's service, compiled once.
#include "bench/rpc_calls_service.hpp"
