/* The Python module of the scanner: its exception, columns of numbers, unions and gaps of intervals. Callers use `scan.py`. */
#include "binding.h"

#include <stdlib.h>

/* ---- faults ---- */

const char *xs_fault_text(xs_fault_kind kind) {
    switch (kind) {
        case XS_TRUNCATED:
            return "the file ends inside a message";
        case XS_SHORT_VARINT:
            return "a number runs past the end of its message";
        case XS_LONG_VARINT:
            return "a number of more than 64 bits";
        case XS_SHORT_BYTES:
            return "a length runs past the end of its message";
        case XS_WRONG_WIRE:
            return "a field of the wrong wire type";
        case XS_NO_FIELD:
            return "a field with the number 0";
        case XS_NEGATIVE:
            return "a negative duration or count";
        case XS_OVERFLOW:
            return "a time beyond 63 bits of picoseconds";
        case XS_LATE_TIMESTAMP:
            return "a line whose timestamp follows its events";
        default:
            return "no fault";
    }
}

PyObject *xs_raise(module_state *state, const xs_bytes *bytes, const xs_fault *fault) {
    if (fault->kind == XS_NO_MEMORY) return PyErr_NoMemory();
    bool short_of = fault->kind == XS_SHORT_VARINT || fault->kind == XS_SHORT_BYTES;
    PyObject *arguments = Py_BuildValue("(snO)", xs_fault_text(fault->kind), (Py_ssize_t)(fault->at - bytes->base), short_of ? Py_True : Py_False);
    if (arguments) PyErr_SetObject(state->damage, arguments);
    Py_XDECREF(arguments);
    return NULL;
}

PyObject *xs_text(const xs_bytes *bytes, xs_span span) {
    return PyUnicode_DecodeUTF8((const char *)bytes->base + span.offset, (Py_ssize_t)span.length, "replace");
}

/* ---- columns ---- */

typedef struct {
    PyObject_HEAD
    void *data;
    Py_ssize_t count, width;
    char format[2];
} Column;

static Column *column_new(module_state *state, char format) {
    Column *column = PyObject_New(Column, state->column);
    if (!column) return NULL;
    column->data = NULL;
    column->count = 0;
    column->width = format == 'B' ? 1 : 8;
    column->format[0] = format;
    column->format[1] = 0;
    return column;
}

PyObject *xs_column_take(module_state *state, xs_list *list, char format) {
    Column *column = column_new(state, format);
    if (!column) return NULL;
    void *fitted = list->count ? realloc(list->data, list->count * (size_t)column->width) : NULL;
    if (fitted) list->data = fitted; /* if shrinking fails, keep the longer block */
    column->data = list->data;
    column->count = (Py_ssize_t)list->count;
    *list = (xs_list){0};
    return (PyObject *)column;
}

PyObject *xs_column_of(module_state *state, const xs_list *records, size_t width, size_t offset, char format) {
    Column *column = column_new(state, format);
    if (!column) return NULL;
    if (records->count) {
        column->data = malloc(records->count * 8);
        if (!column->data) {
            Py_DECREF(column);
            return PyErr_NoMemory();
        }
        for (size_t row = 0; row < records->count; row++) {
            memcpy((char *)column->data + 8 * row, (const char *)records->data + width * row + offset, 8);
        }
        column->count = (Py_ssize_t)records->count;
    }
    return (PyObject *)column;
}

PyObject *xs_column_copy(module_state *state, const void *data, size_t count, char format) {
    xs_list records = {(void *)data, count, count};
    return xs_column_of(state, &records, 8, 0, format);
}

static int column_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    Column *column = (Column *)self;
    static char nothing[8];
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "columns are read-only");
        view->obj = NULL;
        return -1;
    }
    Py_INCREF(self);
    *view = (Py_buffer){
        .buf = column->count ? column->data : nothing,
        .obj = self,
        .len = column->count * column->width,
        .itemsize = column->width,
        .readonly = 1,
        .ndim = 1,
        .format = flags & PyBUF_FORMAT ? column->format : NULL,
        .shape = flags & PyBUF_ND ? &column->count : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &column->width : NULL,
    };
    return 0;
}

static Py_ssize_t column_length(PyObject *self) { return ((Column *)self)->count; }

static void column_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free(((Column *)self)->data);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot column_slots[] = {
    {Py_tp_doc, "A read-only buffer of numbers; read it through a memoryview."},
    {Py_bf_getbuffer, column_getbuffer},
    {Py_sq_length, column_length},
    {Py_tp_dealloc, column_dealloc},
    {0, NULL},
};

PyType_Spec xs_column_spec = {
    .name = "roofline.sources.xspace._scan.Column",
    .basicsize = sizeof(Column),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = column_slots,
};

bool xs_integers(PyObject *source, xs_list *into) {
    Py_buffer view;
    if (PyObject_GetBuffer(source, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0) return false;
    size_t count = (size_t)view.len / 8;
    bool ok = view.itemsize == 8 && view.format && (strcmp(view.format, "q") == 0 || strcmp(view.format, "l") == 0);
    if (!ok) PyErr_SetString(PyExc_TypeError, "expected a buffer of 64-bit integers, such as array('q')");
    void *copy = ok ? malloc(count * 8 + 8) : NULL;
    if (ok && !copy) PyErr_NoMemory();
    if (copy) {
        memcpy(copy, view.buf, count * 8);
        *into = (xs_list){copy, count, count};
    }
    PyBuffer_Release(&view);
    return copy != NULL;
}

/* ---- functions ---- */

/* merge(buffers) -> (intervals, length): the union of intervals given as begin, end, begin, end, … */
static PyObject *merge(PyObject *module, PyObject *buffers) {
    xs_union set = {0};
    int64_t length = 0;
    bool enough_memory = true;
    Py_ssize_t parts = PySequence_Size(buffers);
    for (Py_ssize_t part = 0; part < parts && enough_memory; part++) {
        xs_list numbers = {0};
        PyObject *buffer = PySequence_GetItem(buffers, part);
        bool ok = buffer && xs_integers(buffer, &numbers);
        Py_XDECREF(buffer);
        if (!ok) break;
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i + 1 < numbers.count && enough_memory; i += 2) {
            int64_t begin = XS_AT(numbers, int64_t, i), end = XS_AT(numbers, int64_t, i + 1);
            if (begin < end) enough_memory = xs_union_add(&set, begin, end);
        }
        Py_END_ALLOW_THREADS
        xs_list_free(&numbers);
    }
    enough_memory = enough_memory && xs_union_finish(&set, &length);
    if (!enough_memory) PyErr_NoMemory();
    set.intervals.count *= 2;
    PyObject *column = PyErr_Occurred() ? NULL : xs_column_take(PyModule_GetState(module), &set.intervals, 'q');
    xs_union_free(&set);
    return column ? Py_BuildValue("(NL)", column, (long long)length) : NULL;
}

/* gaps(intervals, edges, most) -> begin, end, weight, count, since, begin, …: see xs_gaps */
static PyObject *gaps(PyObject *module, PyObject *arguments) {
    PyObject *intervals, *edges, *column = NULL;
    xs_list busy = {0}, between = {0}, found = {0};
    long long most;
    if (!PyArg_ParseTuple(arguments, "OOL", &intervals, &edges, &most)) return NULL;
    if (most < 1) return PyErr_Format(PyExc_ValueError, "most must be 1 or more");
    if (xs_integers(intervals, &busy) && xs_integers(edges, &between)) {
        bool enough_memory;
        Py_BEGIN_ALLOW_THREADS
        enough_memory = xs_gaps(busy.data, busy.count / 2, between.data, between.count, most, &found);
        Py_END_ALLOW_THREADS
        found.count *= sizeof(xs_gap) / sizeof(int64_t);
        column = enough_memory ? xs_column_take(PyModule_GetState(module), &found, 'q') : PyErr_NoMemory();
    }
    xs_list_free(&busy);
    xs_list_free(&between);
    xs_list_free(&found);
    return column;
}

static PyMethodDef functions[] = {
    {"merge", merge, METH_O, "merge(buffers) -> (intervals, length): the union of intervals written as begin, end, begin, end."},
    {"gaps", gaps, METH_VARARGS, "gaps(intervals, edges, most) -> begin, end, weight, count, since, begin, …: short gaps are grouped."},
    {NULL, NULL, 0, NULL},
};

/* ---- module ---- */

static struct PyModuleDef definition;

module_state *xs_state(PyObject *self) { return PyType_GetModuleState(Py_TYPE(self)); }

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **into) {
    *into = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *into ? PyModule_AddObjectRef(module, name, (PyObject *)*into) : -1;
}

/* Seeds the hash function with random numbers of the system. */
static bool seed_hashes(void) {
    uint64_t numbers[2];
    PyObject *os = PyImport_ImportModule("os"), *bytes = os ? PyObject_CallMethod(os, "urandom", "n", (Py_ssize_t)sizeof numbers) : NULL;
    char *random = bytes ? PyBytes_AsString(bytes) : NULL;
    if (random) {
        memcpy(numbers, random, sizeof numbers);
        xs_set_seed(numbers[0], numbers[1]);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(os);
    return random != NULL;
}

static int execute(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    if (!seed_hashes()) return -1;
    state->damage = PyErr_NewExceptionWithDoc("roofline.sources.xspace._scan.Damage",
                                              "A malformed profile: what is wrong, at which byte, and whether a message is cut short.", NULL, NULL);
    if (!state->damage || PyModule_AddObjectRef(module, "Damage", state->damage) < 0) return -1;
    if (add_type(module, &xs_column_spec, "Column", &state->column) < 0 || add_type(module, &xs_index_spec, "Index", &state->index) < 0) return -1;
    return add_type(module, &xs_rows_spec, "Rows", &state->rows) < 0 || add_type(module, &xs_totals_spec, "Totals", &state->totals) < 0 ? -1 : 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->index);
    Py_VISIT(state->column);
    Py_VISIT(state->rows);
    Py_VISIT(state->totals);
    Py_VISIT(state->damage);
    return 0;
}

static int clear(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->index);
    Py_CLEAR(state->column);
    Py_CLEAR(state->rows);
    Py_CLEAR(state->totals);
    Py_CLEAR(state->damage);
    return 0;
}

static void release(void *module) { clear(module); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_scan",
    .m_doc = "Native reading of XSpace profiles.",
    .m_size = sizeof(module_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__scan(void) { return PyModuleDef_Init(&definition); }
