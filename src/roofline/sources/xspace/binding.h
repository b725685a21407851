/* Shared by the files of the Python binding. */
#ifndef ROOFLINE_XSPACE_BINDING_H
#define ROOFLINE_XSPACE_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/scan_core.h"

typedef struct {
    PyTypeObject *index, *column, *rows, *totals;
    PyObject *damage;
} module_state;

/* A profile in memory. The buffer is held until `close`. */
typedef struct {
    PyObject_HEAD
    Py_buffer buffer;
    xs_index *index; /* NULL when closed */
    int jobs;        /* open Rows and Totals, which read the buffer */
    int guard;       /* of a mapped file, else -1 */
    bool lost;       /* the guard was hit: the file was truncated */
} Index;

extern PyType_Spec xs_index_spec, xs_column_spec, xs_rows_spec, xs_totals_spec;

module_state *xs_state(PyObject *self);

/* Raises Damage(what, offset, truncated). */
PyObject *xs_raise(module_state *state, const xs_bytes *bytes, const xs_fault *fault);
const char *xs_fault_text(xs_fault_kind kind);

/* A buffer of numbers that owns its memory: `format` is 'q', 'd' or 'B'. */
PyObject *xs_column_take(module_state *state, xs_list *list, char format);
PyObject *xs_column_of(module_state *state, const xs_list *records, size_t width, size_t offset, char format);
PyObject *xs_column_copy(module_state *state, const void *data, size_t count, char format);

/* The integers of a buffer of 64-bit items, copied; false with an error set. */
bool xs_integers(PyObject *source, xs_list *into);

/* Guards a mapped file (guard.c) and returns the guard's number, or -1 if it cannot. */
int xs_guard(const void *begin, size_t length);
bool xs_guard_hit(int guard);
void xs_unguard(int guard);

PyObject *xs_text(const xs_bytes *bytes, xs_span span);

#endif
