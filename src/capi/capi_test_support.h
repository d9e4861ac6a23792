/* What the test programs of the C API share: assertions. */
#ifndef PENSTOCK_CAPI_TEST_SUPPORT_H
#define PENSTOCK_CAPI_TEST_SUPPORT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "penstock/penstock.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)
/* The last argument of call must be &error. */
#define OK(call)                                                                                                  \
  do {                                                                                                            \
    penstock_error error;                                                                                         \
    int code = call;                                                                                              \
    if (code != PENSTOCK_OK) {                                                                                    \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, penstock_code_name(code), error.message); \
      exit(1);                                                                                                    \
    }                                                                                                             \
    CHECK(error.code == PENSTOCK_OK && error.message[0] == '\0');                                                 \
  } while (0)
#define FAILS(expected, call)                                                                                     \
  do {                                                                                                            \
    penstock_error error;                                                                                         \
    int code = call;                                                                                              \
    if (code != (expected)) {                                                                                     \
      fprintf(stderr, "%s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call, penstock_code_name(code), #expected); \
      exit(1);                                                                                                    \
    }                                                                                                             \
    CHECK(error.code == code && error.message[0] != '\0');                                                        \
  } while (0)

enum { deadline_ms = 20000 };

#endif
