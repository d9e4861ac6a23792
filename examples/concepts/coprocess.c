/* Co-processing in C: as coprocess.cpp. */
#include <penstock/coprocessor.h>
#include <stdio.h>

#define N 100

static double T[N + 2][N + 2]; /* with a halo */
static int seen = 0;

static int analyse(penstock_reader* reader, void* user, penstock_error* error) {
  penstock_attribute cycle;
  int code = penstock_reader_attribute(reader, "cycle", &cycle, error);
  (void)user;
  if (code == PENSTOCK_OK && *(const int64_t*)cycle.values == 10 * seen) ++seen;
  return code;
}

static void advance(double source) {
  static double before[N + 2][N + 2];
  for (int i = 0; i < N + 2; ++i)
    for (int j = 0; j < N + 2; ++j) before[i][j] = T[i][j];
  for (int i = 1; i <= N; ++i)
    for (int j = 1; j <= N; ++j)
      T[i][j] += 0.2 * (before[i][j - 1] + before[i][j + 1] + before[i - 1][j] + before[i + 1][j] - 4 * before[i][j]);
  for (int j = 1; j <= N; ++j) T[1][j] = source;
}

int main(void) {
  penstock_error error;
  penstock_context* context = NULL;
  penstock_coprocessor* coprocessor = NULL;
  penstock_reader* reader = NULL;
  penstock_mesh grid = penstock_mesh_of(PENSTOCK_MESH_UNIFORM);
  penstock_field_options kelvin = {.units = "K"};
  const uint64_t count[] = {N, N};
  const int64_t strides[] = {sizeof T[0], sizeof(double)};
  double source = 1000;
  uint32_t temperature = 0;
  int wanted = 0;

  if (penstock_context_create("", &context, &error)) goto failed;
  if (penstock_coprocessor_create(context, "heat", NULL, "insitu, every=10", &coprocessor, &error)) goto failed;
  grid.ndims = 2;
  grid.shape[0] = grid.shape[1] = N;
  grid.axes = "yx";
  if (penstock_coprocessor_set_mesh(coprocessor, "grid", &grid, &error)) goto failed;
  if (penstock_coprocessor_field(coprocessor, "grid", "T", PENSTOCK_FLOAT64, &kelvin, &temperature, &error))
    goto failed;
  if (penstock_coprocessor_declare_double(coprocessor, "source", source, 0, 2000, &error)) goto failed;

  if (penstock_context_open_stream(context, "heat", NULL, "insitu", &reader, &error)) goto failed;
  if (penstock_reader_on_step(reader, analyse, NULL, PENSTOCK_ON_ERROR_RAISE, &error)) goto failed;

  for (int cycle = 0; cycle < 100; ++cycle) {
    if (penstock_coprocessor_double(coprocessor, "source", &source, &error)) goto failed;
    advance(source);
    if (penstock_coprocessor_request(coprocessor, cycle, 0.1 * cycle, &wanted, &error)) goto failed;
    if (!wanted) continue;
    if (penstock_coprocessor_lend(coprocessor, temperature, 2, NULL, count, &T[1][1], strides, &error)) goto failed;
    if (penstock_coprocessor_coprocess(coprocessor, &error)) goto failed;
  }
  if (penstock_coprocessor_finalize(coprocessor, PENSTOCK_CONFIGURED, NULL, &error)) goto failed;
  if (seen != 10) {
    fprintf(stderr, "coprocess_c: the analysis saw %d steps\n", seen);
    return 1;
  }
  penstock_reader_destroy(reader);
  penstock_coprocessor_destroy(coprocessor);
  penstock_context_destroy(context);
  puts("coprocess_c: as expected");
  return 0;

failed:
  fprintf(stderr, "coprocess_c: %s\n", error.message);
  return 1;
}
