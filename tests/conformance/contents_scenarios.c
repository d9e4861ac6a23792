/* What a step contains and what it does not, scenario by scenario, in C. Names are those of the scenario table. */
#include <semaphore.h>

#include "scenarios_c.h"

static void expect_text(const penstock_error* error, const char* text) {
  if (!strstr(error->message, text)) FAIL("'%s' is not in '%s'", text, error->message);
}

/* ------------------------------------------------------------------------------------------------ absent variables */

static void write_lacking(penstock_writer* writer, int rank) {
  double values[8];
  (void)rank;
  const uint32_t T = define(writer, "T", PENSTOCK_FLOAT64, 1, DIMS(8));
  const uint32_t U = define(writer, "U", PENSTOCK_FLOAT64, 1, DIMS(8));
  const uint32_t label = define_kind(writer, "label", PENSTOCK_STRING, PENSTOCK_GLOBAL_VALUE);
  define_kind(writer, "never", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_VALUE);
  for (uint64_t t = 0; t < 4; ++t) {
    number(values, 8, t);
    begin_write(writer);
    put(writer, T, 1, DIMS(0), DIMS(8), values);
    if (t != 2) put(writer, U, 1, DIMS(0), DIMS(8), values);
    if (t == 0) OK(penstock_writer_put_string(writer, label, "first", &error));
    end_write(writer);
  }
}

static void expect_absent(penstock_reader* reader, uint32_t id, const char* name, const char* last) {
  penstock_error error;
  penstock_variable variable;
  penstock_block block;
  penstock_view* views;
  const char* const* strings;
  double out[8];
  uint64_t shape[PENSTOCK_MAX_DIMS];
  uint32_t ndims;
  size_t count;
  int present;
  CHECK(penstock_reader_variable(reader, name, &variable, &error) == PENSTOCK_ERR_NOT_FOUND);
  expect_text(&error, name);
  expect_text(&error, last);
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_blocks(reader, id, 0, 1, &block, &count, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_min_max(reader, id, PENSTOCK_ALL_BLOCKS, out, out, &present, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_strings(reader, id, &strings, &count, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_selection_shape(reader, id, NULL, &ndims, shape, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_get(reader, id, NULL, out, PENSTOCK_ROW, NULL, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_view(reader, id, NULL, &views, &count, &error));
}

static void read_lacking(penstock_reader* reader, int rank) {
  uint32_t U = 0, label = 0;
  double out[8];
  size_t count = 0;
  penstock_variable variable;
  (void)rank;
  for (uint64_t t = 0; t < 4; ++t) {
    begin_read(reader);
    get(reader, "T", NULL, out);
    CHECK(is_numbered(out, 8, t));
    OK(penstock_reader_variable_count(reader, &count, &error));
    CHECK(count == (t == 0 ? 3u : t == 2 ? 1u : 2u));
    if (t == 0) {
      penstock_error error;
      U = find(reader, "U").id;
      label = find(reader, "label").id;
      CHECK(penstock_reader_variable(reader, "never", &variable, &error) == PENSTOCK_ERR_NOT_FOUND);
      expect_text(&error, "no step that this reader has seen");
    } else {
      expect_absent(reader, label, "label", "is step 0");
    }
    if (t == 2) {
      expect_absent(reader, U, "U", "is step 1");
    } else {
      get(reader, "U", NULL, out);
      CHECK(is_numbered(out, 8, t));
    }
    end_read(reader);
  }
}

static void variables_that_a_step_lacks(void) { cohorts(1, 1, write_lacking, read_lacking); }

static void write_partly(penstock_writer* writer, int rank) {
  double values[3];
  const int32_t seven = 7;
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(rank == 0 ? 8 : 4));
  const uint32_t n = define_kind(writer, "n", PENSTOCK_INT32, PENSTOCK_LOCAL_VALUE);
  for (uint64_t t = 0; t < 3; ++t) {
    number(values, 3, t);
    begin_write(writer);
    if (rank == 0 && t < 2) put(writer, v, 1, DIMS(2), DIMS(3), values);
    if (rank == 1 && t == 1) OK(penstock_writer_put_whole(writer, n, &seven, &error));
    end_write(writer);
  }
}

static void read_partly(penstock_reader* reader, int rank) {
  (void)rank;
  for (uint64_t t = 0; t < 3; ++t) {
    penstock_variable variable;
    penstock_error error;
    double out[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    begin_read(reader);
    CHECK((penstock_reader_variable(reader, "n", &variable, &error) == PENSTOCK_OK) == (t == 1));
    CHECK((penstock_reader_variable(reader, "v", &variable, &error) == PENSTOCK_OK) == (t < 2));
    if (t < 2) {
      CHECK(variable.shape[0] == 8 && variable.blocks == 1);
      get(reader, "v", NULL, out);
      CHECK(out[1] == -1 && is_numbered(out + 2, 3, t) && out[5] == -1);
    }
    end_read(reader);
  }
}

static void variables_that_some_ranks_put(void) { cohorts(2, 1, write_partly, read_partly); }

/* ------------------------------------------------------------------------------------------------- abandoned steps */

static void write_abandoned(penstock_writer* writer, int rank) {
  double values[8];
  const int64_t one = 1, two = 2;
  (void)rank;
  const uint32_t v = define_eight(writer);
  OK(penstock_writer_put_attribute(writer, "kept", PENSTOCK_INT64, &one, 1, 0, &error));
  for (uint64_t t = 0; t < 3; ++t) {
    number(values, 8, t);
    begin_write(writer);
    if (t == 1) {
      OK(penstock_writer_put_attribute(writer, "kept", PENSTOCK_INT64, &two, 1, 0, &error));
      OK(penstock_writer_put_attribute_string(writer, "own", "of step 1", &error));
      OK(penstock_writer_set_shape(writer, v, 1, DIMS(4), &error));
      put(writer, v, 1, DIMS(0), DIMS(4), values);
      OK(penstock_writer_abandon_step(writer, &error));
      continue;
    }
    OK(penstock_writer_put_whole(writer, v, values, &error));
    end_write(writer);
  }
}

static void read_abandoned(penstock_reader* reader, int rank) {
  penstock_attribute attribute;
  (void)rank;
  for (uint64_t t = 0; t < 3; t += 2) {
    CHECK(begin_read(reader) == t);
    expect_eight(reader, t);
    OK(penstock_reader_attribute(reader, "kept", &attribute, &error));
    CHECK(*(const int64_t*)attribute.values == 1);
    FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_reader_attribute(reader, "own", &attribute, &error));
    end_read(reader);
  }
}

static void an_abandoned_step_leaves_nothing(void) { cohorts(1, 1, write_abandoned, read_abandoned); }

/* --------------------------------------------------------------------------------------------------- empty blocks */

static void write_empty(penstock_writer* writer, int rank) {
  double values[8];
  const uint32_t p = define_kind(writer, "p", PENSTOCK_FLOAT64, PENSTOCK_LOCAL_ARRAY);
  const uint32_t lone = define_kind(writer, "lone", PENSTOCK_FLOAT64, PENSTOCK_LOCAL_ARRAY);
  const uint32_t g = define(writer, "g", PENSTOCK_FLOAT64, 1, DIMS(8));
  number(values, 8, 0);
  begin_write(writer);
  if (rank == 0) {
    put(writer, p, 1, NULL, DIMS(2), values);
    put(writer, p, 2, NULL, DIMS(0, 3), values);
    put(writer, lone, 1, NULL, DIMS(0), values);
  }
  put(writer, p, 1, NULL, DIMS(1 + (uint64_t)rank), values + 4);
  put(writer, g, 1, DIMS(4), DIMS(rank == 0 ? 0 : 4), values + 4);
  end_write(writer);
}

static void read_empty(penstock_reader* reader, int rank) {
  penstock_selection selection = {.form = PENSTOCK_SELECT_BLOCK, .block = 1};
  penstock_block blocks[8];
  penstock_view* views;
  double out[8] = {-1, -1};
  uint64_t shape[PENSTOCK_MAX_DIMS];
  uint32_t ndims = 0;
  size_t count = 0;
  (void)rank;
  begin_read(reader);
  const uint32_t p = find(reader, "p").id;
  CHECK(find(reader, "p").blocks == 4);
  OK(penstock_reader_blocks(reader, p, 0, 8, blocks, &count, &error));
  CHECK(count == 4 && blocks[1].ndims == 2 && blocks[1].count[0] == 0 && blocks[1].count[1] == 3);
  get(reader, "p", &selection, out);
  CHECK(out[0] == -1);
  OK(penstock_reader_view(reader, p, &selection, &views, &count, &error));
  CHECK(count == 1 && views[0].size == 0 && views[0].count[0] == 0);
  penstock_views_release(views, count);
  selection.block = 3;
  get(reader, "p", &selection, out);
  CHECK(out[0] == 4 && out[1] == 5);
  CHECK(find(reader, "lone").blocks == 1);
  OK(penstock_reader_selection_shape(reader, find(reader, "lone").id, NULL, &ndims, shape, &error));
  CHECK(ndims == 1 && shape[0] == 0);
  get(reader, "lone", NULL, out);
  CHECK(find(reader, "g").blocks == 2);
  selection.block = 1;
  get(reader, "g", &selection, out);
  CHECK(is_numbered(out, 1, 0) == false && out[0] == 4 && out[3] == 7);
  end_read(reader);
}

static void empty_blocks_have_numbers(void) { cohorts(2, 1, write_empty, read_empty); }

/* ------------------------------------------------------------------------------------------- ranks that disagree */

static void expect_disagreement(int code, const penstock_error* error, int expected) {
  if (code != expected) FAIL("%s: %s", penstock_code_name(code), error->message);
  expect_text(error, "'v'");
  expect_text(error, "rank 0");
  expect_text(error, "10x8");
  expect_text(error, "rank 1");
  expect_text(error, "11x8");
}

static sem_t first_was_read; /* posted once for each writer rank */

static void write_disagreeing(penstock_writer* writer, int rank) {
  double values[40];
  penstock_error error;
  const uint32_t v = define(writer, "v", PENSTOCK_FLOAT64, 2, DIMS(10, 8));
  number(values, 40, 0);
  begin_write(writer);
  put(writer, v, 2, DIMS(0, 0), DIMS(5, 8), values);
  end_write(writer);
  CHECK(sem_wait(&first_was_read) == 0);
  begin_write(writer);
  OK(penstock_writer_set_shape(writer, v, 2, DIMS(10 + (uint64_t)rank, 8), &error));
  put(writer, v, 2, DIMS(0, 0), DIMS(5, 8), values);
  int code = penstock_writer_end_step(writer, &error);
  if (code == PENSTOCK_OK) code = penstock_writer_begin_step(writer, wait_ms, &error);
  if (code == PENSTOCK_OK) code = penstock_writer_end_step(writer, &error);
  if (code == PENSTOCK_OK) code = penstock_writer_close(writer, wait_ms, &error);
  expect_disagreement(code, &error, PENSTOCK_ERR_INVALID_ARGUMENT);
  (void)penstock_writer_close(writer, wait_ms, &error); /* says the same, if it was not said here */
}

static void read_disagreeing(penstock_reader* reader, int rank) {
  penstock_outcome outcome = PENSTOCK_READY;
  penstock_error error;
  (void)rank;
  CHECK(begin_read(reader) == 0);
  end_read(reader);
  CHECK(sem_post(&first_was_read) == 0 && sem_post(&first_was_read) == 0);
  CHECK(penstock_reader_begin_step(reader, wait_ms, &outcome, &error) == PENSTOCK_OK);
  CHECK(outcome == PENSTOCK_WRITER_LOST);
  expect_disagreement(PENSTOCK_OK, &error, PENSTOCK_OK);
}

static void ranks_disagree_on_a_shape(void) {
  CHECK(sem_init(&first_was_read, 0, 0) == 0);
  cohorts(2, 1, write_disagreeing, read_disagreeing);
}

/* ---------------------------------------------------------------------------------------- a forgotten communicator */

static void become_rank(const char* rank) {
  CHECK(setenv("PMIX_NAMESPACE", "scenario", 1) == 0 && setenv("PMIX_RANK", rank, 1) == 0);
}

static void a_forgotten_communicator(void) {
  penstock_context* context = new_context(NULL);
  penstock_writer* second = NULL;
  penstock_outcome outcome = PENSTOCK_READY;
  penstock_error error;
  char options[256];
  int code = PENSTOCK_OK;
  become_rank("0");
  penstock_writer* first = create(context, "s", NULL);
  penstock_reader* reader = join(context, "s", NULL);
  become_rank("1");
  snprintf(options, sizeof options, "data_plane=%s,open_timeout_ms=%d", plane, wait_ms);
  code = penstock_context_create_stream(context, "s", NULL, options, &second, &error);
  CHECK(code == PENSTOCK_ERR_WRONG_STATE);
  expect_text(&error, "ranks 0 and 1");
  expect_text(&error, "penstock_mpi_cohort");
  const uint32_t v = define_eight(first);
  double values[8] = {0};
  do {
    code = penstock_writer_begin_step(first, wait_ms, &error);
    if (code == PENSTOCK_OK) code = penstock_writer_put_whole(first, v, values, &error);
    if (code == PENSTOCK_OK) code = penstock_writer_end_step(first, &error);
  } while (code == PENSTOCK_OK);
  expect_text(&error, "ranks 0 and 1");
  do {
    CHECK(penstock_reader_begin_step(reader, wait_ms, &outcome, &error) == PENSTOCK_OK);
    if (outcome == PENSTOCK_READY) end_read(reader);
  } while (outcome == PENSTOCK_READY);
  CHECK(outcome == PENSTOCK_WRITER_LOST);
  expect_text(&error, "ranks 0 and 1");
  leave(reader);
  penstock_writer_destroy(first);
  penstock_context_destroy(context);
}

const scenario contents_scenarios[] = {
    {"variables_that_a_step_lacks", variables_that_a_step_lacks},
    {"variables_that_some_ranks_put", variables_that_some_ranks_put},
    {"an_abandoned_step_leaves_nothing", an_abandoned_step_leaves_nothing},
    {"empty_blocks_have_numbers", empty_blocks_have_numbers},
    {"ranks_disagree_on_a_shape", ranks_disagree_on_a_shape},
    {"a_forgotten_communicator", a_forgotten_communicator},
    {NULL, NULL},
};
