// The generated headers of this folder's services, compiled once.
#include "examples/rpc/reduce_service.hpp"
#include "examples/rpc/transfer_service.hpp"
