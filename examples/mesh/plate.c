/* The program of plate.py, in C: heat spreads in a plate. The mesh and its states go to the region "plate". */
#include <penstock/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40, M = N + 1 }; /* elements and nodes along each edge */

static double T[M][M];
static size_t nodes, plate, hot;                                     /* entities */
static size_t coordinates, temperature, connectivity, flux, members; /* their fields */

static int add_field(penstock_model* model, size_t entity, const char* name, int dtype, const char* storage, int role,
                     size_t* number, penstock_error* error) {
  const penstock_field field = penstock_field_of(name, dtype, storage, role);
  return penstock_model_add_field(model, entity, &field, number, error);
}

static int describe(penstock_model* model, penstock_error* error) {
  const penstock_entity region = penstock_entity_of(PENSTOCK_REGION, "region", 0, 1);
  const penstock_entity points = penstock_entity_of(PENSTOCK_NODE_BLOCK, "nodeblock_1", 1, M * M);
  const penstock_entity edge = penstock_entity_of(PENSTOCK_NODE_SET, "hot", 100, M);
  penstock_entity block = penstock_entity_of(PENSTOCK_ELEMENT_BLOCK, "plate", 10, N * N);
  block.topology = "quad4";
  if (penstock_model_add_entity(model, &region, NULL, error) ||
      penstock_model_add_entity(model, &points, &nodes, error) ||
      penstock_model_add_entity(model, &block, &plate, error) || penstock_model_add_entity(model, &edge, &hot, error))
    return error->code;
  if (add_field(model, nodes, "coordinates", PENSTOCK_FLOAT64, "vector_2d", PENSTOCK_ROLE_MESH, &coordinates, error) ||
      add_field(model, nodes, "temperature", PENSTOCK_FLOAT64, NULL, PENSTOCK_ROLE_TRANSIENT, &temperature, error) ||
      add_field(model, plate, "connectivity", PENSTOCK_INT32, "[4]", PENSTOCK_ROLE_MESH, &connectivity, error) ||
      add_field(model, plate, "flux", PENSTOCK_FLOAT64, "vector_2d", PENSTOCK_ROLE_TRANSIENT, &flux, error) ||
      add_field(model, hot, "members", PENSTOCK_INT32, NULL, PENSTOCK_ROLE_MESH, &members, error))
    return error->code;
  return PENSTOCK_OK;
}

static int write_mesh(penstock_region_sink* sink, penstock_error* error) {
  static double x[M][M][2];
  static int32_t corners[N][N][4], edge[M];
  for (int i = 0; i < M; ++i) {
    edge[i] = i * M;
    for (int j = 0; j < M; ++j) {
      x[i][j][0] = (double)j / N;
      x[i][j][1] = (double)i / N;
    }
  }
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      const int32_t first = i * M + j;
      const int32_t its[4] = {first, first + 1, first + M + 1, first + M};
      memcpy(corners[i][j], its, sizeof its);
    }
  if (penstock_region_sink_write(sink, nodes, coordinates, x, error)) return error->code;
  if (penstock_region_sink_write(sink, plate, connectivity, corners, error)) return error->code;
  return penstock_region_sink_write(sink, hot, members, edge, error);
}

static void advance(void) {
  static double old[M][M];
  memcpy(old, T, sizeof old);
  for (int i = 1; i < N; ++i)
    for (int j = 1; j < N; ++j)
      T[i][j] += 0.2 * (old[i + 1][j] + old[i - 1][j] + old[i][j + 1] + old[i][j - 1] - 4 * old[i][j]);
}

/* Of the temperature at a node, along x (0) or y (1): one-sided at the edges. */
static double slope(int i, int j, int axis) {
  const int at = axis ? i : j, low = at > 0 ? -1 : 0, high = at < N ? 1 : 0;
  const double difference = axis ? T[i + high][j] - T[i + low][j] : T[i][j + high] - T[i][j + low];
  return difference * N / (high - low);
}

static int write_state(penstock_region_sink* sink, double time, penstock_error* error) {
  static double q[N][N][2];
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j)
      for (int d = 0; d < 2; ++d)
        q[i][j][d] = -0.25 * (slope(i, j, d) + slope(i, j + 1, d) + slope(i + 1, j, d) + slope(i + 1, j + 1, d));
  if (penstock_region_sink_begin_state(sink, time, error)) return error->code;
  if (penstock_region_sink_write(sink, nodes, temperature, T, error)) return error->code;
  if (penstock_region_sink_write(sink, plate, flux, q, error)) return error->code;
  return penstock_region_sink_end_state(sink, error);
}

static int write_states(penstock_region_sink* sink, int states, penstock_error* error) {
  for (int i = 0; i < M; ++i) T[i][0] = 1;
  for (int state = 0; state < states; ++state) {
    for (int step = 0; step < 50; ++step) advance();
    memcpy(T[0], T[1], sizeof T[0]);
    memcpy(T[N], T[N - 1], sizeof T[N]);
    if (write_state(sink, 0.01 * state, error)) return error->code;
  }
  return PENSTOCK_OK;
}

int main(int argc, char** argv) {
  penstock_error error;
  penstock_context* context = NULL;
  penstock_model* model = NULL;
  penstock_region_sink* sink = NULL;
  const int states = argc > 1 ? atoi(argv[1]) : 10;
  const int failed = penstock_context_create(NULL, &context, &error) ||
                     penstock_model_create("a plate that is heated at one edge", 2, &model, &error) ||
                     describe(model, &error) ||
                     /* Where it goes is configuration. */
                     penstock_context_create_region(context, "plate", NULL, NULL, &sink, &error) ||
                     penstock_region_sink_define(sink, model, &error) || write_mesh(sink, &error) ||
                     write_states(sink, states, &error) || penstock_region_sink_close(sink, &error);
  if (failed) fprintf(stderr, "plate: %s (%s)\n", error.message, penstock_code_name(error.code));
  penstock_region_sink_destroy(sink);
  penstock_model_destroy(model);
  penstock_context_destroy(context);
  return failed;
}
