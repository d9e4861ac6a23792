/* The C API needs nothing of C++ but the shared library. */
#include <penstock/penstock.h>
#include <stdio.h>

int main(void) {
  printf("penstock %s, float64 has %zu bytes\n", penstock_version(), penstock_dtype_size(PENSTOCK_FLOAT64));
  return penstock_dtype_size(PENSTOCK_FLOAT64) == 8 ? 0 : 1;
}
