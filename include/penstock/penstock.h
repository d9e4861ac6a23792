/* Streams of steps: the C API.

   It offers what penstock/stream.hpp offers, with the same verbs. Conventions:

   1. Every function that can fail returns a penstock_code: PENSTOCK_OK (0) or an error. Its last argument is a
      penstock_error of the caller's that then holds the code and a message; it may be NULL. No exception crosses.
   2. What a correct program meets (no step yet, end of stream, writer lost) is an outcome, not an error.
   3. Handles (penstock_context, penstock_writer, penstock_reader) are opaque. They are made by a function that ends in
      _create, _create_stream or _open_stream, and freed by the matching _destroy, which accepts NULL.
   4. Outputs come after inputs, and are written only on PENSTOCK_OK, unless a function says otherwise.
   5. A writer or reader has at most one step open. Functions on the step take the writer or reader; without an open
      step they return PENSTOCK_ERR_WRONG_STATE.
   6. Names and strings are UTF-8 and end in NUL; the library copies those it is given. Strings and arrays it returns
      belong to it and live until the step ends, or as long as the function says.
   7. Shapes and indices count elements, dimension 0 first, at most PENSTOCK_MAX_DIMS of them. Sizes of memory and
      strides are in bytes. Timeouts are in milliseconds.
   8. Booleans are int: 0 is false, anything else true.
   9. Threads: a context may be shared; a writer or reader is used by one thread at a time. Nothing survives fork.
  10. Enumerations may grow. Structs that carry struct_size may grow: set it to sizeof(the struct) before the call. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_MAX_DIMS 8

/* ------------------------------------------------------------------------------------------------------- errors */

/* Grouped by the largest thing that broke; see penstock/error.hpp. */
typedef enum penstock_code {
  PENSTOCK_OK = 0,
  /* the call */
  PENSTOCK_ERR_INVALID_ARGUMENT = 1,
  PENSTOCK_ERR_WRONG_STATE = 2,
  PENSTOCK_ERR_NOT_FOUND = 3,
  PENSTOCK_ERR_UNKNOWN_OPTION = 4,
  PENSTOCK_ERR_UNSUPPORTED = 5,
  /* the step */
  PENSTOCK_ERR_STEP_TOO_LARGE = 20,
  PENSTOCK_ERR_STEP_VOIDED = 21,
  PENSTOCK_ERR_STEP_GONE = 22,
  /* the stream */
  PENSTOCK_ERR_TIMEOUT = 40,
  PENSTOCK_ERR_END_OF_STREAM = 41,
  PENSTOCK_ERR_WRITER_LOST = 42,
  PENSTOCK_ERR_STREAM_CLOSED = 43,
  /* the peer */
  PENSTOCK_ERR_PEER_LOST = 60,
  PENSTOCK_ERR_AUTHENTICATION = 61,
  PENSTOCK_ERR_PROTOCOL = 62,
  /* a service or pool that refused */
  PENSTOCK_ERR_ALREADY_EXISTS = 70,
  PENSTOCK_ERR_OVERLOADED = 71,
  PENSTOCK_ERR_POOL_FULL = 72,
  PENSTOCK_ERR_STALE_VIEW = 73,
  PENSTOCK_ERR_CANCELLED = 74,
  PENSTOCK_ERR_FORBIDDEN = 75,
  /* the machine or a library */
  PENSTOCK_ERR_SYSTEM = 80,
  PENSTOCK_ERR_MEMORY = 81,
  PENSTOCK_ERR_INTERNAL = 82
} penstock_code;

typedef struct penstock_error {
  int code;          /* a penstock_code */
  char message[512]; /* cut to fit; "" on success */
} penstock_error;

/* "step_too_large"; "unknown" for a number that is no code. */
const char* penstock_code_name(int code);
/* "0.1.0" */
const char* penstock_version(void);

/* -------------------------------------------------------------------------------------------------------- values */

typedef enum penstock_dtype {
  PENSTOCK_NONE = 0,
  PENSTOCK_BOOLEAN,
  PENSTOCK_INT8,
  PENSTOCK_INT16,
  PENSTOCK_INT32,
  PENSTOCK_INT64,
  PENSTOCK_UINT8,
  PENSTOCK_UINT16,
  PENSTOCK_UINT32,
  PENSTOCK_UINT64,
  PENSTOCK_FLOAT16,  /* IEEE half, carried as its 16 bits */
  PENSTOCK_BFLOAT16, /* carried as its 16 bits */
  PENSTOCK_FLOAT32,
  PENSTOCK_FLOAT64,
  PENSTOCK_COMPLEX64, /* two floats */
  PENSTOCK_COMPLEX128,
  PENSTOCK_STRING
} penstock_dtype;

/* Bytes of one element; 0 for strings and for what is no type. */
size_t penstock_dtype_size(int dtype);
/* The NumPy-style name ("float64"); "none" for what is no type. */
const char* penstock_dtype_name(int dtype);

typedef enum penstock_kind {
  PENSTOCK_GLOBAL_ARRAY = 0, /* one array with a shape; each block is a box of it */
  PENSTOCK_LOCAL_ARRAY,      /* each block is an array of its own */
  PENSTOCK_GLOBAL_VALUE,     /* one value per step */
  PENSTOCK_LOCAL_VALUE       /* one value per writer rank; readers see an array of them */
} penstock_kind;

typedef enum penstock_order {
  PENSTOCK_ROW = 0, /* last dimension contiguous (C) */
  PENSTOCK_COLUMN   /* first dimension contiguous (Fortran); element (i, j) is (i, j) in both */
} penstock_order;

/* Timeouts, in ms. */
#define PENSTOCK_CONFIGURED ((int64_t)-1) /* the stream's own open_, step_ or close_timeout_ms */
#define PENSTOCK_FOREVER INT64_MAX

/* ------------------------------------------------------------------------------------------------------- cohort */

/* The ranks of one parallel program that open a stream together. The library calls these functions only inside
   _create_stream, _open_stream and penstock_writer_close, on the calling thread, on all ranks in the same order. They
   return 0 on success. Every rank gives the same `size` and `root`. penstock/mpi.h makes a cohort of a communicator. */
typedef struct penstock_cohort {
  int rank;
  int size;
  void* user; /* handed to the functions */
  /* Copies size bytes at data from root to every rank. */
  int (*broadcast)(void* user, void* data, size_t size, int root);
  /* Copies size bytes at data from every rank to `all` on root (ranks x size bytes, in rank order); elsewhere NULL. */
  int (*gather)(void* user, const void* data, size_t size, void* all, int root);
  /* Called once when the library no longer needs the cohort, also when opening fails; may be NULL. */
  void (*release)(void* user);
  /* Not 0: broadcast from a rank that has failed returns although no other rank calls it yet, as MPI_Bcast does for short
     messages. The ranks of a coprocessor, which wait without a deadline, hear of the failure so. */
  int broadcast_is_local;
} penstock_cohort;

/* ------------------------------------------------------------------------------------------------------- context */

typedef struct penstock_context penstock_context;
typedef struct penstock_writer penstock_writer;
typedef struct penstock_reader penstock_reader;

/* Configuration and the library's thread. options: "directory=/run/penstock,listen=127.0.0.1", or NULL; the keys are
   those of ContextOptions in penstock/options.hpp. */
int penstock_context_create(const char* options, penstock_context** context, penstock_error* error);
/* Streams keep what they need of it. */
void penstock_context_destroy(penstock_context* context);
/* explicit_progress=true only: runs what is ready. ran: whether something did. May be NULL. */
int penstock_context_progress(penstock_context* context, int* ran, penstock_error* error);

/* Collective. cohort: copied; NULL for a program of one rank. options: "queue_steps=2,when_full=discard_oldest", or
   NULL; the keys are those of StreamOptions in penstock/options.hpp, a word without "=" names the engine. penstock.yaml
   and the environment have the last word. Returns at once; readers are awaited in the first begin_step. */
int penstock_context_create_stream(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                   const char* options, penstock_writer** writer, penstock_error* error);
/* Collective. Waits until the stream exists and its writer, if it lives, has admitted this cohort. name: a stream's, or an
   address as printed by `penstock stream ls --address`. Unless an engine is named, the stream is looked for among living
   writers, then in pools, then in files. */
int penstock_context_open_stream(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                 const char* options, penstock_reader** reader, penstock_error* error);

typedef struct penstock_stream_entry {
  const char* name;
  const char* address; /* with its token: for the owner's eyes */
  const char* host;
  int64_t pid;
  uint32_t ranks;
  int alive;
} penstock_stream_entry;

/* The streams found in the directory; free the array with penstock_stream_entries_free. */
int penstock_context_list_streams(penstock_context* context, penstock_stream_entry** entries, size_t* count,
                                  penstock_error* error);
void penstock_stream_entries_free(penstock_stream_entry* entries);

/* The writer's statistics of a live stream, with its readers, as JSON; asks the writer, joins nothing. name: as for
   _open_stream. PENSTOCK_ERR_NOT_FOUND: nobody answers. Free the text with penstock_text_free. */
int penstock_context_inspect(penstock_context* context, const char* name, int64_t timeout_ms, char** text,
                             penstock_error* error);
void penstock_text_free(char* text);

/* ------------------------------------------------------------------------------------------------------- writing */

/* Frees. If penstock_writer_close was not called: as that with PENSTOCK_CONFIGURED, but failures are only logged. */
void penstock_writer_destroy(penstock_writer* writer);
/* Collective. Waits until readers have released what was committed, then tells them that the stream has ended. The
   stream is closed even when this returns an error. */
int penstock_writer_close(penstock_writer* writer, int64_t timeout_ms, penstock_error* error);
/* Closes after a failure: readers get PENSTOCK_WRITER_LOST, not the end of the stream. Not collective; waits for no
   reader. An open step is given up. */
int penstock_writer_lose(penstock_writer* writer, penstock_error* error);
/* Both live as long as the writer. address: rank 0 only, "" elsewhere. */
const char* penstock_writer_name(const penstock_writer* writer);
const char* penstock_writer_address(const penstock_writer* writer);

/* NULL in place of this struct means: a global array, row order, min_max as in the stream's options. */
typedef struct penstock_variable_options {
  int kind;    /* penstock_kind */
  int order;   /* penstock_order */
  int min_max; /* compute minimum and maximum of each block when it is put */
} penstock_variable_options;

/* Defines a variable before its first put; once per name. shape: ndims sizes, for global arrays only (else 0, NULL). */
int penstock_writer_define(penstock_writer* writer, const char* name, int dtype, size_t ndims, const uint64_t* shape,
                           const penstock_variable_options* options, uint32_t* variable, penstock_error* error);

/* Waits for room, and the first time for rendezvous_readers. PENSTOCK_ERR_TIMEOUT names who was awaited. */
int penstock_writer_begin_step(penstock_writer* writer, int64_t timeout_ms, penstock_error* error);
/* As begin_step; a deadline that passes is no error but leaves begun 0. */
int penstock_writer_try_begin_step(penstock_writer* writer, int64_t timeout_ms, int* begun, penstock_error* error);
int penstock_writer_step_number(const penstock_writer* writer, uint64_t* number, penstock_error* error);
/* dropped: when_full dropped this step; what is put into it costs nothing and readers never see it. */
int penstock_writer_step_dropped(const penstock_writer* writer, int* dropped, penstock_error* error);

/* A new shape for a global array, from this step on. All ranks give the same. */
int penstock_writer_set_shape(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* shape,
                              penstock_error* error);
/* Copies one block: element (start + i) for every i below count. data: packed in the variable's order. start: NULL for
   zeros (local arrays). A zero count is legal and becomes a block without elements. */
int penstock_writer_put(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                        const uint64_t* count, const void* data, penstock_error* error);
/* As put, with the bytes between neighbours in each dimension (of any sign). */
int penstock_writer_put_strided(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                                const uint64_t* count, const void* data, const int64_t* strides, penstock_error* error);
/* The whole of a one-writer global array, or one value. */
int penstock_writer_put_whole(penstock_writer* writer, uint32_t variable, const void* data, penstock_error* error);
/* The value of a string variable. */
int penstock_writer_put_string(penstock_writer* writer, uint32_t variable, const char* value, penstock_error* error);
/* The stream's memory for one block, in the variable's order, to be filled before the step ends. */
int penstock_writer_put_span(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                             const uint64_t* count, void** data, size_t* size, penstock_error* error);
/* As put, but data stays valid and unchanged until the step has ended. */
int penstock_writer_lend(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                         const uint64_t* count, const void* data, penstock_error* error);
/* As lend, with the bytes between neighbours in each dimension (of any sign): the inside of an array with halos. */
int penstock_writer_lend_strided(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start,
                                 const uint64_t* count, const void* data, const int64_t* strides,
                                 penstock_error* error);

/* Attributes, "name" or "variable/name". They stay in force until put again. Inside a step: from this step on, and not in
   later ones if this rank gives the step up; outside: from the next. values: `count` elements; is_array tells an array of one from a scalar (count 1). */
int penstock_writer_put_attribute(penstock_writer* writer, const char* name, int dtype, const void* values,
                                  size_t count, int is_array, penstock_error* error);
int penstock_writer_put_attribute_string(penstock_writer* writer, const char* name, const char* value,
                                         penstock_error* error);
int penstock_writer_put_attribute_strings(penstock_writer* writer, const char* name, const char* const* values,
                                          size_t count, penstock_error* error);

/* Hands the step over; it becomes visible when every rank has done so. The step is over also when this fails. */
int penstock_writer_end_step(penstock_writer* writer, penstock_error* error);
/* Gives the step up, on every rank. */
int penstock_writer_abandon_step(penstock_writer* writer, penstock_error* error);

/* ------------------------------------------------------------------------------------------------------- reading */

typedef enum penstock_outcome {
  PENSTOCK_READY = 0,
  PENSTOCK_NOT_READY, /* the deadline passed */
  PENSTOCK_END_OF_STREAM,
  PENSTOCK_WRITER_LOST
} penstock_outcome;

/* Leaves the stream and frees; an open step is ended. Views stay valid. */
void penstock_reader_destroy(penstock_reader* reader);
/* Leaves the stream; the writer goes on. */
int penstock_reader_close(penstock_reader* reader, penstock_error* error);
const char* penstock_reader_name(const penstock_reader* reader);

/* Waits for the next step. outcome: PENSTOCK_READY opens it. On PENSTOCK_WRITER_LOST the error's message (not its code)
   names what is lost. */
int penstock_reader_begin_step(penstock_reader* reader, int64_t timeout_ms, penstock_outcome* outcome,
                               penstock_error* error);
/* The writer's number; gaps follow drops and late joins. */
int penstock_reader_step_number(const penstock_reader* reader, uint64_t* number, penstock_error* error);
/* Performs what is enqueued and gives the step back. The step is over also when this fails. */
int penstock_reader_end_step(penstock_reader* reader, penstock_error* error);

/* Called for each step, which is the reader's open step meanwhile and ends when it returns, if it did not end it. Returns
   PENSTOCK_OK, or another code and a message in `error`: an error of the analysis. user: as given to penstock_reader_on_step. */
typedef int (*penstock_step_function)(penstock_reader* reader, void* user, penstock_error* error);
typedef enum penstock_on_error {
  PENSTOCK_ON_ERROR_REPORT = 0, /* logged and counted (analysis_errors); the simulation goes on */
  PENSTOCK_ON_ERROR_RAISE       /* penstock_writer_end_step gives it as well, when the step was given back */
} penstock_on_error;
/* Engine insitu (elsewhere PENSTOCK_ERR_UNSUPPORTED): from now on penstock_writer_end_step calls the function, in the thread of
   the writer's rank with this reader's rank number, which is in this process. Readers' functions are called in the order in
   which the readers were opened. No view of a step with arrays that were lent may outlive it. The function does not destroy
   the reader. */
int penstock_reader_on_step(penstock_reader* reader, penstock_step_function function, void* user, int on_error,
                            penstock_error* error);

/* Where steps are kept (engines pool, file and space), also after the writer has ended; elsewhere PENSTOCK_ERR_UNSUPPORTED. */

/* Between steps; all ranks of a cohort seek alike: the next begin_step gives the first kept step with at least this number,
   back or forth, and goes on from there. */
int penstock_reader_seek(penstock_reader* reader, uint64_t step, penstock_error* error);
/* The numbers of the steps that are kept now, ascending: the first `capacity` of them; count: how many there are. */
int penstock_reader_steps(penstock_reader* reader, size_t capacity, uint64_t* numbers, size_t* count,
                          penstock_error* error);

typedef struct penstock_variable {
  uint32_t id; /* for the functions below, within this step */
  const char* name;
  int dtype, kind, order;
  uint32_t ndims;                    /* of shape */
  uint64_t shape[PENSTOCK_MAX_DIMS]; /* global arrays; local values: the number of blocks */
  uint64_t blocks;
} penstock_variable;

/* The variables that ranks put into the step. A variable that no rank put into it is not there: calls that name it, or
   the id it had in another step, give PENSTOCK_ERR_NOT_FOUND. */
int penstock_reader_variable_count(const penstock_reader* reader, size_t* count, penstock_error* error);
int penstock_reader_variable_at(const penstock_reader* reader, size_t index, penstock_variable* variable,
                                penstock_error* error);
/* PENSTOCK_ERR_NOT_FOUND names the last step with it that this reader has seen, else the nearest name. */
int penstock_reader_variable(const penstock_reader* reader, const char* name, penstock_variable* variable,
                             penstock_error* error);

typedef struct penstock_block {
  uint32_t ndims;
  int writer_rank;
  uint64_t start[PENSTOCK_MAX_DIMS];
  uint64_t count[PENSTOCK_MAX_DIMS];
} penstock_block;

/* Blocks first .. first + capacity - 1, as many as there are. written: how many. */
int penstock_reader_blocks(const penstock_reader* reader, uint32_t variable, uint64_t first, size_t capacity,
                           penstock_block* blocks, size_t* written, penstock_error* error);

/* Of one block, or of all (PENSTOCK_ALL_BLOCKS). min, max: 16 bytes each, receiving one element. present: 0 when the
   writer did not compute them; nothing is written then. */
#define PENSTOCK_ALL_BLOCKS UINT64_MAX
int penstock_reader_min_max(const penstock_reader* reader, uint32_t variable, uint64_t block, void* min, void* max,
                            int* present, penstock_error* error);

typedef struct penstock_attribute {
  int dtype;
  int is_array;
  size_t count;
  const void* values;         /* count packed elements; NULL for strings */
  const char* const* strings; /* count strings; NULL for other types */
} penstock_attribute;

int penstock_reader_attribute_count(penstock_reader* reader, size_t* count, penstock_error* error);
int penstock_reader_attribute_name(penstock_reader* reader, size_t index, const char** name, penstock_error* error);
int penstock_reader_attribute(penstock_reader* reader, const char* name, penstock_attribute* attribute,
                              penstock_error* error);
/* The value of a string variable; local values: one for each writer rank. */
int penstock_reader_strings(penstock_reader* reader, uint32_t variable, const char* const** strings, size_t* count,
                            penstock_error* error);

typedef enum penstock_selection_form {
  PENSTOCK_SELECT_ALL = 0,
  PENSTOCK_SELECT_BOX,
  PENSTOCK_SELECT_BLOCK,
  PENSTOCK_SELECT_POINTS
} penstock_selection_form;

/* What a reader asks for; NULL in its place means all. Made by the functions below; the arrays it names are read only
   during the call it is given to. */
typedef struct penstock_selection {
  penstock_selection_form form;
  size_t ndims;
  const uint64_t* start;
  const uint64_t* count;
  const uint64_t* stride; /* NULL: 1 everywhere */
  uint64_t block;
  const uint64_t* coordinates; /* points x ndims */
  size_t points;
} penstock_selection;

static inline penstock_selection penstock_select_box(size_t ndims, const uint64_t* start, const uint64_t* count) {
  penstock_selection selection = {PENSTOCK_SELECT_BOX, ndims, start, count, NULL, 0, NULL, 0};
  return selection;
}
/* Every stride[d]-th element: start[d], start[d] + stride[d], ... count[d] of them. */
static inline penstock_selection penstock_select_strided(size_t ndims, const uint64_t* start, const uint64_t* count,
                                                         const uint64_t* stride) {
  penstock_selection selection = {PENSTOCK_SELECT_BOX, ndims, start, count, stride, 0, NULL, 0};
  return selection;
}
/* One block as its writer put it; blocks are numbered by writer rank, then by order of put. */
static inline penstock_selection penstock_select_block(uint64_t block) {
  penstock_selection selection = {PENSTOCK_SELECT_BLOCK, 0, NULL, NULL, NULL, block, NULL, 0};
  return selection;
}
static inline penstock_selection penstock_select_points(size_t ndims, const uint64_t* coordinates, size_t points) {
  penstock_selection selection = {PENSTOCK_SELECT_POINTS, ndims, NULL, NULL, NULL, 0, coordinates, points};
  return selection;
}

/* The shape that get(selection) fills. */
int penstock_reader_selection_shape(const penstock_reader* reader, uint32_t variable,
                                    const penstock_selection* selection, uint32_t* ndims,
                                    uint64_t shape[PENSTOCK_MAX_DIMS], penstock_error* error);
/* Enqueues; out is complete when penstock_reader_wait or _end_step has returned PENSTOCK_OK. out: packed in `order`
   (penstock_order), or with `strides` in bytes when that is not NULL. Elements that no block covers are left as they
   were. */
int penstock_reader_get(penstock_reader* reader, uint32_t variable, const penstock_selection* selection, void* out,
                        int order, const int64_t* strides, penstock_error* error);
int penstock_reader_wait(penstock_reader* reader, int64_t timeout_ms, penstock_error* error);

/* Read-only memory of one contiguous piece. It stays valid, and its step leased, until released: even after the step
   has ended, the reader was destroyed or the writer died. */
typedef struct penstock_view {
  const void* data;
  size_t size; /* from the first to the last element */
  uint32_t ndims;
  int order;
  uint64_t start[PENSTOCK_MAX_DIMS]; /* which part of the array this is */
  uint64_t count[PENSTOCK_MAX_DIMS];
  int64_t strides[PENSTOCK_MAX_DIMS]; /* bytes between neighbours */
  void* owner;                        /* the library's */
} penstock_view;

/* Memory without a copy: one view for each block that the selection (all, box without stride, or block) touches, in
   block order. */
int penstock_reader_view(penstock_reader* reader, uint32_t variable, const penstock_selection* selection,
                         penstock_view** views, size_t* count, penstock_error* error);
/* Releases the views and frees the array; on any thread. NULL is fine. */
void penstock_views_release(penstock_view* views, size_t count);

/* ---------------------------------------------------------------------------------------------------- statistics */

/* Counted since open; see StreamStatistics in penstock/stream.hpp. Times in seconds. */
typedef struct penstock_statistics {
  size_t struct_size; /* set by the caller to sizeof(penstock_statistics) */
  uint64_t steps;
  uint64_t steps_dropped;
  uint64_t steps_voided;
  uint64_t bytes;
  uint64_t bytes_copied;
  uint64_t copies;
  double copy_s;
  double wait_s;
  uint64_t announcement_bytes;
  uint64_t epochs;
  uint64_t plans_built;
  uint64_t plans_reused;
  uint64_t memory_bytes;
  uint32_t queue_depth;
  uint32_t peers; /* how many penstock_peer_statistics there are */
  char data_plane[16];
  uint64_t analysis_errors; /* reader: steps at which its on_step function failed */
} penstock_statistics;

typedef struct penstock_peer_statistics {
  size_t struct_size; /* set by the caller, in the first element */
  char name[256];     /* host:pid of the cohort's rank 0 */
  uint32_t ranks;
  char data_plane[16];
  uint64_t steps_delivered;
  uint64_t steps_released;
  uint64_t steps_dropped;
  uint64_t steps_held;
} penstock_peer_statistics;

int penstock_writer_statistics(const penstock_writer* writer, penstock_statistics* statistics, penstock_error* error);
int penstock_reader_statistics(const penstock_reader* reader, penstock_statistics* statistics, penstock_error* error);
/* The reader cohorts of a writer, at most capacity of them. written: how many. */
int penstock_writer_peer_statistics(const penstock_writer* writer, size_t capacity, penstock_peer_statistics* peers,
                                    size_t* written, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
