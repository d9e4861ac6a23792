/* Streams, scenario by scenario, in C: who comes when, deadlines, ends. The queue's scenarios are in queue_scenarios.c. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "scenarios_c.h"

static void write_five(penstock_context* context) {
  penstock_writer* writer = create(context, "s", NULL);
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 5; ++t) write_eight(writer, v, t);
  finish(writer);
}

static void read_five(penstock_context* context) {
  penstock_reader* reader = join(context, "s", NULL);
  for (uint64_t t = 0; t < 5; ++t) read_eight(reader, t);
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_END_OF_STREAM);
  penstock_reader_destroy(reader);
}

/* The reader fails to find the stream, and waits again, before the writer is there. */
static void reader_starts_first(void) {
  penstock_context* context = new_context(NULL);
  penstock_reader* reader = NULL;
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_context_open_stream(context, "s", NULL, "open_timeout_ms=30", &reader, &error));
  together(read_five, write_five, context, context);
  penstock_context_destroy(context);
}

/* ----------------------------------------------------------------------------------------------- several, late, early */

static void* read_twenty(void* context) {
  penstock_reader* reader = join(context, "s", NULL);
  for (uint64_t t = 0; t < 20; ++t) read_eight(reader, t);
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_END_OF_STREAM);
  penstock_reader_destroy(reader);
  return NULL;
}

static void several_reader_cohorts(void) {
  penstock_context* context = new_context(NULL);
  pthread_t threads[3];
  penstock_writer* writer = create(context, "s", "rendezvous_readers=3");
  for (int i = 0; i < 3; ++i) CHECK(pthread_create(&threads[i], NULL, read_twenty, context) == 0);
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 20; ++t) write_eight(writer, v, t);
  OK(penstock_writer_close(writer, wait_ms, &error));
  CHECK(written(writer).steps == 20);
  penstock_writer_destroy(writer);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  penstock_context_destroy(context);
}

static void late_joiner_is_admitted_at_once(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "rendezvous_readers=0,reserve_steps=2");
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 5; ++t) write_eight(writer, v, t);
  /* From here on the writer does nothing. */
  penstock_reader* reader = join(context, "s", NULL);
  /* The oldest of the reserve; a pool keeps every step. */
  for (uint64_t t = engine_is("pool") ? 0 : 3; t < 5; ++t) read_eight(reader, t);
  CHECK(outcome_within(reader, 0) == PENSTOCK_NOT_READY);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

static void write_twenty_in_a_short_queue(penstock_context* context) {
  penstock_writer* writer = create(context, "s", "queue_steps=1");
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 20; ++t) write_eight(writer, v, t);
  finish(writer);
}

static void read_three(penstock_context* context) {
  penstock_reader* reader = join(context, "s", NULL);
  for (uint64_t t = 0; t < 3; ++t) read_eight(reader, t);
  penstock_reader_destroy(reader);
}

static void early_leave(void) {
  penstock_context* context = new_context(NULL);
  together(write_twenty_in_a_short_queue, read_three, context, context);
  penstock_context_destroy(context);
}

static void rendezvous(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* nobody = create(context, "nobody", "rendezvous_readers=0");
  const uint32_t v = define_eight(nobody);
  for (uint64_t t = 0; t < 10; ++t) write_eight(nobody, v, t);
  finish(nobody);

  int begun = 1;
  penstock_writer* writer = create(context, "s", "rendezvous_readers=2");
  OK(penstock_writer_try_begin_step(writer, 0, &begun, &error));
  CHECK(!begun);
  penstock_reader* one = join(context, "s", NULL);
  OK(penstock_writer_try_begin_step(writer, 10, &begun, &error));
  CHECK(!begun);
  penstock_error error;
  CHECK(penstock_writer_begin_step(writer, 1, &error) == PENSTOCK_ERR_TIMEOUT);
  CHECK(strstr(error.message, "1 reader to join"));
  penstock_reader* two = join(context, "s", NULL);
  OK(penstock_writer_try_begin_step(writer, wait_ms, &begun, &error));
  CHECK(begun);
  end_write(writer);
  leave(one);
  leave(two);
  finish(writer);
  penstock_context_destroy(context);
}

/* ------------------------------------------------------------------------------------- deadlines and registration */

static void deadlines(void) {
  penstock_context* context = new_context(NULL);
  penstock_reader* reader = NULL;
  FAILS(PENSTOCK_ERR_TIMEOUT,
        penstock_context_open_stream(context, "absent", NULL, "open_timeout_ms=30", &reader, &error));
  penstock_writer* writer = create(context, "s", "queue_steps=1");
  const uint32_t v = define_eight(writer);
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_writer_begin_step(writer, 1, &error)); /* no reader */
  reader = join(context, "s", NULL);
  CHECK(outcome_within(reader, 0) == PENSTOCK_NOT_READY);
  CHECK(outcome_within(reader, 1) == PENSTOCK_NOT_READY);
  write_eight(writer, v, 0);
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_writer_begin_step(writer, 1, &error)); /* no room */
  begin_read(reader);
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_writer_close(writer, 1, &error)); /* the reader holds the step */
  expect_eight(reader, 0);
  end_read(reader);
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_END_OF_STREAM);
  penstock_writer_destroy(writer);
  penstock_reader_destroy(reader);
  penstock_context_destroy(context);
}

static bool alive(penstock_context* context, const char* name) {
  penstock_stream_entry* entries = NULL;
  size_t count = 0;
  OK(penstock_context_list_streams(context, &entries, &count, &error));
  CHECK(count == 1 && strcmp(entries[0].name, name) == 0);
  const bool is_alive = entries[0].alive;
  penstock_stream_entries_free(entries);
  return is_alive;
}

static void registration(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer *writer = create(context, "s", "rendezvous_readers=0"), *other = NULL;
  penstock_reader* reader = NULL;
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_context_create_stream(context, "s", NULL, NULL, &other, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_stream(context, "../s", NULL, NULL, &other, &error));
  char file[128], text[8192];
  struct stat status;
  snprintf(file, sizeof file, "%s/s.json", directory);
  CHECK(stat(file, &status) == 0 && (status.st_mode & 0777) == 0600);
  CHECK(alive(context, "s"));
  FILE* stream = fopen(file, "r");
  const size_t size = fread(text, 1, sizeof text, stream);
  fclose(stream);
  CHECK(size > 0 && size < sizeof text);
  finish(writer);
  CHECK(stat(file, &status) != 0);
  /* What a crash leaves behind is noticed, and gives way to a new writer. */
  stream = fopen(file, "w");
  CHECK(fwrite(text, 1, size, stream) == size && fclose(stream) == 0 && chmod(file, 0600) == 0);
  CHECK(!alive(context, "s"));
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_context_open_stream(context, "s", NULL, "open_timeout_ms=50", &reader, &error));
  finish(create(context, "s", "rendezvous_readers=0"));
  penstock_context_destroy(context);
}

static void address_and_wrong_token(void) {
  char elsewhere_options[128], elsewhere_directory[96], wrong[512];
  penstock_context *context = new_context(NULL), *elsewhere = NULL;
  penstock_writer* writer = create(context, "s", NULL);
  penstock_reader* reader = NULL;
  const uint32_t v = define_eight(writer);
  snprintf(elsewhere_directory, sizeof elsewhere_directory, "%s/elsewhere", directory);
  snprintf(elsewhere_options, sizeof elsewhere_options, "listen=127.0.0.1,directory=%s", elsewhere_directory);
  OK(penstock_context_create(elsewhere_options, &elsewhere, &error));
  snprintf(wrong, sizeof wrong, "%s", penstock_writer_address(writer));
  char* last = wrong + strlen(wrong) - 1;
  *last = *last == '0' ? '1' : '0';
  FAILS(PENSTOCK_ERR_AUTHENTICATION, penstock_context_open_stream(elsewhere, wrong, NULL, NULL, &reader, &error));
  reader = join(elsewhere, penstock_writer_address(writer), "data_plane=automatic");
  write_eight(writer, v, 0);
  read_eight(reader, 0);
  leave(reader);
  finish(writer);
  penstock_context_destroy(elsewhere);
  penstock_context_destroy(context);
  rmdir(elsewhere_directory);
}

/* ----------------------------------------------------------------------------------------------------------- ends */

/* Writes two steps and dies without a word when its input closes. */
static void die_when_told(int told) {
  char byte;
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", NULL);
  const uint32_t v = define_eight(writer);
  write_eight(writer, v, 0);
  write_eight(writer, v, 1);
  _exit(read(told, &byte, 1) == 0 ? 7 : 1);
}

static void writer_lost_is_not_the_end(void) {
  int pipe_ends[2], status = 0;
  CHECK(pipe(pipe_ends) == 0);
  const pid_t child = fork(); /* before anything of the library exists */
  if (child == 0) {
    close(pipe_ends[1]);
    alarm(60);
    die_when_told(pipe_ends[0]);
  }
  close(pipe_ends[0]);
  penstock_context* context = new_context(NULL);
  penstock_reader* reader = join(context, "s", NULL);
  read_eight(reader, 0);
  CHECK(begin_read(reader) == 1);
  const int mapped = strcmp(plane, "shm") == 0;
  if (mapped) expect_eight(reader, 1); /* that it is announced does not say that its memory has come */
  close(pipe_ends[1]);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  if (mapped) expect_eight(reader, 1); /* still there */
  end_read(reader);
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_WRITER_LOST);
  penstock_outcome outcome = PENSTOCK_READY;
  penstock_error error;
  CHECK(penstock_reader_begin_step(reader, 0, &outcome, &error) == PENSTOCK_OK && outcome == PENSTOCK_WRITER_LOST);
  CHECK(error.message[0] != '\0'); /* what is lost */
  penstock_reader_destroy(reader);
  penstock_context_destroy(context);
  char file[128];
  snprintf(file, sizeof file, "%s/s.json", directory);
  if (!engine_is("pool") && !engine_is("file") && !engine_is("space"))
    CHECK(unlink(file) == 0); /* nobody was there to do it */
}

static void write_atomic(penstock_writer* writer, int rank) {
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(3));
  for (uint64_t t = 0; t < 12; ++t) {
    const double value = (double)t;
    begin_write(writer);
    put(writer, v, 1, DIMS((uint64_t)rank), DIMS(1), &value);
    if (t % 4 == 1 && rank == 2) OK(penstock_writer_abandon_step(writer, &error));
    else end_write(writer);
  }
}

static void read_atomic(penstock_reader* reader, int rank) {
  double out[3];
  (void)rank;
  for (uint64_t t = 0; t < 12; ++t) {
    if (t % 4 == 1) continue; /* one rank gave it up */
    CHECK(begin_read(reader) == t);
    get(reader, "v", NULL, out);
    for (int i = 0; i < 3; ++i) CHECK(out[i] == (double)t);
    end_read(reader);
  }
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_END_OF_STREAM);
}

static void step_is_atomic_over_ranks(void) { cohorts(3, 2, write_atomic, read_atomic); }

/* -------------------------------------------------------------------------------- statistics, progress and misuse */

static void statistics(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", NULL);
  penstock_reader* reader = join(context, "s", NULL);
  penstock_peer_statistics peer = {.struct_size = sizeof peer};
  size_t peers = 0;
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 50; ++t) {
    write_eight(writer, v, t);
    read_eight(reader, t);
  }
  const penstock_statistics w = written(writer), r = read_so_far(reader);
  CHECK(w.steps == 50 && w.bytes == 50 * 64 && w.copies == (engine_is("file") ? 0 : 50) && w.peers == 1 &&
        w.epochs <= 3);
  OK(penstock_writer_peer_statistics(writer, 1, &peer, &peers, &error));
  CHECK(peers == 1 && peer.steps_delivered == 50 && peer.ranks == 1);
  CHECK(r.steps == 50 && r.bytes == 50 * 64 &&
        strcmp(r.data_plane, engine_is("insitu") ? "insitu"
                             : engine_is("file") ? "file"
                                                 : plane) == 0);
  CHECK(r.plans_reused > r.plans_built);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

static void inspection_joins_nothing(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "rendezvous_readers=0");
  const uint32_t v = define_eight(writer);
  char* text = NULL;
  for (uint64_t t = 0; t < 3; ++t) write_eight(writer, v, t);
  OK(penstock_context_inspect(context, "s", wait_ms, &text, &error));
  CHECK(strstr(text, "\"steps\": 3"));
  penstock_text_free(text);
  CHECK(written(writer).peers == 0);
  penstock_reader* reader = join(context, "s", NULL);
  OK(penstock_context_inspect(context, "s", wait_ms, &text, &error));
  CHECK(strstr(text, "\"ranks\": 1"));
  penstock_text_free(text);
  leave(reader);
  finish(writer);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_context_inspect(context, "s", wait_ms, &text, &error));
  penstock_context_destroy(context);
}

static void explicit_progress(void) {
  penstock_context* writing = new_context("explicit_progress=true");
  penstock_context* reading = new_context("explicit_progress=true");
  int ran = -1;
  OK(penstock_context_progress(writing, &ran, &error));
  CHECK(ran == 0 || ran == 1);
  together(write_five, read_five, writing, reading);
  penstock_context_destroy(reading);
  penstock_context_destroy(writing);
}

static void misuse_of_a_writer(penstock_writer* writer, uint32_t v) {
  const double eight[8] = {0};
  uint32_t other = 0;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_writer_define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(8), NULL, &other, &error));
  FAILS(PENSTOCK_ERR_UNSUPPORTED,
        penstock_writer_define(writer, "names", PENSTOCK_STRING, 1, DIMS(8), NULL, &other, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_put_whole(writer, v, eight, &error));
  begin_write(writer);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_begin_step(writer, 0, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_put(writer, v, 1, DIMS(4), DIMS(5), eight, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_put(writer, v, 2, DIMS(0, 0), DIMS(1, 1), eight, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_put(writer, v, 9, NULL, NULL, eight, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_writer_put(writer, 99, 1, DIMS(0), DIMS(1), eight, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_put(writer, v, 1, DIMS(0), DIMS(8), NULL, &error));
  OK(penstock_writer_abandon_step(writer, &error));
  write_eight(writer, v, 1);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_end_step(writer, &error));
}

static void misuse_is_an_error_and_harms_nothing(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer *writer = create(context, "s", NULL), *other = NULL;
  penstock_reader* reader = join(context, "s", NULL);
  penstock_outcome outcome = PENSTOCK_READY;
  penstock_variable found;
  misuse_of_a_writer(writer, define_eight(writer));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_variable(reader, "v", &found, &error));
  CHECK(begin_read(reader) == 1);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_begin_step(reader, 0, &outcome, &error));
  expect_eight(reader, 1);
  end_read(reader);
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_end_step(reader, &error));
  OK(penstock_reader_close(reader, &error));
  FAILS(PENSTOCK_ERR_STREAM_CLOSED, penstock_reader_begin_step(reader, 0, &outcome, &error));
  OK(penstock_writer_close(writer, wait_ms, &error));
  FAILS(PENSTOCK_ERR_STREAM_CLOSED, penstock_writer_begin_step(writer, 0, &error));
  if (engine_is("direct")) /* where configuration says which engine */
    FAILS(PENSTOCK_ERR_UNSUPPORTED, penstock_context_create_stream(context, "x", NULL, "dirct", &other, &error));
  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION,
        penstock_context_create_stream(context, "x", NULL, "queue_step=2", &other, &error));
  penstock_reader_destroy(reader);
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
}

const scenario stream_scenarios[] = {
    {"reader_starts_first", reader_starts_first},
    {"several_reader_cohorts", several_reader_cohorts},
    {"late_joiner_is_admitted_at_once", late_joiner_is_admitted_at_once},
    {"early_leave", early_leave},
    {"rendezvous", rendezvous},
    {"deadlines", deadlines},
    {"registration", registration},
    {"address_and_wrong_token", address_and_wrong_token},
    {"writer_lost_is_not_the_end", writer_lost_is_not_the_end},
    {"step_is_atomic_over_ranks", step_is_atomic_over_ranks},
    {"statistics", statistics},
    {"inspection_joins_nothing", inspection_joins_nothing},
    {"explicit_progress", explicit_progress},
    {"misuse_is_an_error_and_harms_nothing", misuse_is_an_error_and_harms_nothing},
    {NULL, NULL},
};
