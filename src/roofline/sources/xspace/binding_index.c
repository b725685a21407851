/* Index: planes, lines and metadata of a profile as Python values. A value of bytes is not copied but given as (offset, length). */
#include "binding.h"

enum { SIGNAL_CHECK = 1 << 16 }; /* values between two checks for signals such as Ctrl-C */

/* Whether no signal such as Ctrl-C has come. Called without the GIL. */
static bool uninterrupted(void) {
    PyGILState_STATE state = PyGILState_Ensure();
    bool ok = PyErr_CheckSignals() == 0;
    PyGILState_Release(state);
    return ok;
}

static int index_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    Index *index = (Index *)self;
    PyObject *source;
    int mapped = 0;
    Py_ssize_t most = PY_SSIZE_T_MAX;
    static char *names[] = {"buffer", "mapped", "most", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|pn", names, &source, &mapped, &most)) return -1;
    if (index->index) {
        PyErr_SetString(PyExc_RuntimeError, "the index is already built");
        return -1;
    }
    if (PyObject_GetBuffer(source, &index->buffer, PyBUF_SIMPLE) < 0) return -1;
    static const uint8_t nothing;
    xs_bytes bytes = {index->buffer.len ? index->buffer.buf : &nothing, (size_t)index->buffer.len};
    index->guard = mapped && bytes.size ? xs_guard(bytes.base, bytes.size) : -1;
    xs_bounds bounds = {.go_on = uninterrupted, .most = (size_t)most};
    Py_BEGIN_ALLOW_THREADS
    index->index = xs_index_new(bytes, &bounds);
    Py_END_ALLOW_THREADS
    if (!index->index) {
        xs_unguard(index->guard);
        PyBuffer_Release(&index->buffer);
        if (bounds.too_many) PyErr_SetString(PyExc_OverflowError, "too many messages");
        if (!bounds.too_many && !PyErr_Occurred()) PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void release_profile(Index *index) {
    if (!index->index) return;
    xs_index_free(index->index);
    index->index = NULL;
    index->lost = index->lost || xs_guard_hit(index->guard);
    xs_unguard(index->guard);
    PyBuffer_Release(&index->buffer);
}

static void index_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    release_profile((Index *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *index_close(PyObject *self, PyObject *unused) {
    (void)unused;
    if (((Index *)self)->jobs) {
        PyErr_SetString(PyExc_RuntimeError, "a line of this profile is still being read");
        return NULL;
    }
    release_profile((Index *)self);
    Py_RETURN_NONE;
}

/* Whether the file was truncated while it was read; the missing bytes read as zeroes. */
static PyObject *index_lost(PyObject *self, PyObject *unused) {
    (void)unused;
    Index *index = (Index *)self;
    return PyBool_FromLong(index->lost || (index->index && xs_guard_hit(index->guard)));
}

static xs_index *opened(PyObject *self) {
    xs_index *index = ((Index *)self)->index;
    if (!index) PyErr_SetString(PyExc_ValueError, "the profile is closed");
    return index;
}

/* A list of make(index, row) for each row; `make` returns a new reference. */
static PyObject *list_of(size_t first, size_t count, PyObject *(*make)(const xs_index *, size_t), const xs_index *index) {
    PyObject *list = PyList_New(0);
    for (size_t row = first; list && row < first + count; row++) {
        PyObject *item = row % SIGNAL_CHECK || PyErr_CheckSignals() == 0 ? make(index, row) : NULL;
        if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *plane_tuple(const xs_index *index, size_t row) {
    const xs_plane *plane = &XS_AT(index->planes, xs_plane, row);
    return Py_BuildValue("(LNnnO)", (long long)plane->id, xs_text(&index->bytes, plane->name), (Py_ssize_t)plane->lines.first,
                         (Py_ssize_t)plane->lines.count, plane->whole ? Py_True : Py_False);
}

static PyObject *line_tuple(const xs_index *index, size_t row) {
    const xs_line *line = &XS_AT(index->lines, xs_line, row);
    return Py_BuildValue("(LNLnnO)", (long long)line->id, xs_text(&index->bytes, line->name), (long long)line->timestamp_ns,
                         (Py_ssize_t)line->bytes.offset, (Py_ssize_t)line->bytes.length, line->whole ? Py_True : Py_False);
}

static PyObject *damage_tuple(const xs_index *index, size_t row) {
    const xs_damage *damage = &XS_AT(index->damages, xs_damage, row);
    return Py_BuildValue("(snOLL)", xs_fault_text(damage->kind), (Py_ssize_t)damage->offset, damage->kind == XS_TRUNCATED ? Py_True : Py_False,
                         (long long)damage->plane, (long long)damage->line);
}

static PyObject *index_planes(PyObject *self, PyObject *unused) {
    (void)unused;
    xs_index *index = opened(self);
    return index ? list_of(0, index->planes.count, plane_tuple, index) : NULL;
}

static PyObject *index_lines(PyObject *self, PyObject *unused) {
    (void)unused;
    xs_index *index = opened(self);
    return index ? list_of(0, index->lines.count, line_tuple, index) : NULL;
}

static PyObject *index_damages(PyObject *self, PyObject *unused) {
    (void)unused;
    xs_index *index = opened(self);
    return index ? list_of(0, index->damages.count, damage_tuple, index) : NULL;
}

static PyObject *texts_of(const xs_index *index, const xs_list *spans) {
    PyObject *list = PyList_New(0);
    for (size_t row = 0; list && row < spans->count; row++) {
        PyObject *text = xs_text(&index->bytes, XS_AT(*spans, xs_span, row));
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *index_texts(PyObject *self, PyObject *unused) {
    (void)unused;
    xs_index *index = opened(self);
    if (!index) return NULL;
    return Py_BuildValue("(NNN)", texts_of(index, &index->errors), texts_of(index, &index->warnings), texts_of(index, &index->hostnames));
}

static PyObject *index_unknown(PyObject *self, PyObject *unused) {
    (void)unused;
    xs_index *index = opened(self);
    return index ? PyLong_FromUnsignedLongLong(index->unknown) : NULL;
}

/* (metadata id, kind, value) of one XStat, or NULL with an error set. */
static PyObject *stat_tuple(PyObject *self, const xs_index *index, xs_span message) {
    xs_stat stat;
    xs_fault fault = {0};
    double number;
    if (!xs_stat_read(&index->bytes, message, &stat, &fault)) return xs_raise(xs_state(self), &index->bytes, &fault);
    long long id = (long long)stat.id;
    switch (stat.kind) {
        case XS_DOUBLE:
            memcpy(&number, &stat.value, sizeof number);
            return Py_BuildValue("(Lid)", id, stat.kind, number);
        case XS_UINT64:
            return Py_BuildValue("(LiK)", id, stat.kind, (unsigned long long)stat.value);
        case XS_INT64:
        case XS_REF:
            return Py_BuildValue("(LiL)", id, stat.kind, (long long)stat.value);
        case XS_STRING:
            return Py_BuildValue("(LiN)", id, stat.kind, xs_text(&index->bytes, stat.text));
        case XS_BLOB:
            return Py_BuildValue("(Li(nn))", id, stat.kind, (Py_ssize_t)stat.text.offset, (Py_ssize_t)stat.text.length);
        default:
            return Py_BuildValue("(LiO)", id, XS_ABSENT, Py_None);
    }
}

static const xs_plane *plane_at(const xs_index *index, PyObject *number) {
    Py_ssize_t row = PyLong_AsSsize_t(number);
    if (row == -1 && PyErr_Occurred()) return NULL;
    if (row < 0 || (size_t)row >= index->planes.count) {
        PyErr_SetString(PyExc_IndexError, "no such plane");
        return NULL;
    }
    return &XS_AT(index->planes, xs_plane, row);
}

static PyObject *index_stats(PyObject *self, PyObject *number) {
    xs_index *index = opened(self);
    const xs_plane *plane = index ? plane_at(index, number) : NULL;
    PyObject *list = plane ? PyList_New(0) : NULL;
    for (size_t row = 0; list && row < plane->stats.count; row++) {
        PyObject *stat = stat_tuple(self, index, XS_AT(index->stats, xs_entry, plane->stats.first + row).value);
        if (!stat || PyList_Append(list, stat) < 0) Py_CLEAR(list);
        Py_XDECREF(stat);
    }
    return list;
}

static PyObject *names_of(PyObject *self, const xs_index *index, const xs_list *table, xs_range range) {
    PyObject *names = PyDict_New();
    for (size_t row = range.first; names && row < range.first + range.count; row++) {
        const xs_entry *entry = &XS_AT(*table, xs_entry, row);
        xs_fault fault = {0};
        xs_span span;
        if (!xs_name_read(&index->bytes, entry->value, &span, &fault)) {
            Py_DECREF(names);
            return xs_raise(xs_state(self), &index->bytes, &fault);
        }
        if (row % SIGNAL_CHECK == 0 && PyErr_CheckSignals() < 0) {
            Py_CLEAR(names);
            break;
        }
        PyObject *id = PyLong_FromLongLong(entry->id), *name = xs_text(&index->bytes, span);
        if (!id || !name || PyDict_SetItem(names, id, name) < 0) Py_CLEAR(names);
        Py_XDECREF(id);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *index_stat_names(PyObject *self, PyObject *number) {
    xs_index *index = opened(self);
    const xs_plane *plane = index ? plane_at(index, number) : NULL;
    return plane ? names_of(self, index, &index->names, plane->names) : NULL;
}

static PyObject *index_event_names(PyObject *self, PyObject *number) {
    xs_index *index = opened(self);
    const xs_plane *plane = index ? plane_at(index, number) : NULL;
    return plane ? names_of(self, index, &index->events, plane->events) : NULL;
}

/* {metadata id: row}, for `event`. */
static PyObject *index_event_rows(PyObject *self, PyObject *number) {
    xs_index *index = opened(self);
    const xs_plane *plane = index ? plane_at(index, number) : NULL;
    PyObject *rows = plane ? PyDict_New() : NULL;
    for (size_t row = 0; rows && row < plane->events.count; row++) {
        PyObject *id = PyLong_FromLongLong(XS_AT(index->events, xs_entry, plane->events.first + row).id);
        PyObject *place = PyLong_FromSize_t(plane->events.first + row);
        if (!id || !place || PyDict_SetItem(rows, id, place) < 0) Py_CLEAR(rows);
        Py_XDECREF(id);
        Py_XDECREF(place);
    }
    return rows;
}

/* (name, display name, (offset, length) of the metadata, stats, children) of one XEventMetadata. */
static PyObject *metadata_tuple(PyObject *self, const xs_index *index, const xs_metadata *metadata) {
    PyObject *stats = PyList_New(0), *children = PyList_New(0), *result = NULL;
    bool ok = stats && children;
    for (size_t row = 0; ok && row < metadata->stats.count; row++) {
        PyObject *stat = stat_tuple(self, index, XS_AT(metadata->stats, xs_span, row));
        ok = stat && PyList_Append(stats, stat) == 0;
        Py_XDECREF(stat);
    }
    for (size_t row = 0; ok && row < metadata->children.count; row++) {
        PyObject *child = PyLong_FromLongLong(XS_AT(metadata->children, int64_t, row));
        ok = child && PyList_Append(children, child) == 0;
        Py_XDECREF(child);
    }
    if (ok) {
        result = Py_BuildValue("(NN(nn)OO)", xs_text(&index->bytes, metadata->name), xs_text(&index->bytes, metadata->display_name),
                               (Py_ssize_t)metadata->metadata.offset, (Py_ssize_t)metadata->metadata.length, stats, children);
    }
    Py_XDECREF(stats);
    Py_XDECREF(children);
    return result;
}

static PyObject *index_event(PyObject *self, PyObject *number) {
    xs_index *index = opened(self);
    size_t row = index ? PyLong_AsSize_t(number) : 0;
    if (!index || (row == (size_t)-1 && PyErr_Occurred())) return NULL;
    if (row >= index->events.count) {
        PyErr_SetString(PyExc_IndexError, "no such event metadata");
        return NULL;
    }
    xs_metadata metadata;
    xs_fault fault = {0};
    bool ok = xs_metadata_read(&index->bytes, XS_AT(index->events, xs_entry, row).value, &metadata, &fault);
    PyObject *result = ok ? metadata_tuple(self, index, &metadata) : xs_raise(xs_state(self), &index->bytes, &fault);
    xs_metadata_free(&metadata);
    return result;
}

/* The guess of xs_walk_rest_near as an offset, or -1. */
static PyObject *index_rest_near(PyObject *self, PyObject *arguments) {
    const xs_index *index = opened(self);
    Py_ssize_t line, from, hops;
    if (!index || !PyArg_ParseTuple(arguments, "nnn", &line, &from, &hops)) return NULL;
    if (line < 0 || (size_t)line >= index->lines.count) {
        PyErr_SetString(PyExc_ValueError, "no such line");
        return NULL;
    }
    xs_walk walk;
    xs_walk_init(&walk, index, (size_t)line);
    if (from < walk.p - walk.bytes.base || from > walk.end - walk.bytes.base || hops < 0) {
        PyErr_SetString(PyExc_ValueError, "not a place in the line");
        return NULL;
    }
    const uint8_t *found = xs_walk_rest_near(&walk, walk.bytes.base + from, (size_t)hops);
    return PyLong_FromSsize_t(found ? found - walk.bytes.base : -1);
}

static PyMethodDef methods[] = {
    {"close", index_close, METH_NOARGS, "Release the buffer."},
    {"lost", index_lost, METH_NOARGS, "Whether the mapped file was truncated while it was read; the missing bytes read as zeroes."},
    {"planes", index_planes, METH_NOARGS, "[(id, name, first line, lines, whole)]"},
    {"lines", index_lines, METH_NOARGS, "[(id, name, timestamp_ns, offset, length, whole)]"},
    {"damages", index_damages, METH_NOARGS, "[(what, offset, truncated, plane or -1, line or -1)]"},
    {"texts", index_texts, METH_NOARGS, "(errors, warnings, hostnames)"},
    {"unknown", index_unknown, METH_NOARGS, "How many fields are not in the schema."},
    {"stats", index_stats, METH_O, "stats(plane) -> [(metadata id, kind, value)]"},
    {"stat_names", index_stat_names, METH_O, "stat_names(plane) -> {id: name}"},
    {"event_names", index_event_names, METH_O, "event_names(plane) -> {id: name}"},
    {"event_rows", index_event_rows, METH_O, "event_rows(plane) -> {id: row}"},
    {"rest_near", index_rest_near, METH_VARARGS, "rest_near(line, byte, hops) -> a byte past this one where an event seems to begin, after a gap, or -1"},
    {"event", index_event, METH_O, "event(row) -> (name, display name, (offset, length), stats, children)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot index_slots[] = {
    {Py_tp_doc, "Index(buffer): planes, lines and metadata of a profile; events are skipped."},
    {Py_tp_init, index_init},
    {Py_tp_dealloc, index_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec xs_index_spec = {
    .name = "roofline.sources.xspace._scan.Index",
    .basicsize = sizeof(Index),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = index_slots,
};
