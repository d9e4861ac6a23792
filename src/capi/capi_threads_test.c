/* The C API from C, with threads: cohorts of several ranks, and waits that another thread ends. */
#include <pthread.h>

#include "capi/capi_test_pair.h"

/* --------------------------------------------------------------------------------------------- cohorts of threads */

static pthread_barrier_t barrier;
static pthread_t rank_threads[ranks];
static int rank_numbers[ranks];
static const void* sent[ranks];
static void* shared_data;
static int released;
static pthread_mutex_t released_lock = PTHREAD_MUTEX_INITIALIZER;

static int broadcast(void* user, void* data, size_t size, int root) {
  const int rank = *(int*)user;
  if (rank == root) shared_data = data;
  pthread_barrier_wait(&barrier);
  if (rank != root) memcpy(data, shared_data, size);
  pthread_barrier_wait(&barrier);
  return 0;
}

static int gather(void* user, const void* data, size_t size, void* all, int root) {
  const int rank = *(int*)user;
  sent[rank] = data;
  pthread_barrier_wait(&barrier);
  for (int r = 0; rank == root && r < ranks; ++r) memcpy((char*)all + r * size, sent[r], size);
  pthread_barrier_wait(&barrier);
  return 0;
}

static void release(void* user) {
  (void)user;
  pthread_mutex_lock(&released_lock);
  ++released;
  pthread_mutex_unlock(&released_lock);
}

penstock_cohort cohort_of_threads(int* rank) {
  const penstock_cohort cohort = {*rank, ranks, rank, broadcast, gather, release, 0};
  return cohort;
}

void start_ranks(void* (*body)(void*)) {
  released = 0;
  pthread_barrier_init(&barrier, NULL, ranks);
  for (int r = 0; r < ranks; ++r) {
    rank_numbers[r] = r;
    CHECK(pthread_create(&rank_threads[r], NULL, body, &rank_numbers[r]) == 0);
  }
}

void join_ranks(void) {
  for (int r = 0; r < ranks; ++r) pthread_join(rank_threads[r], NULL);
  CHECK(released == ranks);
  pthread_barrier_destroy(&barrier);
}

static void* write_rank(void* argument) {
  int rank = *(int*)argument;
  const penstock_cohort cohort = cohort_of_threads(argument);
  penstock_context* context = new_context();
  penstock_writer* writer = NULL;
  const uint64_t shape[] = {ranks}, start[] = {(uint64_t)rank}, one[] = {1};
  uint32_t variable = 0;
  OK(penstock_context_create_stream(context, "wide", &cohort, NULL, &writer, &error));
  CHECK((penstock_writer_address(writer)[0] != '\0') == (rank == 0));
  OK(penstock_writer_define(writer, "rank", PENSTOCK_INT32, 1, shape, NULL, &variable, &error));
  for (int32_t step = 0; step < 5; ++step) {
    const int32_t value = 10 * step + rank;
    OK(penstock_writer_begin_step(writer, deadline_ms, &error));
    OK(penstock_writer_put(writer, variable, 1, start, one, &value, &error));
    if (step == 3 && rank == 1) OK(penstock_writer_abandon_step(writer, &error)); /* void on every rank */
    else (void)penstock_writer_end_step(writer, NULL);
  }
  OK(penstock_writer_close(writer, deadline_ms, &error));
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
  return NULL;
}

static int fails(void* user, void* data, size_t size, int root) {
  (void)user, (void)data, (void)size, (void)root;
  return 13;
}

void test_cohort(void) {
  int seen = 0;
  penstock_context* context = new_context();
  penstock_reader* reader = NULL;
  penstock_outcome outcome = PENSTOCK_READY;
  penstock_error error;
  penstock_writer* writer = NULL;

  penstock_cohort bad = {0, 2, NULL, fails, NULL, release, 0};
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_stream(context, "bad", &bad, NULL, &writer, &error));
  CHECK(released == 1); /* also when opening fails */
  bad.gather = gather;
  bad.rank = 2;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_stream(context, "bad", &bad, NULL, &writer, &error));

  start_ranks(write_rank);
  OK(penstock_context_open_stream(context, "wide", NULL, NULL, &reader, &error));
  for (;;) {
    int32_t out[ranks];
    uint64_t number = 0;
    penstock_variable variable;
    OK(penstock_reader_begin_step(reader, deadline_ms, &outcome, &error));
    if (outcome != PENSTOCK_READY) break;
    OK(penstock_reader_step_number(reader, &number, &error));
    OK(penstock_reader_variable(reader, "rank", &variable, &error));
    CHECK(variable.blocks == ranks);
    OK(penstock_reader_get(reader, variable.id, NULL, out, PENSTOCK_ROW, NULL, &error));
    OK(penstock_reader_end_step(reader, &error)); /* which performs the get */
    for (int r = 0; r < ranks; ++r) CHECK(out[r] == 10 * (int)number + r);
    CHECK(number != 3);
    ++seen;
  }
  (void)error;
  CHECK(outcome == PENSTOCK_END_OF_STREAM && seen == 4);
  penstock_reader_destroy(reader);
  join_ranks();
  penstock_context_destroy(context);
}

/* -------------------------------------------------------------------------------------------------------- outcomes */

static void* read_until_end(void* argument) {
  pair* p = argument;
  penstock_outcome outcome = PENSTOCK_READY;
  while (outcome == PENSTOCK_READY) {
    OK(penstock_reader_begin_step(p->reader, deadline_ms, &outcome, &error));
    if (outcome == PENSTOCK_READY) end_read(p);
  }
  CHECK(outcome == PENSTOCK_END_OF_STREAM);
  return NULL;
}

void test_outcomes(void) {
  pair p = new_pair_with("queue_steps=1");
  penstock_outcome outcome = PENSTOCK_READY;
  pthread_t thread;
  int begun = 0;
  uint32_t variable = define(&p, "x", PENSTOCK_INT32, PENSTOCK_GLOBAL_VALUE, 0, NULL);
  OK(penstock_reader_begin_step(p.reader, 0, &outcome, &error));
  CHECK(outcome == PENSTOCK_NOT_READY);
  OK(penstock_writer_try_begin_step(p.writer, deadline_ms, &begun, &error));
  CHECK(begun);
  OK(penstock_writer_put_whole(p.writer, variable, &begun, &error));
  hand_over(&p); /* the queue is full as long as the reader holds the step */
  OK(penstock_writer_try_begin_step(p.writer, 0, &begun, &error));
  CHECK(!begun);
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_writer_begin_step(p.writer, 20, &error));
  end_read(&p);
  CHECK(pthread_create(&thread, NULL, read_until_end, &p) == 0);
  for (int i = 0; i < 20; ++i) {
    begin_write(&p);
    OK(penstock_writer_end_step(p.writer, &error));
  }
  OK(penstock_writer_close(p.writer, deadline_ms, &error));
  pthread_join(thread, NULL);
  penstock_reader_destroy(p.reader);
  penstock_writer_destroy(p.writer);
  penstock_context_destroy(p.context);
}
