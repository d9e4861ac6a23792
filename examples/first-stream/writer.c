/* Writes the temperature of a cooling plate as the stream "heat": 50 steps. */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

enum { rows = 64, columns = 96 };

/* One explicit time step of the heat equation; the edge stays at 0. */
static void advance(double T[rows][columns]) {
  static double old[rows][columns];
  memcpy(old, T, sizeof(old));
  for (int i = 1; i < rows - 1; ++i)
    for (int j = 1; j < columns - 1; ++j)
      T[i][j] += 0.2 * (old[i - 1][j] + old[i + 1][j] + old[i][j - 1] + old[i][j + 1] - 4 * old[i][j]);
}

static int write_stream(penstock_context* context, penstock_writer** writer, penstock_error* error) {
  static double T[rows][columns];
  const uint64_t shape[] = {rows, columns};
  uint32_t temperature;
  for (int i = 24; i < 40; ++i)
    for (int j = 32; j < 64; ++j) T[i][j] = 100.0;

  if (penstock_context_create_stream(context, "heat", NULL, NULL, writer, error)) return error->code;
  if (penstock_writer_define(*writer, "T", PENSTOCK_FLOAT64, 2, shape, NULL, &temperature, error)) return error->code;
  if (penstock_writer_put_attribute_string(*writer, "T/units", "degC", error)) return error->code;
  for (int number = 0; number < 50; ++number) {
    const double time = 0.2 * (number + 1);
    advance(T);
    if (penstock_writer_begin_step(*writer, PENSTOCK_CONFIGURED, error)) return error->code;
    if (penstock_writer_put_whole(*writer, temperature, T, error)) return error->code;
    if (penstock_writer_put_attribute(*writer, "time", PENSTOCK_FLOAT64, &time, 1, 0, error)) return error->code;
    if (penstock_writer_end_step(*writer, error)) return error->code;
  }
  return penstock_writer_close(*writer, PENSTOCK_CONFIGURED, error);
}

int main(void) {
  penstock_error error;
  penstock_context* context = NULL;
  penstock_writer* writer = NULL;
  int code = penstock_context_create(NULL, &context, &error);
  if (code == PENSTOCK_OK) code = write_stream(context, &writer, &error);
  if (code != PENSTOCK_OK) fprintf(stderr, "writer: %s (%s)\n", error.message, penstock_code_name(code));
  penstock_writer_destroy(writer);
  penstock_context_destroy(context);
  return code == PENSTOCK_OK ? 0 : 1;
}
