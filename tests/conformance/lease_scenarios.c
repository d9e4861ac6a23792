/* Leases that outlive a step, a reader or a stream, scenario by scenario, in C. */
#include "scenarios_c.h"

static penstock_writer* writer;
static penstock_reader* reader;

typedef struct kept_view {
  penstock_view* views;
  size_t count;
} kept_view;

/* Reads the next step, which is this one, and keeps its view. */
static kept_view keep(penstock_reader* from, uint64_t step) {
  kept_view kept = {NULL, 0};
  CHECK(begin_read(from) == step);
  OK(penstock_reader_view(from, find(from, "v").id, NULL, &kept.views, &kept.count, &error));
  CHECK(kept.count == 1 && is_numbered(kept.views[0].data, 8, step));
  end_read(from);
  return kept;
}

static void let_go(kept_view kept) { penstock_views_release(kept.views, kept.count); }

static void closed_reader_keeps_a_view(void) {
  penstock_context* context = new_context(NULL);
  writer = create(context, "s", "queue_steps=4");
  const uint32_t v = define_eight(writer);
  reader = join(context, "s", NULL);
  write_eight(writer, v, 0);
  const kept_view kept = keep(reader, 0);
  leave(reader);
  for (uint64_t t = 1; t < 20; ++t) write_eight(writer, v, t);
  CHECK(is_numbered(kept.views[0].data, 8, 0));
  finish(writer);
  CHECK(is_numbered(kept.views[0].data, 8, 0));
  let_go(kept);
  penstock_context_destroy(context);
}

static void end_writer(penstock_context* context) {
  (void)context;
  finish(writer);
}

static void read_to_the_end(penstock_context* context) {
  kept_view kept[3];
  (void)context;
  for (uint64_t t = 0; t < 3; ++t) kept[t] = keep(reader, t);
  CHECK(outcome_within(reader, wait_ms / 2) == PENSTOCK_END_OF_STREAM);
  for (uint64_t t = 0; t < 3; ++t) {
    CHECK(is_numbered(kept[t].views[0].data, 8, t));
    let_go(kept[t]);
  }
}

static void end_comes_while_views_are_kept(void) {
  penstock_context* context = new_context(NULL);
  writer = create(context, "s", "queue_steps=4");
  const uint32_t v = define_eight(writer);
  reader = join(context, "s", NULL);
  for (uint64_t t = 0; t < 3; ++t) write_eight(writer, v, t);
  together(end_writer, read_to_the_end, context, context);
  leave(reader);
  penstock_context_destroy(context);
}

static void writer_closes_while_a_view_is_kept(void) {
  penstock_context* context = new_context(NULL);
  writer = create(context, "s", NULL);
  const uint32_t v = define_eight(writer);
  reader = join(context, "s", NULL);
  write_eight(writer, v, 0);
  const kept_view kept = keep(reader, 0);
  finish(writer);
  CHECK(is_numbered(kept.views[0].data, 8, 0));
  CHECK(outcome_within(reader, wait_ms / 2) == PENSTOCK_END_OF_STREAM);
  let_go(kept);
  leave(reader);
  penstock_context_destroy(context);
}

static void write_six(penstock_writer* to, int rank) {
  const uint32_t v = define(to, "v", PENSTOCK_FLOAT64, 1, DIMS(2));
  for (uint64_t t = 0; t < 6; ++t) {
    const double value = (double)t;
    begin_write(to);
    put(to, v, 1, DIMS((uint64_t)rank), DIMS(1), &value);
    end_write(to);
  }
}

static void keep_the_last(penstock_reader* from, int rank) {
  kept_view kept = {NULL, 0};
  (void)rank;
  for (uint64_t t = 0; t < 6; ++t) {
    kept_view next = {NULL, 0};
    CHECK(begin_read(from) == t);
    OK(penstock_reader_view(from, find(from, "v").id, NULL, &next.views, &next.count, &error));
    end_read(from);
    let_go(kept);
    kept = next;
  }
  CHECK(outcome_within(from, wait_ms / 2) == PENSTOCK_END_OF_STREAM);
  for (size_t i = 0; i < kept.count; ++i) CHECK(*(const double*)kept.views[i].data == 5);
  let_go(kept);
}

static void ranks_keep_views_to_the_end(void) { cohorts(2, 3, write_six, keep_the_last); }

enum { many_steps = 40 };
static uint64_t read_late;

static void read_what_is_left(penstock_context* context) {
  (void)context;
  for (penstock_outcome outcome; (outcome = outcome_within(reader, wait_ms)) != PENSTOCK_END_OF_STREAM; ++read_late) {
    uint64_t number = 0;
    CHECK(outcome == PENSTOCK_READY);
    OK(penstock_reader_step_number(reader, &number, &error));
    expect_eight(reader, number);
    end_read(reader);
  }
}

static void stopped_reader_starves_nobody(void) {
  penstock_context* context = new_context(NULL);
  writer = create(context, "s", "queue_steps=4,rendezvous_readers=2,when_full=discard_newest");
  const uint32_t v = define_eight(writer);
  reader = join(context, "s", NULL); /* stopped */
  penstock_reader* other = join(context, "s", NULL);
  for (uint64_t t = 0; t < many_steps; ++t) {
    write_eight(writer, v, t);
    read_eight(other, t);
  }
  CHECK(read_so_far(other).steps_dropped == 0);
  leave(other);
  together(end_writer, read_what_is_left, context, context);
  CHECK(read_late >= 2 && read_late + read_so_far(reader).steps_dropped == many_steps);
  leave(reader);
  penstock_context_destroy(context);
}

static void hoard(const char* options) {
  penstock_context* context = new_context(NULL);
  writer = create(context, "s", options);
  const uint32_t v = define_eight(writer);
  penstock_reader* hoarder = join(context, "s", NULL);
  reader = join(context, "s", NULL);
  kept_view hoarded[many_steps] = {{NULL, 0}};
  for (uint64_t t = 0; t < many_steps; ++t) {
    write_eight(writer, v, t);
    /* An announcement takes its time: all steps may be written before it. */
    if (outcome_within(hoarder, t == 0 ? 10000 : 0) == PENSTOCK_READY) {
      OK(penstock_reader_view(hoarder, find(hoarder, "v").id, NULL, &hoarded[t].views, &hoarded[t].count, &error));
      end_read(hoarder);
    }
    read_eight(reader, t);
  }
  CHECK(read_so_far(reader).steps_dropped == 0 && read_so_far(hoarder).steps > 0);
  leave(hoarder);
  leave(reader);
  finish(writer);
  for (uint64_t t = 0; t < many_steps; ++t) let_go(hoarded[t]);
  penstock_context_destroy(context);
}

static void hoarding_reader_starves_nobody(void) {
  hoard("queue_steps=4,rendezvous_readers=2,when_full=discard_newest");
  hoard("queue_steps=4,rendezvous_readers=2,when_full=discard_oldest");
}

const scenario lease_scenarios[] = {
    {"closed_reader_keeps_a_view", closed_reader_keeps_a_view},
    {"end_comes_while_views_are_kept", end_comes_while_views_are_kept},
    {"writer_closes_while_a_view_is_kept", writer_closes_while_a_view_is_kept},
    {"ranks_keep_views_to_the_end", ranks_keep_views_to_the_end},
    {"stopped_reader_starves_nobody", stopped_reader_starves_nobody},
    {"hoarding_reader_starves_nobody", hoarding_reader_starves_nobody},
    {NULL, NULL},
};
