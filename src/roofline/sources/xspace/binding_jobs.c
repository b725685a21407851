/* Rows and Totals: jobs that read a line piece by piece, without the GIL, and return its tables as columns. */
#include "binding.h"

#include <stddef.h>

enum { MOST_BUCKETS = 1000000 }; /* in one span */

/* Common to both: the profile, which stays open for the job, and whether a thread is running the job. */
typedef struct {
    PyObject_HEAD
    Index *index; /* NULL when closed */
    bool running;
} Job;

typedef struct {
    Job job;
    xs_rows core;
} Rows;

typedef struct {
    Job job;
    xs_totals core;
} Totals;

static bool open_job(Job *job, PyObject *index, Py_ssize_t line, xs_walk *walk) {
    Index *profile = (Index *)index;
    if (!profile->index || line < 0 || (size_t)line >= profile->index->lines.count) {
        PyErr_SetString(PyExc_ValueError, profile->index ? "no such line" : "the profile is closed");
        return false;
    }
    if (job->index) {
        PyErr_SetString(PyExc_RuntimeError, "the job is already set up");
        return false;
    }
    Py_INCREF(index);
    job->index = profile;
    profile->jobs++;
    xs_walk_init(walk, profile->index, (size_t)line); /* its fault, if any, is raised by the first run */
    return true;
}

static void release_profile(Job *job) {
    if (!job->index) return;
    job->index->jobs--;
    Py_CLEAR(job->index);
}

/* Sets which stats are decoded, each into its slot: [(stat ids of slot 0), (stat ids of slot 1), …]. */
static bool set_slots(xs_select *select, PyObject *slots) {
    Py_ssize_t count = PySequence_Size(slots);
    if (count < 0) return false;
    if (count > XS_SLOTS) {
        PyErr_Format(PyExc_ValueError, "%zd stats requested; %d at most", count, XS_SLOTS);
        return false;
    }
    select->slots = (int)count;
    for (int slot = 0; slot < (int)count; slot++) {
        PyObject *ids = PySequence_GetItem(slots, slot);
        Py_ssize_t some = ids ? PySequence_Size(ids) : -1;
        for (Py_ssize_t i = 0; i < some; i++) {
            PyObject *item = PySequence_GetItem(ids, i);
            long long id = item ? PyLong_AsLongLong(item) : -1;
            Py_XDECREF(item);
            if (!PyErr_Occurred() && !xs_select_stat(select, id, slot)) PyErr_NoMemory();
            if (PyErr_Occurred()) break;
        }
        Py_XDECREF(ids);
        if (PyErr_Occurred()) return false;
    }
    return true;
}

/* Parses slot numbers, given as a bytes object with one byte for each. */
static bool parse_slots(const char *bytes, Py_ssize_t count, Py_ssize_t most, int slots, int *into) {
    if (count > most) {
        PyErr_Format(PyExc_ValueError, "%zd slots where %zd are the most", count, most);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (bytes[i] < 0 || bytes[i] >= slots) {
            PyErr_SetString(PyExc_ValueError, "no such slot");
            return false;
        }
        into[i] = bytes[i];
    }
    return true;
}

/* Keeps only the events that have a stat in one of the `having` slots, or a metadata id in `only`. */
static bool set_filter(xs_select *select, const char *having, Py_ssize_t count, PyObject *only) {
    int slots[XS_SLOTS] = {0};
    if (!parse_slots(having, count, XS_SLOTS, select->slots, slots)) return false;
    for (Py_ssize_t i = 0; i < count; i++) select->having |= (uint32_t)1 << slots[i];
    select->filtered = count > 0 || only != Py_None;
    if (only == Py_None) return true;
    xs_list ids = {0};
    if (!xs_integers(only, &ids)) return false;
    bool ok = true;
    for (size_t i = 0; i < ids.count && ok; i++) ok = xs_select_only(select, XS_AT(ids, int64_t, i));
    xs_list_free(&ids);
    if (!ok) PyErr_NoMemory();
    return ok;
}

/* Reads about `budget` bytes more. Returns True while there is more to read; raises Damage at a fault. */
static PyObject *run(Job *job, PyObject *budget, xs_walk *walk, bool (*piece)(void *, size_t), void *core) {
    size_t bytes = PyLong_AsSize_t(budget);
    bool more;
    if (bytes == (size_t)-1 && PyErr_Occurred()) return NULL;
    if (!job->index || job->running) {
        PyErr_SetString(PyExc_RuntimeError, job->index ? "the job is running in another thread" : "the job is closed");
        return NULL;
    }
    job->running = true;
    Py_BEGIN_ALLOW_THREADS
    more = piece(core, bytes);
    Py_END_ALLOW_THREADS
    job->running = false;
    if (walk->fault.kind) return xs_raise(xs_state((PyObject *)job), &walk->bytes, &walk->fault);
    return PyBool_FromLong(more);
}

static bool run_rows(void *core, size_t budget) { return xs_rows_run(core, budget); }
static bool run_totals(void *core, size_t budget) { return xs_totals_run(core, budget); }

static PyObject *position(const Job *job, const xs_walk *walk) {
    if (!job->index) return PyLong_FromLong(0);
    return PyLong_FromSsize_t((Py_ssize_t)(walk->p - walk->bytes.base));
}

/* The distinct texts, as bytes. */
static PyObject *texts_list(const xs_walk *walk, const xs_texts *texts) {
    PyObject *list = PyList_New(0);
    for (size_t row = 0; list && row < texts->spans.count; row++) {
        xs_span span = XS_AT(texts->spans, xs_span, row);
        PyObject *text = PyBytes_FromStringAndSize((const char *)walk->bytes.base + span.offset, (Py_ssize_t)span.length);
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static bool ready(const Job *job) {
    if (job->index && !job->running) return true;
    PyErr_SetString(PyExc_RuntimeError, job->index ? "the job is running in another thread" : "the job is closed");
    return false;
}

static PyObject *close_job(Job *job) {
    if (job->index && !ready(job)) return NULL;
    release_profile(job);
    Py_RETURN_NONE;
}

/* Puts a new reference into a dictionary; false with an error set. */
static bool put(PyObject *into, const char *name, PyObject *value) {
    bool ok = value && PyDict_SetItemString(into, name, value) == 0;
    Py_XDECREF(value);
    return ok;
}

/* ---- rows ---- */

/* Keeps only the events that cover one of these instants, which must be sorted. */
static bool set_instants(xs_rows *core, PyObject *at) {
    if (at == Py_None) return true;
    if (!xs_integers(at, &core->instants)) return false;
    core->timed = true;
    for (size_t i = 1; i < core->instants.count; i++) {
        if (XS_AT(core->instants, int64_t, i - 1) > XS_AT(core->instants, int64_t, i)) {
            PyErr_SetString(PyExc_ValueError, "instants must be in order of time");
            return false;
        }
    }
    return true;
}

static int rows_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    Rows *rows = (Rows *)self;
    PyObject *index, *slots, *only = Py_None, *at = Py_None;
    Py_ssize_t line, having_count = 0;
    const char *having = "";
    static char *names[] = {"index", "line", "slots", "having", "only", "at", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!nO|y#OO", names, xs_state(self)->index, &index, &line, &slots, &having,
                                     &having_count, &only, &at)) {
        return -1;
    }
    if (!open_job(&rows->job, index, line, &rows->core.walk)) return -1;
    xs_select_init(&rows->core.select);
    if (!set_slots(&rows->core.select, slots) || !set_filter(&rows->core.select, having, having_count, only)) return -1;
    return set_instants(&rows->core, at) ? 0 : -1;
}

static PyObject *rows_run(PyObject *self, PyObject *budget) {
    Rows *rows = (Rows *)self;
    return run(&rows->job, budget, &rows->core.walk, run_rows, &rows->core);
}

static PyObject *rows_position(PyObject *self, void *unused) {
    (void)unused;
    return position(&((Rows *)self)->job, &((Rows *)self)->core.walk);
}

static PyObject *rows_take(PyObject *self, PyObject *unused) {
    (void)unused;
    Rows *rows = (Rows *)self;
    xs_rows *core = &rows->core;
    module_state *state = xs_state(self);
    PyObject *result = ready(&rows->job) ? PyDict_New() : NULL, *values = NULL, *kinds = NULL;
    if (!result) return NULL;
    bool ok = put(result, "metadata_id", xs_column_take(state, &core->ids, 'q')) &&
                 put(result, "start_ps", xs_column_take(state, &core->starts, 'q')) &&
                 put(result, "duration_ps", xs_column_take(state, &core->durations, 'q')) &&
                 put(result, "texts", texts_list(&core->walk, &core->texts)) && put(result, "values", values = PyList_New(0)) &&
                 put(result, "kinds", kinds = PyList_New(0)) && put(result, "events", PyLong_FromUnsignedLongLong(core->walk.events)) &&
                 put(result, "unknown", PyLong_FromUnsignedLongLong(core->walk.unknown));
    for (int slot = 0; ok && slot < core->select.slots; slot++) {
        PyObject *value = xs_column_take(state, &core->values[slot], 'q'), *kind = xs_column_take(state, &core->kinds[slot], 'B');
        ok = value && kind && PyList_Append(values, value) == 0 && PyList_Append(kinds, kind) == 0;
        Py_XDECREF(value);
        Py_XDECREF(kind);
    }
    if (!ok) Py_CLEAR(result);
    return result;
}

static PyObject *rows_close(PyObject *self, PyObject *unused) {
    (void)unused;
    return close_job(&((Rows *)self)->job);
}

static void rows_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    release_profile(&((Rows *)self)->job);
    xs_rows_free(&((Rows *)self)->core);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"run", rows_run, METH_O, "run(bytes) -> whether there is more to read"},
    {"take", rows_take, METH_NOARGS, "The columns, which are moved out of the job."},
    {"close", rows_close, METH_NOARGS, "Release the profile."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef rows_getset[] = {{"position", rows_position, NULL, "The byte reached.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Rows(index, line, slots, having=b'', only=None, at=None): the events of a line."},
    {Py_tp_init, rows_init},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {Py_tp_getset, rows_getset},
    {0, NULL},
};

PyType_Spec xs_rows_spec = {
    .name = "roofline.sources.xspace._scan.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = rows_slots,
};

/* ---- totals ---- */

/* Sets the steps: low, high, label, low, high, label, … sorted by low. */
static bool set_steps(xs_totals *core, PyObject *steps) {
    if (steps == Py_None) return true;
    if (!xs_integers(steps, &core->steps)) return false;
    size_t count = core->steps.count;
    core->steps.count = count / 3;
    core->steps.capacity = count / 3;
    bool sorted = count % 3 == 0;
    for (size_t i = 0; i < core->steps.count && sorted; i++) {
        sorted = XS_AT(core->steps, xs_step, i).label != XS_NO_LABEL;
        if (i) sorted = sorted && XS_AT(core->steps, xs_step, i - 1).low <= XS_AT(core->steps, xs_step, i).low;
    }
    if (!sorted) PyErr_SetString(PyExc_ValueError, "steps are low, high, label, … in order of low");
    return sorted;
}

/* Sets the time spans that are divided into buckets: begin, end, width, begin, end, width, … Buckets are numbered through all spans. */
static bool set_buckets(xs_totals *core, PyObject *buckets) {
    if (buckets == Py_None) return true;
    xs_list numbers = {0};
    if (!xs_integers(buckets, &numbers)) return false;
    bool ok = numbers.count % 3 == 0;
    int64_t first = 0;
    for (size_t i = 0; ok && i + 2 < numbers.count; i += 3) {
        const int64_t *span = &XS_AT(numbers, int64_t, i);
        uint64_t length = (uint64_t)span[1] - (uint64_t)span[0];
        ok = span[0] < span[1] && length <= INT64_MAX && span[2] > 0 && (length - 1) / (uint64_t)span[2] < MOST_BUCKETS;
        xs_buckets *fresh = ok ? xs_list_add(&core->buckets, sizeof *fresh) : NULL;
        if (ok && !fresh) {
            xs_list_free(&numbers);
            PyErr_NoMemory();
            return false;
        }
        if (!ok) break;
        *fresh = (xs_buckets){span[0], span[1], span[2], first};
        first += (int64_t)((length - 1) / (uint64_t)span[2]) + 1;
    }
    xs_list_free(&numbers);
    if (!ok) PyErr_SetString(PyExc_ValueError, "buckets are begin, end, width, …, a million at most in one span");
    return ok;
}

/* Sets the async pairs: [(start id, done id, group, weight)]. */
static bool set_pairs(xs_totals *core, PyObject *pairs) {
    Py_ssize_t count = PySequence_Size(pairs);
    xs_list list = {0};
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(pairs, i);
        long long start, done, group;
        double weight;
        bool ok = item && PyArg_ParseTuple(item, "LLLd", &start, &done, &group, &weight);
        if (ok && !(weight >= 0 && weight <= 1e300)) {
            PyErr_SetString(PyExc_ValueError, "a pair's weight is a finite number of 0 or more");
            ok = false;
        }
        xs_pair *pair = ok ? xs_list_add(&list, sizeof *pair) : NULL;
        if (pair) *pair = (xs_pair){start, done, group, weight};
        else if (ok) PyErr_NoMemory();
        Py_XDECREF(item);
        if (!pair) break;
    }
    if (!PyErr_Occurred() && count > 0) {
        core->links = xs_links_new(list.data, list.count);
        if (!core->links) PyErr_NoMemory();
    }
    xs_list_free(&list);
    return !PyErr_Occurred();
}

static int totals_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    Totals *totals = (Totals *)self;
    xs_totals *core = &totals->core;
    PyObject *index, *slots, *only = Py_None, *steps = Py_None, *pairs = NULL, *buckets = Py_None;
    const char *keys = "", *distinct = "", *sums = "", *clock = "", *having = "";
    Py_ssize_t line, key_count = 0, distinct_count = 0, sum_count = 0, clock_count = 0, having_count = 0;
    int step_slot = XS_BY_EVENT_TIME, nested = 0, intervals = 0, parts[XS_SLOTS] = {0};
    static char *names[] = {"index", "line",  "slots",     "keys",  "distinct", "sums",      "clock",
                            "having", "only", "step_slot", "steps", "pairs",    "nested", "intervals", "buckets", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!nO|y#y#y#y#y#OiOOppO", names, xs_state(self)->index, &index, &line, &slots, &keys,
                                     &key_count, &distinct, &distinct_count, &sums, &sum_count, &clock, &clock_count, &having, &having_count,
                                     &only, &step_slot, &steps, &pairs, &nested, &intervals, &buckets)) {
        return -1;
    }
    if (totals->job.index) {
        PyErr_SetString(PyExc_RuntimeError, "the job is already set up");
        return -1;
    }
    xs_totals_init(core);
    if (!open_job(&totals->job, index, line, &core->walk)) return -1;
    if (!set_slots(&core->select, slots) || !set_filter(&core->select, having, having_count, only)) return -1;
    int most = core->select.slots;
    if (!parse_slots(keys, key_count, XS_KEYS, most, parts)) return -1;
    for (Py_ssize_t i = 0; i < key_count; i++) xs_totals_key(core, parts[i]);
    if (!parse_slots(distinct, distinct_count, XS_DISTINCT, most, core->distinct_slots)) return -1;
    if (!parse_slots(sums, sum_count, XS_SUMS, most, core->sum_slots) || !parse_slots(clock, clock_count, 2, most, parts)) return -1;
    if ((clock_count && clock_count != 2) || step_slot < XS_BY_DEVICE_TIME || step_slot >= most) {
        PyErr_SetString(PyExc_ValueError, "no such slot");
        return -1;
    }
    if (clock_count) {
        core->offset_slot = parts[0];
        core->duration_slot = parts[1];
    }
    core->distincts = (int)distinct_count;
    core->sums = (int)sum_count;
    core->step_slot = step_slot;
    core->nested = nested;
    core->keep_intervals = intervals;
    return set_steps(core, steps) && set_buckets(core, buckets) && (!pairs || pairs == Py_None || set_pairs(core, pairs)) ? 0 : -1;
}

static PyObject *totals_run(PyObject *self, PyObject *budget) {
    Totals *totals = (Totals *)self;
    return run(&totals->job, budget, &totals->core.walk, run_totals, &totals->core);
}

static PyObject *totals_seek(PyObject *self, PyObject *place) {
    Totals *totals = (Totals *)self;
    xs_walk *walk = &totals->core.walk;
    size_t offset = PyLong_AsSize_t(place);
    if ((offset == (size_t)-1 && PyErr_Occurred()) || !ready(&totals->job)) return NULL;
    if (offset < (size_t)(walk->p - walk->bytes.base) || offset > (size_t)(walk->end - walk->bytes.base)) {
        PyErr_SetString(PyExc_ValueError, "not a byte of the rest of the line");
        return NULL;
    }
    walk->begin = walk->p = walk->bytes.base + offset;
    Py_RETURN_NONE;
}

static PyObject *totals_absorb(PyObject *self, PyObject *other) {
    Totals *totals = (Totals *)self, *part = (Totals *)other;
    if (!PyObject_TypeCheck(other, xs_state(self)->totals)) {
        PyErr_SetString(PyExc_TypeError, "only Totals can be absorbed");
        return NULL;
    }
    if (!ready(&totals->job) || !ready(&part->job)) return NULL;
    bool done = xs_totals_absorb(&totals->core, &part->core);
    const xs_walk *walk = &totals->core.walk;
    if (walk->fault.kind) return xs_raise(xs_state(self), &walk->bytes, &walk->fault);
    return PyBool_FromLong(done);
}

static PyObject *totals_position(PyObject *self, void *unused) {
    (void)unused;
    return position(&((Totals *)self)->job, &((Totals *)self)->core.walk);
}

static bool put_columns(PyObject *into, module_state *state, const xs_list *records, size_t width, const char *const *names) {
    for (size_t i = 0; names[i]; i++) {
        if (!put(into, names[i], xs_column_of(state, records, width, 8 * i, 'q'))) return false;
    }
    return true;
}

static bool put_extras(PyObject *into, module_state *state, const xs_totals *core) {
    PyObject *distinct = PyList_New(0), *sums = PyList_New(0);
    bool ok = distinct && sums;
    for (int i = 0; ok && i < core->distincts; i++) {
        PyObject *column = xs_column_of(state, &core->totals, sizeof(xs_total), offsetof(xs_total, distinct) + 8 * (size_t)i, 'q');
        ok = column && PyList_Append(distinct, column) == 0;
        Py_XDECREF(column);
    }
    for (int i = 0; ok && i < core->sums; i++) {
        PyObject *column = xs_column_of(state, &core->totals, sizeof(xs_total), offsetof(xs_total, sums) + 8 * (size_t)i, 'd');
        ok = column && PyList_Append(sums, column) == 0;
        Py_XDECREF(column);
    }
    ok = put(into, "distinct", distinct) && ok;
    return put(into, "sums", sums) && ok;
}

static bool put_pairs(PyObject *into, module_state *state, const xs_links *links) {
    static const char *const names[] = {"pair_count", "pair_time_ps", NULL};
    if (!links) return true;
    const xs_set *keys = xs_links_keys(links);
    const xs_list *paired = xs_links_paired(links);
    return put(into, "pair_keys", xs_column_copy(state, keys->rows.data, 2 * keys->rows.count, 'q')) &&
           put_columns(into, state, paired, sizeof(xs_paired), names) &&
           put(into, "pair_share_ps", xs_column_of(state, paired, sizeof(xs_paired), offsetof(xs_paired, share_ps), 'd')) &&
           put(into, "unpaired", PyLong_FromLongLong(xs_links_unpaired(links)));
}

static PyObject *totals_take(PyObject *self, PyObject *unused) {
    (void)unused;
    Totals *totals = (Totals *)self;
    xs_totals *core = &totals->core;
    module_state *state = xs_state(self);
    static const char *const totals_names[] = {"count", "time_ps", "self_ps", "first_ps", "last_ps", NULL};
    static const char *const cell_names[] = {"cell_count", "cell_time_ps", "cell_self_ps", "cell_first_ps", "cell_last_ps", NULL};
    static const char *const overlap_names[] = {"overlap_count", "overlap_time_ps", NULL};
    PyObject *result = ready(&totals->job) ? PyDict_New() : NULL;
    if (!result) return NULL;
    bool ok = put(result, "keys", xs_column_copy(state, core->key_set.rows.data, core->key_set.width * core->key_set.rows.count, 'q')) &&
                 put_columns(result, state, &core->totals, sizeof(xs_total), totals_names) && put_extras(result, state, core) &&
                 put(result, "cell_keys", xs_column_copy(state, core->cell_set.rows.data, 2 * core->cell_set.rows.count, 'q')) &&
                 put_columns(result, state, &core->cells, sizeof(xs_cell), cell_names) &&
                 put(result, "overlap_keys", xs_column_copy(state, core->overlap_set.rows.data, 2 * core->overlap_set.rows.count, 'q')) &&
                 put_columns(result, state, &core->overlaps, sizeof(xs_overlap), overlap_names) &&
                 put(result, "bucket_keys", xs_column_copy(state, core->bucket_set.rows.data, 2 * core->bucket_set.rows.count, 'q')) &&
                 put(result, "bucket_ps", xs_column_copy(state, core->bucket_ps.data, core->bucket_ps.count, 'q')) &&
                 put_pairs(result, state, core->links) && put(result, "texts", texts_list(&core->walk, &core->texts));
    core->intervals.intervals.count *= 2; /* as numbers: begin, end, begin, end, … */
    ok = ok && put(result, "intervals", xs_column_take(state, &core->intervals.intervals, 'q'));
    const struct {
        const char *name;
        long long value;
    } scalars[] = {
        {"busy_ps", core->busy_ps}, {"start_ps", core->first_ps},     {"end_ps", core->last_ps},
        {"rewinds", core->rewinds}, {"aggregated", core->aggregated}, {"events", (long long)core->walk.events},
        {"unknown", (long long)core->walk.unknown},
    };
    for (size_t i = 0; ok && i < sizeof scalars / sizeof *scalars; i++) {
        ok = put(result, scalars[i].name, PyLong_FromLongLong(scalars[i].value));
    }
    if (!ok) Py_CLEAR(result);
    return result;
}

static PyObject *totals_close(PyObject *self, PyObject *unused) {
    (void)unused;
    return close_job(&((Totals *)self)->job);
}

static void totals_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    release_profile(&((Totals *)self)->job);
    xs_totals_free(&((Totals *)self)->core);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef totals_methods[] = {
    {"run", totals_run, METH_O, "run(bytes) -> whether there is more to read"},
    {"seek", totals_seek, METH_O, "seek(byte): continue reading at this byte, which must be the start of an event"},
    {"absorb", totals_absorb, METH_O, "absorb(part) -> bool: add the totals of the next bytes; False, with no change, if reading on could differ"},
    {"take", totals_take, METH_NOARGS, "The tables."},
    {"close", totals_close, METH_NOARGS, "Release the profile."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef totals_getset[] = {{"position", totals_position, NULL, "The byte reached.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot totals_slots[] = {
    {Py_tp_doc, "Totals(index, line, slots, …): sums over the events of each distinct key of a line."},
    {Py_tp_init, totals_init},
    {Py_tp_dealloc, totals_dealloc},
    {Py_tp_methods, totals_methods},
    {Py_tp_getset, totals_getset},
    {0, NULL},
};

PyType_Spec xs_totals_spec = {
    .name = "roofline.sources.xspace._scan.Totals",
    .basicsize = sizeof(Totals),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = totals_slots,
};
