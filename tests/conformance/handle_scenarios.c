/* What holds for writers and readers themselves (C API): options that they take, ends without close, and fork. */
#include <sys/wait.h>

#include "scenarios_c.h"

static void writer_not_closed_is_lost(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", NULL);
  penstock_reader* reader = join(context, "s", NULL);
  write_eight(writer, define_eight(writer), 0);
  read_eight(reader, 0);
  begin_write(writer); /* given up with the stream */
  OK(penstock_writer_lose(writer, &error));
  CHECK(outcome_within(reader, wait_ms) == PENSTOCK_WRITER_LOST);
  FAILS(PENSTOCK_ERR_STREAM_CLOSED, penstock_writer_begin_step(writer, 0, &error));
  OK(penstock_writer_lose(writer, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_writer_lose(NULL, &error));
  leave(reader);
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
}

static void options_without_effect_are_refused(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = NULL;
  penstock_reader* reader = NULL;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_context_create_stream(context, "s", NULL, "delivery=latest", &writer, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_context_open_stream(context, "s", NULL, "queue_steps=2", &reader, &error));
  if (engine_is("direct")) { /* there configuration has chosen the engine, and what code asks for is a warning */
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
          penstock_context_open_stream(context, "s", NULL, "direct,start=5", &reader, &error));
    FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
          penstock_context_create_stream(context, "s", NULL, "acknowledge=durable", &writer, &error));
  }
  writer = create(context, "s", engine_is("direct") ? NULL : "keep_first_step=true");
  reader = join(context, "s", NULL);
  write_eight(writer, define_eight(writer), 0);
  read_eight(reader, 0);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

/* Nothing that the child does may end, release or say anything for the parent. */
static void use_in_child(penstock_context* context, penstock_writer* writer, penstock_reader* reader,
                         penstock_view* views, size_t count) {
  penstock_statistics statistics;
  penstock_outcome outcome;
  uint64_t number;
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_statistics(writer, &statistics, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_statistics(reader, &statistics, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_begin_step(writer, 0, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_step_number(reader, &number, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_end_step(reader, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_reader_begin_step(reader, 0, &outcome, &error));
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_writer_close(writer, 0, &error));
  penstock_views_release(views, count);
  penstock_reader_destroy(reader);
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
  _exit(7);
}

static void nothing_works_after_fork(void) {
  int status = 0;
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", NULL);
  penstock_reader* reader = join(context, "s", NULL);
  const uint32_t v = define_eight(writer);
  write_eight(writer, v, 0);
  CHECK(begin_read(reader) == 0);
  penstock_view* views = NULL;
  size_t count = 0;
  OK(penstock_reader_view(reader, find(reader, "v").id, NULL, &views, &count, &error));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    use_in_child(context, writer, reader, views, count);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  expect_eight(reader, 0);
  penstock_views_release(views, count);
  end_read(reader);
  for (uint64_t t = 1; t < 8; ++t) {
    write_eight(writer, v, t);
    read_eight(reader, t);
  }
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

const scenario handle_scenarios[] = {
    {"writer_not_closed_is_lost", writer_not_closed_is_lost},
    {"options_without_effect_are_refused", options_without_effect_are_refused},
    {"nothing_works_after_fork", nothing_works_after_fork},
    {NULL, NULL},
};
