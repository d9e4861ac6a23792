/* The C API of pools, and of streams that keep their steps in one. tests/conformance/run_in_engine.py starts the server. */
#include <sys/types.h>
#include <sys/wait.h>

#include "capi/capi_test_pair.h"
#include "penstock/pool.h"

static bool is_text(const char* bytes, size_t size, const char* text) {
  return size == strlen(text) && memcmp(bytes, text, size) == 0;
}

static penstock_pool* new_pool(penstock_context* context, const char* options) {
  penstock_pool* pool = NULL;
  OK(penstock_pool_create(context, options, &pool, &error));
  return pool;
}

static void put(penstock_pool* pool, const char* row, const char* column, const char* text) {
  OK(penstock_pool_put(pool, penstock_key_of(row, column), text, strlen(text), NULL, deadline_ms, NULL, &error));
}

/* Without a server. */
void test_pool_arguments(void) {
  penstock_context* context = new_context();
  penstock_pool* pool = NULL;
  penstock_object* object = NULL;
  FAILS(PENSTOCK_ERR_UNKNOWN_OPTION, penstock_pool_create(context, "pol=stage", &pool, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_create(context, "timeout_ms=soon", &pool, &error));
  FAILS(PENSTOCK_ERR_PEER_LOST, penstock_pool_create(context, "pool=stage,timeout_ms=100", &pool, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_get(NULL, penstock_key_of("r", "c"), NULL, 0, &object, &error));
  CHECK(strcmp(penstock_pool_name(NULL), "") == 0);
  penstock_pool_destroy(NULL);
  penstock_object_destroy(NULL);
  penstock_object_infos_free(NULL);
  penstock_server_status_free(NULL);
  penstock_subscription_destroy(NULL);
  penstock_context_destroy(context);
}

static void one_object(penstock_pool* pool) {
  const char bytes[] = {1, 0, 2, 3};
  const penstock_key key = {"r\0w", 3, NULL, 0}; /* any bytes */
  const penstock_key endless = {"r", SIZE_MAX, NULL, 0};
  penstock_put_options options = {.struct_size = sizeof options, .metadata = "how it was made"};
  penstock_get_options part = {.struct_size = sizeof part, .offset = 2, .bytes = 1};
  penstock_object* object = NULL;
  penstock_object_info* info = NULL;
  uint64_t version = 0, size = 0;
  int dropped = 0;
  char room[4] = "";
  OK(penstock_pool_put(pool, key, bytes, sizeof bytes, &options, deadline_ms, &version, &error));
  CHECK(version == 1);
  FAILS(PENSTOCK_ERR_ALREADY_EXISTS, penstock_pool_put(pool, key, bytes, 1, NULL, deadline_ms, NULL, &error));
  OK(penstock_pool_get(pool, key, NULL, PENSTOCK_CONFIGURED, &object, &error));
  CHECK(object->bytes == 4 && memcmp(object->data, bytes, 4) == 0 && object->info.version == 1);
  CHECK(object->info.key.row_bytes == 3 && memcmp(object->info.key.row, "r\0w", 4) == 0);
  CHECK(strcmp(object->info.metadata, "how it was made") == 0 && object->info.in_memory);
  penstock_object_destroy(object);
  OK(penstock_pool_get(pool, key, &part, deadline_ms, &object, &error));
  CHECK(object->bytes == 1 && *(const char*)object->data == 2);
  penstock_object_destroy(object);
  OK(penstock_pool_get_into(pool, key, room, sizeof room, NULL, deadline_ms, &size, &error));
  CHECK(size == 4 && memcmp(room, bytes, 4) == 0);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_get_into(pool, key, room, 3, NULL, deadline_ms, &size, &error));
  options.if_exists = PENSTOCK_IF_EXISTS_ADD_VERSION;
  OK(penstock_pool_put(pool, key, NULL, 0, &options, deadline_ms, &version, &error));
  CHECK(version == 2);
  OK(penstock_pool_info(pool, key, NULL, deadline_ms, &info, &error));
  CHECK(info->version == 2 && info->bytes == 0);
  penstock_object_infos_free(info);
  options.if_exists = 3;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_put(pool, key, bytes, 1, &options, deadline_ms, NULL, &error));
  options.struct_size = 0;
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_put(pool, key, bytes, 1, &options, deadline_ms, NULL, &error));
  OK(penstock_pool_drop(pool, key, NULL, deadline_ms, &dropped, &error));
  CHECK(dropped);
  OK(penstock_pool_drop(pool, key, NULL, deadline_ms, &dropped, &error));
  CHECK(!dropped);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_drop(pool, endless, NULL, deadline_ms, &dropped, &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_pool_get(pool, key, NULL, deadline_ms, &object, &error));
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_pool_need(pool, key, NULL, 50, &object, &error));
}

static void many_objects(penstock_pool* pool) {
  penstock_object_info* infos = NULL;
  penstock_object* object = NULL;
  size_t count = 0;
  uint64_t dropped = 0;
  put(pool, "run 1", "a", "one");
  put(pool, "run 1", "b", "two");
  put(pool, "run 2", "a", "three");
  OK(penstock_pool_list(pool, "run*", NULL, 0, &infos, &count, &error));
  CHECK(count == 3 && is_text(infos[2].key.row, infos[2].key.row_bytes, "run 2") && infos[2].bytes == 5);
  CHECK(is_text(infos[1].key.column, infos[1].key.column_bytes, "b"));
  penstock_object_infos_free(infos);
  OK(penstock_pool_list(pool, NULL, "a", 1, &infos, &count, &error));
  CHECK(count == 1 && is_text(infos[0].key.row, infos[0].key.row_bytes, "run 1"));
  penstock_object_infos_free(infos);
  OK(penstock_pool_wait_row(pool, "run 1", 2, NULL, deadline_ms, &infos, &count, &error));
  CHECK(count == 2);
  penstock_object_infos_free(infos);
  FAILS(PENSTOCK_ERR_TIMEOUT, penstock_pool_wait_row(pool, "run 1", 3, NULL, 50, &infos, &count, &error));
  OK(penstock_pool_need(pool, penstock_key_of("run 2", "a"), NULL, deadline_ms, &object, &error));
  CHECK(is_text(object->data, object->bytes, "three"));
  penstock_object_destroy(object);
  OK(penstock_pool_drop_matching(pool, "run*", NULL, &dropped, &error));
  CHECK(dropped == 3);
}

/* user: the end of a pipe. */
static void tell_event(int event, const penstock_object_info* info, void* user) {
  const char letter = event == PENSTOCK_OBJECT_PUT ? 'p' : 'd';
  CHECK(is_text(info->key.row, info->key.row_bytes, "seen"));
  CHECK(write(*(const int*)user, &letter, 1) == 1);
}

static void expect_events(int from, const char* letters) {
  for (char letter = 0; *letters; ++letters) CHECK(read(from, &letter, 1) == 1 && letter == *letters);
}

struct waiter {
  penstock_pool* pool;
  int end; /* of a pipe */
};

/* What a call that waits returns in a callback. */
static void wait_in_callback(int event, const penstock_object_info* info, void* user) {
  const struct waiter* its = user;
  penstock_error why;
  const char value = 0;
  const int code =
      penstock_pool_put(its->pool, penstock_key_of("answer", NULL), &value, 1, NULL, deadline_ms, NULL, &why);
  (void)event, (void)info;
  CHECK(strstr(why.message, "in a callback") != NULL);
  CHECK(write(its->end, &code, sizeof code) == sizeof code);
}

static void waiting_in_a_callback(penstock_pool* pool) {
  int ends[2], code = 0;
  penstock_subscription* subscription = NULL;
  CHECK(pipe(ends) == 0);
  struct waiter its = {pool, ends[1]};
  OK(penstock_pool_subscribe(pool, "ask", NULL, wait_in_callback, &its, 0, &subscription, &error));
  put(pool, "ask", "", "1");
  CHECK(read(ends[0], &code, sizeof code) == sizeof code && code == PENSTOCK_ERR_WRONG_STATE);
  penstock_subscription_destroy(subscription);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void after_fork(penstock_pool* pool) {
  penstock_subscription* parents = NULL;
  OK(penstock_pool_subscribe(pool, "nobody", NULL, tell_event, NULL, 0, &parents, &error));
  const pid_t child = fork();
  if (child == 0) {
    penstock_subscription* subscription = NULL;
    uint64_t lost = 0;
    if (penstock_subscription_lost(parents, &lost, NULL) != PENSTOCK_ERR_WRONG_STATE) _exit(101);
    if (penstock_subscription_check(parents, NULL) != PENSTOCK_ERR_WRONG_STATE) _exit(102);
    penstock_subscription_destroy(parents);
    _exit(penstock_pool_subscribe(pool, "seen", NULL, tell_event, NULL, 0, &subscription, NULL));
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == PENSTOCK_ERR_WRONG_STATE);
  penstock_subscription_destroy(parents);
}

static void subscriptions(penstock_pool* pool) {
  int ends[2];
  char letter;
  uint64_t lost = 7;
  penstock_subscription* subscription = NULL;
  CHECK(pipe(ends) == 0);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT,
        penstock_pool_subscribe(pool, "seen", NULL, NULL, NULL, 0, &subscription, &error));
  put(pool, "seen", "before", "1");
  OK(penstock_pool_subscribe(pool, "seen", NULL, tell_event, &ends[1], 1, &subscription, &error));
  expect_events(ends[0], "p");
  put(pool, "seen", "after", "2");
  OK(penstock_pool_drop_matching(pool, "seen", NULL, NULL, &error));
  expect_events(ends[0], "pdd");
  OK(penstock_subscription_lost(subscription, &lost, &error));
  CHECK(lost == 0);
  OK(penstock_subscription_check(subscription, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_subscription_lost(NULL, &lost, &error));
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_subscription_check(NULL, &error));
  penstock_subscription_destroy(subscription);
  put(pool, "seen", "too late", "3");
  CHECK(close(ends[1]) == 0 && read(ends[0], &letter, 1) == 0);
  CHECK(close(ends[0]) == 0);
  OK(penstock_pool_drop_matching(pool, "seen", NULL, NULL, &error));
}

static void computing(penstock_pool* pool) {
  const double values[] = {1, 2, 3};
  penstock_put_options described = {.struct_size = sizeof described,
                                    .metadata = "{\"dtype\": \"float64\", \"shape\": [3]}"};
  const penstock_key key = penstock_key_of("numbers", NULL);
  penstock_object* object = NULL;
  OK(penstock_pool_put(pool, key, values, sizeof values, &described, deadline_ms, NULL, &error));
  OK(penstock_pool_compute(pool, "sum", 1, &key, NULL, deadline_ms, &object, &error));
  CHECK(object->bytes == sizeof(double) && *(const double*)object->data == 6);
  penstock_object_destroy(object);
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_compute(pool, "sum", 1, NULL, NULL, deadline_ms, &object, &error));
}

static void servers(penstock_pool* pool) {
  penstock_server_status* all = NULL;
  size_t count = 0;
  char* text = NULL;
  OK(penstock_pool_status(pool, &all, &count, &error));
  CHECK(count == 1 && strcmp(all[0].state, "active") == 0 && all[0].puts > 0 && all[0].memory_limit > 0);
  OK(penstock_pool_administer(pool, all[0].id, "drain_status", &text, &error));
  CHECK(strstr(text, "none") != NULL);
  penstock_text_free(text);
  /* What is wrong with the call is found before anything is done. */
  FAILS(PENSTOCK_ERR_INVALID_ARGUMENT, penstock_pool_administer(pool, all[0].id, "drain", NULL, &error));
  OK(penstock_pool_administer(pool, all[0].id, "drain_status", &text, &error));
  CHECK(strstr(text, "none") != NULL);
  penstock_text_free(text);
  penstock_server_status_free(all);
  OK(penstock_pool_token(pool, "read", &text, &error));
  CHECK(text[0] != '\0');
  penstock_text_free(text);
  OK(penstock_pool_directory_for_roles(pool, &text, &error));
  CHECK(text[0] != '\0');
  penstock_text_free(text);
}

void test_pool(void) {
  penstock_context* context = new_context();
  penstock_pool* pool = new_pool(context, "ns=test,timeout_ms=20000");
  CHECK(strcmp(penstock_pool_name(pool), "scenarios") == 0);
  one_object(pool);
  many_objects(pool);
  subscriptions(pool);
  waiting_in_a_callback(pool);
  after_fork(pool);
  computing(pool);
  servers(pool);
  penstock_pool_destroy(pool);
  penstock_context_destroy(context);
}

/* Steps that a pool keeps: in any order, and after the writer. */
void test_pool_stream(void) {
  pair p = new_pair();
  const uint32_t variable = define(&p, "t", PENSTOCK_INT32, PENSTOCK_GLOBAL_VALUE, 0, NULL);
  const uint64_t order[] = {3, 0, 2};
  uint64_t numbers[4] = {9, 9, 9, 9}, number = 0;
  size_t count = 0;
  penstock_outcome outcome;
  penstock_pool* pool = new_pool(p.context, NULL);
  char* text = NULL;
  for (int32_t t = 0; t < 4; ++t) {
    begin_write(&p);
    OK(penstock_writer_put_whole(p.writer, variable, &t, &error));
    OK(penstock_writer_end_step(p.writer, &error));
  }
  FAILS(PENSTOCK_ERR_WRONG_STATE, penstock_pool_drop_stream(pool, "heat", &error));
  OK(penstock_writer_close(p.writer, deadline_ms, &error));
  OK(penstock_reader_steps(p.reader, 2, numbers, &count, &error));
  CHECK(count == 4 && numbers[0] == 0 && numbers[1] == 1 && numbers[2] == 9);
  for (int i = 0; i < 3; ++i) {
    OK(penstock_reader_seek(p.reader, order[i], &error));
    OK(penstock_reader_begin_step(p.reader, deadline_ms, &outcome, &error));
    CHECK(outcome == PENSTOCK_READY);
    OK(penstock_reader_step_number(p.reader, &number, &error));
    CHECK(number == order[i]);
    end_read(&p);
  }
  OK(penstock_reader_close(p.reader, &error));
  OK(penstock_pool_stream_info(pool, "heat", &text, &error));
  CHECK(strstr(text, "ended") != NULL);
  penstock_text_free(text);
  OK(penstock_pool_drop_stream(pool, "heat", &error));
  FAILS(PENSTOCK_ERR_NOT_FOUND, penstock_pool_stream_info(pool, "heat", &text, &error));
  penstock_pool_destroy(pool);
  penstock_reader_destroy(p.reader);
  penstock_writer_destroy(p.writer);
  penstock_context_destroy(p.context);
}
