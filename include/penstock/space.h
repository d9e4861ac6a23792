/* Array spaces: the C API of penstock/space.hpp, with the same verbs, in the conventions of penstock/penstock.h.

   A space may be shared by threads. Calls block, and end by their deadline. */
#ifndef PENSTOCK_SPACE_H
#define PENSTOCK_SPACE_H

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_space penstock_space;

/* options: "pool=stage,timeout_ms=10000", or NULL; the keys are pool, directory, role, token, timeout_ms and data_plane of
   PoolOptions in penstock/pool.hpp. The space keeps what it needs of the context. */
int penstock_space_create(penstock_context* context, const char* options, penstock_space** space,
                          penstock_error* error);
void penstock_space_destroy(penstock_space* space);

typedef struct penstock_array {
  size_t struct_size;
  int dtype; /* a penstock_dtype */
  size_t ndims;
  uint64_t shape[PENSTOCK_MAX_DIMS];
  uint32_t parts; /* pieces that lie on a server each */
} penstock_array;

/* Defines an array of 1 to 8 dimensions; the same definition again is no error. PENSTOCK_ERR_ALREADY_EXISTS: it has another
   dtype or shape. */
int penstock_space_define(penstock_space* space, const char* name, int dtype, size_t ndims, const uint64_t* shape,
                          penstock_error* error);
/* An array, once it is defined. */
int penstock_space_array(penstock_space* space, const char* name, int64_t timeout_ms, penstock_array* array,
                         penstock_error* error);

/* NULL in place of this struct means: the array's dtype, in rows. */
typedef struct penstock_array_memory {
  int dtype;              /* PENSTOCK_NONE: the array's */
  int order;              /* penstock_order */
  const int64_t* strides; /* bytes between neighbours in each dimension, of any sign, instead of the order; or NULL */
} penstock_array_memory;

/* The box of a version. get waits until all of it is there. PENSTOCK_ERR_ALREADY_EXISTS: other values are there;
   PENSTOCK_ERR_TIMEOUT: names the boxes that are not there. start: NULL for zeros. */
int penstock_space_put(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, const void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error);
int penstock_space_get(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error);
int penstock_space_wait(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                        const uint64_t* count, int64_t timeout_ms, penstock_error* error);

/* The versions of which something was put, ascending: the first `capacity` of them; count: how many there are. */
int penstock_space_versions(penstock_space* space, const char* name, size_t capacity, uint64_t* versions, size_t* count,
                            penstock_error* error);
/* The versions first, first + step, ... of an array in ascending order, each once all of the box is there; see VersionSubscription
   in penstock/space.hpp. A subscription is for one thread at a time; PENSTOCK_ERR_WRONG_STATE: its space was destroyed. subscribe
   waits until the array is defined. PENSTOCK_ERR_TIMEOUT: names the boxes that are not there, or says that no version began; the next
   call goes on. PENSTOCK_ERR_NOT_FOUND: the array was dropped. */
typedef struct penstock_version_subscription penstock_version_subscription;
int penstock_space_subscribe(penstock_space* space, const char* name, size_t ndims, const uint64_t* start,
                             const uint64_t* count, uint64_t first, uint64_t step, int64_t timeout_ms,
                             penstock_version_subscription** subscription, penstock_error* error);
int penstock_version_subscription_next(penstock_version_subscription* subscription, int64_t timeout_ms,
                                       uint64_t* version, penstock_error* error);
void penstock_version_subscription_destroy(penstock_version_subscription* subscription);

/* dropped: whether it was there; may be NULL. drop_array: with all its versions. */
int penstock_space_drop(penstock_space* space, const char* name, uint64_t version, int* dropped, penstock_error* error);
int penstock_space_drop_array(penstock_space* space, const char* name, int* dropped, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
