/* Unpacks protobuf messages in one call. Callers use `wire.py`, which documents the syntax of a plan.
 *
 * Safe on any input: fields are checked against the end of their message, nested messages are read only as deep as the plan goes, and
 * memory grows with the bytes that were read, never with a length or count in the data.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hlo/read/wire.h"

#include <stdio.h>

enum { MOST_PLANS = 24, MOST_COLUMNS = 16, MOST_NUMBERS = 128 };

typedef struct {
    const uint8_t *base, *safe; /* begin and end of the whole buffer */
} Data;

typedef struct Plan Plan;

typedef struct {
    char kind; /* the plan's letter for the type, or ( for a message */
    bool whole, repeated, optional;
    const Plan *inner; /* of a message */
} Column;

struct Plan {
    uint8_t count, places[MOST_NUMBERS]; /* by field number: 1 + its column, or 0 */
    Column columns[MOST_COLUMNS];
};

/* A plan and the plans nested in it, the outermost first. */
typedef struct {
    int count;
    Plan plans[MOST_PLANS];
} Plans;

/* The fields of a message that belong to one column. */
typedef struct {
    bool present;
    xs_field last; /* if the column is not repeated */
    PyObject *all; /* if it is: a list, or NULL before the first field */
} Found;

/* Raises Malformed(what, byte). The class is imported at each call, which is rare, so that the module needs no state. */
static void raise_malformed(const Data *data, const uint8_t *at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    PyObject *what = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    PyObject *home = what ? PyImport_ImportModule("roofline.hlo.ir.malformed") : NULL;
    PyObject *error = home ? PyObject_GetAttrString(home, "Malformed") : NULL;
    PyObject *values = error ? Py_BuildValue("(On)", what, (Py_ssize_t)(at - data->base)) : NULL;
    if (values) PyErr_SetObject(error, values);
    Py_XDECREF(values);
    Py_XDECREF(error);
    Py_XDECREF(home);
    Py_XDECREF(what);
}

static void raise_fault(const Data *data, const xs_field *field, const xs_fault *fault) {
    unsigned long long number = field->number;
    switch (fault->kind) {
        case XS_NO_FIELD:
            raise_malformed(data, fault->at, "a field with number 0; not a protobuf, or damaged");
            break;
        case XS_LONG_VARINT:
            raise_malformed(data, fault->at, "a number of more than 64 bits");
            break;
        case XS_SHORT_VARINT:
            raise_malformed(data, fault->at, "a number is cut off");
            break;
        case XS_WRONG_WIRE:
            raise_malformed(data, fault->at, "field %llu has wire type %d, which these messages do not use; not a protobuf, or damaged", number, field->wire);
            break;
        default:
            raise_malformed(data, fault->at, "field %llu runs past the end of its message; the data is cut off", number);
    }
}

/* Reads the next field of a message and returns the byte after it; NULL with an error set. Sets `begin` and `end` for every wire type:
 * of the whole field for a varint, else of the payload. */
static const uint8_t *next_field(const Data *data, const uint8_t *p, const uint8_t *end, xs_field *field) {
    xs_fault fault = {0};
    const uint8_t *after = xs_next(p, end, data->safe, field, &fault);
    if (!after) {
        raise_fault(data, field, &fault);
    } else if (field->wire != XS_BYTES) {
        field->begin = field->wire == XS_EIGHT ? after - 8 : field->wire == XS_FOUR ? after - 4 : p;
        field->end = after;
    }
    return after;
}

/* ---- plans ---- */

/* Parses a plan up to its end or its closing bracket, and returns a pointer to that; NULL if the text is not a plan. */
static const char *read_plan(const char *text, Plans *into) {
    if (into->count == MOST_PLANS) return NULL;
    Plan *plan = &into->plans[into->count++];
    plan->count = 0;
    memset(plan->places, 0, sizeof plan->places);
    while (*text && *text != ')') {
        if (*text == ' ') {
            text++;
            continue;
        }
        unsigned number = 0;
        const char *digits = text;
        while (*text >= '0' && *text <= '9' && number < MOST_NUMBERS) number = 10 * number + (unsigned)(*text++ - '0');
        if (text == digits || number >= MOST_NUMBERS || plan->places[number] || plan->count == MOST_COLUMNS) return NULL;
        Column *column = &plan->columns[plan->count++];
        *column = (Column){.kind = *text++, .whole = number == 0};
        if (column->whole) { /* field 0: the message itself, as bytes or as its offsets */
            if (column->kind != 'b' && column->kind != 'm') return NULL;
            continue;
        }
        plan->places[number] = plan->count;
        switch (column->kind) {
            case 'i':
            case 't':
            case 'b':
            case 'm':
            case 'f':
            case 'd':
                break;
            case '(':
                column->inner = &into->plans[into->count];
                text = read_plan(text, into);
                if (text && *text++ == ')') break;
                return NULL;
            default:
                return NULL;
        }
        if (*text == '*') column->repeated = *text++;
        if (*text == '?') column->optional = *text++;
    }
    return text;
}

/* ---- values ---- */

static PyObject *read_message(const Data *data, const uint8_t *p, const uint8_t *end, const Plan *plan);

static PyObject *offset_pair(Py_ssize_t begin, Py_ssize_t end) {
    PyObject *first = PyLong_FromSsize_t(begin), *second = PyLong_FromSsize_t(end);
    PyObject *pair = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return pair;
}

static PyObject *number_of(uint64_t bits) {
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return PyLong_FromLongLong(value);
}

static PyObject *float_at(const uint8_t *p) {
    uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return PyFloat_FromDouble((double)value);
}

static PyObject *double_at(const uint8_t *p) {
    uint64_t bits = xs_eight(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return PyFloat_FromDouble(value);
}

/* The Python value of a field, whose wire type has been checked. */
static PyObject *value_of(const Data *data, const Column *column, const xs_field *field) {
    switch (column->kind) {
        case 'i':
            return number_of(field->value);
        case 'f':
            return float_at(field->begin);
        case 'd':
            return double_at(field->begin);
        case 't':
            return PyUnicode_DecodeUTF8((const char *)field->begin, field->end - field->begin, "backslashreplace");
        case 'b':
            return PyBytes_FromStringAndSize((const char *)field->begin, field->end - field->begin);
        case 'm':
            return offset_pair(field->begin - data->base, field->end - data->base);
        default:
            return read_message(data, field->begin, field->end, column->inner);
    }
}

/* The value of an absent field: None, or the default of proto3. */
static PyObject *default_value(const Data *data, const Column *column) {
    if (column->optional || (column->kind == 'm' && !column->repeated)) Py_RETURN_NONE;
    if (column->repeated) return PyTuple_New(0);
    switch (column->kind) {
        case 'i':
            return PyLong_FromLong(0);
        case 'f':
        case 'd':
            return PyFloat_FromDouble(0);
        case 't':
            return PyUnicode_FromStringAndSize("", 0);
        case 'b':
            return PyBytes_FromStringAndSize("", 0);
        default:
            return read_message(data, data->base, data->base, column->inner);
    }
}

/* The most entries of one list, and the error for a longer one (`set_most`): a small file may hold very many. */
static Py_ssize_t most_entries = PY_SSIZE_T_MAX;
static char too_many_text[160] = "too many entries in a message";
enum { SIGNAL_CHECK = 1 << 16 }; /* entries between two checks for signals such as Ctrl-C */

static bool append(const Data *data, PyObject *list, PyObject *value) {
    Py_ssize_t count = PyList_Size(list);
    bool bounded = true;
    if (value && count >= most_entries) {
        raise_malformed(data, data->base, "%s", too_many_text);
        bounded = false;
    } else if (value && count % SIGNAL_CHECK == SIGNAL_CHECK - 1) {
        bounded = PyErr_CheckSignals() == 0;
    }
    if (!bounded) Py_CLEAR(value);
    bool done = value && PyList_Append(list, value) == 0;
    Py_XDECREF(value);
    return done;
}

/* Appends the numbers of a packed field. */
static bool append_packed(const Data *data, char kind, const xs_field *field, PyObject *list) {
    const uint8_t *p = field->begin;
    if (kind == 'i') {
        xs_fault fault = {0};
        while (p < field->end) {
            uint64_t value = 0;
            p = xs_varint(p, field->end, data->safe, &value, &fault);
            if (!p) {
                raise_fault(data, field, &fault);
                return false;
            }
            if (!append(data, list, number_of(value))) return false;
        }
        return true;
    }
    int width = kind == 'f' ? 4 : 8;
    if ((field->end - p) % width) {
        raise_malformed(data, p, "field %llu does not hold numbers of %d bytes", (unsigned long long)field->number, width);
        return false;
    }
    for (; p < field->end; p += width) {
        if (!append(data, list, width == 4 ? float_at(p) : double_at(p))) return false;
    }
    return true;
}

/* Keeps a field for its column; false with an error set. */
static bool keep_field(const Data *data, const Column *column, const xs_field *field, Found *found) {
    int expected = column->kind == 'i' ? XS_VARINT : column->kind == 'f' ? XS_FOUR : column->kind == 'd' ? XS_EIGHT : XS_BYTES;
    bool packed = field->wire == XS_BYTES && expected != XS_BYTES && column->repeated;
    if (field->wire != expected && !packed) {
        raise_malformed(data, field->begin, "field %llu has wire type %d, expected %d", (unsigned long long)field->number, field->wire, expected);
        return false;
    }
    found->present = true;
    if (!column->repeated) {
        found->last = *field;
        return true;
    }
    if (!found->all && !(found->all = PyList_New(0))) return false;
    return packed ? append_packed(data, column->kind, field, found->all) : append(data, found->all, value_of(data, column, field));
}

/* The value of a column, after its message has been read. */
static PyObject *column_value(const Data *data, const Column *column, const Found *found) {
    if (!found->present) return default_value(data, column);
    return column->repeated ? PyList_AsTuple(found->all) : value_of(data, column, &found->last);
}

/* Reads a message: a tuple with a value for each column of the plan. */
static PyObject *read_message(const Data *data, const uint8_t *begin, const uint8_t *end, const Plan *plan) {
    Found found[MOST_COLUMNS];
    for (uint8_t i = 0; i < plan->count; i++) {
        found[i].present = plan->columns[i].whole;
        found[i].all = NULL;
        if (found[i].present) found[i].last = (xs_field){.wire = XS_BYTES, .begin = begin, .end = end};
    }
    const uint8_t *p = begin;
    while (p && p < end) {
        xs_field field;
        p = next_field(data, p, end, &field);
        uint8_t place = p && field.number < MOST_NUMBERS ? plan->places[field.number] : 0;
        if (place && !keep_field(data, &plan->columns[place - 1], &field, &found[place - 1])) p = NULL;
    }
    PyObject *row = p ? PyTuple_New(plan->count) : NULL;
    for (uint8_t i = 0; i < plan->count; i++) {
        PyObject *value = row ? column_value(data, &plan->columns[i], &found[i]) : NULL;
        if (row && (!value || PyTuple_SetItem(row, i, value) < 0)) Py_CLEAR(row);
        Py_XDECREF(found[i].all);
    }
    return row;
}

/* Reads all fields of a message: [(number, wire type, value, 0)] for varints, else [(number, wire type, begin, end)]. */
static PyObject *read_fields(const Data *data, const uint8_t *p, const uint8_t *end) {
    PyObject *list = PyList_New(0);
    while (list && p < end) {
        xs_field field;
        p = next_field(data, p, end, &field);
        PyObject *entry = NULL;
        if (p) {
            entry = field.wire == XS_VARINT ? Py_BuildValue("(KiKi)", (unsigned long long)field.number, XS_VARINT, (unsigned long long)field.value, 0)
                                            : Py_BuildValue("(Kinn)", (unsigned long long)field.number, field.wire,
                                                            (Py_ssize_t)(field.begin - data->base), (Py_ssize_t)(field.end - data->base));
        }
        if (!append(data, list, entry)) Py_CLEAR(list);
    }
    return list;
}

/* ---- the module ---- */

/* The byte range given by up to two arguments, start and end; by default the whole buffer. */
static bool parse_range(const Py_buffer *buffer, PyObject *const *arguments, Py_ssize_t count, Py_ssize_t *start, Py_ssize_t *stop) {
    *start = count > 0 ? PyLong_AsSsize_t(arguments[0]) : 0;
    *stop = count > 1 ? PyLong_AsSsize_t(arguments[1]) : buffer->len;
    if (PyErr_Occurred()) return false;
    if (0 <= *start && *start <= *stop && *stop <= buffer->len) return true;
    PyErr_Format(PyExc_ValueError, "bytes %zd to %zd are outside of %zd bytes of data", *start, *stop, buffer->len);
    return false;
}

/* Reads a message by `plan`, or all its fields if that is NULL. The arguments are data, start and end. */
static PyObject *read_buffer(const Plan *plan, PyObject *const *arguments, Py_ssize_t count) {
    Py_buffer buffer;
    Py_ssize_t start, stop;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    static const uint8_t empty;
    const uint8_t *base = buffer.len ? buffer.buf : &empty;
    Data data = {base, base + buffer.len};
    PyObject *result = NULL;
    if (parse_range(&buffer, arguments + 1, count - 1, &start, &stop)) {
        result = plan ? read_message(&data, base + start, base + stop, plan) : read_fields(&data, base + start, base + stop);
    }
    PyBuffer_Release(&buffer);
    return result;
}

static PyObject *unpack(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 2 || count > 4) {
        PyErr_SetString(PyExc_TypeError, "unpack takes a plan, data and at most a start and an end");
        return NULL;
    }
    const char *text = PyUnicode_AsUTF8AndSize(arguments[0], NULL);
    if (!text) return NULL;
    Plans read;
    read.count = 0;
    text = read_plan(text, &read);
    if (!text || *text) {
        PyErr_Format(PyExc_ValueError, "not a plan: %R", arguments[0]);
        return NULL;
    }
    return read_buffer(read.plans, arguments + 1, count - 1);
}

static PyObject *fields(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 1 || count > 3) {
        PyErr_SetString(PyExc_TypeError, "fields takes data and at most a start and an end");
        return NULL;
    }
    return read_buffer(NULL, arguments, count);
}

static PyObject *set_most(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_ssize_t wanted;
    const char *text;
    if (!PyArg_ParseTuple(arguments, "ns", &wanted, &text)) return NULL;
    most_entries = wanted;
    snprintf(too_many_text, sizeof too_many_text, "%s", text);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_most", set_most, METH_VARARGS, "set_most(entries, text) -> None: a list of more entries is an error with this text."},
    {"unpack", (PyCFunction)(void (*)(void))unpack, METH_FASTCALL, "unpack(plan, data, start=0, end=len(data)) -> the value of each column of the plan."},
    {"fields", (PyCFunction)(void (*)(void))fields, METH_FASTCALL, "fields(data, start=0, end=len(data)) -> (number, wire type, value, 0) or (number, wire type, begin, end) of each."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_wire",
    .m_doc = "Native reading of protobuf messages.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__wire(void) { return PyModuleDef_Init(&definition); }
