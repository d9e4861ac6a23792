/* Pools: the C API of penstock/pool.hpp, with the same verbs, in the conventions of penstock/penstock.h.

     penstock_pool_create(context, "pool=stage,ns=run 7", &pool, &error);
     penstock_pool_put(pool, penstock_key_of("heat", "T"), T, sizeof T, NULL, PENSTOCK_CONFIGURED, NULL, &error);

   A pool may be shared by threads. Calls block, and end by their deadline; PENSTOCK_CONFIGURED is the option timeout_ms of the pool.
   Errors: PENSTOCK_ERR_ALREADY_EXISTS, _NOT_FOUND, _POOL_FULL, _TIMEOUT (names the servers), _PEER_LOST (no server that has the object
   can be reached), _FORBIDDEN, _INVALID_ARGUMENT. */
#ifndef PENSTOCK_POOL_H
#define PENSTOCK_POOL_H

#include <string.h>

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_pool penstock_pool;

/* options: "pool=stage,ns=run 7,timeout_ms=10000", or NULL; the keys are those of PoolOptions in penstock/pool.hpp. The pool keeps what
   it needs of the context. */
int penstock_pool_create(penstock_context* context, const char* options, penstock_pool** pool, penstock_error* error);
/* Accepts NULL. Subscriptions end; objects stay valid. */
void penstock_pool_destroy(penstock_pool* pool);
/* Lives as long as the pool. */
const char* penstock_pool_name(const penstock_pool* pool);

/* ------------------------------------------------------------------------------------------------------ objects */

/* Of an object: a row and a column, any bytes, at most 4096 each. */
typedef struct penstock_key {
  const char* row;
  size_t row_bytes;
  const char* column;
  size_t column_bytes;
} penstock_key;

/* Of texts; column: NULL for the empty one. */
static inline penstock_key penstock_key_of(const char* row, const char* column) {
  penstock_key key = {row, row ? strlen(row) : 0, column, column ? strlen(column) : 0};
  return key;
}

typedef struct penstock_object_info {
  penstock_key key; /* each part also ends in a NUL, which is not counted */
  uint64_t bytes;
  uint64_t version;  /* from 1, ascending; with gaps */
  uint64_t checksum; /* XXH3 of the bytes */
  int64_t put_us;    /* microseconds since 1970 */
  int in_memory, on_disk;
  uint32_t waiters;
  const char* metadata;
} penstock_object_info;

/* The library's; freed by penstock_object_destroy, which accepts NULL. */
typedef struct penstock_object {
  const void* data;
  size_t bytes; /* at data: all of the object, or the part that was asked for */
  penstock_object_info info;
} penstock_object;
void penstock_object_destroy(penstock_object* object);
/* Frees what info, list and wait_row give, with its strings. NULL is fine. */
void penstock_object_infos_free(penstock_object_info* infos);

typedef enum penstock_if_exists {
  PENSTOCK_IF_EXISTS_REFUSE = 0, /* PENSTOCK_ERR_ALREADY_EXISTS */
  PENSTOCK_IF_EXISTS_OVERWRITE,
  PENSTOCK_IF_EXISTS_ADD_VERSION
} penstock_if_exists;

/* How safe an object is when put returns. */
typedef enum penstock_acknowledge {
  PENSTOCK_ACKNOWLEDGE_MEMORY = 0, /* one server has it */
  PENSTOCK_ACKNOWLEDGE_REPLICATED, /* every replica has it in memory */
  PENSTOCK_ACKNOWLEDGE_DURABLE     /* every replica has it on disk, synced */
} penstock_acknowledge;

/* Zeros, but for struct_size, are the defaults, as is NULL in place of the struct. */
typedef struct penstock_put_options {
  size_t struct_size;
  int if_exists;   /* penstock_if_exists */
  int acknowledge; /* penstock_acknowledge */
  int tagged;      /* placed by `tag` instead of the key's hash */
  uint64_t tag;
  const char* metadata; /* a text that info and get return, at most 64 KiB; NULL: none */
} penstock_put_options;

/* As penstock_put_options. get, need, info and drop of an object that was put with a tag need the same tag. */
typedef struct penstock_get_options {
  size_t struct_size;
  uint64_t version; /* 0: the newest */
  int tagged;
  uint64_t tag;
  uint64_t offset, bytes; /* a part of the object; bytes 0: up to its end. For get, get_into and need */
} penstock_get_options;

/* data may be reused on return. version: may be NULL. */
int penstock_pool_put(penstock_pool* pool, penstock_key key, const void* data, size_t bytes,
                      const penstock_put_options* options, int64_t timeout_ms, uint64_t* version,
                      penstock_error* error);
/* What is there; PENSTOCK_ERR_NOT_FOUND when nothing is. */
int penstock_pool_get(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                      penstock_object** object, penstock_error* error);
/* Into the caller's memory. bytes: how many were written; PENSTOCK_ERR_INVALID_ARGUMENT when they do not fit into capacity. */
int penstock_pool_get_into(penstock_pool* pool, penstock_key key, void* memory, size_t capacity,
                           const penstock_get_options* options, int64_t timeout_ms, uint64_t* bytes,
                           penstock_error* error);
/* Waits until it is there, up to the deadline. A drop does not end the wait. */
int penstock_pool_need(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                       penstock_object** object, penstock_error* error);
int penstock_pool_info(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                       penstock_object_info** info, penstock_error* error);
/* dropped: 0 when there was none; may be NULL. Waiters go on waiting. */
int penstock_pool_drop(penstock_pool* pool, penstock_key key, const penstock_get_options* options, int64_t timeout_ms,
                       int* dropped, penstock_error* error);

/* Which keys: row and column are patterns that match by exact text, by prefix ("heat*"), or as a glob (* ? [a-z]); a backslash takes the
   next character as it is. NULL: any. */

/* In the order of the keys, at most `limit` of them; limit 0: all. */
int penstock_pool_list(penstock_pool* pool, const char* row, const char* column, size_t limit,
                       penstock_object_info** infos, size_t* count, penstock_error* error);
/* dropped: how many; may be NULL. */
int penstock_pool_drop_matching(penstock_pool* pool, const char* row, const char* column, uint64_t* dropped,
                                penstock_error* error);
/* Waits until the row (a text, not a pattern) holds at least `least` objects whose columns match, and lists them. */
int penstock_pool_wait_row(penstock_pool* pool, const char* row, size_t least, const char* column, int64_t timeout_ms,
                           penstock_object_info** infos, size_t* count, penstock_error* error);

typedef enum penstock_object_event { PENSTOCK_OBJECT_PUT = 0, PENSTOCK_OBJECT_DROPPED } penstock_object_event;
/* Called on the library's thread; must not block. event: a penstock_object_event. info: only for the call. */
typedef void (*penstock_object_function)(int event, const penstock_object_info* info, void* user);
typedef struct penstock_subscription penstock_subscription;
/* The function is called for each put and drop from now on, and, with `existing`, for what is there first. It runs on the library's
   thread, so calls that wait fail there with PENSTOCK_ERR_WRONG_STATE: it wakes a thread of the program that makes them. */
int penstock_pool_subscribe(penstock_pool* pool, const char* row, const char* column, penstock_object_function function,
                            void* user, int existing, penstock_subscription** subscription, penstock_error* error);
/* Events that may have been missed: those that servers threw away because the function did not take them fast enough, and one more
   for each server or connection that was lost: some may have been lost with it. Any thread; in the function only once
   penstock_pool_subscribe has returned. */
int penstock_subscription_lost(const penstock_subscription* subscription, uint64_t* lost, penstock_error* error);
/* Fails with the error with which a server refuses the subscription (PENSTOCK_ERR_OVERLOADED: the client has too many subscriptions
   or calls there; PENSTOCK_ERR_FORBIDDEN, _AUTHENTICATION, _INVALID_ARGUMENT, _UNSUPPORTED), as long as it does: it is asked again
   each second. Threads as above. */
int penstock_subscription_check(const penstock_subscription* subscription, penstock_error* error);
/* The function is not called any more once this has returned, unless the function itself calls it. Accepts NULL. */
void penstock_subscription_destroy(penstock_subscription* subscription);

/* As penstock_put_options. */
typedef struct penstock_compute_options {
  size_t struct_size;
  const char* arguments; /* JSON; NULL: {} */
  uint32_t time_ms;      /* 0: 10 s */
  uint64_t memory_bytes; /* 0: 256 MiB */
  int wait;              /* for objects that are not there yet */
} penstock_compute_options;
/* Runs a registered function beside the data (docs/internals/compute.md); the object is its result, which info.metadata describes. */
int penstock_pool_compute(penstock_pool* pool, const char* function, size_t num_keys, const penstock_key* keys,
                          const penstock_compute_options* options, int64_t timeout_ms, penstock_object** object,
                          penstock_error* error);

/* ----------------------------------------------------------------------------------------- streams and servers */

/* Of a stream in this pool, as JSON: state, writer, ranks, steps, bytes, readers. Free the text with penstock_text_free. */
int penstock_pool_stream_info(penstock_pool* pool, const char* stream, char** text, penstock_error* error);
/* With its steps. PENSTOCK_ERR_WRONG_STATE while a writer has it open. */
int penstock_pool_drop_stream(penstock_pool* pool, const char* stream, penstock_error* error);

typedef struct penstock_server_status {
  const char *id, *name, *state; /* "active", "draining", "lost" */
  uint64_t objects, memory_bytes, memory_limit, disk_bytes, disk_free;
  uint64_t journal_bytes; /* of the tiers' journals, beside disk_bytes */
  uint64_t puts, gets, evictions, recalls, waiting, bytes_in, bytes_out;
} penstock_server_status;
/* The servers of the pool; free with penstock_server_status_free, which accepts NULL. */
int penstock_pool_status(penstock_pool* pool, penstock_server_status** servers, size_t* count, penstock_error* error);
void penstock_server_status_free(penstock_server_status* servers);

/* For operators: see Pool::administer, token and directory_for_roles in penstock/pool.hpp. Free the texts with penstock_text_free. */
int penstock_pool_administer(penstock_pool* pool, const char* server, const char* command, char** text,
                             penstock_error* error);
int penstock_pool_token(penstock_pool* pool, const char* role, char** text, penstock_error* error);
int penstock_pool_directory_for_roles(penstock_pool* pool, char** text, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
