/* The loops, once for each set of processor instructions: loops.c includes this file several times, with
 *
 *   NAME(name)  the function's name for this set,
 *   TARGET      the attribute that lets the compiler use the set,
 *   LANES       how many numbers one of its registers holds,
 *   EACH_OF_TILE(DO)  DO(0) DO(1) …, TILE times: so many rows of a product are in registers at once.
 *
 * All arrays are contiguous float32, unless a comment says otherwise; loops.c has checked their sizes.  A comparison
 * `a < b ? b : a` gives `a` if one of them is NaN, so NaN in `a` stays.
 */

typedef float NAME(vector) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t NAME(bits) __attribute__((vector_size(4 * LANES)));
#define vector NAME(vector)
#define bits NAME(bits)
/* Reads or writes LANES numbers at any address. */
#define LOAD(from) (*(const vector *)(from))
#define STORE(to) (*(vector *)(to))

/* ---------------------------------------------------------------- exp, erf and tanh */

/* exp(x): by x = n ln 2 + r and a polynomial in r; error below 2 units in the last place, subnormal results included. */
static inline TARGET float NAME(exp_of)(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* to the nearest whole number */
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* 2**n as two factors, each of which is a normal number. */
    int32_t whole = (int32_t)n, half = whole >> 1;
    union { int32_t word; float value; } one = {(half + 127) << 23}, other = {(whole - half + 127) << 23};
    return p * one.value * other.value;
}

/* erf(x) / x as a quotient of polynomials in x**2 on [-4, 4]; error below 5e-7.  See kernels/common/single_erf.py. */
static inline TARGET float NAME(erf_of)(float x) {
    x = x < -4.0f ? -4.0f : x;
    x = x > 4.0f ? 4.0f : x;
    float square = x * x;
    float above = -2.72614225801306e-10f;
    above = above * square + 2.77068142495902e-08f;
    above = above * square + -2.10102402082508e-06f;
    above = above * square + -5.69250639462346e-05f;
    above = above * square + -7.34990630326855e-04f;
    above = above * square + -2.95459980854025e-03f;
    above = above * square + -1.60960333262415e-02f;
    float below = -1.45660718464996e-05f;
    below = below * square + -2.13374055278905e-04f;
    below = below * square + -1.68282697438203e-03f;
    below = below * square + -7.37332916720468e-03f;
    below = below * square + -1.42647390514189e-02f;
    float result = x * above / below;
    result = result < -1.0f ? -1.0f : result;
    return result > 1.0f ? 1.0f : result;
}

/* tanh(x) = x P(x**2) / Q(x**2); beyond 7.9 it is 1 in float32; error below 5e-7, relative. */
static inline TARGET float NAME(tanh_of)(float x) {
    x = x < -7.90531110763549805f ? -7.90531110763549805f : x;
    x = x > 7.90531110763549805f ? 7.90531110763549805f : x;
    float square = x * x;
    float above = -2.76076847742355e-16f;
    above = above * square + 2.00018790482477e-13f;
    above = above * square + -8.60467152213735e-11f;
    above = above * square + 5.12229709037114e-08f;
    above = above * square + 1.48572235717979e-05f;
    above = above * square + 6.37261928875436e-04f;
    above = above * square + 4.89352455891786e-03f;
    float below = 1.19825839466702e-06f;
    below = below * square + 1.18534705686654e-04f;
    below = below * square + 2.26843463243900e-03f;
    below = below * square + 4.89352518554385e-03f;
    float result = x * above / below;
    result = result < -1.0f ? -1.0f : result;
    return result > 1.0f ? 1.0f : result;
}

static TARGET void NAME(erfs)(const float *restrict x, float *restrict out, Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < size; i++) {
        out[i] = NAME(erf_of)(x[i]);
    }
}

/* x / 2 * (1 + erf(x / sqrt(2))) in place. */
static TARGET void NAME(gelu)(float *restrict x, Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < size; i++) {
        x[i] = x[i] * 0.5f * (1.0f + NAME(erf_of)(x[i] * 0.70710678118654752f));
    }
}

/* ---------------------------------------------------------------- activations and their gradients */

/* In these `out` may be one of the inputs. */
static TARGET void NAME(sigmoids)(const float *x, float *out, Py_ssize_t size) {
#pragma GCC ivdep
    for (Py_ssize_t i = 0; i < size; i++) {
        out[i] = 1.0f / (1.0f + NAME(exp_of)(-x[i]));
    }
}

/* Where x**2 is too small to count, the quotient would lose digits of subnormal numbers. */
static TARGET void NAME(tanhs)(const float *x, float *out, Py_ssize_t size) {
#pragma GCC ivdep
    for (Py_ssize_t i = 0; i < size; i++) {
        const float at = x[i], result = NAME(tanh_of)(at);
        out[i] = (at < 4e-4f) & (at > -4e-4f) ? at : result;
    }
}

/* The gradients of both, from their results y. */
static TARGET void NAME(sigmoid_grads)(const float *y, const float *grad, float *out, Py_ssize_t size) {
#pragma GCC ivdep
    for (Py_ssize_t i = 0; i < size; i++) {
        out[i] = grad[i] * y[i] * (1.0f - y[i]);
    }
}

static TARGET void NAME(tanh_grads)(const float *y, const float *grad, float *out, Py_ssize_t size) {
#pragma GCC ivdep
    for (Py_ssize_t i = 0; i < size; i++) {
        out[i] = grad[i] * (1.0f - y[i] * y[i]);
    }
}

/* grad * (x > 0): an infinite gradient becomes NaN where x is not above 0. */
static TARGET void NAME(relu_grads)(const float *grad, const float *x, float *out, Py_ssize_t size) {
#pragma GCC ivdep
    for (Py_ssize_t i = 0; i < size; i++) {
        out[i] = grad[i] * (x[i] > 0.0f ? 1.0f : 0.0f);
    }
}

static TARGET void NAME(relu6_grads)(const float *grad, const float *x, float *out, Py_ssize_t size) {
#pragma GCC ivdep
    for (Py_ssize_t i = 0; i < size; i++) {
        out[i] = grad[i] * ((x[i] > 0.0f) & (x[i] < 6.0f) ? 1.0f : 0.0f);
    }
}

/* ---------------------------------------------------------------- choices */

/* out[i] = mask[i] ? one[i] : other[i] for elements of 4 or 8 bytes; of an array whose step is 0, the first element is
 * taken for all. */
#define CHOOSE(name, element)                                                                                         \
    static TARGET void NAME(name)(const uint8_t *restrict mask, const element *restrict one,                          \
                                  const element *restrict other, element *restrict out, Py_ssize_t size,              \
                                  Py_ssize_t one_step, Py_ssize_t other_step) {                                       \
        if (one_step && other_step) {                                                                                 \
            for (Py_ssize_t i = 0; i < size; i++) {                                                                   \
                const element a = one[i], b = other[i];                                                               \
                out[i] = mask[i] ? a : b;                                                                             \
            }                                                                                                         \
        } else if (one_step) {                                                                                        \
            for (Py_ssize_t i = 0; i < size; i++) {                                                                   \
                const element a = one[i];                                                                             \
                out[i] = mask[i] ? a : *other;                                                                        \
            }                                                                                                         \
        } else if (other_step) {                                                                                      \
            for (Py_ssize_t i = 0; i < size; i++) {                                                                   \
                const element b = other[i];                                                                           \
                out[i] = mask[i] ? *one : b;                                                                          \
            }                                                                                                         \
        } else {                                                                                                      \
            for (Py_ssize_t i = 0; i < size; i++) {                                                                   \
                out[i] = mask[i] ? *one : *other;                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }
CHOOSE(choose_words, uint32_t)
CHOOSE(choose_longs, uint64_t)
#undef CHOOSE

/* ---------------------------------------------------------------- after a product */

/* rows [count, channels] in place: plus bias [channels], plus side [count, channels], then within [low, high]. */
static TARGET void NAME(finish)(float *restrict rows, const float *restrict bias, const float *restrict side,
                                Py_ssize_t count, Py_ssize_t channels, float low, float high) {
    for (Py_ssize_t n = 0; n < count; n++, rows += channels) {
        if (side != NULL) {
            for (Py_ssize_t c = 0; c < channels; c++) {
                float value = rows[c] + bias[c];
                value += side[c];
                value = value < low ? low : value;
                rows[c] = value > high ? high : value;
            }
            side += channels;
        } else {
            for (Py_ssize_t c = 0; c < channels; c++) {
                float value = rows[c] + bias[c];
                value = value < low ? low : value;
                rows[c] = value > high ? high : value;
            }
        }
    }
}

/* ---------------------------------------------------------------- normalisation of channels */

enum { NAME(SUMMED_ROWS) = 64 };

/* Adds to sums [2, channels] the sums over rows of g and of g * d, where d is x - mean and g is grad, or d if that is
 * NULL.  Some rows are summed in single precision, then all in double. */
static TARGET void NAME(centred_sums)(const float *restrict x, const float *restrict grad, const float *restrict mean,
                                      double *restrict sums, Py_ssize_t rows, Py_ssize_t channels) {
    for (; rows > 0; rows -= NAME(SUMMED_ROWS)) {
        const Py_ssize_t here = rows < NAME(SUMMED_ROWS) ? rows : NAME(SUMMED_ROWS);
        Py_ssize_t c = 0;
        for (; c + LANES <= channels; c += LANES) {
            const vector centre = LOAD(mean + c);
            vector first = {0}, second = {0};
            for (Py_ssize_t i = c; i < here * channels; i += channels) {
                const vector d = LOAD(x + i) - centre, g = grad == NULL ? d : LOAD(grad + i);
                first += g;
                second += g * d;
            }
            for (Py_ssize_t l = 0; l < LANES; l++) {
                sums[c + l] += first[l];
                sums[channels + c + l] += second[l];
            }
        }
        for (; c < channels; c++) {
            float first = 0, second = 0;
            for (Py_ssize_t i = c; i < here * channels; i += channels) {
                const float d = x[i] - mean[c], g = grad == NULL ? d : grad[i];
                first += g;
                second += g * d;
            }
            sums[c] += first;
            sums[channels + c] += second;
        }
        x += here * channels;
        grad = grad == NULL ? NULL : grad + here * channels;
    }
}

/* (x - mean) * factor + offset, plus grad * scale unless that is NULL, for vectors over the channels; `out` may be x or
 * grad. */
static TARGET void NAME(normalise)(const float *x, const float *grad, const float *restrict mean,
                                   const float *restrict factor, const float *restrict offset,
                                   const float *restrict scale, float *out, Py_ssize_t rows, Py_ssize_t channels) {
    for (Py_ssize_t r = 0; r < rows; r++, x += channels, out += channels) {
        if (grad == NULL) {
#pragma GCC ivdep
            for (Py_ssize_t c = 0; c < channels; c++) {
                out[c] = (x[c] - mean[c]) * factor[c] + offset[c];
            }
        } else {
#pragma GCC ivdep
            for (Py_ssize_t c = 0; c < channels; c++) {
                out[c] = (x[c] - mean[c]) * factor[c] + (grad[c] * scale[c] + offset[c]);
            }
            grad += channels;
        }
    }
}

/* ---------------------------------------------------------------- depthwise convolution */

/* The number of taps `first <= t < last` of a window that lie inside [0, length), for the window that begins at
 * `start`. */
static inline TARGET void NAME(inside)(Py_ssize_t start, Py_ssize_t step, Py_ssize_t size, Py_ssize_t length,
                                       Py_ssize_t *first, Py_ssize_t *last) {
    Py_ssize_t from = start < 0 ? (-start + step - 1) / step : 0;
    Py_ssize_t to = start >= length ? 0 : (length - 1 - start) / step + 1;
    *first = from < size ? from : size;
    *last = to < size ? to : size;
}

/* Output rows [row, row + rows) of an image x [height, width, channels] with weights [high, wide, channels], written
 * to out [rows, columns, channels]. */
static TARGET void NAME(depthwise)(const float *restrict x, const float *restrict weights, float *restrict out,
                                   const struct windows *w, Py_ssize_t channels, Py_ssize_t row, Py_ssize_t rows) {
    const Py_ssize_t line = w->width * channels, apart = w->step_x * channels, stride = w->stride_x * channels;
    for (Py_ssize_t r = 0; r < rows; r++, out += w->columns * channels) {
        Py_ssize_t top = (row + r) * w->stride_y - w->before_y, i0, i1;
        NAME(inside)(top, w->step_y, w->high, w->height, &i0, &i1);
        Py_ssize_t c = 0;
        for (; c + LANES <= channels; c += LANES) {
            for (Py_ssize_t q = 0; q < w->columns;) {
                Py_ssize_t left = q * w->stride_x - w->before_x, j0, j1;
                NAME(inside)(left, w->step_x, w->wide, w->width, &j0, &j1);
                const float *from = x + top * line + left * channels + c;
                float *to = out + q * channels + c;
                Py_ssize_t end = left + 3 * w->stride_x + (w->wide - 1) * w->step_x;
                if (left >= 0 && q + 4 <= w->columns && end < w->width) {
                    /* Four pixels side by side share what is read of the weights. */
                    vector a = {0}, b = {0}, d = {0}, e = {0};
                    for (Py_ssize_t i = i0; i < i1; i++) {
                        const float *at = from + i * w->step_y * line, *by = weights + i * w->wide * channels + c;
                        for (Py_ssize_t j = 0; j < w->wide; j++, at += apart, by += channels) {
                            vector weight = LOAD(by);
                            a += LOAD(at) * weight;
                            b += LOAD(at + stride) * weight;
                            d += LOAD(at + 2 * stride) * weight;
                            e += LOAD(at + 3 * stride) * weight;
                        }
                    }
                    STORE(to) = a;
                    STORE(to + channels) = b;
                    STORE(to + 2 * channels) = d;
                    STORE(to + 3 * channels) = e;
                    q += 4;
                } else {
                    vector a = {0};
                    for (Py_ssize_t i = i0; i < i1; i++) {
                        for (Py_ssize_t j = j0; j < j1; j++) {
                            a += LOAD(from + i * w->step_y * line + j * apart) *
                                 LOAD(weights + (i * w->wide + j) * channels + c);
                        }
                    }
                    STORE(to) = a;
                    q++;
                }
            }
        }
        for (; c < channels; c++) {
            for (Py_ssize_t q = 0; q < w->columns; q++) {
                Py_ssize_t left = q * w->stride_x - w->before_x, j0, j1;
                NAME(inside)(left, w->step_x, w->wide, w->width, &j0, &j1);
                const float *from = x + top * line + left * channels + c;
                float sum = 0;
                for (Py_ssize_t i = i0; i < i1; i++) {
                    for (Py_ssize_t j = j0; j < j1; j++) {
                        sum += from[i * w->step_y * line + j * apart] * weights[(i * w->wide + j) * channels + c];
                    }
                }
                out[q * channels + c] = sum;
            }
        }
    }
}

/* Adds to out [high, wide, channels] the gradient of the weights of `depthwise` from the gradient grad [rows, columns,
 * channels] of output rows [row, row + rows).  A row's products are summed before they are added to the others'. */
static TARGET void NAME(depthwise_gradient)(const float *restrict x, const float *restrict grad, float *restrict out,
                                            const struct windows *w, Py_ssize_t channels, Py_ssize_t row,
                                            Py_ssize_t rows) {
    const Py_ssize_t step = w->stride_x * channels;
    for (Py_ssize_t r = 0; r < rows; r++, grad += w->columns * channels) {
        const Py_ssize_t top = (row + r) * w->stride_y - w->before_y;
        Py_ssize_t i0, i1;
        NAME(inside)(top, w->step_y, w->high, w->height, &i0, &i1);
        for (Py_ssize_t tap = i0 * w->wide; tap < i1 * w->wide; tap++) {
            const Py_ssize_t left = tap % w->wide * w->step_x - w->before_x;
            Py_ssize_t q0, q1, c = 0;
            NAME(inside)(left, w->stride_x, w->columns, w->width, &q0, &q1);
            if (q0 >= q1) {
                continue;
            }
            const Py_ssize_t y = top + tap / w->wide * w->step_y;
            const float *from = x + (y * w->width + left + q0 * w->stride_x) * channels, *slopes = grad + q0 * channels;
            float *to = out + tap * channels;
            for (; c + LANES <= channels; c += LANES) {
                vector sum = {0};
                for (Py_ssize_t q = 0; q < q1 - q0; q++) {
                    sum += LOAD(from + q * step + c) * LOAD(slopes + q * channels + c);
                }
                STORE(to + c) = LOAD(to + c) + sum;
            }
            for (; c < channels; c++) {
                float sum = 0;
                for (Py_ssize_t q = 0; q < q1 - q0; q++) {
                    sum += from[q * step + c] * slopes[q * channels + c];
                }
                to[c] += sum;
            }
        }
    }
}

/* ---------------------------------------------------------------- convolution */

/* A convolution is the product of a matrix of windows [pixels, taps] with the weights [taps, filters].  The windows are
 * copied for some hundred pixels and taps at a time, which stay in the cache, and a panel of the weights as well; a tile
 * of TILE rows and two registers' columns of the result is in registers while it is added up. */
enum { NAME(WIDE) = 2 * LANES, NAME(PIXELS) = WINDOW_PIXELS / TILE * TILE };

/* Copies `count` numbers; like memcpy, which takes longer to begin than to copy a row of a window. */
static inline TARGET void NAME(copy_run)(float *restrict to, const float *restrict from, Py_ssize_t count) {
    Py_ssize_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        STORE(to + k) = LOAD(from + k);
    }
    if (k < count && count >= LANES) {
        STORE(to + count - LANES) = LOAD(from + count - LANES);
        return;
    }
    for (; k < count; k++) {
        to[k] = from[k];
    }
}

static inline TARGET void NAME(clear_run)(float *to, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k] = 0;
    }
}

/* Copies the numbers [from, end) of a row of a window, which begins at column `left` of a row `line` of an image. */
static inline TARGET void NAME(copy_row)(const float *restrict line, float *restrict to, const struct windows *w,
                                         Py_ssize_t channels, Py_ssize_t left, Py_ssize_t from, Py_ssize_t end) {
    if (w->step_x == 1) {
        /* It is contiguous in the image: [first, last) of it lies inside. */
        Py_ssize_t first = left < 0 ? -left * channels : 0, last = (w->width - left) * channels;
        first = first < from ? from : first > end ? end : first;
        last = last > end ? end : last < first ? first : last;
        NAME(clear_run)(to, first - from);
        NAME(copy_run)(to + (first - from), line + left * channels + first, last - first);
        NAME(clear_run)(to + (last - from), end - last);
        return;
    }
    for (Py_ssize_t j = from / channels, c = from % channels; from < end; j++, c = 0) {
        const Py_ssize_t at = left + j * w->step_x, here = channels - c < end - from ? channels - c : end - from;
        if (at < 0 || at >= w->width) {
            NAME(clear_run)(to, here);
        } else {
            NAME(copy_run)(to, line + at * channels + c, here);
        }
        to += here;
        from += here;
    }
}

/* Copies the taps [tap, tap + count) of the windows of `pixels` output pixels, from number `pixel` of the output rows
 * on, to a [pixels, window_line(count)]. */
static TARGET void NAME(copy_windows)(const float *restrict x, float *restrict a, const struct windows *w,
                                      Py_ssize_t channels, Py_ssize_t pixel, Py_ssize_t pixels, Py_ssize_t tap,
                                      Py_ssize_t count) {
    const Py_ssize_t run = w->wide * channels, line = window_line(count), begin = tap / run, skipped = tap % run;
    Py_ssize_t row = pixel / w->columns, column = pixel % w->columns;
    for (Py_ssize_t p = 0; p < pixels; p++, a += line) {
        const Py_ssize_t left = column * w->stride_x - w->before_x;
        Py_ssize_t y = row * w->stride_y - w->before_y + begin * w->step_y, from = skipped;
        for (Py_ssize_t done = 0; done < count; y += w->step_y, from = 0) {
            const Py_ssize_t end = run - from < count - done ? run : from + count - done;
            if (y < 0 || y >= w->height) {
                NAME(clear_run)(a + done, end - from);
            } else {
                NAME(copy_row)(x + y * w->width * channels, a + done, w, channels, left, from, end);
            }
            done += end - from;
        }
        if (++column == w->columns) {
            column = 0, row++;
        }
    }
}

/* Copies columns [column, column + WIDE) of `rows` rows of a matrix [.., columns] to b [rows, WIDE]; zeros beyond, up
 * to a whole register. */
static inline TARGET void NAME(copy_panel)(const float *restrict matrix, float *restrict b, Py_ssize_t rows,
                                           Py_ssize_t columns, Py_ssize_t column) {
    const Py_ssize_t here = columns - column < NAME(WIDE) ? columns - column : NAME(WIDE);
    const Py_ssize_t whole = here > LANES ? NAME(WIDE) : LANES;
    for (Py_ssize_t k = 0; k < rows; k++, b += NAME(WIDE)) {
        NAME(copy_run)(b, matrix + k * columns + column, here);
        NAME(clear_run)(b + here, whole - here);
    }
}

/* `add_tile` for columns that fill one register, or two. */
static inline __attribute__((always_inline)) TARGET void NAME(add_registers)(
    const float *restrict a, Py_ssize_t down, Py_ssize_t along, const float *restrict b, Py_ssize_t count,
    float *restrict out, Py_ssize_t width, Py_ssize_t rows, Py_ssize_t columns, int begin, const int two) {
    float edge[TILE * 2 * LANES];
    const int whole = rows == TILE && columns == (two ? NAME(WIDE) : LANES);
    float *to = whole ? out : edge;
    const Py_ssize_t line = whole ? width : NAME(WIDE);
    if (!whole && !begin) {
        for (Py_ssize_t r = 0; r < rows; r++) {
            NAME(copy_run)(edge + r * NAME(WIDE), out + r * width, columns);
        }
    }
#define DECLARE_ROW(r) vector left##r = {0}, right##r = {0};
#define READ_ROW(r) left##r = LOAD(to + r * line), right##r = two ? LOAD(to + r * line + LANES) : right##r;
#define ADD_ROW(r) left##r += a[r * down] * one, right##r += a[r * down] * other;
#define WRITE_ROW(r)                                                                                                  \
    STORE(to + r * line) = left##r;                                                                                   \
    if (two) {                                                                                                        \
        STORE(to + r * line + LANES) = right##r;                                                                      \
    }
    EACH_OF_TILE(DECLARE_ROW)
    if (!begin) {
        EACH_OF_TILE(READ_ROW)
    }
    for (Py_ssize_t k = 0; k < count; k++, a += along, b += NAME(WIDE)) {
        const vector one = LOAD(b), other = two ? LOAD(b + LANES) : one;
        EACH_OF_TILE(ADD_ROW)
    }
    EACH_OF_TILE(WRITE_ROW)
    if (!whole) {
        for (Py_ssize_t r = 0; r < rows; r++) {
            NAME(copy_run)(out + r * width, edge + r * NAME(WIDE), columns);
        }
    }
}

/* The tile out[r, n] += sum over k of a[r * down + k * along] * b[k, n], for r < rows of TILE and n < columns of
 * WIDE; with `begin` out is not read.  All TILE rows of `a` are read. */
static inline __attribute__((always_inline)) TARGET void NAME(add_tile)(const float *restrict a, Py_ssize_t down, Py_ssize_t along,
                                         const float *restrict b, Py_ssize_t count, float *restrict out,
                                         Py_ssize_t width, Py_ssize_t rows, Py_ssize_t columns, int begin) {
    if (columns > LANES) {
        NAME(add_registers)(a, down, along, b, count, out, width, rows, columns, begin, 1);
    } else {
        NAME(add_registers)(a, down, along, b, count, out, width, rows, columns, begin, 0);
    }
}

/* Output rows [row, row + rows) of the convolution of an image x [height, width, channels] with weights [high, wide,
 * channels, filters], written to out [rows, columns, filters]; `scratch` has WINDOW_SCRATCH numbers. */
static TARGET void NAME(convolve)(const float *restrict x, const float *restrict weights, float *restrict out,
                                  float *restrict scratch, const struct windows *w, Py_ssize_t channels,
                                  Py_ssize_t filters, Py_ssize_t row, Py_ssize_t rows) {
    const Py_ssize_t taps = w->high * w->wide * channels, all = rows * w->columns;
    float *a = scratch, *b = scratch + WINDOW_PIXELS * WINDOW_LINE;
    for (Py_ssize_t p = 0; p < all; p += NAME(PIXELS)) {
        const Py_ssize_t pixels = all - p < NAME(PIXELS) ? all - p : NAME(PIXELS);
        for (Py_ssize_t t = 0; t < taps; t += WINDOW_TAPS) {
            const Py_ssize_t count = taps - t < WINDOW_TAPS ? taps - t : WINDOW_TAPS;
            const Py_ssize_t line = window_line(count);
            NAME(copy_windows)(x, a, w, channels, row * w->columns + p, pixels, t, count);
            for (Py_ssize_t n = 0; n < filters; n += NAME(WIDE)) {
                const Py_ssize_t columns = filters - n < NAME(WIDE) ? filters - n : NAME(WIDE);
                NAME(copy_panel)(weights + t * filters, b, count, filters, n);
                for (Py_ssize_t r = 0; r < pixels; r += TILE) {
                    NAME(add_tile)(a + r * line, line, 1, b, count, out + (p + r) * filters + n,
                                   filters, pixels - r < TILE ? pixels - r : TILE, columns, t == 0);
                }
            }
        }
    }
}

/* Adds to out [high, wide, channels, filters] the gradient of the weights from the gradient grad [rows, columns,
 * filters] of output rows [row, row + rows) of an image x [height, width, channels]. */
static TARGET void NAME(filter_gradient)(const float *restrict x, const float *restrict grad, float *restrict out,
                                         float *restrict scratch, const struct windows *w, Py_ssize_t channels,
                                         Py_ssize_t filters, Py_ssize_t row, Py_ssize_t rows) {
    const Py_ssize_t taps = w->high * w->wide * channels, all = rows * w->columns;
    float *a = scratch, *b = scratch + WINDOW_PIXELS * WINDOW_LINE;
    for (Py_ssize_t p = 0; p < all; p += NAME(PIXELS)) {
        const Py_ssize_t pixels = all - p < NAME(PIXELS) ? all - p : NAME(PIXELS);
        for (Py_ssize_t t = 0; t < taps; t += WINDOW_TAPS) {
            const Py_ssize_t count = taps - t < WINDOW_TAPS ? taps - t : WINDOW_TAPS;
            const Py_ssize_t line = window_line(count);
            NAME(copy_windows)(x, a, w, channels, row * w->columns + p, pixels, t, count);
            for (Py_ssize_t n = 0; n < filters; n += NAME(WIDE)) {
                const Py_ssize_t columns = filters - n < NAME(WIDE) ? filters - n : NAME(WIDE);
                NAME(copy_panel)(grad + p * filters, b, pixels, filters, n);
                for (Py_ssize_t k = 0; k < count; k += TILE) {
                    NAME(add_tile)(a + k, 1, line, b, pixels, out + (t + k) * filters + n, filters,
                                   count - k < TILE ? count - k : TILE, columns, 0);
                }
            }
        }
    }
}

/* Adds windows [rows, columns, high, wide, channels] of rows [row, row + rows) to the places of an image `out` [height,
 * width, channels] that they cover; what lies outside of it is left out. */
static TARGET void NAME(add_windows)(const float *restrict from, float *restrict out, const struct windows *w,
                                     Py_ssize_t channels, Py_ssize_t row, Py_ssize_t rows) {
    const Py_ssize_t run = w->wide * channels;
    for (Py_ssize_t r = 0; r < rows; r++) {
        Py_ssize_t top = (row + r) * w->stride_y - w->before_y, i0, i1;
        NAME(inside)(top, w->step_y, w->high, w->height, &i0, &i1);
        for (Py_ssize_t q = 0; q < w->columns; q++, from += w->high * run) {
            Py_ssize_t left = q * w->stride_x - w->before_x, j0, j1;
            NAME(inside)(left, w->step_x, w->wide, w->width, &j0, &j1);
            for (Py_ssize_t i = i0; i < i1 && j0 < j1; i++) {
                const float *line = from + i * run;
                float *to = out + ((top + i * w->step_y) * w->width + left) * channels;
                if (w->step_x == 1) {
                    for (Py_ssize_t k = j0 * channels; k < j1 * channels; k++) {
                        to[k] += line[k];
                    }
                    continue;
                }
                for (Py_ssize_t j = j0; j < j1; j++) {
                    for (Py_ssize_t c = 0; c < channels; c++) {
                        to[j * w->step_x * channels + c] += line[j * channels + c];
                    }
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- Winograd: kernels/nn/winograd_tiles.py */

/* Each tile of 4 × 4 pixels needs SUMS × SUMS inputs of each channel, SUMS = 3 + rows of the kernel.  They, and the
 * kernel, become as many sums each; the products of these, added up over channels, are sums of the tile's pixels. */
enum { NAME(TILE_SIDE) = 4, NAME(MOST_SUMS) = 8 };

/* The distance of a matrix from the next in the scratch: they would be in the same lines of the cache without a gap. */
static inline Py_ssize_t NAME(plane)(const struct tiles *t, Py_ssize_t channels) {
    return t->count * whole_line(channels) + 16;
}

/* to[r * to_along + l * to_across] = sum over c of matrix[r, c] * from[c * along + l * across], for each of `lines`.
 *
 * Rows 1 and 2, 3 and 4, … of the matrix are for a number and its negative: they differ by the signs of odd columns, so
 * two sums of half as many terms give both. */
static inline __attribute__((always_inline)) TARGET void NAME(turn)(const vector *from, const int along,
                                                                    const int across, vector *to, const int to_along,
                                                                    const int to_across, const float *matrix,
                                                                    const int rows, const int columns,
                                                                    const int lines) {
    for (int l = 0; l < lines; l++, from += across, to += to_across) {
        vector line[NAME(MOST_SUMS)], first = {0}, last = {0};
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++) {
            line[c] = from[c * along];
            first += matrix[c] * line[c];
            last += matrix[(rows - 1) * columns + c] * line[c];
        }
        to[0] = first;
        to[(rows - 1) * to_along] = last;
#pragma GCC unroll 4
        for (int r = 1; r + 1 < rows; r += 2) {
            vector even = {0}, odd = {0};
#pragma GCC unroll 4
            for (int c = 0; c < columns; c += 2) {
                even += matrix[r * columns + c] * line[c];
                if (c + 1 < columns) {
                    odd += matrix[r * columns + c + 1] * line[c + 1];
                }
            }
            to[r * to_along] = even + odd;
            to[(r + 1) * to_along] = even - odd;
        }
    }
}

/* The same for a matrix [4, columns] that is the transpose of such a one. */
static inline __attribute__((always_inline)) TARGET void NAME(turn_transposed)(const vector *from, const int along,
                                                                               const int across, vector *to,
                                                                               const int to_along,
                                                                               const int to_across,
                                                                               const float *matrix, const int columns,
                                                                               const int lines) {
    for (int l = 0; l < lines; l++, from += across, to += to_across) {
        vector sums[NAME(TILE_SIDE)];
#pragma GCC unroll 4
        for (int r = 0; r < NAME(TILE_SIDE); r++) {
            sums[r] = matrix[r * columns] * from[0] + matrix[(r + 1) * columns - 1] * from[(columns - 1) * along];
        }
#pragma GCC unroll 4
        for (int c = 1; c + 1 < columns; c += 2) {
            const vector sum = from[c * along] + from[(c + 1) * along], gap = from[c * along] - from[(c + 1) * along];
#pragma GCC unroll 4
            for (int r = 0; r < NAME(TILE_SIDE); r++) {
                sums[r] += matrix[r * columns + c] * (r % 2 ? gap : sum);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < NAME(TILE_SIDE); r++) {
            to[r * to_along] = sums[r];
        }
    }
}

/* Reads a patch of `side` × `side` pixels, which begins at row `top` and column `left` of an image [height, width,
 * channels], `here` channels from c on; zeros outside of the image. */
static inline __attribute__((always_inline)) TARGET void NAME(read_patch)(const float *restrict x, vector *patch,
                                                                          Py_ssize_t height, Py_ssize_t width,
                                                                          Py_ssize_t channels, Py_ssize_t top,
                                                                          Py_ssize_t left, Py_ssize_t c,
                                                                          Py_ssize_t here, const int side) {
    for (int i = 0; i < side; i++) {
        for (int j = 0; j < side; j++) {
            const Py_ssize_t y = top + i, z = left + j;
            vector numbers = {0};
            if (y >= 0 && y < height && z >= 0 && z < width) {
                const float *at = x + (y * width + z) * channels + c;
                if (here == LANES) {
                    numbers = LOAD(at);
                } else {
                    memcpy(&numbers, at, here * sizeof(float));
                }
            }
            patch[i * side + j] = numbers;
        }
    }
}

/* The sums of patches of images [n, height, width, channels], written to sums [side², tiles, channels]: patches of
 * `read` × `read` pixels that begin 4 pixels apart, `before` the image, times `matrix` [sums, read] on both sides. */
static inline __attribute__((always_inline)) TARGET void NAME(turn_patches)(
    const float *restrict x, float *restrict to, const float *matrix, const struct tiles *t, Py_ssize_t height,
    Py_ssize_t width, Py_ssize_t channels, Py_ssize_t before_y, Py_ssize_t before_x, const int read, const int sums) {
    const Py_ssize_t line = whole_line(channels), plane = NAME(plane)(t, channels);
    for (Py_ssize_t r = 0, tile = 0; r < t->rows; r++) {
        const Py_ssize_t image = (t->row + r) / t->down, top = (t->row + r) % t->down * NAME(TILE_SIDE) - before_y;
        const float *from = x + image * height * width * channels;
        for (Py_ssize_t q = 0; q < t->across; q++, tile++) {
            for (Py_ssize_t c = 0; c < channels; c += LANES) {
                vector patch[NAME(MOST_SUMS) * NAME(MOST_SUMS)], half[NAME(MOST_SUMS) * NAME(MOST_SUMS)];
                const Py_ssize_t here = channels - c < LANES ? channels - c : LANES;
                NAME(read_patch)(from, patch, height, width, channels, top, q * NAME(TILE_SIDE) - before_x, c, here,
                                 read);
                NAME(turn)(patch, read, 1, half, read, 1, matrix, sums, read, read);
                NAME(turn)(half, 1, read, patch, 1, sums, matrix, sums, read, sums);
                float *place = to + tile * line + c;
                for (int p = 0; p < sums * sums; p++) {
                    STORE(place + p * plane) = patch[p];
                }
            }
        }
    }
}

/* The pixels of tiles from sums [side², tiles, filters], written to out [n, high, wide, filters]. */
static inline __attribute__((always_inline)) TARGET void NAME(turn_back)(const float *restrict from,
                                                                         float *restrict out, const float *matrix,
                                                                         const struct tiles *t, const int sums) {
    enum { SIDE = NAME(TILE_SIDE) };
    const Py_ssize_t line = whole_line(t->filters), plane = NAME(plane)(t, t->filters);
    for (Py_ssize_t r = 0, tile = 0; r < t->rows; r++) {
        const Py_ssize_t image = (t->row + r) / t->down, top = (t->row + r) % t->down * SIDE;
        const Py_ssize_t high = t->high - top < SIDE ? t->high - top : SIDE;
        for (Py_ssize_t q = 0; q < t->across; q++, tile++) {
            const Py_ssize_t wide = t->wide - q * SIDE < SIDE ? t->wide - q * SIDE : SIDE;
            float *corner = out + ((image * t->high + top) * t->wide + q * SIDE) * t->filters;
            for (Py_ssize_t f = 0; f < t->filters; f += LANES) {
                vector numbers[NAME(MOST_SUMS) * NAME(MOST_SUMS)], half[SIDE * NAME(MOST_SUMS)];
                const Py_ssize_t here = t->filters - f < LANES ? t->filters - f : LANES;
                const float *place = from + tile * line + f;
                for (int p = 0; p < sums * sums; p++) {
                    numbers[p] = LOAD(place + p * plane);
                }
                NAME(turn_transposed)(numbers, sums, 1, half, sums, 1, matrix, sums, sums);
                NAME(turn_transposed)(half, 1, sums, numbers, 1, SIDE, matrix, sums, SIDE);
                for (Py_ssize_t i = 0; i < high; i++) {
                    for (Py_ssize_t j = 0; j < wide; j++) {
                        float *to = corner + (i * t->wide + j) * t->filters + f;
                        if (here == LANES) {
                            STORE(to) = numbers[i * SIDE + j];
                        } else {
                            memcpy(to, &numbers[i * SIDE + j], here * sizeof(float));
                        }
                    }
                }
            }
        }
    }
}

/* Rows of tiles of the convolution of images x with a kernel that is turned already, [sums², channels, filters]. */
static inline __attribute__((always_inline)) TARGET void NAME(convolve_tiles)(
    const float *restrict x, const float *restrict kernel, float *restrict out, float *restrict scratch,
    const float *input, const float *back, const struct tiles *t, const int sums) {
    const Py_ssize_t line = whole_line(t->channels), plane = NAME(plane)(t, t->channels);
    const Py_ssize_t to_line = whole_line(t->filters), to_plane = NAME(plane)(t, t->filters);
    float *products = scratch + sums * sums * plane, *panel = products + sums * sums * to_plane;
    NAME(turn_patches)(x, scratch, input, t, t->height, t->width, t->channels, t->before_y, t->before_x, sums, sums);
    for (int p = 0; p < sums * sums; p++, kernel += t->channels * t->filters) {
        for (Py_ssize_t n = 0; n < t->filters; n += NAME(WIDE)) {
            const Py_ssize_t columns = to_line - n < NAME(WIDE) ? to_line - n : NAME(WIDE);
            NAME(copy_panel)(kernel, panel, t->channels, t->filters, n);
            for (Py_ssize_t r = 0; r < t->count; r += TILE) {
                NAME(add_tile)(scratch + p * plane + r * line, line, 1, panel, t->channels,
                               products + p * to_plane + r * to_line + n, to_line,
                               t->count - r < TILE ? t->count - r : TILE, columns, 1);
            }
        }
    }
    NAME(turn_back)(products, out, back, t, sums);
}

/* Adds the products for the gradient of the kernel to `out` [sums², channels, filters]; grad is [n, high, wide,
 * filters], and `spread` [sums, 4] the transpose of `back`. */
static inline __attribute__((always_inline)) TARGET void NAME(add_tiles_gradient)(
    const float *restrict x, const float *restrict grad, float *restrict out, float *restrict scratch,
    const float *input, const float *spread, const struct tiles *t, const int sums) {
    const Py_ssize_t line = whole_line(t->channels), plane = NAME(plane)(t, t->channels);
    const Py_ssize_t of_line = whole_line(t->filters), of_plane = NAME(plane)(t, t->filters);
    float *slopes = scratch + sums * sums * plane, *panel = slopes + sums * sums * of_plane;
    NAME(turn_patches)(x, scratch, input, t, t->height, t->width, t->channels, t->before_y, t->before_x, sums, sums);
    NAME(turn_patches)(grad, slopes, spread, t, t->high, t->wide, t->filters, 0, 0, NAME(TILE_SIDE), sums);
    for (int p = 0; p < sums * sums; p++, out += t->channels * t->filters) {
        for (Py_ssize_t n = 0; n < t->filters; n += NAME(WIDE)) {
            const Py_ssize_t columns = t->filters - n < NAME(WIDE) ? t->filters - n : NAME(WIDE);
            NAME(copy_panel)(slopes + p * of_plane, panel, t->count, of_line, n);
            for (Py_ssize_t k = 0; k < t->channels; k += TILE) {
                NAME(add_tile)(scratch + p * plane + k, 1, line, panel, t->count, out + k * t->filters + n, t->filters,
                               t->channels - k < TILE ? t->channels - k : TILE, columns, 0);
            }
        }
    }
}

static TARGET void NAME(winograd)(const float *restrict x, const float *restrict kernel, float *restrict out,
                                  float *restrict scratch, const float *input, const float *back,
                                  const struct tiles *t) {
    if (t->sums == 8) {
        NAME(convolve_tiles)(x, kernel, out, scratch, input, back, t, 8);
    } else {
        NAME(convolve_tiles)(x, kernel, out, scratch, input, back, t, 6);
    }
}

static TARGET void NAME(winograd_gradient)(const float *restrict x, const float *restrict grad, float *restrict out,
                                           float *restrict scratch, const float *input, const float *spread,
                                           const struct tiles *t) {
    if (t->sums == 8) {
        NAME(add_tiles_gradient)(x, grad, out, scratch, input, spread, t, 8);
    } else {
        NAME(add_tiles_gradient)(x, grad, out, scratch, input, spread, t, 6);
    }
}

#undef DECLARE_ROW
#undef READ_ROW
#undef ADD_ROW
#undef WRITE_ROW

/* ---------------------------------------------------------------- max pool */

/* Output rows [row, row + rows) of the maxima of an image x [height, width, channels]: NaN is ignored, and nothing is
 * below the lowest finite number. */
static TARGET void NAME(max_pool)(const float *restrict x, float *restrict out, const struct windows *w,
                                  Py_ssize_t channels, Py_ssize_t row, Py_ssize_t rows) {
    for (Py_ssize_t r = 0; r < rows; r++) {
        Py_ssize_t top = (row + r) * w->stride_y - w->before_y, i0, i1;
        NAME(inside)(top, 1, w->high, w->height, &i0, &i1);
        for (Py_ssize_t q = 0; q < w->columns; q++, out += channels) {
            Py_ssize_t left = q * w->stride_x - w->before_x, j0, j1;
            NAME(inside)(left, 1, w->wide, w->width, &j0, &j1);
            const float *corner = x + (top * w->width + left) * channels;
            Py_ssize_t c = 0;
            for (; c + LANES <= channels; c += LANES) {
                vector best = (vector){0} - FLT_MAX;
                for (Py_ssize_t i = i0; i < i1; i++) {
                    for (Py_ssize_t j = j0; j < j1; j++) {
                        const vector number = LOAD(corner + (i * w->width + j) * channels + c);
                        const bits larger = number > best;
                        best = (vector)((larger & (bits)number) | (~larger & (bits)best));
                    }
                }
                STORE(out + c) = best;
            }
            for (; c < channels; c++) {
                float best = -FLT_MAX;
                for (Py_ssize_t i = i0; i < i1; i++) {
                    for (Py_ssize_t j = j0; j < j1; j++) {
                        const float number = corner[(i * w->width + j) * channels + c];
                        best = number > best ? number : best;
                    }
                }
                out[c] = best;
            }
        }
    }
}

/* Add the gradients grad [rows, columns, channels] of the windows of output rows [row, row + rows) of an image to `out`
 * [height, width, channels], each at the first of its window's largest numbers; a NaN that comes first stays. */
static TARGET void NAME(max_pool_grad)(const float *restrict x, const float *restrict grad, float *restrict out,
                                       const struct windows *w, Py_ssize_t channels, Py_ssize_t row,
                                       Py_ssize_t rows) {
    for (Py_ssize_t r = 0; r < rows; r++) {
        Py_ssize_t top = (row + r) * w->stride_y - w->before_y, i0, i1;
        NAME(inside)(top, 1, w->high, w->height, &i0, &i1);
        for (Py_ssize_t q = 0; q < w->columns; q++, grad += channels) {
            Py_ssize_t left = q * w->stride_x - w->before_x, j0, j1, c = 0;
            NAME(inside)(left, 1, w->wide, w->width, &j0, &j1);
            if (i0 >= i1 || j0 >= j1) {
                continue;
            }
            const Py_ssize_t corner = ((top + i0) * w->width + left + j0) * channels, line = w->width * channels;
            const Py_ssize_t high = i1 - i0, wide = j1 - j0;
            for (; c + LANES <= channels; c += LANES) {
                const float *from = x + corner + c;
                vector best = LOAD(from);
                bits found = {0};
                for (Py_ssize_t i = 0; i < high; i++) {
                    for (Py_ssize_t j = 0; j < wide; j++) {
                        const vector number = LOAD(from + i * line + j * channels);
                        const bits larger = number > best;
                        best = (vector)((larger & (bits)number) | (~larger & (bits)best));
                        found = (larger & (int32_t)(i * wide + j)) | (~larger & found);
                    }
                }
                const vector slope = LOAD(grad + c);
                for (Py_ssize_t i = 0; i < high; i++) {
                    for (Py_ssize_t j = 0; j < wide; j++) {
                        float *to = out + corner + c + i * line + j * channels;
                        STORE(to) = LOAD(to) + (vector)((found == (int32_t)(i * wide + j)) & (bits)slope);
                    }
                }
            }
            for (; c < channels; c++) {
                Py_ssize_t found = corner + c;
                for (Py_ssize_t i = 0; i < high; i++) {
                    for (Py_ssize_t j = 0; j < wide; j++) {
                        const Py_ssize_t at = corner + c + i * line + j * channels;
                        found = x[at] > x[found] ? at : found;
                    }
                }
                out[found] += grad[c];
            }
        }
    }
}

/* ---------------------------------------------------------------- softmax cross entropy */

static inline TARGET float NAME(largest)(const float *x, Py_ssize_t size) {
    float result = -INFINITY;
    for (Py_ssize_t i = 0; i < size; i++) {
        result = x[i] > result ? x[i] : result;
    }
    return result;
}

/* Write exp(x - most) to `out`; return the sum. */
static inline TARGET float NAME(exps)(const float *restrict x, float most, float *restrict out, Py_ssize_t size) {
    float sums[LANES] = {0};
    Py_ssize_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            out[i + k] = NAME(exp_of)(x[i + k] - most);
            sums[k] += out[i + k];
        }
    }
    float total = 0;
    for (; i < size; i++) {
        out[i] = NAME(exp_of)(x[i] - most);
        total += out[i];
    }
    for (int k = 0; k < LANES; k++) {
        total += sums[k];
    }
    return total;
}

/* Losses [rows] and gradients [rows, classes] of logits [rows, classes]; labels are distributions of that shape. */
static TARGET void NAME(cross_entropy)(const float *restrict logits, const float *restrict labels,
                                       float *restrict losses, float *restrict grads, Py_ssize_t rows,
                                       Py_ssize_t classes) {
    for (Py_ssize_t n = 0; n < rows; n++, logits += classes, labels += classes, grads += classes) {
        float most = NAME(largest)(logits, classes), total = NAME(exps)(logits, most, grads, classes);
        float loss = 0, logarithm = logf(total), part = 1.0f / total;
        for (Py_ssize_t c = 0; c < classes; c++) {
            loss += labels[c] * (logarithm - (logits[c] - most));
            grads[c] = grads[c] * part - labels[c];
        }
        losses[n] = loss;
    }
}

/* The same for labels [rows] that are numbers of classes, each within [0, classes). */
static TARGET void NAME(sparse_cross_entropy)(const float *restrict logits, const int64_t *restrict labels,
                                              float *restrict losses, float *restrict grads, Py_ssize_t rows,
                                              Py_ssize_t classes) {
    for (Py_ssize_t n = 0; n < rows; n++, logits += classes, grads += classes) {
        float most = NAME(largest)(logits, classes), total = NAME(exps)(logits, most, grads, classes);
        float part = 1.0f / total;
        losses[n] = logf(total) - (logits[labels[n]] - most);
        for (Py_ssize_t c = 0; c < classes; c++) {
            grads[c] *= part;
        }
        grads[labels[n]] -= 1.0f;
    }
}

/* ---------------------------------------------------------------- rows of a matrix */

/* out[index[i]] += rows[i], for each i in order; index is int64, each within [0, number of rows of out). */
static TARGET void NAME(add_rows)(float *restrict out, const int64_t *restrict index, const float *restrict rows,
                                  Py_ssize_t count, Py_ssize_t width) {
    if (width == 1) { /* a loop over one number costs more than the addition */
        for (Py_ssize_t i = 0; i < count; i++) {
            out[index[i]] += rows[i];
        }
        return;
    }
    for (Py_ssize_t i = 0; i < count; i++, rows += width) {
        float *to = out + index[i] * width;
        for (Py_ssize_t k = 0; k < width; k++) {
            to[k] += rows[k];
        }
    }
}

/* ---------------------------------------------------------------- random words: aexec/numerics/philox.py */

/* out[4 * i + k] = word k of block places[i], or of block i without places: Philox 4x32-10 of a key, with the counter
 * [high, low] for block 0.  The words of some blocks are made together, in lanes. */
static TARGET void NAME(philox)(uint32_t *restrict out, const uint64_t *restrict places, uint64_t key, uint64_t low,
                                uint64_t high, Py_ssize_t blocks) {
    enum { TOGETHER = 32, ROUNDS = 10 };
    for (Py_ssize_t start = 0; start < blocks; start += TOGETHER) {
        const int count = blocks - start < TOGETHER ? (int)(blocks - start) : TOGETHER;
        uint32_t c0[TOGETHER], c1[TOGETHER], c2[TOGETHER], c3[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            const Py_ssize_t at = start + (i < count ? i : 0);
            const uint64_t lower = low + (places == NULL ? (uint64_t)at : places[at]), upper = high + (lower < low);
            c0[i] = (uint32_t)lower;
            c1[i] = (uint32_t)(lower >> 32);
            c2[i] = (uint32_t)upper;
            c3[i] = (uint32_t)(upper >> 32);
        }
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < ROUNDS; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            for (int i = 0; i < TOGETHER; i++) {
                const uint64_t one = (uint64_t)c0[i] * 0xD2511F53u, other = (uint64_t)c2[i] * 0xCD9E8D57u;
                c0[i] = (uint32_t)(other >> 32) ^ c1[i] ^ k0;
                c2[i] = (uint32_t)(one >> 32) ^ c3[i] ^ k1;
                c1[i] = (uint32_t)other;
                c3[i] = (uint32_t)one;
            }
        }
        uint32_t *to = out + 4 * start;
        for (int i = 0; i < count; i++, to += 4) {
            to[0] = c0[i];
            to[1] = c1[i];
            to[2] = c2[i];
            to[3] = c3[i];
        }
    }
}

/* ---------------------------------------------------------------- optimisers: kernels/training/optimizers.py */

static TARGET void NAME(gradient_descent)(float *restrict var, const float *restrict grad, Py_ssize_t size,
                                          float rate) {
    for (Py_ssize_t i = 0; i < size; i++) {
        var[i] -= grad[i] * rate;
    }
}

static TARGET void NAME(momentum)(float *restrict var, float *restrict accum, const float *restrict grad,
                                  Py_ssize_t size, float rate, float momentum, int nesterov) {
    if (nesterov) {
        for (Py_ssize_t i = 0; i < size; i++) {
            accum[i] = accum[i] * momentum + grad[i];
            var[i] -= (grad[i] + accum[i] * momentum) * rate;
        }
    } else {
        for (Py_ssize_t i = 0; i < size; i++) {
            accum[i] = accum[i] * momentum + grad[i];
            var[i] -= accum[i] * rate;
        }
    }
}

static TARGET void NAME(adam)(float *restrict var, float *restrict m, float *restrict v, const float *restrict grad,
                              Py_ssize_t size, float rate, float rest1, float rest2, float epsilon) {
    for (Py_ssize_t i = 0; i < size; i++) {
        m[i] += (grad[i] - m[i]) * rest1;
        v[i] += (grad[i] * grad[i] - v[i]) * rest2;
        var[i] -= m[i] * rate / (sqrtf(v[i]) + epsilon);
    }
}

static TARGET void NAME(rms_prop)(float *restrict var, float *restrict ms, float *restrict mom,
                                  const float *restrict grad, Py_ssize_t size, float rate, float rest, float momentum,
                                  float epsilon) {
    for (Py_ssize_t i = 0; i < size; i++) {
        ms[i] += (grad[i] * grad[i] - ms[i]) * rest;
        mom[i] = mom[i] * momentum + grad[i] * rate / sqrtf(ms[i] + epsilon);
        var[i] -= mom[i];
    }
}

static TARGET void NAME(adagrad)(float *restrict var, float *restrict accum, const float *restrict grad,
                                 Py_ssize_t size, float rate) {
    for (Py_ssize_t i = 0; i < size; i++) {
        accum[i] += grad[i] * grad[i];
        var[i] -= grad[i] * rate / sqrtf(accum[i]);
    }
}

/* ---------------------------------------------------------------- recurrent cells: kernels/rnn/recurrent_loops.py */

static inline TARGET float NAME(sigmoid_of)(float x) { return 1.0f / (1.0f + NAME(exp_of)(-x)); }

/* out = start + row [count] @ weights [count, width], for `vectors` vectors of the columns. */
static inline __attribute__((always_inline)) TARGET void NAME(add_columns)(const float *restrict row,
                                                                           const float *restrict weights,
                                                                           const float *restrict start,
                                                                           float *restrict out, Py_ssize_t count,
                                                                           Py_ssize_t width, const int vectors) {
    vector sums[8];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        sums[v] = LOAD(start + v * LANES);
    }
    for (Py_ssize_t k = 0; k < count; k++, weights += width) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            sums[v] += row[k] * LOAD(weights + v * LANES);
        }
    }
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        STORE(out + v * LANES) = sums[v];
    }
}

/* out [width] = start [width] + row [count] @ weights [count, width].  The last vectors may overlap those before, whose
 * columns are then computed twice. */
static inline TARGET void NAME(add_row_product)(const float *restrict row, const float *restrict weights,
                                                const float *restrict start, float *restrict out, Py_ssize_t count,
                                                Py_ssize_t width) {
    Py_ssize_t n = 0;
#define ADD_COLUMNS(vectors) NAME(add_columns)(row, weights + n, start + n, out + n, count, width, vectors)
    for (; n + 8 * LANES <= width; n += 8 * LANES) {
        ADD_COLUMNS(8);
    }
    while (n < width) {
        Py_ssize_t rest = (width - n + LANES - 1) / LANES;
        if (width < LANES) {
            float sum = start[n];
            for (Py_ssize_t k = 0; k < count; k++) {
                sum += row[k] * weights[k * width + n];
            }
            out[n++] = sum;
            continue;
        }
        if (n + rest * LANES > width) {
            if (width >= rest * LANES) {
                n = width - rest * LANES;
            } else {
                rest--;
            }
        }
        switch (rest) {
        case 1: ADD_COLUMNS(1); break;
        case 2: ADD_COLUMNS(2); break;
        case 3: ADD_COLUMNS(3); break;
        case 4: ADD_COLUMNS(4); break;
        case 5: ADD_COLUMNS(5); break;
        case 6: ADD_COLUMNS(6); break;
        case 7: ADD_COLUMNS(7); break;
        default: ADD_COLUMNS(8); break;
        }
        n += rest * LANES;
    }
#undef ADD_COLUMNS
}

/* The same for four rows, `vectors` vectors of their columns: rows [4, count], start and out [4, width]. */
static inline __attribute__((always_inline)) TARGET void NAME(add_columns_of_four)(
    const float *restrict rows, const float *restrict weights, const float *restrict start, float *restrict out,
    Py_ssize_t count, Py_ssize_t width, const int vectors) {
    vector sums[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            sums[r][v] = LOAD(start + r * width + v * LANES);
        }
    }
    for (Py_ssize_t k = 0; k < count; k++, weights += width) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const vector by = LOAD(weights + v * LANES);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                sums[r][v] += rows[r * count + k] * by;
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            STORE(out + r * width + v * LANES) = sums[r][v];
        }
    }
}

/* out [batch, width] = start [batch, width] + rows [batch, count] @ weights [count, width]. */
static TARGET void NAME(add_product)(const float *restrict rows, const float *restrict weights,
                                     const float *restrict start, float *restrict out, Py_ssize_t batch,
                                     Py_ssize_t count, Py_ssize_t width) {
    Py_ssize_t r = 0;
    for (; r + 4 <= batch && width >= LANES; r += 4, rows += 4 * count, start += 4 * width, out += 4 * width) {
        Py_ssize_t n = 0;
        for (; n + 2 * LANES <= width; n += 2 * LANES) {
            NAME(add_columns_of_four)(rows, weights + n, start + n, out + n, count, width, 2);
        }
        for (; n < width; n += LANES) {
            const Py_ssize_t at = n + LANES <= width ? n : width - LANES;
            NAME(add_columns_of_four)(rows, weights + at, start + at, out + at, count, width, 1);
        }
    }
    for (; r < batch; r++, rows += count, start += width, out += width) {
        NAME(add_row_product)(rows, weights, start, out, count, width);
    }
}

/* One row of an LSTM's step, from its gates [4, cells] before their functions: input, candidate, forget and output,
 * which are in the rows that `order` says. */
static inline TARGET void NAME(lstm_row)(const float *restrict gates, const int *order, float *restrict c,
                                         float *restrict h, Py_ssize_t cells, float forget_bias) {
    const float *restrict in = gates + order[0] * cells, *restrict made = gates + order[1] * cells;
    const float *restrict forget = gates + order[2] * cells, *restrict out = gates + order[3] * cells;
    for (Py_ssize_t n = 0; n < cells; n++) {
        float kept = NAME(sigmoid_of)(forget[n] + forget_bias) * c[n];
        float state = kept + NAME(sigmoid_of)(in[n]) * NAME(tanh_of)(made[n]);
        c[n] = state;
        h[n] = NAME(sigmoid_of)(out[n]) * NAME(tanh_of)(state);
    }
}

/* Steps of an LSTM in place of the states c and h [batch, cells].  columns [steps, batch, 4 * cells] has the part of
 * the gates that does not depend on the state, or all of them if weights [cells, 4 * cells] is NULL.  The states h of
 * all steps go to `all`, unless it is NULL; `scratch` has 4 * batch * cells numbers. */
static TARGET void NAME(lstm)(const float *restrict columns, const float *restrict weights, float *restrict c,
                              float *restrict h, float *restrict all, float *restrict scratch, Py_ssize_t steps,
                              Py_ssize_t batch, Py_ssize_t cells, float forget_bias, const int *order) {
    for (Py_ssize_t t = 0; t < steps; t++, columns += 4 * batch * cells) {
        const float *gates = columns;
        if (weights != NULL) {
            NAME(add_product)(h, weights, columns, scratch, batch, cells, 4 * cells);
            gates = scratch;
        }
        for (Py_ssize_t r = 0; r < batch; r++) {
            NAME(lstm_row)(gates + 4 * r * cells, order, c + r * cells, h + r * cells, cells, forget_bias);
        }
        if (all != NULL) {
            memcpy(all + t * batch * cells, h, batch * cells * sizeof(float));
        }
    }
}

/* left = sigmoid(reset) * h, for one row of a GRU's step. */
static inline TARGET void NAME(gru_left)(const float *restrict reset, const float *restrict h, float *restrict left,
                                         Py_ssize_t cells) {
    for (Py_ssize_t n = 0; n < cells; n++) {
        left[n] = NAME(sigmoid_of)(reset[n]) * h[n];
    }
}

/* h = u * h + (1 - u) * tanh(candidate) with u = sigmoid(update), for one row of a GRU's step. */
static inline TARGET void NAME(gru_row)(const float *restrict update, const float *restrict candidate,
                                        float *restrict h, Py_ssize_t cells) {
    for (Py_ssize_t n = 0; n < cells; n++) {
        float fresh = NAME(tanh_of)(candidate[n]);
        h[n] = NAME(sigmoid_of)(update[n]) * (h[n] - fresh) + fresh;
    }
}

/* Steps of a GRU in place of the state h [batch, cells].  gates [steps, batch, 2 * cells] (reset, update) and made
 * [steps, batch, cells] have the parts that do not depend on the state; `scratch` has 4 * batch * cells numbers. */
static TARGET void NAME(gru)(const float *restrict gates, const float *restrict made, const float *restrict of_gates,
                             const float *restrict of_made, float *restrict h, float *restrict all,
                             float *restrict scratch, Py_ssize_t steps, Py_ssize_t batch, Py_ssize_t cells) {
    const Py_ssize_t size = batch * cells;
    float *restrict both = scratch, *restrict left = scratch + 2 * size, *restrict candidate = scratch + 3 * size;
    for (Py_ssize_t t = 0; t < steps; t++, gates += 2 * size, made += size) {
        NAME(add_product)(h, of_gates, gates, both, batch, cells, 2 * cells);
        for (Py_ssize_t r = 0; r < batch; r++) {
            NAME(gru_left)(both + 2 * r * cells, h + r * cells, left + r * cells, cells);
        }
        NAME(add_product)(left, of_made, made, candidate, batch, cells, cells);
        for (Py_ssize_t r = 0; r < batch; r++) {
            NAME(gru_row)(both + (2 * r + 1) * cells, candidate + r * cells, h + r * cells, cells);
        }
        if (all != NULL) {
            memcpy(all + t * size, h, size * sizeof(float));
        }
    }
}

#undef LOAD
#undef STORE
#undef vector
#undef bits
