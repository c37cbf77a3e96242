/* aexec from C: dataflow graphs in, tensors out.
 *
 * What crosses are bytes of protobuf messages: GraphDef, ConfigProto, RunOptions, RunMetadata, CallableOptions,
 * TensorProto and DeviceAttributes, with the field numbers of TensorFlow's.  docs/embedding-c.md describes every call.
 *
 * Each function returns a canonical code: 0 for success, 3 for INVALID_ARGUMENT, and so on.  Where it is not 0,
 * *message says why, if the caller gave a place for it.  What a function puts into a message, a handle or a buffer
 * belongs to the caller, who gives it to aexec_free.  Of a call that fails nothing else needs to be freed.
 * Every function may be called from any thread.
 */
#ifndef AEXEC_H
#define AEXEC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The declarations begin here; build.py reads them up to where they end. */

/* Bytes that the caller keeps; none where size is 0. */
typedef struct {
  const void *data;
  size_t size;
} aexec_bytes;

/* Bytes that the library allocated: give data to aexec_free. */
typedef struct {
  void *data;
  size_t size;
} aexec_buffer;

/* A tensor by name, "x:0", as a TensorProto. */
typedef struct {
  const char *name;
  aexec_bytes tensor;
} aexec_feed;

/* Open a session on a GraphDef, with the settings of a ConfigProto; either may be empty. */
int32_t aexec_new_session(aexec_bytes graph_def, aexec_bytes config, int64_t *session, char **message);

/* Add the nodes of a GraphDef. */
int32_t aexec_extend(int64_t session, aexec_bytes graph_def, char **message);

/* The session's devices, as *count messages DeviceAttributes: free each one's data, and *devices itself. */
int32_t aexec_list_devices(int64_t session, aexec_buffer **devices, size_t *count, char **message);

/* Run one step.  tensors has room for num_fetches TensorProtos.  options is a RunOptions, or empty; metadata, a
 * RunMetadata, may be NULL.  run_id is a number by which aexec_cancel finds the call, or 0. */
int32_t aexec_run(int64_t session, const aexec_feed *feeds, size_t num_feeds, const char *const *fetches,
                  size_t num_fetches, const char *const *targets, size_t num_targets, aexec_bytes options,
                  int64_t run_id, aexec_buffer *tensors, aexec_buffer *metadata, char **message);

/* Cancel a call in flight, from another thread: it ends with code 1, CANCELLED. */
int32_t aexec_cancel(int64_t session, int64_t run_id, char **message);

/* Begin a step that is fed and fetched in several calls: free *handle. */
int32_t aexec_partial_run_setup(int64_t session, const char *const *feeds, size_t num_feeds,
                                const char *const *fetches, size_t num_fetches, const char *const *targets,
                                size_t num_targets, aexec_bytes options, char **handle, char **message);

/* Go on with it. */
int32_t aexec_partial_run(int64_t session, const char *handle, const aexec_feed *feeds, size_t num_feeds,
                          const char *const *fetches, size_t num_fetches, aexec_buffer *tensors, char **message);

/* End it early. */
int32_t aexec_cancel_partial_run(int64_t session, const char *handle, char **message);

/* Resolve a CallableOptions once, for many runs. */
int32_t aexec_make_callable(int64_t session, aexec_bytes callable_options, int64_t *callable, char **message);

/* Run it: feeds in the order of its options, and room for as many tensors as they name fetches (num_tensors). */
int32_t aexec_run_callable(int64_t session, int64_t callable, const aexec_bytes *feeds, size_t num_feeds,
                           int64_t run_id, aexec_buffer *tensors, size_t num_tensors, aexec_buffer *metadata,
                           char **message);

/* Forget it. */
int32_t aexec_release_callable(int64_t session, int64_t callable, char **message);

/* Cancel what the session runs, wait for that, and forget the session. */
int32_t aexec_close(int64_t session, char **message);

/* The declarations end here. */

/* Give back a message, a handle or a buffer's data; NULL is fine. */
void aexec_free(void *data);

#ifdef __cplusplus
}
#endif
#endif
