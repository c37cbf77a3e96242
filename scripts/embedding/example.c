/* Runs a graph from C by aexec.h: `example graph.pb`, for a graph with y:0 = f(x:0) of float vectors, and, if it has a
 * node named wait, cancels a run of that from another thread.  The tensors' messages are written and read by hand, so
 * that the example needs no library of protobuf's; a program of some size would use one.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aexec.h"

/* The message is given by its place: it is written while the other arguments are evaluated. */
static void check(int32_t code, char **message, const char *what) {
  if (!code) return;
  fprintf(stderr, "%s: code %" PRId32 ": %s\n", what, code, *message ? *message : "");
  exit(1);
}

/* A TensorProto of a vector of less than 32 floats: field 1 its type, 2 its shape, 4 its elements. */
static size_t write_vector(const float *values, uint8_t size, uint8_t *data) {
  const uint8_t head[] = {0x08, 1, 0x12, 4, 0x12, 2, 0x08, size, 0x22, (uint8_t)(size * sizeof(float))};
  memcpy(data, head, sizeof head);
  memcpy(data + sizeof head, values, size * sizeof(float));
  return sizeof head + size * sizeof(float);
}

/* The elements of a short TensorProto of floats: its field 4. */
static size_t read_vector(const aexec_buffer *tensor, float *values, size_t room) {
  const uint8_t *data = tensor->data;
  for (size_t at = 0; at + 1 < tensor->size;) {
    uint8_t key = data[at], size = data[at + 1];
    if (key == 0x22 && size <= room * sizeof(float)) {
      memcpy(values, data + at + 2, size);
      return size / sizeof(float);
    }
    at += (key & 7) == 2 ? 2 + size : 2;
  }
  return 0;
}

static void print_vector(const char *what, aexec_buffer *tensor) {
  float values[32];
  size_t count = read_vector(tensor, values, 32);
  printf("%s:", what);
  for (size_t i = 0; i < count; i++) printf(" %g", values[i]);
  printf("\n");
  aexec_free(tensor->data);
}

static aexec_bytes read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) {
    perror(path);
    exit(1);
  }
  size_t size = (size_t)ftell(file);
  rewind(file);
  void *data = malloc(size ? size : 1);
  if (fread(data, 1, size, file) != size) exit(1);
  fclose(file);
  return (aexec_bytes){data, size};
}

static void *run_that_waits(void *session) {
  const char *target = "wait";
  char *message;
  int32_t code = aexec_run(*(int64_t *)session, NULL, 0, NULL, 0, &target, 1, (aexec_bytes){0}, 7, NULL, NULL, &message);
  printf("the run that waited: code %" PRId32 ": %s\n", code, message ? message : "");
  aexec_free(message);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  const aexec_bytes nothing = {NULL, 0};
  aexec_bytes graph = read_file(argv[1]);
  int64_t session, callable;
  char *message = NULL, *handle = NULL;
  check(aexec_new_session(graph, nothing, &session, &message), &message, "new session");

  aexec_buffer *devices;
  size_t num_devices;
  check(aexec_list_devices(session, &devices, &num_devices, &message), &message, "list devices");
  printf("devices: %zu\n", num_devices);
  for (size_t i = 0; i < num_devices; i++) aexec_free(devices[i].data);
  aexec_free(devices);

  uint8_t data[256];
  const float values[] = {1, 2, 3};
  aexec_feed feed = {"x:0", {data, write_vector(values, 3, data)}};
  const char *fetches[] = {"y:0"}, *feeds[] = {"x:0"}, *unknown[] = {"none:0"};
  aexec_buffer tensor, metadata;
  check(aexec_run(session, &feed, 1, fetches, 1, NULL, 0, nothing, 0, &tensor, &metadata, &message), &message, "run");
  print_vector("run", &tensor);
  aexec_free(metadata.data);

  int32_t code = aexec_run(session, &feed, 1, unknown, 1, NULL, 0, nothing, 0, &tensor, NULL, &message);
  printf("a fetch that is not there: code %" PRId32 ": %s\n", code, message);
  aexec_free(message);

  check(aexec_partial_run_setup(session, feeds, 1, fetches, 1, NULL, 0, nothing, &handle, &message), &message, "set-up");
  check(aexec_partial_run(session, handle, &feed, 1, fetches, 1, &tensor, &message), &message, "partial run");
  print_vector("partial run", &tensor);
  code = aexec_cancel_partial_run(session, handle, &message);
  printf("one that is over: code %" PRId32 "\n", code);
  aexec_free(message);
  aexec_free(handle);

  /* CallableOptions: field 1 what is fed, 2 what is fetched. */
  const char options[] = "\x0a\x03x:0\x12\x03y:0";
  aexec_bytes made_of = {options, sizeof options - 1};
  check(aexec_make_callable(session, made_of, &callable, &message), &message, "make callable");
  for (int i = 0; i < 2; i++) {
    check(aexec_run_callable(session, callable, &feed.tensor, 1, 0, &tensor, 1, NULL, &message), &message, "call");
    print_vector("callable", &tensor);
  }
  check(aexec_release_callable(session, callable, &message), &message, "release");

  /* Nodes are added: a GraphDef of one NoOp, named wait2, of the producer version (2474) that graphs of aexec have. */
  const char more[] = "\x0a\x0d\x0a\x05wait2\x12\x04NoOp\x22\x03\x08\xaa\x13";
  check(aexec_extend(session, (aexec_bytes){more, sizeof more - 1}, &message), &message, "extend");

  pthread_t thread;
  if (pthread_create(&thread, NULL, run_that_waits, &session)) return 1;
  while (aexec_cancel(session, 7, &message)) { /* until it is in flight */
    aexec_free(message);
    usleep(1000);
  }
  pthread_join(thread, NULL);

  check(aexec_close(session, &message), &message, "close");
  printf("closed again: code %" PRId32 "\n", aexec_close(session, NULL));
  free((void *)graph.data);
  return 0;
}
