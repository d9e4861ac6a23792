/* Co-processing: the C API of penstock/coprocessor.hpp, with the same verbs, in the conventions of penstock/penstock.h.

   A coprocessor has at most one step open. Functions on the step take the coprocessor; without an open step they return
   PENSTOCK_ERR_WRONG_STATE. Fields are numbers; putting one that is not asked for does nothing. */
#ifndef PENSTOCK_COPROCESSOR_H
#define PENSTOCK_COPROCESSOR_H

#include <string.h>

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_coprocessor penstock_coprocessor;

/* Collective. cohort: copied; NULL for a program of one rank. The library calls it in every request, too. options:
   "wait=automatic,every=10,queue_steps=2", or NULL: keys of CoprocessorOptions and StreamOptions (penstock/options.hpp), a word
   without "=" names the engine. The context outlives the coprocessor. */
int penstock_coprocessor_create(penstock_context* context, const char* channel, const penstock_cohort* cohort,
                                const char* options, penstock_coprocessor** coprocessor, penstock_error* error);
/* Frees. If _finalize or _lose was not called: as _finalize with PENSTOCK_CONFIGURED, but failures are only logged. */
void penstock_coprocessor_destroy(penstock_coprocessor* coprocessor);
/* Collective. Closes the channel, which waits for readers, then waits for the analysis of this process, if there is one.
   status: the exit status of that; may be NULL. Closed also when this returns an error. */
int penstock_coprocessor_finalize(penstock_coprocessor* coprocessor, int64_t timeout_ms, int* status,
                                  penstock_error* error);
/* Closes after a failure: readers get PENSTOCK_WRITER_LOST. Not collective. */
int penstock_coprocessor_lose(penstock_coprocessor* coprocessor, penstock_error* error);
/* A pipeline of the analysis, before the first request. With engine insitu this process runs it. */
int penstock_coprocessor_add_pipeline(penstock_coprocessor* coprocessor, const char* path, penstock_error* error);

typedef enum penstock_mesh_type {
  PENSTOCK_MESH_UNIFORM = 0,
  PENSTOCK_MESH_RECTILINEAR,
  PENSTOCK_MESH_CURVILINEAR,
  PENSTOCK_MESH_UNSTRUCTURED,
  PENSTOCK_MESH_PARTICLES,
  PENSTOCK_MESH_AMR,
  PENSTOCK_MESH_MULTIBLOCK
} penstock_mesh_type;

/* Mixed: topology "mixed", with offsets and topologies; NULL otherwise. */
typedef struct penstock_element_block {
  const char* name;
  int64_t id;
  const char* topology;                            /* "hex8" */
  const char *connectivity, *offsets, *topologies; /* variables */
} penstock_element_block;

/* A mesh (penstock/mesh.hpp). Start from penstock_mesh_of, set what its type has, leave the rest 0. */
typedef struct penstock_mesh {
  size_t struct_size; /* set by penstock_mesh_of */
  int type;           /* penstock_mesh_type */
  size_t ndims; /* uniform, rectilinear, curvilinear: of shape, nodes; amr: of cells of a block, ghosts included */
  uint64_t shape[PENSTOCK_MAX_DIMS];
  const char* axes; /* "zyx"; NULL: "xyz" */
  double origin[3], spacing[3];
  size_t coordinates_count; /* variables, as in mesh.hpp; multiblock: meshes */
  const char* const* coordinates;
  size_t blocks_count; /* unstructured */
  const penstock_element_block* blocks;
  uint32_t ghost_layers, refinement; /* amr */
  const char *levels, *indices;      /* amr: variables */
  const char *ghosts, *node_ids, *element_ids;
  const char* splits; /* amr: variable, one uint64 for each rank; NULL: none */
  uint32_t depth;     /* amr: with splits, the highest level, at most 20 */
} penstock_mesh;

static inline penstock_mesh penstock_mesh_of(penstock_mesh_type type) {
  penstock_mesh mesh;
  memset(&mesh, 0, sizeof mesh);
  mesh.struct_size = sizeof mesh;
  mesh.type = type;
  mesh.spacing[0] = mesh.spacing[1] = mesh.spacing[2] = 1;
  mesh.refinement = 2;
  return mesh;
}

/* Defines a mesh, or describes it anew from the next step on. The strings are copied. */
int penstock_coprocessor_set_mesh(penstock_coprocessor* coprocessor, const char* name, const penstock_mesh* mesh,
                                  penstock_error* error);

typedef enum penstock_association { PENSTOCK_NODE = 0, PENSTOCK_ELEMENT } penstock_association;

/* NULL in place of this struct means: of nodes, one component, no units, row order. */
typedef struct penstock_field_options {
  int association;      /* penstock_association */
  uint32_t components;  /* interleaved, as the last dimension; 0 means 1 */
  const char* units;    /* may be NULL */
  const char* variable; /* its name on the stream; NULL: the field's name */
  int order;            /* penstock_order */
  int min_max;
} penstock_field_options;

int penstock_coprocessor_field(penstock_coprocessor* coprocessor, const char* mesh, const char* name, int dtype,
                               const penstock_field_options* options, uint32_t* field, penstock_error* error);
/* A variable that the mesh's description names: coordinates, connectivity, ids. */
int penstock_coprocessor_structure(penstock_coprocessor* coprocessor, const char* mesh, const char* variable, int dtype,
                                   int order, uint32_t* field, penstock_error* error);

/* Parameters that analyses may set; numbers within bounds. */
int penstock_coprocessor_declare_double(penstock_coprocessor* coprocessor, const char* name, double value, double least,
                                        double greatest, penstock_error* error);
int penstock_coprocessor_declare_int(penstock_coprocessor* coprocessor, const char* name, int64_t value, int64_t least,
                                     int64_t greatest, penstock_error* error);
int penstock_coprocessor_declare_bool(penstock_coprocessor* coprocessor, const char* name, int value,
                                      penstock_error* error);
int penstock_coprocessor_declare_string(penstock_coprocessor* coprocessor, const char* name, const char* value,
                                        penstock_error* error);
/* Their values as of the last request. A string lives until the next call with its name. */
int penstock_coprocessor_double(penstock_coprocessor* coprocessor, const char* name, double* value,
                                penstock_error* error);
int penstock_coprocessor_int(penstock_coprocessor* coprocessor, const char* name, int64_t* value,
                             penstock_error* error);
int penstock_coprocessor_bool(penstock_coprocessor* coprocessor, const char* name, int* value, penstock_error* error);
int penstock_coprocessor_string(penstock_coprocessor* coprocessor, const char* name, const char** value,
                                penstock_error* error);

/* Collective. Whether this cycle is to be published; wanted 1 opens a step. */
int penstock_coprocessor_request(penstock_coprocessor* coprocessor, int64_t cycle, double time, int* wanted,
                                 penstock_error* error);
int penstock_coprocessor_wants(penstock_coprocessor* coprocessor, uint32_t field, int* wanted, penstock_error* error);
/* ndims 0: the whole of a global array. start: NULL for zeros. strides: bytes between neighbours, or NULL. */
int penstock_coprocessor_put(penstock_coprocessor* coprocessor, uint32_t field, size_t ndims, const uint64_t* start,
                             const uint64_t* count, const void* data, const int64_t* strides, penstock_error* error);
/* As put, but data stays valid and unchanged until penstock_coprocessor_coprocess returns. */
int penstock_coprocessor_lend(penstock_coprocessor* coprocessor, uint32_t field, size_t ndims, const uint64_t* start,
                              const uint64_t* count, const void* data, const int64_t* strides, penstock_error* error);
/* The stream's memory for one block, to be filled; NULL and 0 when the field is not asked for. */
int penstock_coprocessor_put_span(penstock_coprocessor* coprocessor, uint32_t field, size_t ndims,
                                  const uint64_t* start, const uint64_t* count, void** data, size_t* size,
                                  penstock_error* error);
/* Publishes the step. It is over also when this fails. */
int penstock_coprocessor_coprocess(penstock_coprocessor* coprocessor, penstock_error* error);
/* Gives the step up, on all ranks. */
int penstock_coprocessor_abandon(penstock_coprocessor* coprocessor, penstock_error* error);

/* CoprocessorStatistics in penstock/coprocessor.hpp. */
typedef struct penstock_coprocessor_statistics {
  size_t struct_size; /* set by the caller to sizeof(penstock_coprocessor_statistics) */
  uint64_t requests, steps;
  uint64_t skipped_every, skipped_trigger, skipped_not_ready, skipped_dropped, replaced;
  uint64_t demands, demands_refused, demand_number;
  double request_s, put_s, end_s;
} penstock_coprocessor_statistics;

int penstock_coprocessor_get_statistics(const penstock_coprocessor* coprocessor,
                                        penstock_coprocessor_statistics* statistics, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
