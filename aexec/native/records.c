/* aexec.native._records: bytes of TFRecord files and of Example messages, many at a time, and elements of shuffled
 * datasets.  `__init__.py` says what calls these functions.
 *
 * `split_records` and `parse_examples` read what is as writers write it, and leave everything else to Python, which has
 * the checks and the errors: `split_records` stops before a record that is not whole or not right, and
 * `parse_examples` gives None for a message that has an unknown field, a field twice, a value of another type, or that
 * is malformed.  What they accept has the meaning that protobuf gives it.
 *
 * REVISION is raised whenever a function is added, or takes other arguments.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define REVISION 2

/* ---------------------------------------------------------------- numbers in bytes */

static inline uint64_t little64(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) {
        value = value << 8 | at[i];
    }
    return value;
}

static inline uint32_t little32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* ---------------------------------------------------------------- CRC-32C */

/* tables[k][b]: the checksum of byte b with k zero bytes after it. */
static uint32_t tables[8][256];

static void make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        }
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (int byte = 0; byte < 256; byte++) {
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
        }
    }
}

static uint32_t crc32c_by_table(const uint8_t *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = crc ^ little32(data), high = little32(data + 4);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
              tables[3][high & 255] ^ tables[2][high >> 8 & 255] ^ tables[1][high >> 16 & 255] ^ tables[0][high >> 24];
    }
    for (; size > 0; size--, data++) {
        crc = crc >> 8 ^ tables[0][(crc ^ *data) & 255];
    }
    return ~crc;
}

#if defined(__x86_64__)
static __attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(const uint8_t *data, size_t size) {
    uint64_t crc = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size > 0; size--, data++) {
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *data);
    }
    return ~(uint32_t)crc;
}
#endif

static uint32_t (*crc32c)(const uint8_t *data, size_t size) = crc32c_by_table;

/* The form of a checksum that files have. */
static uint32_t masked_crc32c(const uint8_t *data, size_t size) {
    uint32_t crc = crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* ---------------------------------------------------------------- TFRecord */

enum { HEADER = 12, FOOTER = 4 };

static PyObject *py_split_records(PyObject *module, PyObject *args) {
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "y*", &buffer)) {
        return NULL;
    }
    const uint8_t *data = buffer.buf;
    const size_t size = (size_t)buffer.len;
    size_t at = 0;
    PyObject *records = PyList_New(0);
    while (records != NULL && size - at >= HEADER + FOOTER) {
        const uint64_t length = little64(data + at);
        if (length > size - at - (HEADER + FOOTER) || little32(data + at + 8) != masked_crc32c(data + at, 8)) {
            break;
        }
        const uint8_t *from = data + at + HEADER;
        if (little32(from + length) != masked_crc32c(from, length)) {
            break;
        }
        PyObject *record = PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)length);
        if (record == NULL || PyList_Append(records, record) < 0) {
            Py_CLEAR(records);
        }
        Py_XDECREF(record);
        at += HEADER + length + FOOTER;
    }
    PyBuffer_Release(&buffer);
    if (records == NULL) {
        return NULL;
    }
    return Py_BuildValue("Nn", records, (Py_ssize_t)at);
}

/* ---------------------------------------------------------------- Example */

/* The kinds of features: the numbers of their fields in the message Feature.  And the tags that occur. */
enum { BYTES = 1, FLOATS = 2, INTEGERS = 3, NO_KIND = 0 };
enum { LENGTH_1 = 1 << 3 | 2, LENGTH_2 = 2 << 3 | 2, VARINT_1 = 1 << 3 | 0, FIXED32_1 = 1 << 3 | 5 };
/* What a function gives: all is well; the message is left to Python; an exception is set. */
enum { FINE = 0, LEFT = 1, FAILED = -1 };

/* The bytes from `at` to `end`. */
struct span {
    const uint8_t *at, *end;
};

/* The values of a feature in the examples until now.
 *
 * strings: a list of bytes objects, for kind BYTES; else `numbers` has `used` bytes of float or int64_t, and room for
 * `room`.  lengths[n]: the number of values in example n; -1 if it has no values. */
struct column {
    int kind;
    PyObject *strings;
    uint8_t *numbers;
    size_t used, room;
    int64_t *lengths;
};

static int read_varint(struct span *from, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && from->at < from->end; shift += 7) {
        const uint8_t byte = *from->at++;
        if (shift == 63 && byte > 1) {
            return LEFT;
        }
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return FINE;
        }
    }
    return LEFT;
}

/* The bytes that follow their length. */
static int read_span(struct span *from, struct span *inner) {
    uint64_t length;
    if (read_varint(from, &length) != FINE || length > (uint64_t)(from->end - from->at)) {
        return LEFT;
    }
    inner->at = from->at;
    inner->end = from->at += length;
    return FINE;
}

/* Room for `more` bytes of numbers. */
static int make_room(struct column *column, size_t more) {
    if (more <= column->room - column->used) {
        return FINE;
    }
    size_t room = column->used + more + column->room;
    uint8_t *numbers = PyMem_Realloc(column->numbers, room);
    if (numbers == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    column->numbers = numbers;
    column->room = room;
    return FINE;
}

/* The functions below read a list of values; `column` is NULL for a feature that nobody asks for.  They add the number
 * of values to `count`. */

static int read_strings(struct span from, struct column *column, int64_t *count) {
    while (from.at < from.end) {
        struct span text;
        if (*from.at++ != LENGTH_1 || read_span(&from, &text) != FINE) {
            return LEFT;
        }
        ++*count;
        if (column != NULL) {
            PyObject *value = PyBytes_FromStringAndSize((const char *)text.at, text.end - text.at);
            const int failed = value == NULL || PyList_Append(column->strings, value) < 0;
            Py_XDECREF(value);
            if (failed) {
                return FAILED;
            }
        }
    }
    return FINE;
}

/* Values of 4 bytes, which are little-endian, as the processor must be: see `execute`. */
static int read_floats(struct span from, struct column *column, int64_t *count) {
    while (from.at < from.end) {
        const uint8_t tag = *from.at++;
        struct span values = {from.at, from.at + 4};
        if (tag == LENGTH_1) {
            if (read_span(&from, &values) != FINE || (values.end - values.at) % 4) {
                return LEFT;
            }
        } else if (tag == FIXED32_1 && from.end - from.at >= 4) {
            from.at += 4;
        } else {
            return LEFT;
        }
        const size_t size = (size_t)(values.end - values.at);
        *count += (int64_t)(size / 4);
        if (column != NULL && size > 0) {
            if (make_room(column, size) != FINE) {
                return FAILED;
            }
            memcpy(column->numbers + column->used, values.at, size);
            column->used += size;
        }
    }
    return FINE;
}

static int read_integers(struct span from, struct column *column, int64_t *count) {
    while (from.at < from.end) {
        const uint8_t tag = *from.at++;
        struct span values = from;
        if (tag == LENGTH_1 && read_span(&from, &values) != FINE) {
            return LEFT;
        } else if (tag != LENGTH_1 && (tag != VARINT_1 || from.at == from.end)) {
            return LEFT;
        }
        while (values.at < values.end) {
            uint64_t value;
            if (read_varint(&values, &value) != FINE) {
                return LEFT;
            }
            ++*count;
            if (column != NULL) {
                if (make_room(column, 8) != FINE) {
                    return FAILED;
                }
                memcpy(column->numbers + column->used, &value, 8);
                column->used += 8;
            }
            if (tag == VARINT_1) {
                from.at = values.at;
                break;
            }
        }
    }
    return FINE;
}

/* A message Feature: the kind of its values, and the values. */
static int read_feature(struct span from, struct column *column, Py_ssize_t number) {
    if (from.at == from.end) { /* as if it were not there, unless the key was there before */
        return column != NULL && column->lengths[number] >= 0 ? LEFT : FINE;
    }
    const int kind = *from.at >> 3;
    struct span list;
    if ((*from.at & 7) != 2 || kind < BYTES || kind > INTEGERS) {
        return LEFT;
    }
    from.at++;
    if (read_span(&from, &list) != FINE || from.at != from.end) {
        return LEFT;
    }
    if (column != NULL && (column->kind != kind || column->lengths[number] >= 0)) {
        return LEFT;
    }
    int64_t count = 0;
    const int result = kind == BYTES    ? read_strings(list, column, &count)
                       : kind == FLOATS ? read_floats(list, column, &count)
                                        : read_integers(list, column, &count);
    if (column != NULL && result == FINE) {
        column->lengths[number] = count;
    }
    return result;
}

/* The features that are asked for.
 *
 * positions: a dict with the position of each key in `columns`.  next: the position of the key that comes next if the
 * keys are in the order of the last example. */
struct wanted {
    struct column *columns;
    PyObject *keys, *positions;
    Py_ssize_t count, next;
};

/* The column for a key, NULL if nobody asks for it. */
static int find_column(struct wanted *wanted, struct span key, struct column **found) {
    const Py_ssize_t size = key.end - key.at;
    *found = NULL;
    if (wanted->next < wanted->count) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyList_GetItem(wanted->keys, wanted->next), &text, &length) < 0) {
            return FAILED;
        }
        if (length == size && memcmp(text, key.at, (size_t)size) == 0) {
            *found = &wanted->columns[wanted->next++];
            return FINE;
        }
    }
    PyObject *object = PyBytes_FromStringAndSize((const char *)key.at, size);
    PyObject *position = object == NULL ? NULL : PyDict_GetItemWithError(wanted->positions, object);
    Py_XDECREF(object);
    if (position != NULL) {
        const Py_ssize_t index = PyLong_AsSsize_t(position);
        *found = &wanted->columns[index];
        wanted->next = index + 1;
        return FINE;
    }
    if (PyErr_Occurred()) {
        return FAILED;
    }
    for (const uint8_t *at = key.at; at < key.end; at++) {
        if (*at > 127) {
            return LEFT; /* protobuf refuses keys that are not UTF-8 */
        }
    }
    return FINE;
}

/* A message Example. */
static int read_example(struct span from, struct wanted *wanted, Py_ssize_t number) {
    struct span features, entry, key, feature;
    if (from.at == from.end) {
        return FINE;
    }
    if (*from.at++ != LENGTH_1 || read_span(&from, &features) != FINE || from.at != from.end) {
        return LEFT;
    }
    wanted->next = 0;
    while (features.at < features.end) {
        struct column *column;
        if (*features.at++ != LENGTH_1 || read_span(&features, &entry) != FINE) {
            return LEFT;
        }
        if (entry.at == entry.end || *entry.at++ != LENGTH_1 || read_span(&entry, &key) != FINE) {
            return LEFT;
        }
        if (entry.at == entry.end || *entry.at++ != LENGTH_2 || read_span(&entry, &feature) != FINE ||
            entry.at != entry.end) {
            return LEFT;
        }
        int result = find_column(wanted, key, &column);
        if (result == FINE) {
            result = read_feature(feature, column, number);
        }
        if (result != FINE) {
            return result;
        }
    }
    return FINE;
}

static int read_examples(PyObject *examples, struct wanted *wanted) {
    for (Py_ssize_t n = 0; n < PyList_Size(examples); n++) {
        char *data;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(examples, n), &data, &size) < 0) {
            return FAILED;
        }
        if (size > INT32_MAX) {
            return LEFT;
        }
        const struct span all = {(const uint8_t *)data, (const uint8_t *)data + size};
        const int result = read_example(all, wanted, n);
        if (result != FINE) {
            return result;
        }
    }
    return FINE;
}

/* Makes the columns and the dict of their positions. */
static int begin(struct wanted *wanted, const char *kinds, Py_ssize_t examples) {
    wanted->positions = PyDict_New();
    wanted->columns = PyMem_Calloc((size_t)wanted->count + 1, sizeof(struct column));
    if (wanted->positions == NULL || wanted->columns == NULL) {
        return FAILED;
    }
    for (Py_ssize_t i = 0; i < wanted->count; i++) {
        struct column *column = &wanted->columns[i];
        PyObject *position = PyLong_FromSsize_t(i);
        const int failed =
            position == NULL || PyDict_SetItem(wanted->positions, PyList_GetItem(wanted->keys, i), position) < 0;
        Py_XDECREF(position);
        column->kind = kinds[i];
        column->strings = column->kind == BYTES ? PyList_New(0) : NULL;
        column->lengths = PyMem_Malloc(((size_t)examples + 1) * sizeof(int64_t));
        if (failed || column->lengths == NULL || (column->kind == BYTES && column->strings == NULL)) {
            return FAILED;
        }
        for (Py_ssize_t n = 0; n < examples; n++) {
            column->lengths[n] = -1;
        }
    }
    return PyDict_Size(wanted->positions) == wanted->count ? FINE : LEFT; /* LEFT: a key occurs twice */
}

static PyObject *results(const struct wanted *wanted, Py_ssize_t examples) {
    PyObject *all = PyList_New(0);
    for (Py_ssize_t i = 0; all != NULL && i < wanted->count; i++) {
        const struct column *column = &wanted->columns[i];
        PyObject *lengths =
            PyByteArray_FromStringAndSize((const char *)column->lengths, examples * (Py_ssize_t)sizeof(int64_t));
        PyObject *values = column->kind == BYTES
                               ? Py_NewRef(column->strings)
                               : PyByteArray_FromStringAndSize((const char *)column->numbers, (Py_ssize_t)column->used);
        PyObject *pair = lengths == NULL || values == NULL ? NULL : PyTuple_Pack(2, values, lengths);
        if (pair == NULL || PyList_Append(all, pair) < 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(pair);
        Py_XDECREF(values);
        Py_XDECREF(lengths);
    }
    return all;
}

static void end(struct wanted *wanted) {
    for (Py_ssize_t i = 0; wanted->columns != NULL && i < wanted->count; i++) {
        Py_XDECREF(wanted->columns[i].strings);
        PyMem_Free(wanted->columns[i].numbers);
        PyMem_Free(wanted->columns[i].lengths);
    }
    PyMem_Free(wanted->columns);
    Py_XDECREF(wanted->positions);
}

static PyObject *py_parse_examples(PyObject *module, PyObject *args) {
    PyObject *examples, *keys;
    const char *kinds;
    Py_ssize_t num_kinds;
    if (!PyArg_ParseTuple(args, "O!O!y#", &PyList_Type, &examples, &PyList_Type, &keys, &kinds, &num_kinds)) {
        return NULL;
    }
    struct wanted wanted = {.keys = keys, .count = PyList_Size(keys)};
    if (num_kinds != wanted.count) {
        PyErr_SetString(PyExc_ValueError, "there must be a kind for each key");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < num_kinds; i++) {
        if (kinds[i] < BYTES || kinds[i] > INTEGERS) {
            PyErr_SetString(PyExc_ValueError, "kinds must be of 1 to 3");
            return NULL;
        }
        if (!PyBytes_Check(PyList_GetItem(keys, i))) {
            PyErr_SetString(PyExc_TypeError, "keys must be bytes");
            return NULL;
        }
    }
    const Py_ssize_t count = PyList_Size(examples);
    int result = begin(&wanted, kinds, count);
    if (result == FINE) {
        result = read_examples(examples, &wanted);
    }
    PyObject *made = NULL;
    if (result == FINE) {
        made = results(&wanted, count);
    } else if (result == LEFT) {
        made = Py_NewRef(Py_None);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    end(&wanted);
    return made;
}

/* ---------------------------------------------------------------- elements of a shuffled dataset */

/* Move an item of one list to a place of another; the lists may be one. */
static int move_item(PyObject *from, Py_ssize_t index, PyObject *to, Py_ssize_t place) {
    PyObject *item = PyList_GetItem(from, index);
    return item == NULL ? FAILED : PyList_SetItem(to, place, Py_NewRef(item));
}

/* The number at an index of an array of int64_t. */
static Py_ssize_t position(const Py_buffer *numbers, Py_ssize_t index) {
    int64_t number;
    memcpy(&number, (const uint8_t *)numbers->buf + index * (Py_ssize_t)sizeof number, sizeof number);
    return (Py_ssize_t)number;
}

/* True if there are `count` numbers, each a position in a list of this size. */
static int are_positions(const Py_buffer *numbers, Py_ssize_t count, Py_ssize_t size) {
    if (numbers->len != count * (Py_ssize_t)sizeof(int64_t)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (position(numbers, i) < 0 || position(numbers, i) >= size) {
            return 0;
        }
    }
    return 1;
}

static int exchange(PyObject *buffer, PyObject *elements, Py_ssize_t empty, const Py_buffer *places,
                    const Py_buffer *chosen) {
    const Py_ssize_t count = PyList_Size(elements);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Py_ssize_t place = position(places, i), other = position(chosen, i);
        if (move_item(elements, i, buffer, empty) != FINE || move_item(buffer, other, elements, i) != FINE ||
            move_item(buffer, place, buffer, other) != FINE) {
            return FAILED;
        }
        empty = place;
    }
    return PyList_SetItem(buffer, empty, Py_NewRef(Py_None));
}

static PyObject *py_exchange(PyObject *module, PyObject *args) {
    PyObject *buffer, *elements;
    Py_ssize_t empty;
    Py_buffer places, chosen;
    if (!PyArg_ParseTuple(args, "O!O!ny*y*", &PyList_Type, &buffer, &PyList_Type, &elements, &empty, &places,
                          &chosen)) {
        return NULL;
    }
    const Py_ssize_t count = PyList_Size(elements), size = PyList_Size(buffer);
    int result = FAILED;
    if (buffer == elements || empty < 0 || empty >= size || !are_positions(&places, count, size) ||
        !are_positions(&chosen, count, size)) {
        PyErr_SetString(PyExc_ValueError, "there must be two places in the buffer for each element");
    } else {
        result = exchange(buffer, elements, empty, &places, &chosen);
    }
    PyBuffer_Release(&places);
    PyBuffer_Release(&chosen);
    return result == FINE ? Py_NewRef(Py_None) : NULL;
}

/* ---------------------------------------------------------------- the module */

static PyMethodDef functions[] = {
    {"split_records", py_split_records, METH_VARARGS,
     "split_records(data): the whole records at its start, as (list of bytes, the number of bytes that they take)"},
    {"parse_examples", py_parse_examples, METH_VARARGS,
     "parse_examples(examples, keys, kinds): (values, lengths) for each key, or None to leave it to protobuf"},
    {"exchange", py_exchange, METH_VARARGS,
     "exchange(buffer, elements, empty, places, chosen): see `shuffle_dataset_ops.py`, which has it in Python"},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    const uint16_t one = 1;
    if (*(const uint8_t *)&one != 1) {
        PyErr_SetString(PyExc_ImportError, "the processor is not little-endian");
        return -1;
    }
    make_tables();
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        crc32c = crc32c_by_instruction;
    }
#endif
    return PyModule_AddIntConstant(module, "REVISION", REVISION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "aexec.native._records",
    "Bytes of TFRecord files and Example messages, and elements of shuffled datasets.", 0, functions, slots, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__records(void) { return PyModuleDef_Init(&definition); }
