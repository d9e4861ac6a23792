/* mpi_scenarios.cpp in C: the same streams, by the same command line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "penstock/mpi.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                           \
    }                                                                         \
  } while (0)
/* The last argument of call must be &error. */
#define OK(call)                                                                                                   \
  do {                                                                                                             \
    penstock_error error;                                                                                          \
    const int code_ = call;                                                                                        \
    if (code_ != PENSTOCK_OK) {                                                                                    \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, penstock_code_name(code_), error.message); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                                \
    }                                                                                                              \
  } while (0)
#define DIMS(...) ((const uint64_t[]){__VA_ARGS__})

enum { rows = 12, columns = 5, steps = 6, wait_ms = 40000 };

static penstock_context* context;
static const char* plane;
static int rank, size;

static double element(uint64_t i, uint64_t j, uint64_t t) { return (double)(i * columns + j + 1000 * t); }

static penstock_writer* create(const char* name, const char* more) {
  char text[256];
  penstock_writer* writer = NULL;
  penstock_cohort cohort;
  CHECK(penstock_mpi_cohort(MPI_COMM_WORLD, &cohort) == MPI_SUCCESS);
  snprintf(text, sizeof text, "data_plane=%s,step_timeout_ms=%d%s", plane, wait_ms, more);
  OK(penstock_context_create_stream(context, name, &cohort, text, &writer, &error));
  return writer;
}

static penstock_reader* join(const char* name) {
  char text[256];
  penstock_reader* reader = NULL;
  penstock_cohort cohort;
  CHECK(penstock_mpi_cohort(MPI_COMM_WORLD, &cohort) == MPI_SUCCESS);
  snprintf(text, sizeof text, "data_plane=%s,open_timeout_ms=%d,step_timeout_ms=%d", plane, wait_ms, wait_ms);
  OK(penstock_context_open_stream(context, name, &cohort, text, &reader, &error));
  return reader;
}

static uint32_t define_value(penstock_writer* writer, const char* name, int dtype, int kind) {
  const penstock_variable_options of_kind = {kind, PENSTOCK_ROW, 0};
  uint32_t variable = 0;
  OK(penstock_writer_define(writer, name, dtype, 0, NULL, &of_kind, &variable, &error));
  return variable;
}

static int ascending(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

/* The rows low .. high of this rank, other ones each step; there may be none. */
static void cut(uint64_t t, uint64_t* low, uint64_t* high) {
  uint64_t cuts[17];
  CHECK(size <= 16);
  for (int r = 0; r <= size; ++r)
    cuts[r] = r == 0 ? 0 : r == size ? rows : (rows * (uint64_t)r / (uint64_t)size + t) % rows;
  qsort(cuts, (size_t)size + 1, sizeof *cuts, ascending);
  *low = cuts[rank];
  *high = cuts[rank + 1];
}

static void write_all(void) {
  penstock_writer* writer = create("all", "");
  uint32_t field = 0;
  const int in_pool = getenv("PENSTOCK_SCENARIOS_ENGINE") != NULL; /* run_in_engine.py */
  CHECK((penstock_writer_address(writer)[0] != '\0') == (rank == 0 && !in_pool));
  OK(penstock_writer_define(writer, "field", PENSTOCK_FLOAT64, 2, DIMS(rows, columns), NULL, &field, &error));
  const uint32_t time = define_value(writer, "time", PENSTOCK_FLOAT64, PENSTOCK_GLOBAL_VALUE);
  const uint32_t load = define_value(writer, "load", PENSTOCK_INT32, PENSTOCK_LOCAL_VALUE);
  if (rank == 0) OK(penstock_writer_put_attribute_string(writer, "program", "heat", &error));
  for (uint64_t t = 0; t < steps; ++t) {
    double part[rows * columns];
    uint64_t low, high;
    const double now = 0.5 * (double)t;
    const int32_t busy = 10 * rank + (int32_t)t;
    const int64_t number = (int64_t)t;
    cut(t, &low, &high);
    for (uint64_t i = low; i < high; ++i)
      for (uint64_t j = 0; j < columns; ++j) part[(i - low) * columns + j] = element(i, j, t);
    OK(penstock_writer_begin_step(writer, PENSTOCK_CONFIGURED, &error));
    OK(penstock_writer_put(writer, field, 2, DIMS(low, 0), DIMS(high - low, columns), part, &error));
    if (rank == 0) OK(penstock_writer_put_whole(writer, time, &now, &error));
    OK(penstock_writer_put_whole(writer, load, &busy, &error));
    if (rank == 0) OK(penstock_writer_put_attribute(writer, "step", PENSTOCK_INT64, &number, 1, 0, &error));
    if (t == 2 && rank == size - 1) OK(penstock_writer_abandon_step(writer, &error));
    else OK(penstock_writer_end_step(writer, &error));
  }
  OK(penstock_writer_close(writer, wait_ms, &error));
  penstock_writer_destroy(writer);
}

static uint32_t id_of(penstock_reader* reader, const char* name) {
  penstock_variable found;
  OK(penstock_reader_variable(reader, name, &found, &error));
  return found.id;
}

static penstock_outcome begin(penstock_reader* reader) {
  penstock_outcome outcome = PENSTOCK_NOT_READY;
  OK(penstock_reader_begin_step(reader, PENSTOCK_CONFIGURED, &outcome, &error));
  return outcome;
}

static void read_all(void) {
  penstock_reader* reader = join("all");
  const uint64_t low = (uint64_t)(columns * rank / size), high = (uint64_t)(columns * (rank + 1) / size);
  const penstock_selection box = penstock_select_box(2, DIMS(0, low), DIMS(rows, high - low));
  for (uint64_t t = 0; t < steps; ++t) {
    double part[rows * columns], now = -1;
    int32_t load[16] = {0};
    uint64_t number = 0;
    penstock_attribute attribute;
    penstock_variable loads;
    if (t == 2) continue; /* one rank gave it up */
    CHECK(begin(reader) == PENSTOCK_READY);
    OK(penstock_reader_step_number(reader, &number, &error));
    CHECK(number == t);
    OK(penstock_reader_variable(reader, "load", &loads, &error));
    CHECK(loads.ndims == 1 && loads.shape[0] <= 16);
    OK(penstock_reader_get(reader, id_of(reader, "field"), &box, part, PENSTOCK_ROW, NULL, &error));
    OK(penstock_reader_get(reader, id_of(reader, "time"), NULL, &now, PENSTOCK_ROW, NULL, &error));
    OK(penstock_reader_get(reader, loads.id, NULL, load, PENSTOCK_ROW, NULL, &error));
    OK(penstock_reader_wait(reader, PENSTOCK_CONFIGURED, &error));
    for (uint64_t i = 0, at = 0; i < rows; ++i)
      for (uint64_t j = low; j < high; ++j) CHECK(part[at++] == element(i, j, t));
    CHECK(now == 0.5 * (double)t);
    for (uint64_t r = 0; r < loads.shape[0]; ++r) CHECK(load[r] == (int32_t)(10 * r + t));
    OK(penstock_reader_attribute(reader, "program", &attribute, &error));
    CHECK(strcmp(attribute.strings[0], "heat") == 0);
    OK(penstock_reader_attribute(reader, "step", &attribute, &error));
    CHECK(*(const int64_t*)attribute.values == (int64_t)t);
    OK(penstock_reader_end_step(reader, &error));
  }
  CHECK(begin(reader) == PENSTOCK_END_OF_STREAM);
  penstock_reader_destroy(reader);
}

static void write_left(void) {
  penstock_writer* writer = create("left", ",queue_steps=1");
  const uint32_t v = define_value(writer, "t", PENSTOCK_INT64, PENSTOCK_GLOBAL_VALUE);
  for (int64_t t = 0; t < 20; ++t) {
    OK(penstock_writer_begin_step(writer, PENSTOCK_CONFIGURED, &error));
    OK(penstock_writer_put_whole(writer, v, &t, &error));
    OK(penstock_writer_end_step(writer, &error));
  }
  OK(penstock_writer_close(writer, wait_ms, &error));
  penstock_writer_destroy(writer);
}

static void read_left(void) {
  penstock_reader* reader = join("left");
  for (int64_t t = 0; t < 3; ++t) {
    int64_t value = -1;
    CHECK(begin(reader) == PENSTOCK_READY);
    OK(penstock_reader_get(reader, id_of(reader, "t"), NULL, &value, PENSTOCK_ROW, NULL, &error));
    OK(penstock_reader_end_step(reader, &error)); /* which performs the get */
    CHECK(value == t);
  }
  OK(penstock_reader_close(reader, &error));
  penstock_reader_destroy(reader);
}

int main(int argc, char** argv) {
  char text[256];
  MPI_Init(&argc, &argv);
  alarm(100);
  CHECK(argc == 4);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  plane = argv[2];
  snprintf(text, sizeof text, "directory=%s,listen=127.0.0.1", argv[3]);
  OK(penstock_context_create(text, &context, &error));
  if (strcmp(argv[1], "write") == 0) {
    write_all();
    write_left();
  } else {
    read_all();
    read_left();
  }
  penstock_context_destroy(context);
  MPI_Finalize();
  return 0;
}
