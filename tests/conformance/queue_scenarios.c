/* The writer's queue, scenario by scenario, in C: its bounds, what gives way when it is full, what late joiners find. */
#include "scenarios_c.h"

static penstock_peer_statistics first_peer(penstock_writer* writer) {
  penstock_peer_statistics peer = {.struct_size = sizeof peer};
  size_t peers = 0;
  OK(penstock_writer_peer_statistics(writer, 1, &peer, &peers, &error));
  CHECK(peers == 1);
  return peer;
}

static void queue_bounds_steps_and_names_who_holds_them(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=2");
  const uint32_t v = define_eight(writer);
  penstock_reader* reader = join(context, "s", NULL);
  penstock_error error;
  write_eight(writer, v, 0);
  write_eight(writer, v, 1);
  CHECK(!try_begin(writer, 0));
  CHECK(penstock_writer_begin_step(writer, 1, &error) == PENSTOCK_ERR_TIMEOUT);
  CHECK(strstr(error.message, "to release steps"));
  read_eight(reader, 0);
  CHECK(try_begin(writer, wait_ms));
  OK(penstock_writer_abandon_step(writer, &error));
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
  penstock_reader* reader = join(context, "s", NULL);
  uint8_t* data = calloc(16, mib);
  const uint32_t v = define(writer, "v", PENSTOCK_UINT8, 1, DIMS(16 * mib));
  begin_write(writer);
  FAILS(PENSTOCK_ERR_STEP_TOO_LARGE, penstock_writer_put(writer, v, 1, DIMS(0), DIMS(16 * mib), data, &error));
  FAILS(PENSTOCK_ERR_STEP_VOIDED, penstock_writer_put(writer, v, 1, DIMS(0), DIMS(1), data, &error));
  OK(penstock_writer_abandon_step(writer, &error));
  CHECK(write_three_mib(writer, v, data, wait_ms));
  CHECK(write_three_mib(writer, v, data, wait_ms));
  CHECK(!write_three_mib(writer, v, data, 10)); /* a third does not fit in eight */
  CHECK(written(writer).memory_bytes <= 8 * mib);
  begin_read(reader);
  end_read(reader);
  CHECK(write_three_mib(writer, v, data, wait_ms));
  leave(reader);
  finish(writer);
  free(data);
  penstock_context_destroy(context);
}

static void discard_newest(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=2,when_full=discard_newest");
  const uint32_t v = define_eight(writer);
  penstock_reader* reader = join(context, "s", NULL);
  for (uint64_t t = 0; t < 6; ++t) CHECK(try_write(writer, v) == (t < 2));
  CHECK(written(writer).steps_dropped == 4 && first_peer(writer).steps_dropped == 4);
  read_eight(reader, 0);
  read_eight(reader, 1);
  while (!try_write(writer, v)) { /* until the releases have arrived */
  }
  read_eight(reader, written(writer).steps_dropped + 2);
  CHECK(read_so_far(reader).steps_dropped == written(writer).steps_dropped);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

static void discard_oldest(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=3,when_full=discard_oldest");
  const uint32_t v = define_eight(writer);
  penstock_reader* reader = join(context, "s", NULL);
  write_eight(writer, v, 0);
  CHECK(begin_read(reader) == 0);
  for (uint64_t t = 1; t < 10; ++t) CHECK(try_write(writer, v));
  expect_eight(reader, 0); /* a step being read is never dropped */
  end_read(reader);
  read_eight(reader, 8); /* 1 to 7 gave way */
  read_eight(reader, 9);
  CHECK(written(writer).steps_dropped == 7 && read_so_far(reader).steps_dropped == 7);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

/* Each reader is charged with what it did not get, from when it joined; the writer knows both accounts. */
static void dropped_steps_are_counted_on_both_sides(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=2,when_full=discard_newest,rendezvous_readers=2");
  const uint32_t v = define_eight(writer);
  penstock_reader *one = join(context, "s", NULL), *two = join(context, "s", NULL);
  penstock_peer_statistics peers[2] = {{.struct_size = sizeof peers[0]}, {0}};
  size_t count = 0;
  for (uint64_t t = 0; t < 5; ++t) CHECK(try_write(writer, v) == (t < 2));
  for (uint64_t t = 0; t < 2; ++t) {
    read_eight(one, t);
    read_eight(two, t);
  }
  CHECK(written(writer).steps == 2 && written(writer).steps_dropped == 3);
  OK(penstock_writer_peer_statistics(writer, 2, peers, &count, &error));
  CHECK(count == 2 && peers[0].steps_dropped == 3 && peers[1].steps_dropped == 3);
  finish(writer);
  CHECK(outcome_within(one, wait_ms) == PENSTOCK_END_OF_STREAM);
  CHECK(outcome_within(two, wait_ms) == PENSTOCK_END_OF_STREAM);
  CHECK(read_so_far(one).steps == 2 && read_so_far(one).steps_dropped == 3);
  CHECK(read_so_far(two).steps == 2 && read_so_far(two).steps_dropped == 3);
  penstock_reader_destroy(one);
  penstock_reader_destroy(two);
  penstock_context_destroy(context);
}

/* In a pool, which keeps every step, the options that bound what is kept have no effect. */
static void first_step_kept_and_reserve(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer =
      create(context, "s", "rendezvous_readers=0,keep_first_step=true,reserve_steps=1,queue_steps=1");
  const uint32_t v = define_eight(writer);
  for (uint64_t t = 0; t < 7; ++t) write_eight(writer, v, t);
  for (int repeat = 0; repeat < 2; ++repeat) {
    penstock_reader* reader = join(context, "s", NULL);
    read_eight(reader, 0);
    for (uint64_t t = 1; engine_is("pool") && t < 6; ++t) read_eight(reader, t);
    read_eight(reader, 6);
    leave(reader);
  }
  finish(writer);
  penstock_context_destroy(context);
}

/* Until a pool has so many steps: it takes them a moment after their end. Elsewhere they are there at once. */
static void await_steps(penstock_writer* writer, uint64_t count) {
  if (!engine_is("pool")) return;
  while (first_peer(writer).steps_released < count) sched_yield();
}

static void delivery_latest(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* writer = create(context, "s", "queue_steps=2");
  const uint32_t v = define_eight(writer);
  penstock_reader* reader = join(context, "s", "delivery=latest");
  for (uint64_t t = 0; t < 5; ++t) write_eight(writer, v, t);
  await_steps(writer, 5);
  CHECK(begin_read(reader) == 4);
  for (uint64_t t = 5; t < 9; ++t) write_eight(writer, v, t); /* while the reader holds one */
  await_steps(writer, 9);
  expect_eight(reader, 4);
  end_read(reader);
  read_eight(reader, 8);
  CHECK(outcome_within(reader, 1) == PENSTOCK_NOT_READY);
  write_eight(writer, v, 9);
  read_eight(reader, 9);
  leave(reader);
  finish(writer);
  penstock_context_destroy(context);
}

const scenario queue_scenarios[] = {
    {"queue_bounds_steps_and_names_who_holds_them", queue_bounds_steps_and_names_who_holds_them},
    {"queue_bounds_bytes", queue_bounds_bytes},
    {"discard_newest", discard_newest},
    {"discard_oldest", discard_oldest},
    {"dropped_steps_are_counted_on_both_sides", dropped_steps_are_counted_on_both_sides},
    {"first_step_kept_and_reserve", first_step_kept_and_reserve},
    {"delivery_latest", delivery_latest},
    {NULL, NULL},
};
