/* Objects in a pool, in C: the members of an ensemble leave a result each, and whoever wants them waits for the row. The two sides are
   one program here so that the example is one file; usually they are two. A pool serves: `penstock pool serve`. */
#include <penstock/pool.h>
#include <stdio.h>

enum { members = 4 };

static int leave_results(penstock_pool* pool, penstock_error* error) {
  penstock_put_options replace = {.struct_size = sizeof replace, .if_exists = PENSTOCK_IF_EXISTS_OVERWRITE};
  for (int member = 0; member < members; ++member) {
    char column[16];
    const double energy = 0.5 * member;
    snprintf(column, sizeof column, "member %d", member);
    if (penstock_pool_put(pool, penstock_key_of("energies", column), &energy, sizeof energy, &replace,
                          PENSTOCK_CONFIGURED, NULL, error))
      return error->code;
  }
  return PENSTOCK_OK;
}

static int add_results(penstock_pool* pool, double* sum, penstock_error* error) {
  penstock_object_info* infos = NULL;
  size_t count = 0;
  if (penstock_pool_wait_row(pool, "energies", members, "member *", PENSTOCK_CONFIGURED, &infos, &count, error))
    return error->code;
  for (size_t i = 0; i < count && error->code == PENSTOCK_OK; ++i) {
    double energy = 0;
    uint64_t bytes = 0;
    penstock_pool_get_into(pool, infos[i].key, &energy, sizeof energy, NULL, PENSTOCK_CONFIGURED, &bytes, error);
    *sum += energy;
  }
  penstock_object_infos_free(infos);
  return error->code;
}

int main(void) {
  penstock_error error = {0};
  penstock_context* context = NULL;
  penstock_pool* pool = NULL;
  double sum = 0;
  int code = penstock_context_create(NULL, &context, &error);
  if (code == PENSTOCK_OK) code = penstock_pool_create(context, "ns=ensemble", &pool, &error);
  if (code == PENSTOCK_OK) code = leave_results(pool, &error);
  if (code == PENSTOCK_OK) code = add_results(pool, &sum, &error);
  if (code != PENSTOCK_OK) fprintf(stderr, "objects: %s (%s)\n", error.message, penstock_code_name(code));
  penstock_pool_destroy(pool);
  penstock_context_destroy(context);
  if (code != PENSTOCK_OK || sum != 3) return 1;
  puts("objects: as expected");
  return 0;
}
