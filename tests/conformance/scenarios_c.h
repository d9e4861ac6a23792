/* What the scenarios of the C column share: checks, handles with a plane of their choice, cohorts of threads.

   A failed check ends the program. An alarm, armed by main, is the deadline of every wait, also of those on threads. */
#ifndef PENSTOCK_TESTS_SCENARIOS_C_H
#define PENSTOCK_TESTS_SCENARIOS_C_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "penstock/penstock.h"

/* Not exit: other threads are in the library. */
#define FAIL(...)                                   \
  do {                                              \
    fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
    fprintf(stderr, __VA_ARGS__);                   \
    fputc('\n', stderr);                            \
    _exit(1);                                       \
  } while (0)
#define CHECK(condition)                              \
  do {                                                \
    if (!(condition)) FAIL("not so: %s", #condition); \
  } while (0)
/* The last argument of call must be &error. */
#define OK(call)                                                                                   \
  do {                                                                                             \
    penstock_error error;                                                                          \
    int code_ = call;                                                                              \
    if (code_ != PENSTOCK_OK) FAIL("%s: %s: %s", #call, penstock_code_name(code_), error.message); \
  } while (0)
#define FAILS(expected, call)                                                                     \
  do {                                                                                            \
    penstock_error error;                                                                         \
    int code_ = call;                                                                             \
    if (code_ != (expected)) FAIL("%s: %s, not %s", #call, penstock_code_name(code_), #expected); \
    CHECK(error.code == code_ && error.message[0] != '\0');                                       \
  } while (0)

/* Sizes or indices in place: DIMS(4, 5). */
#define DIMS(...) ((const uint64_t[]){__VA_ARGS__})

enum { wait_ms = 20000, most_ranks = 8 };

extern const char* plane;     /* "shm", "tcp", or "automatic" for an engine without planes */
extern const char* directory; /* where the streams of this run register */

/* Whether this is the engine of every stream of this run, by configuration. */
bool engine_is(const char* name);

typedef struct scenario {
  const char* name;
  void (*run)(void);
} scenario;
extern const scenario data_scenarios[]; /* these end in {NULL, NULL} */
extern const scenario contents_scenarios[];
extern const scenario access_scenarios[];
extern const scenario lease_scenarios[];
extern const scenario queue_scenarios[];
extern const scenario pool_scenarios[]; /* what these names mean in a pool, where that is something else */
extern const scenario handle_scenarios[];
extern const scenario stream_scenarios[];

/* options: more than the directory, or NULL. */
penstock_context* new_context(const char* options);
/* options: more than the plane and the deadlines, or NULL. */
penstock_writer* create(penstock_context* context, const char* name, const char* options);
penstock_reader* join(penstock_context* context, const char* name, const char* options);

/* Runs write on m threads, each a rank of one writer cohort, and read on n; frees and closes. A cohort of one is NULL. */
typedef void write_rank(penstock_writer* writer, int rank);
typedef void read_rank(penstock_reader* reader, int rank);
void cohorts(int m, int n, write_rank* write, read_rank* read);
/* Runs both side by side. */
void together(void (*one)(penstock_context*), void (*other)(penstock_context*), penstock_context* context_of_one,
              penstock_context* context_of_other);

uint32_t define(penstock_writer* writer, const char* name, int dtype, size_t ndims, const uint64_t* shape);
uint32_t define_kind(penstock_writer* writer, const char* name, int dtype, int kind);
void begin_write(penstock_writer* writer);
void put(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start, const uint64_t* count,
         const void* data);
void end_write(penstock_writer* writer);
bool try_begin(penstock_writer* writer, int64_t timeout_ms);

/* Waits for a step and returns its number. */
uint64_t begin_read(penstock_reader* reader);
penstock_outcome outcome_within(penstock_reader* reader, int64_t timeout_ms);
penstock_variable find(penstock_reader* reader, const char* name);
/* Gets and waits. */
void get(penstock_reader* reader, const char* name, const penstock_selection* selection, void* out);
void end_read(penstock_reader* reader);
void leave(penstock_reader* reader);  /* closes and destroys */
void finish(penstock_writer* writer); /* closes and destroys */

/* Elements that say where they are and of which step: i + 1000 step. */
void number(double* out, uint64_t elements, uint64_t step);
bool is_numbered(const double* values, uint64_t elements, uint64_t step);

/* A step of eight numbered doubles "v", as most scenarios of streams use it. */
uint32_t define_eight(penstock_writer* writer);
void write_eight(penstock_writer* writer, uint32_t variable, uint64_t step);
bool try_write(penstock_writer* writer, uint32_t variable); /* without waiting. False: the step was dropped */
void expect_eight(penstock_reader* reader, uint64_t step);  /* of the step open */
void read_eight(penstock_reader* reader, uint64_t step);    /* of the next step, which is this one */

/* A step of three MiB, when there is room in time. */
enum { mib = 1 << 20 };
bool write_three_mib(penstock_writer* writer, uint32_t variable, const uint8_t* data, int64_t timeout_ms);

penstock_statistics written(const penstock_writer* writer);
penstock_statistics read_so_far(const penstock_reader* reader);

#endif
