/* Array spaces: the C API of penstock/space.hpp, with the same verbs, in the conventions of penstock/penstock.h.

   A space may be shared by threads. Calls block, and end by their deadline. */
#ifndef PENSTOCK_SPACE_H
#define PENSTOCK_SPACE_H

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_space penstock_space;

/* options: "pool=stage,timeout_ms=10000", or NULL; the keys are those of PoolOptions in
   penstock/pool.hpp; ns stays empty. The space keeps what it needs of the context. */
int penstock_space_create(penstock_context* context, const char* options, penstock_space** space,
                          penstock_error* error);
void penstock_space_destroy(penstock_space* space);

typedef struct penstock_array {
  size_t struct_size;
  int dtype; /* a penstock_dtype; PENSTOCK_NONE: its elements are structures */
  size_t ndims;
  uint64_t shape[PENSTOCK_MAX_DIMS];
  uint32_t parts; /* pieces that lie on a server each */
  uint32_t keep;  /* how many versions are there at most; 0: as many as fit */
  uint64_t keep_ms;
  size_t num_fields; /* of structures; penstock_space_fields names them */
} penstock_array;

/* Where elements are converted that a program gets in another memory order or type than the array has. */
typedef enum penstock_convert_at {
  PENSTOCK_CONVERT_AUTOMATIC = 0, /* chosen for each request from measured costs; penstock_space_explain says how */
  PENSTOCK_CONVERT_AT_READER = 1, /* by each program that gets them */
  PENSTOCK_CONVERT_ON_REQUEST =
      2, /* by the server, when the first program asks; it keeps the result for the next ones */
  PENSTOCK_CONVERT_IN_ADVANCE = 3 /* by the server, when they are put, into the layouts of penstock_array_options */
} penstock_convert_at;

typedef struct penstock_array_form {
  int dtype; /* PENSTOCK_NONE: the array's */
  int order; /* penstock_order */
} penstock_array_form;

typedef struct penstock_array_field {
  const char* name; /* 1 to 64 bytes */
  int dtype;
} penstock_array_field;

/* Zeros, but for struct_size, are the defaults. The library copies what the pointers name. */
typedef struct penstock_array_options {
  size_t struct_size;
  int convert;        /* penstock_convert_at */
  size_t num_layouts; /* at most 16 */
  const penstock_array_form* layouts;
  /* How many versions are there at most; 0: as many as fit. A new one begins when the lowest one has been dropped: once
     every reader has read it (penstock_space_done). Puts wait for that. */
  uint32_t keep;
  size_t num_readers; /* at most 64 */
  const char* const* readers;
  /* An array of structures has 1 to 64 fields, and the dtype PENSTOCK_NONE. It is converted by its readers. */
  size_t num_fields;
  const penstock_array_field* fields;
  uint64_t keep_bytes; /* as keep: as many whole versions as fit into so many bytes, at least one; 0: no bound */
  /* A version that began longer ago goes when another one begins, once every reader has read it; puts do not wait for that.
     0: no version goes because of its age. */
  uint64_t keep_ms;
} penstock_array_options;

/* Defines an array of 1 to 8 dimensions; options may be NULL. The same definition again, also without options, is no error.
   PENSTOCK_ERR_ALREADY_EXISTS: it has another dtype, shape or other options. */
int penstock_space_define(penstock_space* space, const char* name, int dtype, size_t ndims, const uint64_t* shape,
                          const penstock_array_options* options, penstock_error* error);
/* An array, once it is defined. */
int penstock_space_array(penstock_space* space, const char* name, int64_t timeout_ms, penstock_array* array,
                         penstock_error* error);

/* The fields of structures: the first `capacity` of them; count: how many there are. */
#define PENSTOCK_MAX_FIELD_NAME 64
typedef struct penstock_named_field {
  char name[PENSTOCK_MAX_FIELD_NAME + 1];
  int dtype;
} penstock_named_field;
int penstock_space_fields(penstock_space* space, const char* name, size_t capacity, penstock_named_field* fields,
                          size_t* count, penstock_error* error);

typedef struct penstock_array_entry {
  const char* name;
  int dtype;
  size_t ndims;
  uint64_t shape[PENSTOCK_MAX_DIMS];
} penstock_array_entry;
/* All arrays; free with penstock_array_entries_free, which accepts NULL. */
int penstock_space_list(penstock_space* space, penstock_array_entry** entries, size_t* count, penstock_error* error);
void penstock_array_entries_free(penstock_array_entry* entries);

/* Which elements a conversion to another type refuses, with PENSTOCK_ERR_INVALID_ARGUMENT that names the first one by index and
   value. A put is then checked before any of it is sent; what a get has written is unspecified. */
typedef enum penstock_check {
  PENSTOCK_CHECK_NONE = 0,
  PENSTOCK_CHECK_RANGE = 1, /* a value outside the type: also NaN and infinity for an integer */
  PENSTOCK_CHECK_EXACT = 2  /* also a value that the type cannot hold exactly; NaN is held by every float */
} penstock_check;

/* Where a field of structures lies. */
typedef struct penstock_field_memory {
  const char* name;
  int dtype;              /* PENSTOCK_NONE: the array's */
  int64_t offset;         /* bytes from the data to the field of the box's first element; into any memory */
  const int64_t* strides; /* instead of those of penstock_array_memory; or NULL */
} penstock_field_memory;

/* NULL in place of this struct means: the array's dtype, in rows, without a check. */
typedef struct penstock_array_memory {
  size_t struct_size;
  int dtype;              /* PENSTOCK_NONE: the array's */
  int order;              /* penstock_order */
  const int64_t* strides; /* bytes between neighbours in each dimension, of any sign, instead of the order; or NULL */
  int check;              /* penstock_check */
  /* Of an array of structures: where the fields lie; a get may leave some out, a put names all. 0: all fields, one behind the
     other without padding, in structures. Fields must not share bytes. */
  size_t num_fields;
  const penstock_field_memory* fields;
  uint64_t structure_bytes; /* from one structure to the next; 0: the elements of each field are neighbours */
  /* The name of a layout that penstock_load_layouts has loaded, instead of order and strides; or NULL. layout_bytes: the size of
     the data, which is to be that of the layout; 0: it is not compared. */
  const char* layout;
  uint64_t layout_bytes;
} penstock_array_memory;

/* Loads the layouts that a shared object supplies (penstock/layout_plugin.h), for all of the process; the same ones again are no
   error. PENSTOCK_ERR_NOT_FOUND: it cannot be loaded. PENSTOCK_ERR_UNSUPPORTED: it is no plug-in of this version.
   PENSTOCK_ERR_ALREADY_EXISTS: another one has a layout of the same name. */
int penstock_load_layouts(const char* path, penstock_error* error);
/* What a box of `count` elements takes in a layout. */
int penstock_layout_bytes(const char* layout, size_t ndims, const uint64_t* count, uint64_t element_bytes,
                          uint64_t* bytes, penstock_error* error);

/* The box of a version. get waits until all of it is there. PENSTOCK_ERR_ALREADY_EXISTS: other values are there;
   PENSTOCK_ERR_TIMEOUT: names the boxes that are not there. start: NULL for zeros. */
int penstock_space_put(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, const void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error);
int penstock_space_get(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                       const uint64_t* count, void* data, const penstock_array_memory* memory, int64_t timeout_ms,
                       penstock_error* error);
/* A put that goes on: start_put returns when the version has begun. The data is read until wait or destroy has returned.
   wait reports what penstock_space_put reports, once. destroy waits too, and accepts NULL. */
typedef struct penstock_pending_put penstock_pending_put;
int penstock_space_start_put(penstock_space* space, const char* name, uint64_t version, size_t ndims,
                             const uint64_t* start, const uint64_t* count, const void* data,
                             const penstock_array_memory* memory, int64_t timeout_ms, penstock_pending_put** put,
                             penstock_error* error);
int penstock_pending_put_wait(penstock_pending_put* put, penstock_error* error);
void penstock_pending_put_destroy(penstock_pending_put* put);

int penstock_space_wait(penstock_space* space, const char* name, uint64_t version, size_t ndims, const uint64_t* start,
                        const uint64_t* count, int64_t timeout_ms, penstock_error* error);

/* The versions of which something was put, ascending: the first `capacity` of them; count: how many there are. */
int penstock_space_versions(penstock_space* space, const char* name, size_t capacity, uint64_t* versions, size_t* count,
                            penstock_error* error);
/* The boxes of a version whose elements are there, disjoint and in no order: the first `capacity` of them; count: how many there
   are. writer: "host:process number" of the program that put it. put_us: when, in microseconds since 1970. */
typedef struct penstock_array_block {
  uint64_t start[PENSTOCK_MAX_DIMS];
  uint64_t count[PENSTOCK_MAX_DIMS];
  char writer[128];
  int64_t put_us;
} penstock_array_block;
int penstock_space_blocks(penstock_space* space, const char* name, uint64_t version, size_t capacity,
                          penstock_array_block* blocks, size_t* count, penstock_error* error);
/* The highest version of which something was put. found: 0 when there is none; version is then unchanged. */
int penstock_space_latest(penstock_space* space, const char* name, uint64_t* version, int* found,
                          penstock_error* error);
/* The reader, one of penstock_array_options, has read the version and all before it: they may go. */
int penstock_space_done(penstock_space* space, const char* name, uint64_t version, const char* reader,
                        int64_t timeout_ms, penstock_error* error);
/* What each server that holds some of the box would do for a get of it in this memory now, and why: a line each, as a string
   that is cut to fit into `capacity` bytes. */
int penstock_space_explain(penstock_space* space, const char* name, uint64_t version, size_t ndims,
                           const uint64_t* start, const uint64_t* count, const penstock_array_memory* memory,
                           size_t capacity, char* text, penstock_error* error);
/* The versions first, first + step, ... below stop of an array in ascending order, each once all of the box is there; see
   VersionSubscription in penstock/space.hpp. stop 0: it does not end. A subscription is for one thread at a time. subscribe waits
   until the array is defined. PENSTOCK_ERR_TIMEOUT: names the boxes that are not there, or says that no version began; the next
   call goes on. PENSTOCK_ERR_NOT_FOUND: the array was dropped. PENSTOCK_ERR_WRONG_STATE: the space was destroyed. */
typedef struct penstock_version_subscription penstock_version_subscription;
int penstock_space_subscribe(penstock_space* space, const char* name, size_t ndims, const uint64_t* start,
                             const uint64_t* count, uint64_t first, uint64_t step, uint64_t stop, int64_t timeout_ms,
                             penstock_version_subscription** subscription, penstock_error* error);
/* found: 0 when the subscription has ended; version is then unchanged. */
int penstock_version_subscription_next(penstock_version_subscription* subscription, int64_t timeout_ms,
                                       uint64_t* version, int* found, penstock_error* error);
/* Versions that had begun, were waited for, and were dropped. Any thread. */
int penstock_version_subscription_skipped(penstock_version_subscription* subscription, uint64_t* skipped,
                                          penstock_error* error);
void penstock_version_subscription_destroy(penstock_version_subscription* subscription);

/* dropped: whether it was there; may be NULL. drop_array: with all its versions. */
int penstock_space_drop(penstock_space* space, const char* name, uint64_t version, int* dropped, penstock_error* error);
int penstock_space_drop_array(penstock_space* space, const char* name, int* dropped, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
