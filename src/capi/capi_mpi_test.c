/* The C API over MPI: mpiexec -n 3 test_capi_mpi FOLDER. Two ranks write, one reads, each part with a communicator of
   its own. */
#include "penstock/coprocessor.h"
#include "penstock/mpi.h"
#include "penstock/region.h"

#include <stdio.h>
#include <string.h>

#include "capi/capi_test_support.h"

enum { writers = 2, steps = 3 };

static void write_steps(penstock_context* context, const penstock_cohort* cohort) {
  penstock_writer* writer = NULL;
  const uint64_t shape[] = {writers}, start[] = {(uint64_t)cohort->rank}, one[] = {1};
  uint32_t variable = 0;
  OK(penstock_context_create_stream(context, "mpi", cohort, "queue_steps=2", &writer, &error));
  OK(penstock_writer_define(writer, "rank", PENSTOCK_INT32, 1, shape, NULL, &variable, &error));
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t value = 10 * step + cohort->rank;
    OK(penstock_writer_begin_step(writer, deadline_ms, &error));
    OK(penstock_writer_put(writer, variable, 1, start, one, &value, &error));
    OK(penstock_writer_end_step(writer, &error));
  }
  OK(penstock_writer_close(writer, deadline_ms, &error));
  penstock_writer_destroy(writer);
}

static void read_steps(penstock_context* context, const penstock_cohort* cohort) {
  penstock_reader* reader = NULL;
  OK(penstock_context_open_stream(context, "mpi", cohort, NULL, &reader, &error));
  for (int32_t step = 0;; ++step) {
    penstock_outcome outcome = PENSTOCK_NOT_READY;
    penstock_variable variable;
    int32_t out[writers];
    OK(penstock_reader_begin_step(reader, deadline_ms, &outcome, &error));
    if (outcome == PENSTOCK_END_OF_STREAM && step == steps) break;
    CHECK(outcome == PENSTOCK_READY);
    OK(penstock_reader_variable(reader, "rank", &variable, &error));
    OK(penstock_reader_get(reader, variable.id, NULL, out, PENSTOCK_ROW, NULL, &error));
    OK(penstock_reader_end_step(reader, &error));
    CHECK(out[0] == 10 * step && out[1] == 10 * step + 1);
  }
  penstock_reader_destroy(reader);
}

enum { nodes = 4 };

static void write_part(penstock_context* context, const penstock_cohort* cohort) {
  const penstock_entity block = penstock_entity_of(PENSTOCK_NODE_BLOCK, "nodeblock_1", 1, nodes);
  const penstock_field ids = penstock_field_of("ids", PENSTOCK_INT64, NULL, PENSTOCK_ROLE_MESH);
  const penstock_field rank = penstock_field_of("rank", PENSTOCK_INT32, NULL, PENSTOCK_ROLE_TRANSIENT);
  penstock_model* model = NULL;
  penstock_region_sink* sink = NULL;
  int64_t id[nodes];
  int32_t value[nodes];
  for (int n = 0; n < nodes; ++n) id[n] = nodes * cohort->rank + n + 1, value[n] = cohort->rank;
  OK(penstock_model_create(NULL, 3, &model, &error));
  OK(penstock_model_add_entity(model, &block, NULL, &error));
  OK(penstock_model_add_field(model, 0, &ids, NULL, &error));
  OK(penstock_model_add_field(model, 0, &rank, NULL, &error));
  OK(penstock_context_create_region(context, "parts", cohort, NULL, &sink, &error));
  OK(penstock_region_sink_define(sink, model, &error));
  OK(penstock_region_sink_write(sink, 0, 0, id, &error));
  OK(penstock_region_sink_begin_state(sink, 1, &error));
  OK(penstock_region_sink_write(sink, 0, 1, value, &error));
  OK(penstock_region_sink_end_state(sink, &error));
  OK(penstock_region_sink_close(sink, &error));
  penstock_region_sink_destroy(sink);
  penstock_model_destroy(model);
}

static void read_parts(penstock_context* context, const penstock_cohort* cohort) {
  penstock_region_source *source = NULL, *joined = NULL;
  penstock_state_outcome outcome = PENSTOCK_STATE_END;
  int32_t value[writers * nodes];
  double time = 0;
  OK(penstock_context_open_region(context, "parts", cohort, NULL, &source, &error));
  OK(penstock_region_source_join(source, &joined, &error));
  OK(penstock_region_source_next_state(joined, deadline_ms, &outcome, &time, &error));
  CHECK(outcome == PENSTOCK_STATE_READY && time == 1);
  OK(penstock_region_source_read(joined, 0, 0, 1, 0, writers * nodes, value, &error));
  for (int n = 0; n < writers * nodes; ++n) CHECK(value[n] == n / nodes);
  OK(penstock_region_source_next_state(joined, deadline_ms, &outcome, &time, &error));
  CHECK(outcome == PENSTOCK_STATE_END);
  penstock_region_source_destroy(source);
  penstock_region_source_destroy(joined);
}

/* Rank 0 gives up between two cycles, while the other one waits for its decision in MPI_Bcast. */
static void test_a_rank_that_loses(penstock_context* context, MPI_Comm comm) {
  penstock_coprocessor* coprocessor = NULL;
  penstock_cohort cohort;
  penstock_error error;
  int wanted = 0;
  CHECK(penstock_mpi_cohort(comm, &cohort) == MPI_SUCCESS);
  OK(penstock_coprocessor_create(context, "lost", &cohort, "direct,rendezvous_readers=0", &coprocessor, &error));
  OK(penstock_coprocessor_request(coprocessor, 0, 0, &wanted, &error));
  if (wanted) OK(penstock_coprocessor_coprocess(coprocessor, &error));
  MPI_Barrier(comm);
  if (cohort.rank == 0) {
    OK(penstock_coprocessor_lose(coprocessor, &error));
  } else {
    CHECK(penstock_coprocessor_request(coprocessor, 1, 1, &wanted, &error) == PENSTOCK_ERR_PEER_LOST);
    CHECK(strstr(error.message, "this rank has failed"));
    OK(penstock_coprocessor_lose(coprocessor, &error));
  }
  penstock_coprocessor_destroy(coprocessor);
}

static void test_callbacks(const penstock_cohort* cohort) {
  static char mine[200000], all[3 * sizeof mine];
  memset(mine, 'a' + cohort->rank, sizeof mine);
  CHECK(cohort->gather(cohort->user, mine, sizeof mine, cohort->rank == 0 ? all : NULL, 0) == 0);
  for (int r = 0; cohort->rank == 0 && r < cohort->size; ++r) CHECK(all[(r + 1) * sizeof mine - 1] == 'a' + r);
  CHECK(cohort->broadcast(cohort->user, mine, sizeof mine, cohort->size - 1) == 0);
  CHECK(mine[0] == 'a' + cohort->size - 1);
}

int main(int argc, char** argv) {
  char options[512];
  int rank = 0, size = 0;
  MPI_Comm part;
  penstock_cohort cohort;
  penstock_context* context = NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(argc == 2 && size == writers + 1);
  MPI_Comm_split(MPI_COMM_WORLD, rank < writers, rank, &part);
  CHECK(penstock_mpi_cohort(part, &cohort) == MPI_SUCCESS);
  test_callbacks(&cohort);
  snprintf(options, sizeof options, "directory=%s,listen=127.0.0.1", argv[1]);
  OK(penstock_context_create(options, &context, &error));
  if (rank < writers) test_a_rank_that_loses(context, part);
  if (rank < writers) write_steps(context, &cohort);
  else read_steps(context, &cohort);
  CHECK(penstock_mpi_cohort(part, &cohort) == MPI_SUCCESS);
  if (rank < writers) write_part(context, &cohort);
  else read_parts(context, &cohort);
  penstock_context_destroy(context);
  MPI_Comm_free(&part);
  MPI_Finalize();
  return 0;
}
