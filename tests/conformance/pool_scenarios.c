/* Scenarios whose contract differs in a pool, in C: the writer's queue is towards the pool, which readers do not hold. A
   stopped server is a pool that takes nothing. */
#include <signal.h>
#include <sys/stat.h>

#include "scenarios_c.h"

static pid_t server(void) { return (pid_t)atoi(getenv("PENSTOCK_SCENARIOS_SERVER")); }

static char state_of(pid_t pid) {
  char path[64], text[512] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE* file = fopen(path, "r");
  CHECK(file && fgets(text, sizeof text, file));
  fclose(file);
  return strrchr(text, ')')[2];
}

/* The server does not answer until it is resumed. */
static void stop_server(void) {
  CHECK(kill(server(), SIGSTOP) == 0);
  while (state_of(server()) != 'T') sched_yield();
}
static void resume_server(void) { CHECK(kill(server(), SIGCONT) == 0); }

static void rendezvous(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "rendezvous_readers=2"); /* without effect */
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 10; ++t) write_eight(writer, v, t);
  finish(writer);
  penstock_reader* reader = join(context, "s", NULL); /* after the writer */
  for (uint64_t t = 0; t < 10; ++t) read_eight(reader, t);
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_END_OF_STREAM);
  leave(reader);
  penstock_context_destroy(context);
}

static void queue_bounds_steps_and_names_who_holds_them(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=2");
  const uint32_t v = define_eight(writer);
  penstock_error error;
  stop_server();
  write_eight(writer, v, 0);
  write_eight(writer, v, 1);
  CHECK(!try_begin(writer, 0));
  CHECK(penstock_writer_begin_step(writer, 1, &error) == PENSTOCK_ERR_TIMEOUT);
  CHECK(strstr(error.message, "pool scenarios"));
  resume_server();
  CHECK(try_begin(writer, wait_ms));
  OK(penstock_writer_abandon_step(writer, &error));
  penstock_reader* reader = join(context, "s", NULL);
  read_eight(reader, 0);
  read_eight(reader, 1);
  leave(reader);
  OK(penstock_writer_close(writer, wait_ms, &error));
  CHECK(written(writer).steps_voided == 1);
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
}

static void queue_bounds_bytes(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_bytes=8MiB,queue_steps=4");
  uint8_t* data = calloc(16, mib);
  const uint32_t v = define(writer, "v", PENSTOCK_UINT8, 1, DIMS(16 * mib));
  begin_write(writer);
  FAILS(PENSTOCK_ERR_STEP_TOO_LARGE, penstock_writer_put(writer, v, 1, DIMS(0), DIMS(16 * mib), data, &error));
  OK(penstock_writer_abandon_step(writer, &error));
  stop_server();
  CHECK(write_three_mib(writer, v, data, wait_ms));
  CHECK(write_three_mib(writer, v, data, wait_ms));
  CHECK(!write_three_mib(writer, v, data, 10)); /* a third does not fit in eight */
  CHECK(written(writer).memory_bytes <= 8 * mib);
  resume_server();
  CHECK(write_three_mib(writer, v, data, wait_ms));
  finish(writer);
  free(data);
  penstock_context_destroy(context);
}

static void discard_newest(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=2,when_full=discard_newest");
  const uint32_t v = define_eight(writer);
  stop_server();
  for (uint64_t t = 0; t < 6; ++t) CHECK(try_write(writer, v) == (t < 2));
  CHECK(written(writer).steps_dropped == 4);
  resume_server();
  penstock_reader* reader = join(context, "s", NULL);
  read_eight(reader, 0);
  read_eight(reader, 1);
  while (!try_write(writer, v)) { /* until the pool has released them */
  }
  read_eight(reader, written(writer).steps_dropped + 2);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

static void discard_oldest(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=3,when_full=discard_oldest");
  const uint32_t v = define_eight(writer);
  stop_server();
  for (uint64_t t = 0; t < 10; ++t) CHECK(try_write(writer, v));
  CHECK(written(writer).steps_dropped == 7);
  resume_server();
  penstock_reader* reader = join(context, "s", NULL);
  read_eight(reader, 0); /* it was announced to the pool, which may read it */
  read_eight(reader, 8);
  read_eight(reader, 9);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

static void deadlines(void) {
  penstock_context* context = new_context(NULL);
  penstock_reader* reader = NULL;
  penstock_writer* other = NULL;
  FAILS(PENSTOCK_ERR_TIMEOUT,
        penstock_context_open_stream(context, "absent", NULL, "open_timeout_ms=30", &reader, &error));
  penstock_writer* writer = create(context, "s", "queue_steps=1");
  const uint32_t v = define_eight(writer);
  reader = join(context, "s", NULL);
  CHECK(outcome_within(reader, 0) == PENSTOCK_NOT_READY);
  CHECK(outcome_within(reader, 1) == PENSTOCK_NOT_READY);
  stop_server();
  write_eight(writer, v, 0);                                                  /* nobody is waited for */
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_writer_begin_step(writer, 1, &error)); /* no room */
  CHECK(outcome_within(reader, 1) == PENSTOCK_NOT_READY);
  FAILS(PENSTOCK_ERR_TIMEOUT,
        penstock_context_create_stream(context, "other", NULL, "open_timeout_ms=30", &other, &error));
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_writer_close(writer, 1, &error)); /* the step is not in the pool */
  resume_server();
  penstock_outcome outcome = outcome_within(reader, wait_ms);
  if (outcome == PENSTOCK_READY) { /* the pool had its memory when the writer left */
    expect_eight(reader, 0);
    end_read(reader);
    outcome = outcome_within(reader, wait_ms);
  }
  CHECK(outcome == PENSTOCK_WRITER_LOST);
  penstock_writer_destroy(writer);
  penstock_reader_destroy(reader);
  penstock_context_destroy(context);
}

static bool told(penstock_context* context, const char* what) {
  char* text = NULL;
  OK(penstock_context_inspect(context, "s", wait_ms, &text, &error));
  const bool found = strstr(text, what) != NULL;
  penstock_text_free(text);
  return found;
}

/* The pool's record of a stream is its registration: no file says who writes it. */
static void registration(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer *writer = create(context, "s", NULL), *other = NULL;
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_context_create_stream(context, "s", NULL, NULL, &other, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_context_create_stream(context, "../s", NULL, NULL, &other, &error));
  char file[128];
  struct stat status;
  snprintf(file, sizeof file, "%s/s.json", directory);
  CHECK(stat(file, &status) != 0);
  CHECK(told(context, "\"state\":\"open\""));
  OK(penstock_writer_lose(writer, &error));
  penstock_writer_destroy(writer);
  CHECK(told(context, "\"state\":\"lost\""));
  writer = create(context, "s", NULL);
  CHECK(told(context, "\"state\":\"open\""));
  finish(writer);
  CHECK(told(context, "\"state\":\"ended\""));
  penstock_context_destroy(context);
}

/* The address is that of the pool's directory: with it a stream is opened from anywhere. */
static void address_and_wrong_token(void) {
  char address[512], wrong[512], elsewhere_options[640];
  penstock_context *context = new_context(NULL), *elsewhere = NULL;
  penstock_writer* writer = create(context, "s", NULL);
  penstock_reader* reader = NULL;
  const uint32_t v = define_eight(writer);
  snprintf(address, sizeof address, "%s", getenv("PENSTOCK_DIRECTORY_SERVICE"));
  snprintf(wrong, sizeof wrong, "%s", address);
  char* last = wrong + strlen(wrong) - 1;
  *last = *last == '0' ? '1' : '0';
  setenv("PENSTOCK_DIRECTORY_SERVICE", wrong, 1);
  snprintf(elsewhere_options, sizeof elsewhere_options, "listen=127.0.0.1,directory=%s/elsewhere", directory);
  OK(penstock_context_create(elsewhere_options, &elsewhere, &error));
  FAILS(PENSTOCK_ERR_AUTHENTICATION, penstock_context_open_stream(elsewhere, "s", NULL, NULL, &reader, &error));
  setenv("PENSTOCK_DIRECTORY_SERVICE", address, 1);
  reader = join(elsewhere, "s", NULL);
  write_eight(writer, v, 0);
  read_eight(reader, 0);
  leave(reader);
  finish(writer);
  penstock_context_destroy(elsewhere);
  penstock_context_destroy(context);
}

static void inspection_joins_nothing(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", NULL);
  const uint32_t v = define_eight(writer);
  char* text = NULL;
  for (uint64_t t = 0; t < 3; ++t) write_eight(writer, v, t);
  while (!told(context, "\"steps\":3")) sched_yield(); /* a pool has a step a moment after its end */
  CHECK(told(context, "\"readers\":0"));
  penstock_reader* reader = join(context, "s", NULL);
  read_eight(reader, 0);
  CHECK(told(context, "\"readers\":1"));
  leave(reader);
  finish(writer);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_context_inspect(context, "absent", wait_ms, &text, &error));
  penstock_context_destroy(context);
}

const scenario pool_scenarios[] = {
    {"rendezvous", rendezvous},
    {"queue_bounds_steps_and_names_who_holds_them", queue_bounds_steps_and_names_who_holds_them},
    {"queue_bounds_bytes", queue_bounds_bytes},
    {"discard_newest", discard_newest},
    {"discard_oldest", discard_oldest},
    {"deadlines", deadlines},
    {"registration", registration},
    {"address_and_wrong_token", address_and_wrong_token},
    {"inspection_joins_nothing", inspection_joins_nothing},
    {NULL, NULL},
};
