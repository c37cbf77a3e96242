/* aexec.native._loops: loops that NumPy has no word for.  Each function takes contiguous arrays as buffers, checks
 * their sizes, and lets go of the interpreter's lock while it computes.  `__init__.py` says what calls them.
 *
 * REVISION is raised whenever a function is added, or takes other arguments: `__init__.py` names the one that it needs,
 * and does without an extension that was compiled from other sources.
 *
 * loops.h has the loops.  It is compiled for several sets of instructions; the module takes the best that the
 * processor has when it is imported.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define REVISION 11

/* Windows over an image: its size, their size, the distance between their taps, their distance, their number, and the
 * padding before the image. */
struct windows {
    Py_ssize_t height, width, high, wide, step_y, step_x, stride_y, stride_x, columns, before_y, before_x;
};

/* Of a convolution's windows, so many pixels and taps are copied at a time: both stay in a core's second-level cache.
 * Behind them in the scratch is a panel of the weights, or of the gradient. */
enum {
    WINDOW_PIXELS = 96,
    WINDOW_TAPS = 384,
    WINDOW_LINE = WINDOW_TAPS + 16,
    MOST_LANES = 16,
    MOST_TILE = 12,
    /* A tile may read beyond the last of its rows. */
    WINDOW_SCRATCH = (WINDOW_PIXELS + MOST_TILE) * WINDOW_LINE + WINDOW_TAPS * 2 * MOST_LANES,
};

/* The distance between the taps of two windows: an odd number of cache lines, so that a column of many windows does not
 * fall into few sets of the cache. */
static inline Py_ssize_t window_line(Py_ssize_t count) { return ((count + 15) / 16 | 1) * 16; }

/* Rows of tiles of 4 × 4 pixels: [row, row + rows) of all images' rows, `down` for each image and `across` tiles wide;
 * sizes of the images [height, width, channels], of the output [high, wide, filters], and the padding before them.  A
 * tile has sums × sums sums, 6 for kernels of 3 rows, 8 for those of 5; `count` is the number of tiles. */
struct tiles {
    Py_ssize_t height, width, channels, high, wide, filters, before_y, before_x, sums, row, rows, down, across, count;
};

/* The numbers of a line of sums: as many as there are channels, up to a multiple of the longest register's. */
static inline Py_ssize_t whole_line(Py_ssize_t channels) {
    return (channels + MOST_LANES - 1) / MOST_LANES * MOST_LANES;
}

#define NAME(name) name##_plain
#define TARGET
#define LANES 4
#define TILE 4
#define EACH_OF_TILE(DO) DO(0) DO(1) DO(2) DO(3)
#include "loops.h"
#undef NAME
#undef TARGET
#undef LANES
#undef TILE
#undef EACH_OF_TILE

#if defined(__x86_64__)
#define NAME(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define TILE 6
#define EACH_OF_TILE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#include "loops.h"
#undef NAME
#undef TARGET
#undef LANES
#undef TILE
#undef EACH_OF_TILE
#define NAME(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")))
#define LANES 16
#define TILE 12
#define EACH_OF_TILE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#include "loops.h"
#undef NAME
#undef TARGET
#undef LANES
#undef TILE
#undef EACH_OF_TILE
#endif

/* The loops that are used. */
#define EACH_LOOP(DO)                                                                                                 \
    DO(erfs) DO(gelu) DO(sigmoids) DO(tanhs) DO(sigmoid_grads) DO(tanh_grads) DO(relu_grads) DO(relu6_grads) DO(choose_words) DO(choose_longs) DO(finish) DO(centred_sums) DO(normalise) DO(depthwise) DO(depthwise_gradient) DO(convolve)\
    DO(filter_gradient) DO(add_windows) DO(winograd) DO(winograd_gradient) DO(max_pool) DO(max_pool_grad) DO(cross_entropy)                        \
    DO(sparse_cross_entropy) DO(add_rows) DO(gradient_descent) DO(momentum) DO(adam) DO(rms_prop) DO(adagrad)\
    DO(lstm) DO(gru) DO(philox)
#define DECLARE(name) static __typeof__(name##_plain) *name;
#define TAKE_PLAIN(name) name = name##_plain;
#define TAKE_AVX2(name) name = name##_avx2;
#define TAKE_AVX512(name) name = name##_avx512;
EACH_LOOP(DECLARE)

/* Takes the loops for the best set of instructions, and returns its name. */
static const char *choose_loops(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
        EACH_LOOP(TAKE_AVX512)
        return "avx512";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        EACH_LOOP(TAKE_AVX2)
        return "avx2";
    }
#endif
    EACH_LOOP(TAKE_PLAIN)
    return "plain";
}

/* ---------------------------------------------------------------- arguments */

enum { MOST = 7 };

/* The arrays of a call, which are released together. */
struct arrays {
    Py_buffer buffers[MOST];
    int count;
};

static PyObject *release(struct arrays *given, PyObject *result) {
    for (int i = 0; i < given->count; i++) {
        PyBuffer_Release(&given->buffers[i]);
    }
    return result;
}

/* The data of the next array, which must have `size` elements of `itemsize` bytes; NULL with an exception if it has
 * not, or is not contiguous. */
static void *take(struct arrays *given, PyObject *array, Py_ssize_t size, size_t itemsize, int writable) {
    Py_buffer *buffer = &given->buffers[given->count];
    if (PyObject_GetBuffer(array, buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    given->count++;
    if (size < 0 || buffer->len != size * (Py_ssize_t)itemsize) {
        PyErr_Format(PyExc_ValueError, "array %d has %zd bytes in place of %zd", given->count, buffer->len,
                     size * (Py_ssize_t)itemsize);
        return NULL;
    }
    return buffer->buf;
}

#define FLOATS(array, size) take(&given, array, size, sizeof(float), 0)
#define OUTPUT(array, size) take(&given, array, size, sizeof(float), 1)
#define INDICES(array, size) take(&given, array, size, sizeof(int64_t), 0)

/* a * b, or -1 if one of them is negative, or the product times 8 is too large. */
static Py_ssize_t times(Py_ssize_t a, Py_ssize_t b) {
    Py_ssize_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > PY_SSIZE_T_MAX / 8) {
        return -1;
    }
    return product;
}

/* The number of elements of an array that stands for as many as it has bytes / 4; -1 with an exception. */
static Py_ssize_t floats_of(PyObject *array) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(array, &buffer, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    Py_ssize_t size = buffer.len / (Py_ssize_t)sizeof(float);
    PyBuffer_Release(&buffer);
    return size;
}

#define COMPUTE(call)                                                                                                 \
    Py_BEGIN_ALLOW_THREADS;                                                                                           \
    call;                                                                                                             \
    Py_END_ALLOW_THREADS;                                                                                             \
    return release(&given, Py_NewRef(Py_None))
#define REFUSE return release(&given, NULL)

/* ---------------------------------------------------------------- functions */

/* A loop over the elements of an array, into another one of its size. */
static PyObject *of_each(PyObject *args, void (*loop)(const float *, float *, Py_ssize_t)) {
    PyObject *x, *out;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OO", &x, &out)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(x);
    const float *from = FLOATS(x, size);
    float *to = from == NULL ? NULL : OUTPUT(out, size);
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(loop(from, to, size));
}

static PyObject *py_erfs(PyObject *module, PyObject *args) { return of_each(args, erfs); }

static PyObject *py_sigmoids(PyObject *module, PyObject *args) { return of_each(args, sigmoids); }

static PyObject *py_tanhs(PyObject *module, PyObject *args) { return of_each(args, tanhs); }

/* A loop over the elements of two arrays, into an array of their size. */
static PyObject *of_pairs(PyObject *args, void (*loop)(const float *, const float *, float *, Py_ssize_t)) {
    PyObject *grad, *x, *out;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO", &grad, &x, &out)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(grad);
    const float *slope = FLOATS(grad, size), *at = slope == NULL ? NULL : FLOATS(x, size);
    float *to = at == NULL ? NULL : OUTPUT(out, size);
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(loop(slope, at, to, size));
}

static PyObject *py_sigmoid_grads(PyObject *module, PyObject *args) { return of_pairs(args, sigmoid_grads); }

static PyObject *py_tanh_grads(PyObject *module, PyObject *args) { return of_pairs(args, tanh_grads); }

static PyObject *py_relu_grads(PyObject *module, PyObject *args) { return of_pairs(args, relu_grads); }

static PyObject *py_relu6_grads(PyObject *module, PyObject *args) { return of_pairs(args, relu6_grads); }

static PyObject *py_gelu(PyObject *module, PyObject *x) {
    struct arrays given = {.count = 0};
    Py_ssize_t size = floats_of(x);
    float *data = OUTPUT(x, size);
    if (data == NULL) {
        REFUSE;
    }
    COMPUTE(gelu(data, size));
}

static PyObject *py_choose(PyObject *module, PyObject *args) {
    PyObject *mask, *one, *other, *out;
    Py_ssize_t size, itemsize, one_step, other_step;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnnnn", &mask, &one, &other, &out, &size, &itemsize, &one_step, &other_step)) {
        return NULL;
    }
    if ((itemsize != 4 && itemsize != 8) || size < 0) {
        PyErr_SetString(PyExc_ValueError, "elements have 4 or 8 bytes");
        return NULL;
    }
    const uint8_t *by = take(&given, mask, size, 1, 0);
    const void *a = by == NULL ? NULL : take(&given, one, one_step ? size : 1, itemsize, 0);
    const void *b = a == NULL ? NULL : take(&given, other, other_step ? size : 1, itemsize, 0);
    void *to = b == NULL ? NULL : take(&given, out, size, itemsize, 1);
    if (to == NULL) {
        REFUSE;
    }
    if (itemsize == 4) {
        COMPUTE(choose_words(by, a, b, to, size, one_step, other_step));
    }
    COMPUTE(choose_longs(by, a, b, to, size, one_step, other_step));
}

static PyObject *py_finish(PyObject *module, PyObject *args) {
    PyObject *rows, *bias, *side;
    Py_ssize_t count, channels;
    double low, high;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOnndd", &rows, &bias, &side, &count, &channels, &low, &high)) {
        return NULL;
    }
    float *data = OUTPUT(rows, times(count, channels));
    const float *add = data == NULL ? NULL : FLOATS(bias, channels), *more = NULL;
    if (add == NULL || (side != Py_None && (more = FLOATS(side, times(count, channels))) == NULL)) {
        REFUSE;
    }
    COMPUTE(finish(data, add, more, count, channels, (float)low, (float)high));
}

static PyObject *py_centred_sums(PyObject *module, PyObject *args) {
    PyObject *x, *grad, *mean, *out;
    Py_ssize_t rows, channels;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnn", &x, &grad, &mean, &out, &rows, &channels)) {
        return NULL;
    }
    const Py_ssize_t size = times(rows, channels);
    const float *from = FLOATS(x, size), *slopes = NULL;
    const float *centre = from == NULL ? NULL : FLOATS(mean, channels);
    double *sums = centre == NULL ? NULL : take(&given, out, times(2, channels), sizeof(double), 1);
    if (sums == NULL || (grad != Py_None && (slopes = FLOATS(grad, size)) == NULL)) {
        REFUSE;
    }
    COMPUTE(centred_sums(from, slopes, centre, sums, rows, channels));
}

static PyObject *py_normalise(PyObject *module, PyObject *args) {
    PyObject *x, *grad, *vectors, *out;
    Py_ssize_t rows, channels;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnn", &x, &grad, &vectors, &out, &rows, &channels)) {
        return NULL;
    }
    const Py_ssize_t size = times(rows, channels);
    const float *from = FLOATS(x, size), *slopes = NULL;
    const float *of = from == NULL ? NULL : FLOATS(vectors, times(4, channels));
    float *to = of == NULL ? NULL : OUTPUT(out, size);
    if (to == NULL || (grad != Py_None && (slopes = FLOATS(grad, size)) == NULL)) {
        REFUSE;
    }
    COMPUTE(normalise(from, slopes, of, of + channels, of + 2 * channels, of + 3 * channels, to, rows, channels));
}

/* Reads windows from a tuple in their order; 0 with an exception if they, or the rows that are wanted, make no sense. */
static int windows_of(PyObject *tuple, struct windows *w, Py_ssize_t row, Py_ssize_t rows) {
    if (!PyArg_ParseTuple(tuple, "nnnnnnnnnnn", &w->height, &w->width, &w->high, &w->wide, &w->step_y, &w->step_x,
                          &w->stride_y, &w->stride_x, &w->columns, &w->before_y, &w->before_x)) {
        return 0;
    }
    /* Within these bounds no position overflows. */
    const Py_ssize_t sizes[] = {w->height, w->width, w->high, w->wide, w->step_y, w->step_x, w->stride_y, w->stride_x};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] < 1 || sizes[i] > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "sizes, steps and strides of windows are from 1 to 2**31 - 1");
            return 0;
        }
    }
    if (row < 0 || row > INT32_MAX || rows < 0 || rows > INT32_MAX || w->columns < 0 || w->columns > INT32_MAX || w->before_y > INT32_MAX || w->before_y < -INT32_MAX ||
        w->before_x > INT32_MAX || w->before_x < -INT32_MAX || times(w->high, w->wide) > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "rows, columns, padding and taps of windows are below 2**31");
        return 0;
    }
    return 1;
}

static PyObject *py_depthwise(PyObject *module, PyObject *args) {
    PyObject *x, *weights, *out, *tuple;
    Py_ssize_t channels, row, rows;
    struct windows w;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnnn", &x, &weights, &out, &tuple, &channels, &row, &rows) ||
        !windows_of(tuple, &w, row, rows)) {
        return NULL;
    }
    const float *image = FLOATS(x, times(times(w.height, w.width), channels));
    const float *by = image == NULL ? NULL : FLOATS(weights, times(times(w.high, w.wide), channels));
    float *to = by == NULL ? NULL : OUTPUT(out, times(times(rows, w.columns), channels));
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(depthwise(image, by, to, &w, channels, row, rows));
}

static PyObject *py_depthwise_gradient(PyObject *module, PyObject *args) {
    PyObject *x, *grad, *out, *tuple;
    Py_ssize_t channels, row, rows;
    struct windows w;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnnn", &x, &grad, &out, &tuple, &channels, &row, &rows) ||
        !windows_of(tuple, &w, row, rows)) {
        return NULL;
    }
    const float *image = FLOATS(x, times(times(w.height, w.width), channels));
    const float *by = image == NULL ? NULL : FLOATS(grad, times(times(rows, w.columns), channels));
    float *to = by == NULL ? NULL : OUTPUT(out, times(times(w.high, w.wide), channels));
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(depthwise_gradient(image, by, to, &w, channels, row, rows));
}

/* convolve and filter_gradient: the second or the third array is written. */
static PyObject *convolution(PyObject *args, int gradient) {
    PyObject *x, *second, *third, *more, *tuple;
    Py_ssize_t channels, filters, row, rows;
    struct windows w;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOnnnn", &x, &second, &third, &more, &tuple, &channels, &filters, &row, &rows) ||
        !windows_of(tuple, &w, row, rows)) {
        return NULL;
    }
    const Py_ssize_t weights = times(times(times(w.high, w.wide), channels), filters);
    const Py_ssize_t pixels = times(times(rows, w.columns), filters);
    const float *image = FLOATS(x, times(times(w.height, w.width), channels));
    const float *by = image == NULL ? NULL : FLOATS(second, gradient ? pixels : weights);
    float *to = by == NULL ? NULL : OUTPUT(third, gradient ? weights : pixels);
    float *scratch = to == NULL ? NULL : OUTPUT(more, WINDOW_SCRATCH);
    if (scratch == NULL) {
        REFUSE;
    }
    if (gradient) {
        COMPUTE(filter_gradient(image, by, to, scratch, &w, channels, filters, row, rows));
    }
    COMPUTE(convolve(image, by, to, scratch, &w, channels, filters, row, rows));
}

static PyObject *py_convolve(PyObject *module, PyObject *args) { return convolution(args, 0); }

static PyObject *py_filter_gradient(PyObject *module, PyObject *args) { return convolution(args, 1); }

static PyObject *py_add_windows(PyObject *module, PyObject *args) {
    PyObject *values, *out, *tuple;
    Py_ssize_t channels, row, rows;
    struct windows w;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOnnn", &values, &out, &tuple, &channels, &row, &rows) ||
        !windows_of(tuple, &w, row, rows)) {
        return NULL;
    }
    const Py_ssize_t taps = times(times(w.high, w.wide), channels);
    const float *from = FLOATS(values, times(times(rows, w.columns), taps));
    float *to = from == NULL ? NULL : OUTPUT(out, times(times(w.height, w.width), channels));
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(add_windows(from, to, &w, channels, row, rows));
}

/* Reads the sizes of `images` images and their tiles; 0 with an exception if they make no sense. */
static int tiles_of(PyObject *tuple, struct tiles *t, Py_ssize_t *images, Py_ssize_t row, Py_ssize_t rows) {
    if (!PyArg_ParseTuple(tuple, "nnnnnnnnnn", images, &t->height, &t->width, &t->channels, &t->high, &t->wide,
                          &t->filters, &t->before_y, &t->before_x, &t->sums)) {
        return 0;
    }
    const Py_ssize_t sizes[] = {*images, t->height, t->width, t->channels, t->high, t->wide, t->filters};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] < 1 || sizes[i] > INT32_MAX / 4) {
            PyErr_SetString(PyExc_ValueError, "sizes of images are from 1 to 2**29 - 1");
            return 0;
        }
    }
    t->down = (t->high + 3) / 4, t->across = (t->wide + 3) / 4, t->row = row, t->rows = rows;
    const Py_ssize_t all = times(*images, t->down);
    if ((t->sums != 6 && t->sums != 8) || t->before_y < 0 || t->before_y >= t->sums || t->before_x < 0 ||
        t->before_x >= t->sums || row < 0 || rows < 1 || all < 0 || row > all || rows > all - row) {
        PyErr_SetString(PyExc_ValueError, "kernels of 3 or 5 rows, less padding than these, and rows of tiles");
        return 0;
    }
    t->count = times(rows, t->across);
    return 1;
}

/* The numbers of scratch that rows of tiles need. */
static Py_ssize_t tiles_scratch(const struct tiles *t) {
    const Py_ssize_t lines = whole_line(t->channels) + whole_line(t->filters);
    const Py_ssize_t longest = t->count > t->channels ? t->count : t->channels;
    const Py_ssize_t sums = times(t->sums * t->sums, times(t->count, lines)), panel = times(longest, 2 * MOST_LANES);
    /* Gaps, and what a tile of a product may read beyond its rows. */
    const Py_ssize_t more = 2 * 16 * t->sums * t->sums + MOST_TILE * lines;
    return sums < 0 || panel < 0 ? -1 : sums + panel + more;
}

/* winograd and winograd_gradient: the third array is written. */
static PyObject *in_tiles(PyObject *args, int gradient) {
    PyObject *x, *second, *third, *more, *first_matrix, *second_matrix, *tuple;
    Py_ssize_t images, row, rows;
    struct tiles t;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOOOnn", &x, &second, &third, &more, &first_matrix, &second_matrix, &tuple, &row,
                          &rows) ||
        !tiles_of(tuple, &t, &images, row, rows)) {
        return NULL;
    }
    const Py_ssize_t kernel = times(times(t.channels, t.filters), t.sums * t.sums);
    const Py_ssize_t pixels = times(times(images, times(t.high, t.wide)), t.filters);
    const float *image = FLOATS(x, times(times(images, times(t.height, t.width)), t.channels));
    const float *by = image == NULL ? NULL : FLOATS(second, gradient ? pixels : kernel);
    float *to = by == NULL ? NULL : OUTPUT(third, gradient ? kernel : pixels);
    float *scratch = to == NULL ? NULL : OUTPUT(more, tiles_scratch(&t));
    const float *input = scratch == NULL ? NULL : FLOATS(first_matrix, t.sums * t.sums);
    const float *other = input == NULL ? NULL : FLOATS(second_matrix, 4 * t.sums);
    if (other == NULL) {
        REFUSE;
    }
    if (gradient) {
        COMPUTE(winograd_gradient(image, by, to, scratch, input, other, &t));
    }
    COMPUTE(winograd(image, by, to, scratch, input, other, &t));
}

static PyObject *py_winograd(PyObject *module, PyObject *args) { return in_tiles(args, 0); }

static PyObject *py_winograd_gradient(PyObject *module, PyObject *args) { return in_tiles(args, 1); }

/* winograd_scratch(sizes, rows): the numbers of scratch for so many rows of tiles. */
static PyObject *py_winograd_scratch(PyObject *module, PyObject *args) {
    PyObject *tuple;
    Py_ssize_t images, rows;
    struct tiles t;
    if (!PyArg_ParseTuple(args, "On", &tuple, &rows) || !tiles_of(tuple, &t, &images, 0, rows)) {
        return NULL;
    }
    return PyLong_FromSsize_t(tiles_scratch(&t));
}

static PyObject *py_max_pool(PyObject *module, PyObject *args) {
    PyObject *x, *out, *tuple;
    Py_ssize_t channels, row, rows;
    struct windows w;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOnnn", &x, &out, &tuple, &channels, &row, &rows) || !windows_of(tuple, &w, row, rows)) {
        return NULL;
    }
    const float *image = FLOATS(x, times(times(w.height, w.width), channels));
    float *to = image == NULL ? NULL : OUTPUT(out, times(times(rows, w.columns), channels));
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(max_pool(image, to, &w, channels, row, rows));
}

static PyObject *py_max_pool_grad(PyObject *module, PyObject *args) {
    PyObject *x, *grad, *out, *tuple;
    Py_ssize_t channels, row, rows;
    struct windows w;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnnn", &x, &grad, &out, &tuple, &channels, &row, &rows) ||
        !windows_of(tuple, &w, row, rows)) {
        return NULL;
    }
    Py_ssize_t size = times(times(w.height, w.width), channels);
    const float *image = FLOATS(x, size);
    const float *from = image == NULL ? NULL : FLOATS(grad, times(times(rows, w.columns), channels));
    float *to = from == NULL ? NULL : OUTPUT(out, size);
    if (to == NULL) {
        REFUSE;
    }
    COMPUTE(max_pool_grad(image, from, to, &w, channels, row, rows));
}

static PyObject *py_cross_entropy(PyObject *module, PyObject *args) {
    PyObject *logits, *labels, *losses, *grads;
    Py_ssize_t rows, classes;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnn", &logits, &labels, &losses, &grads, &rows, &classes)) {
        return NULL;
    }
    Py_ssize_t size = times(rows, classes);
    const float *x = FLOATS(logits, size), *of = x == NULL ? NULL : FLOATS(labels, size);
    float *loss = of == NULL ? NULL : OUTPUT(losses, rows), *grad = loss == NULL ? NULL : OUTPUT(grads, size);
    if (grad == NULL) {
        REFUSE;
    }
    COMPUTE(cross_entropy(x, of, loss, grad, rows, classes));
}

/* True if each index is within [0, limit); otherwise an exception is set. */
static int all_within(const int64_t *index, Py_ssize_t count, Py_ssize_t limit) {
    int outside = 0; /* no early end, so that the loop is vectorised; a negative index is huge when read as unsigned */
    for (Py_ssize_t i = 0; i < count; i++) {
        outside |= (uint64_t)index[i] >= (uint64_t)limit;
    }
    if (outside) {
        PyErr_SetString(PyExc_IndexError, "an index is out of bounds");
    }
    return !outside;
}

static PyObject *py_sparse_cross_entropy(PyObject *module, PyObject *args) {
    PyObject *logits, *labels, *losses, *grads;
    Py_ssize_t rows, classes;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOnn", &logits, &labels, &losses, &grads, &rows, &classes)) {
        return NULL;
    }
    Py_ssize_t size = times(rows, classes);
    const float *x = FLOATS(logits, size);
    const int64_t *of = x == NULL ? NULL : INDICES(labels, rows);
    float *loss = of == NULL ? NULL : OUTPUT(losses, rows), *grad = loss == NULL ? NULL : OUTPUT(grads, size);
    if (grad == NULL || !all_within(of, rows, classes)) {
        REFUSE;
    }
    COMPUTE(sparse_cross_entropy(x, of, loss, grad, rows, classes));
}

static PyObject *py_add_rows(PyObject *module, PyObject *args) {
    PyObject *out, *index, *rows;
    Py_ssize_t of, count, width;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOnnn", &out, &index, &rows, &of, &count, &width)) {
        return NULL;
    }
    float *to = OUTPUT(out, times(of, width));
    const int64_t *at = to == NULL ? NULL : INDICES(index, count);
    const float *from = at == NULL ? NULL : FLOATS(rows, times(count, width));
    if (from == NULL || !all_within(at, count, of)) {
        REFUSE;
    }
    COMPUTE(add_rows(to, at, from, count, width));
}

static PyObject *py_philox(PyObject *module, PyObject *args) {
    PyObject *out, *places;
    unsigned long long key, low, high;
    Py_ssize_t blocks;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOKKKn", &out, &places, &key, &low, &high, &blocks)) {
        return NULL;
    }
    uint32_t *to = take(&given, out, times(blocks, 4), sizeof(uint32_t), 1);
    const uint64_t *at = NULL;
    if (to == NULL || (places != Py_None && (at = take(&given, places, blocks, sizeof(uint64_t), 0)) == NULL)) {
        REFUSE;
    }
    COMPUTE(philox(to, at, key, low, high, blocks));
}

static PyObject *py_gradient_descent(PyObject *module, PyObject *args) {
    PyObject *var, *grad;
    double rate;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOd", &var, &grad, &rate)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(grad);
    const float *by = FLOATS(grad, size);
    float *value = by == NULL ? NULL : OUTPUT(var, size);
    if (value == NULL) {
        REFUSE;
    }
    COMPUTE(gradient_descent(value, by, size, (float)rate));
}

static PyObject *py_momentum(PyObject *module, PyObject *args) {
    PyObject *var, *accum, *grad;
    double rate, decay;
    int nesterov;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOddp", &var, &accum, &grad, &rate, &decay, &nesterov)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(grad);
    const float *by = FLOATS(grad, size);
    float *value = by == NULL ? NULL : OUTPUT(var, size), *slot = value == NULL ? NULL : OUTPUT(accum, size);
    if (slot == NULL) {
        REFUSE;
    }
    COMPUTE(momentum(value, slot, by, size, (float)rate, (float)decay, nesterov));
}

static PyObject *py_adam(PyObject *module, PyObject *args) {
    PyObject *var, *m, *v, *grad;
    double rate, rest1, rest2, epsilon;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOdddd", &var, &m, &v, &grad, &rate, &rest1, &rest2, &epsilon)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(grad);
    const float *by = FLOATS(grad, size);
    float *value = by == NULL ? NULL : OUTPUT(var, size), *first = value == NULL ? NULL : OUTPUT(m, size);
    float *second = first == NULL ? NULL : OUTPUT(v, size);
    if (second == NULL) {
        REFUSE;
    }
    COMPUTE(adam(value, first, second, by, size, (float)rate, (float)rest1, (float)rest2, (float)epsilon));
}

static PyObject *py_rms_prop(PyObject *module, PyObject *args) {
    PyObject *var, *ms, *mom, *grad;
    double rate, rest, decay, epsilon;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOdddd", &var, &ms, &mom, &grad, &rate, &rest, &decay, &epsilon)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(grad);
    const float *by = FLOATS(grad, size);
    float *value = by == NULL ? NULL : OUTPUT(var, size), *squares = value == NULL ? NULL : OUTPUT(ms, size);
    float *step = squares == NULL ? NULL : OUTPUT(mom, size);
    if (step == NULL) {
        REFUSE;
    }
    COMPUTE(rms_prop(value, squares, step, by, size, (float)rate, (float)rest, (float)decay, (float)epsilon));
}

static PyObject *py_adagrad(PyObject *module, PyObject *args) {
    PyObject *var, *accum, *grad;
    double rate;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOd", &var, &accum, &grad, &rate)) {
        return NULL;
    }
    Py_ssize_t size = floats_of(grad);
    const float *by = FLOATS(grad, size);
    float *value = by == NULL ? NULL : OUTPUT(var, size), *slot = value == NULL ? NULL : OUTPUT(accum, size);
    if (slot == NULL) {
        REFUSE;
    }
    COMPUTE(adagrad(value, slot, by, size, (float)rate));
}

/* The array `all` of a sequence's states, which may be None; NULL with an exception if it has another size. */
static int states_of(struct arrays *given, PyObject *array, Py_ssize_t size, float **states) {
    *states = array == Py_None ? NULL : take(given, array, size, sizeof(float), 1);
    return array == Py_None || *states != NULL;
}

static PyObject *py_lstm(PyObject *module, PyObject *args) {
    PyObject *columns, *weights, *c, *h, *all, *scratch;
    Py_ssize_t steps, batch, cells;
    double forget_bias;
    int order[4];
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOOnnnd(iiii)", &columns, &weights, &c, &h, &all, &scratch, &steps, &batch,
                          &cells, &forget_bias, &order[0], &order[1], &order[2], &order[3])) {
        return NULL;
    }
    for (int gate = 0; gate < 4; gate++) {
        if (order[gate] < 0 || order[gate] > 3) {
            PyErr_SetString(PyExc_ValueError, "the order of the gates must be of 0 to 3");
            return NULL;
        }
    }
    Py_ssize_t wide = times(4, cells), state = times(batch, cells);
    const float *from = FLOATS(columns, times(times(steps, batch), wide)), *by = NULL;
    if (from == NULL || (weights != Py_None && (by = FLOATS(weights, times(cells, wide))) == NULL)) {
        REFUSE;
    }
    float *cell = OUTPUT(c, state), *out = cell == NULL ? NULL : OUTPUT(h, state), *states;
    float *room = out == NULL ? NULL : OUTPUT(scratch, times(4, state));
    if (room == NULL || !states_of(&given, all, times(steps, state), &states)) {
        REFUSE;
    }
    COMPUTE(lstm(from, by, cell, out, states, room, steps, batch, cells, (float)forget_bias, order));
}

static PyObject *py_gru(PyObject *module, PyObject *args) {
    PyObject *gates, *made, *of_gates, *of_made, *h, *all, *scratch;
    Py_ssize_t steps, batch, cells;
    struct arrays given = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOOOnnn", &gates, &made, &of_gates, &of_made, &h, &all, &scratch, &steps, &batch,
                          &cells)) {
        return NULL;
    }
    Py_ssize_t state = times(batch, cells), square = times(cells, cells), rows = times(steps, state);
    const float *both = FLOATS(gates, times(2, rows)), *fresh = both == NULL ? NULL : FLOATS(made, rows);
    const float *first = fresh == NULL ? NULL : FLOATS(of_gates, times(2, square));
    const float *second = first == NULL ? NULL : FLOATS(of_made, square);
    float *out = second == NULL ? NULL : OUTPUT(h, state), *states;
    float *room = out == NULL ? NULL : OUTPUT(scratch, times(4, state));
    if (room == NULL || !states_of(&given, all, rows, &states)) {
        REFUSE;
    }
    COMPUTE(gru(both, fresh, first, second, out, states, room, steps, batch, cells));
}

#define FUNCTION(name, flags, text) {#name, py_##name, flags, text}

static PyMethodDef functions[] = {
    FUNCTION(erfs, METH_VARARGS, "erfs(x, out)"),
    FUNCTION(gelu, METH_O, "gelu(x): in place"),
    FUNCTION(sigmoids, METH_VARARGS, "sigmoids(x, out): out may be x"),
    FUNCTION(tanhs, METH_VARARGS, "tanhs(x, out): out may be x"),
    FUNCTION(sigmoid_grads, METH_VARARGS, "sigmoid_grads(y, grad, out): out may be an input"),
    FUNCTION(tanh_grads, METH_VARARGS, "tanh_grads(y, grad, out): out may be an input"),
    FUNCTION(relu_grads, METH_VARARGS, "relu_grads(grad, x, out): out may be an input"),
    FUNCTION(relu6_grads, METH_VARARGS, "relu6_grads(grad, x, out): out may be an input"),
    FUNCTION(choose, METH_VARARGS, "choose(mask, one, other, out, size, itemsize, steps of one and other, 0 or 1)"),
    FUNCTION(finish, METH_VARARGS, "finish(rows, bias, side or None, count, channels, low, high): in place"),
    FUNCTION(centred_sums, METH_VARARGS,
             "centred_sums(x, grad or None, mean, sums, rows, channels): adds to sums, which are float64"),
    FUNCTION(normalise, METH_VARARGS,
             "normalise(x, grad or None, [mean, factor, offset, scale], out, rows, channels): out may be x or grad"),
    FUNCTION(depthwise, METH_VARARGS, "depthwise(x, weights, out, windows, channels, row, rows): one image"),
    FUNCTION(depthwise_gradient, METH_VARARGS,
             "depthwise_gradient(x, grad, out, windows, channels, row, rows): adds to out, one image"),
    FUNCTION(convolve, METH_VARARGS,
             "convolve(x, weights, out, scratch, windows, channels, filters, row, rows): one image"),
    FUNCTION(filter_gradient, METH_VARARGS,
             "filter_gradient(x, grad, out, scratch, windows, channels, filters, row, rows): adds to out, one image"),
    FUNCTION(add_windows, METH_VARARGS, "add_windows(windows, out, windows, channels, row, rows): one image"),
    FUNCTION(winograd, METH_VARARGS,
             "winograd(x, turned kernel, out, scratch, input, back, sizes, row, rows): rows of tiles"),
    FUNCTION(winograd_gradient, METH_VARARGS,
             "winograd_gradient(x, grad, sums, scratch, input, spread, sizes, row, rows): adds to sums"),
    FUNCTION(winograd_scratch, METH_VARARGS, "winograd_scratch(sizes, rows): numbers of scratch"),
    FUNCTION(max_pool, METH_VARARGS, "max_pool(x, out, windows, channels, row, rows): one image"),
    FUNCTION(max_pool_grad, METH_VARARGS, "max_pool_grad(x, grad, out, windows, channels, row, rows): one image"),
    FUNCTION(cross_entropy, METH_VARARGS, "cross_entropy(logits, labels, losses, grads, rows, classes)"),
    FUNCTION(sparse_cross_entropy, METH_VARARGS,
             "sparse_cross_entropy(logits, labels, losses, grads, rows, classes): labels are int64"),
    FUNCTION(add_rows, METH_VARARGS, "add_rows(out, index, rows, rows of out, count, width): index is int64"),
    FUNCTION(philox, METH_VARARGS, "philox(out, numbers of blocks or None, key, low, high, blocks): uint32, uint64"),
    FUNCTION(gradient_descent, METH_VARARGS, "gradient_descent(var, grad, rate)"),
    FUNCTION(momentum, METH_VARARGS, "momentum(var, accum, grad, rate, momentum, nesterov)"),
    FUNCTION(adam, METH_VARARGS, "adam(var, m, v, grad, rate, 1 - beta1, 1 - beta2, epsilon)"),
    FUNCTION(rms_prop, METH_VARARGS, "rms_prop(var, ms, mom, grad, rate, 1 - rho, momentum, epsilon)"),
    FUNCTION(adagrad, METH_VARARGS, "adagrad(var, accum, grad, rate)"),
    FUNCTION(lstm, METH_VARARGS,
             "lstm(columns, weights or None, c, h, states or None, scratch, steps, batch, cells, forget bias, order)"),
    FUNCTION(gru, METH_VARARGS,
             "gru(gates, candidates, of gates, of candidates, h, states or None, scratch, steps, batch, cells)"),
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    if (PyModule_AddIntConstant(module, "WINDOW_SCRATCH", WINDOW_SCRATCH) < 0 ||
        PyModule_AddIntConstant(module, "REVISION", REVISION) < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "INSTRUCTIONS", choose_loops());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "aexec.native._loops", "Loops in C over contiguous float32 arrays.", 0, functions, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
