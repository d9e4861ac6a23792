/* A writer and a reader in one process, for the tests of the C API. */
#ifndef PENSTOCK_CAPI_TEST_PAIR_H
#define PENSTOCK_CAPI_TEST_PAIR_H

#include "capi/capi_test_support.h"

extern char capi_test_directory[]; /* of the streams; made by main */

static inline penstock_context* new_context(void) {
  char options[128];
  penstock_context* context = NULL;
  snprintf(options, sizeof options, "directory=%s, listen=127.0.0.1", capi_test_directory);
  OK(penstock_context_create(options, &context, &error));
  return context;
}

typedef struct pair {
  penstock_context* context;
  penstock_writer* writer;
  penstock_reader* reader;
} pair;

/* options: the writer's. */
static inline pair new_pair_with(const char* options) {
  pair p = {new_context(), NULL, NULL};
  OK(penstock_context_create_stream(p.context, "heat", NULL, options, &p.writer, &error));
  OK(penstock_context_open_stream(p.context, "heat", NULL, NULL, &p.reader, &error));
  return p;
}
static inline pair new_pair(void) { return new_pair_with(NULL); }

static inline void end_pair(pair* p) {
  OK(penstock_reader_close(p->reader, &error));
  OK(penstock_writer_close(p->writer, deadline_ms, &error));
  penstock_reader_destroy(p->reader);
  penstock_writer_destroy(p->writer);
  penstock_context_destroy(p->context);
}

static inline void begin_write(pair* p) { OK(penstock_writer_begin_step(p->writer, deadline_ms, &error)); }

/* Ends the writer's step and begins it on the reader. */
static inline void hand_over(pair* p) {
  penstock_outcome outcome = PENSTOCK_NOT_READY;
  OK(penstock_writer_end_step(p->writer, &error));
  OK(penstock_reader_begin_step(p->reader, deadline_ms, &outcome, &error));
  CHECK(outcome == PENSTOCK_READY);
}

static inline void end_read(pair* p) { OK(penstock_reader_end_step(p->reader, &error)); }

static inline uint32_t define(pair* p, const char* name, int dtype, int kind, size_t ndims, const uint64_t* shape) {
  uint32_t variable = 0;
  penstock_variable_options options = {kind, PENSTOCK_ROW, 0};
  OK(penstock_writer_define(p->writer, name, dtype, ndims, shape, &options, &variable, &error));
  return variable;
}

static inline penstock_variable find(pair* p, const char* name) {
  penstock_variable variable;
  OK(penstock_reader_variable(p->reader, name, &variable, &error));
  return variable;
}

static inline void get(pair* p, const char* name, const penstock_selection* selection, void* out) {
  OK(penstock_reader_get(p->reader, find(p, name).id, selection, out, PENSTOCK_ROW, NULL, &error));
  OK(penstock_reader_wait(p->reader, deadline_ms, &error));
}

/* A cohort of threads (capi_threads_test.c). Each thread of start_ranks is given a pointer to its rank. */
enum { ranks = 3 };
penstock_cohort cohort_of_threads(int* rank);
void start_ranks(void* (*body)(void*));
void join_ranks(void);

/* The cases that use threads (capi_threads_test.c). */
void test_cohort(void);
void test_outcomes(void);
/* capi_coprocessor_test.c */
void test_coprocessor(void);
/* capi_pool_test.c; test_pool and test_pool_stream need a server */
void test_pool_arguments(void);
void test_pool(void);
void test_pool_stream(void);
/* capi_region_test.c */
void test_model(void);
void test_region_file(void);
void test_region_stream(void);
void test_region_parts(void);
void test_region_structured(void);
void test_region_errors(void);

#endif
