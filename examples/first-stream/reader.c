/* Reads the stream "heat" while it is written, and prints two figures of each step. */
#include <penstock/penstock.h>
#include <stdio.h>

enum { columns = 96 };

static int print_step(penstock_reader* reader, penstock_error* error) {
  const uint64_t start[] = {24, 0}, count[] = {1, columns};
  const penstock_selection box = penstock_select_box(2, start, count); /* only this row is read */
  double row[columns], sum = 0, max = 0;
  uint64_t number;
  penstock_variable T;
  penstock_attribute time;

  if (penstock_reader_step_number(reader, &number, error)) return error->code;
  if (penstock_reader_variable(reader, "T", &T, error)) return error->code;
  if (penstock_reader_get(reader, T.id, &box, row, PENSTOCK_ROW, NULL, error)) return error->code;
  if (penstock_reader_attribute(reader, "time", &time, error)) return error->code;
  if (penstock_reader_wait(reader, PENSTOCK_CONFIGURED, error)) return error->code;
  for (int j = 0; j < columns; ++j) {
    sum += row[j];
    if (row[j] > max) max = row[j];
  }
  printf("step %llu  time %.1f  row 24: mean %.3f  max %.3f\n", (unsigned long long)number, *(const double*)time.values,
         sum / columns, max);
  return penstock_reader_end_step(reader, error);
}

static int read_stream(penstock_context* context, penstock_reader** reader, penstock_error* error) {
  if (penstock_context_open_stream(context, "heat", NULL, NULL, reader, error)) return error->code;
  for (;;) {
    penstock_outcome outcome;
    if (penstock_reader_begin_step(*reader, PENSTOCK_CONFIGURED, &outcome, error)) return error->code;
    if (outcome == PENSTOCK_END_OF_STREAM) return PENSTOCK_OK;
    if (outcome == PENSTOCK_NOT_READY) return PENSTOCK_ERR_TIMEOUT;
    if (outcome == PENSTOCK_WRITER_LOST) return PENSTOCK_ERR_WRITER_LOST;
    if (print_step(*reader, error)) return error->code;
  }
}

int main(void) {
  penstock_error error = {0};
  penstock_context* context = NULL;
  penstock_reader* reader = NULL;
  int code = penstock_context_create(NULL, &context, &error);
  if (code == PENSTOCK_OK) code = read_stream(context, &reader, &error);
  if (code != PENSTOCK_OK) fprintf(stderr, "reader: %s (%s)\n", error.message, penstock_code_name(code));
  penstock_reader_destroy(reader);
  penstock_context_destroy(context);
  return code == PENSTOCK_OK ? 0 : 1;
}
