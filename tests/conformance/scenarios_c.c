/* Scenario by scenario over every engine and data plane, in C: the C column of the scenario table.

     scenarios_c               lists the scenarios
     scenarios_c NAME PLANE    runs one; PLANE is shm, tcp, or automatic for an engine without planes

   run_in_engine.py chooses another engine than direct by configuration. */
#include "scenarios_c.h"

const char* plane;
const char* directory;

/* -------------------------------------------------------------------------------------------------------- handles */

penstock_context* new_context(const char* options) {
  char text[512];
  penstock_context* context = NULL;
  snprintf(text, sizeof text, "directory=%s,listen=127.0.0.1,%s", directory, options ? options : "");
  OK(penstock_context_create(text, &context, &error));
  return context;
}

/* Of two values of one key the last counts. */
static const char* with_plane(char* text, size_t size, const char* options) {
  snprintf(text, size, "data_plane=%s,open_timeout_ms=%d,step_timeout_ms=%d,close_timeout_ms=%d%s%s", plane, wait_ms,
           wait_ms, wait_ms, options ? "," : "", options ? options : "");
  return text;
}

static penstock_writer* create_as(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                  const char* options) {
  char text[512];
  penstock_writer* writer = NULL;
  OK(penstock_context_create_stream(context, name, cohort, with_plane(text, sizeof text, options), &writer, &error));
  return writer;
}

static penstock_reader* join_as(penstock_context* context, const char* name, const penstock_cohort* cohort,
                                const char* options) {
  char text[512];
  penstock_reader* reader = NULL;
  OK(penstock_context_open_stream(context, name, cohort, with_plane(text, sizeof text, options), &reader, &error));
  return reader;
}

penstock_writer* create(penstock_context* context, const char* name, const char* options) {
  return create_as(context, name, NULL, options);
}
penstock_reader* join(penstock_context* context, const char* name, const char* options) {
  return join_as(context, name, NULL, options);
}

bool engine_is(const char* name) {
  const char* chosen = getenv("PENSTOCK_SCENARIOS_ENGINE"); /* run_in_engine.py */
  return strcmp(chosen ? chosen : "direct", name) == 0;
}

void leave(penstock_reader* reader) {
  OK(penstock_reader_close(reader, &error));
  penstock_reader_destroy(reader);
}
void finish(penstock_writer* writer) {
  OK(penstock_writer_close(writer, wait_ms, &error));
  penstock_writer_destroy(writer);
}

/* ---------------------------------------------------------------------------------------------- cohorts of threads */

typedef struct team {
  int size;
  pthread_barrier_t barrier;
  const void* sent[most_ranks];
  const void* from_root;
} team;

typedef struct member {
  team* team;
  int rank;
  penstock_context* context;
  write_rank* write; /* or: */
  read_rank* read;
  const char* stream;
} member;

static int broadcast(void* user, void* data, size_t size, int root) {
  member* self = user;
  if (self->rank == root) self->team->from_root = data;
  pthread_barrier_wait(&self->team->barrier);
  if (self->rank != root) memcpy(data, self->team->from_root, size);
  pthread_barrier_wait(&self->team->barrier);
  return 0;
}

static int gather(void* user, const void* data, size_t size, void* all, int root) {
  member* self = user;
  self->team->sent[self->rank] = data;
  pthread_barrier_wait(&self->team->barrier);
  for (int r = 0; self->rank == root && r < self->team->size; ++r)
    memcpy((char*)all + (size_t)r * size, self->team->sent[r], size);
  pthread_barrier_wait(&self->team->barrier);
  return 0;
}

static void* run_member(void* argument) {
  member* self = argument;
  penstock_cohort several = {self->rank, self->team->size, self, broadcast, gather, NULL, 0};
  const penstock_cohort* cohort = self->team->size > 1 ? &several : NULL;
  if (self->write) {
    penstock_writer* writer = create_as(self->context, self->stream, cohort, NULL);
    self->write(writer, self->rank);
    finish(writer);
  } else {
    penstock_reader* reader = join_as(self->context, self->stream, cohort, NULL);
    self->read(reader, self->rank);
    penstock_reader_destroy(reader);
  }
  return NULL;
}

/* Each time another stream: a pool would give the readers the last one. */
void cohorts(int m, int n, write_rank* write, read_rank* read) {
  static int made = 0;
  char stream[16];
  snprintf(stream, sizeof stream, "s%d", ++made);
  penstock_context* context = new_context(NULL);
  team writers = {.size = m}, readers = {.size = n};
  member members[2 * most_ranks];
  pthread_t threads[2 * most_ranks];
  CHECK(m <= most_ranks && n <= most_ranks);
  pthread_barrier_init(&writers.barrier, NULL, (unsigned)m);
  pthread_barrier_init(&readers.barrier, NULL, (unsigned)n);
  for (int i = 0; i < m + n; ++i) {
    members[i] = i < m ? (member){&writers, i, context, write, NULL, stream}
                       : (member){&readers, i - m, context, NULL, read, stream};
    CHECK(pthread_create(&threads[i], NULL, run_member, &members[i]) == 0);
  }
  for (int i = 0; i < m + n; ++i) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&writers.barrier);
  pthread_barrier_destroy(&readers.barrier);
  penstock_context_destroy(context);
}

typedef struct side {
  void (*run)(penstock_context*);
  penstock_context* context;
} side;

static void* run_side(void* argument) {
  side* self = argument;
  self->run(self->context);
  return NULL;
}

void together(void (*one)(penstock_context*), void (*other)(penstock_context*), penstock_context* context_of_one,
              penstock_context* context_of_other) {
  side sides[2] = {{one, context_of_one}, {other, context_of_other}};
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, run_side, &sides[i]) == 0);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}

/* ---------------------------------------------------------------------------------------------------------- steps */

uint32_t define(penstock_writer* writer, const char* name, int dtype, size_t ndims, const uint64_t* shape) {
  uint32_t variable = 0;
  OK(penstock_writer_define(writer, name, dtype, ndims, shape, NULL, &variable, &error));
  return variable;
}

uint32_t define_kind(penstock_writer* writer, const char* name, int dtype, int kind) {
  const penstock_variable_options options = {kind, PENSTOCK_ROW, 0};
  uint32_t variable = 0;
  OK(penstock_writer_define(writer, name, dtype, 0, NULL, &options, &variable, &error));
  return variable;
}

void begin_write(penstock_writer* writer) { OK(penstock_writer_begin_step(writer, wait_ms, &error)); }
bool try_begin(penstock_writer* writer, int64_t timeout_ms) {
  int begun = 0;
  OK(penstock_writer_try_begin_step(writer, timeout_ms, &begun, &error));
  return begun;
}
void end_write(penstock_writer* writer) { OK(penstock_writer_end_step(writer, &error)); }
void put(penstock_writer* writer, uint32_t variable, size_t ndims, const uint64_t* start, const uint64_t* count,
         const void* data) {
  OK(penstock_writer_put(writer, variable, ndims, start, count, data, &error));
}

penstock_outcome outcome_within(penstock_reader* reader, int64_t timeout_ms) {
  penstock_outcome outcome = PENSTOCK_READY;
  OK(penstock_reader_begin_step(reader, timeout_ms, &outcome, &error));
  return outcome;
}

uint64_t begin_read(penstock_reader* reader) {
  uint64_t number = 0;
  const penstock_outcome outcome = outcome_within(reader, wait_ms);
  if (outcome != PENSTOCK_READY) FAIL("no step, but outcome %d", outcome);
  OK(penstock_reader_step_number(reader, &number, &error));
  return number;
}

penstock_variable find(penstock_reader* reader, const char* name) {
  penstock_variable variable;
  OK(penstock_reader_variable(reader, name, &variable, &error));
  return variable;
}

void get(penstock_reader* reader, const char* name, const penstock_selection* selection, void* out) {
  OK(penstock_reader_get(reader, find(reader, name).id, selection, out, PENSTOCK_ROW, NULL, &error));
  OK(penstock_reader_wait(reader, wait_ms, &error));
}

void end_read(penstock_reader* reader) { OK(penstock_reader_end_step(reader, &error)); }

void number(double* out, uint64_t elements, uint64_t step) {
  for (uint64_t i = 0; i < elements; ++i) out[i] = (double)(i + 1000 * step);
}

bool is_numbered(const double* values, uint64_t elements, uint64_t step) {
  for (uint64_t i = 0; i < elements; ++i)
    if (values[i] != (double)(i + 1000 * step)) return false;
  return true;
}

uint32_t define_eight(penstock_writer* writer) { return define(writer, "v", PENSTOCK_FLOAT64, 1, DIMS(8)); }

void write_eight(penstock_writer* writer, uint32_t variable, uint64_t step) {
  double values[8];
  number(values, 8, step);
  begin_write(writer);
  put(writer, variable, 1, DIMS(0), DIMS(8), values);
  end_write(writer);
}

bool try_write(penstock_writer* writer, uint32_t variable) {
  int dropped = 0;
  uint64_t step = 0;
  double values[8];
  OK(penstock_writer_begin_step(writer, 0, &error));
  OK(penstock_writer_step_dropped(writer, &dropped, &error));
  OK(penstock_writer_step_number(writer, &step, &error));
  number(values, 8, step);
  put(writer, variable, 1, DIMS(0), DIMS(8), values);
  end_write(writer);
  return !dropped;
}

void expect_eight(penstock_reader* reader, uint64_t step) {
  double values[8];
  get(reader, "v", NULL, values);
  CHECK(is_numbered(values, 8, step));
}

void read_eight(penstock_reader* reader, uint64_t step) {
  const uint64_t number = begin_read(reader);
  if (number != step) FAIL("step %llu, not %llu", (unsigned long long)number, (unsigned long long)step);
  expect_eight(reader, step);
  end_read(reader);
}

bool write_three_mib(penstock_writer* writer, uint32_t variable, const uint8_t* data, int64_t timeout_ms) {
  if (!try_begin(writer, timeout_ms)) return false;
  put(writer, variable, 1, DIMS(0), DIMS(3 * mib), data);
  end_write(writer);
  return true;
}

penstock_statistics written(const penstock_writer* writer) {
  penstock_statistics statistics = {.struct_size = sizeof statistics};
  OK(penstock_writer_statistics(writer, &statistics, &error));
  return statistics;
}

penstock_statistics read_so_far(const penstock_reader* reader) {
  penstock_statistics statistics = {.struct_size = sizeof statistics};
  OK(penstock_reader_statistics(reader, &statistics, &error));
  return statistics;
}

/* ------------------------------------------------------------------------------------------------------------ main */

int main(int argc, char** argv) {
  static char made[] = "/tmp/penstock-test-XXXXXX";
  const scenario* const tables[] = {
      data_scenarios,   contents_scenarios, access_scenarios, handle_scenarios,
      stream_scenarios, queue_scenarios,    lease_scenarios,  engine_is("pool") ? pool_scenarios : lease_scenarios};
  const scenario* chosen = NULL;
  for (size_t table = 0; table < sizeof tables / sizeof *tables; ++table)
    for (const scenario* s = tables[table]; s->name; ++s) {
      if (argc == 1) puts(s->name);
      else if (strcmp(argv[1], s->name) == 0) chosen = s;
    }
  if (argc == 1) return 0;
  if (argc != 3 || !chosen) {
    fprintf(stderr, "usage: %s [NAME shm|tcp|automatic]; without arguments it lists the names\n", argv[0]);
    return 2;
  }
  plane = argv[2];
  alarm(100);
  directory = mkdtemp(made);
  CHECK(directory != NULL);
  chosen->run();
  CHECK(rmdir(directory) == 0); /* every stream took its registration with it */
  return 0;
}
