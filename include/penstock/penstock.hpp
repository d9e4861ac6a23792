// Everything of the C++ API but the adapters (penstock/mpi.hpp).
#pragma once

#include "penstock/cohort.hpp"
#include "penstock/coprocessor.hpp"
#include "penstock/error.hpp"
#include "penstock/mesh.hpp"
#include "penstock/options.hpp"
#include "penstock/stream.hpp"
#include "penstock/types.hpp"
