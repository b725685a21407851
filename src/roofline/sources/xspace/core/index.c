/* The index of a profile: planes, lines and metadata entries, found by skipping over events and values.
 *
 * Functions return false only without memory or when `bounds` stop them. Faults of the file are noted in `damages`, and reading continues
 * after a faulty message if its length is valid.
 */
#include <stdlib.h>

#include "scan_core.h"

enum { XSPACE_PLANES = 1, XSPACE_ERRORS, XSPACE_WARNINGS, XSPACE_HOSTNAMES };
enum { XPLANE_ID = 1, XPLANE_NAME, XPLANE_LINES, XPLANE_EVENT_METADATA, XPLANE_STAT_METADATA, XPLANE_STATS };
enum { XLINE_ID = 1, XLINE_NAME, XLINE_TIMESTAMP_NS, XLINE_EVENTS, XLINE_DURATION_PS = 9, XLINE_DISPLAY_ID, XLINE_DISPLAY_NAME };
enum { ENTRY_KEY = 1, ENTRY_VALUE };
enum { MOST_DAMAGES = 32 };

static xs_span span_of(const xs_index *index, const uint8_t *begin, const uint8_t *end) {
    return (xs_span){(size_t)(begin - index->bytes.base), (size_t)(end - begin)};
}

/* Notes a fault. A damaged file may have very many: only the first few are kept. */
static bool note_damage(xs_index *index, const xs_fault *fault, int64_t plane, int64_t line) {
    if (index->damages.count >= MOST_DAMAGES) return true;
    xs_damage *damage = xs_list_add(&index->damages, sizeof *damage);
    if (!damage) return false;
    *damage = (xs_damage){fault->kind, (size_t)(fault->at - index->bytes.base), plane, line};
    return true;
}

/* In the message that the end of the file cuts off, a number or length that runs past the end is reported as truncation. */
static void report_as_truncated(const xs_index *index, xs_fault *fault) {
    if (fault->kind == XS_SHORT_VARINT || fault->kind == XS_SHORT_BYTES) {
        *fault = (xs_fault){XS_TRUNCATED, index->bytes.base + index->bytes.size};
    }
}

enum { CHECK_INTERVAL = 1 << 16 }; /* messages between two calls of go_on */

/* Counts a message; false if `bounds` stop the index. */
static bool count_message(xs_index *index) {
    xs_bounds *bounds = index->bounds;
    if (!bounds) return true;
    bounds->messages++;
    bounds->too_many = bounds->messages > bounds->most;
    if (bounds->messages % CHECK_INTERVAL == 0 && bounds->go_on) bounds->stopped = !bounds->go_on();
    return !bounds->too_many && !bounds->stopped;
}

static bool check_wire(const xs_field *field, int wire, const uint8_t *start, xs_fault *fault) {
    return field->wire == wire || xs_fail(fault, XS_WRONG_WIRE, start);
}

/* Reads the fields of a line before its first event. False at a fault. */
static bool read_line(xs_index *index, xs_line *line, xs_fault *fault) {
    const uint8_t *p = index->bytes.base + line->bytes.offset, *end = p + line->bytes.length;
    const uint8_t *safe = index->bytes.base + index->bytes.size;
    while (p < end) {
        const uint8_t *start = p;
        xs_field field;
        p = xs_next(p, end, safe, &field, fault);
        if (field.number == XLINE_EVENTS) return true; /* events are checked when they are read */
        if (!p) return false;
        switch (field.number) {
            case XLINE_ID:
                if (!check_wire(&field, XS_VARINT, start, fault)) return false;
                line->id = (int64_t)field.value;
                break;
            case XLINE_NAME:
                if (!check_wire(&field, XS_BYTES, start, fault)) return false;
                line->name = span_of(index, field.begin, field.end);
                break;
            case XLINE_TIMESTAMP_NS:
                if (!check_wire(&field, XS_VARINT, start, fault)) return false;
                line->timestamp_ns = (int64_t)field.value;
                break;
            case XLINE_DURATION_PS:
            case XLINE_DISPLAY_ID:
            case XLINE_DISPLAY_NAME:
                break;
            default:
                index->unknown++;
        }
    }
    return true;
}

static bool add_line(xs_index *index, size_t plane, const xs_field *field, bool whole) {
    int64_t row = (int64_t)index->lines.count;
    xs_line *line = xs_list_add(&index->lines, sizeof *line);
    xs_fault fault = {0};
    if (!line) return false;
    line->bytes = span_of(index, field->begin, field->end);
    line->plane = plane;
    line->whole = whole;
    return read_line(index, line, &fault) || !whole || note_damage(index, &fault, (int64_t)plane, row);
}

/* Adds an entry of a metadata map. A damaged entry is noted and left out. */
static bool add_entry(xs_index *index, xs_list *table, size_t plane, const xs_field *outer) {
    const uint8_t *p = outer->begin, *safe = index->bytes.base + index->bytes.size;
    xs_entry found = {0};
    xs_fault fault = {0};
    while (p < outer->end) {
        const uint8_t *start = p;
        xs_field field;
        p = xs_next(p, outer->end, safe, &field, &fault);
        if (!p) return note_damage(index, &fault, (int64_t)plane, -1);
        if (field.number == ENTRY_KEY) {
            if (!check_wire(&field, XS_VARINT, start, &fault)) return note_damage(index, &fault, (int64_t)plane, -1);
            found.id = (int64_t)field.value;
        } else if (field.number == ENTRY_VALUE) {
            if (!check_wire(&field, XS_BYTES, start, &fault)) return note_damage(index, &fault, (int64_t)plane, -1);
            found.value = span_of(index, field.begin, field.end);
        } else {
            index->unknown++;
        }
    }
    xs_entry *entry = xs_list_add(table, sizeof *entry);
    if (!entry) return false;
    *entry = found;
    return true;
}

static bool add_stat(xs_index *index, const xs_field *field) {
    xs_entry *entry = xs_list_add(&index->stats, sizeof *entry);
    if (!entry) return false;
    entry->value = span_of(index, field->begin, field->end);
    return true;
}

static bool take_plane_field(xs_index *index, size_t row, const xs_field *field, const uint8_t *start) {
    xs_plane *plane = &XS_AT(index->planes, xs_plane, row);
    int wire = field->number == XPLANE_ID ? XS_VARINT : field->number <= XPLANE_STATS ? XS_BYTES : field->wire;
    xs_fault fault = {0};
    if (!check_wire(field, wire, start, &fault)) return note_damage(index, &fault, (int64_t)row, -1);
    switch (field->number) {
        case XPLANE_ID:
            plane->id = (int64_t)field->value;
            return true;
        case XPLANE_NAME:
            plane->name = span_of(index, field->begin, field->end);
            return true;
        case XPLANE_LINES:
            return add_line(index, row, field, true);
        case XPLANE_EVENT_METADATA:
            return add_entry(index, &index->events, row, field);
        case XPLANE_STAT_METADATA:
            return add_entry(index, &index->names, row, field);
        case XPLANE_STATS:
            return add_stat(index, field);
        default:
            index->unknown++;
            return true;
    }
}

/* Reads the fields of a plane, up to the first with an invalid length: where the next one begins is then unknown. */
static bool read_plane(xs_index *index, size_t row, const xs_field *outer, bool whole) {
    const uint8_t *p = outer->begin, *safe = index->bytes.base + index->bytes.size;
    while (p < outer->end) {
        const uint8_t *start = p;
        xs_field field;
        xs_fault fault = {0};
        p = xs_next(p, outer->end, safe, &field, &fault);
        if (!p) {
            bool cut_line = field.number == XPLANE_LINES && field.begin;
            int64_t line = cut_line ? (int64_t)index->lines.count : -1;
            if (cut_line && !add_line(index, row, &field, false)) return false;
            if (!whole) report_as_truncated(index, &fault);
            return note_damage(index, &fault, (int64_t)row, line);
        }
        if (!count_message(index) || !take_plane_field(index, row, &field, start)) return false;
    }
    return true;
}

static bool add_plane(xs_index *index, const xs_field *field, bool whole) {
    size_t row = index->planes.count;
    xs_plane *plane = xs_list_add(&index->planes, sizeof *plane);
    if (!plane) return false;
    plane->bytes = span_of(index, field->begin, field->end);
    plane->whole = whole;
    plane->lines.first = index->lines.count;
    plane->events.first = index->events.count;
    plane->names.first = index->names.count;
    plane->stats.first = index->stats.count;
    bool ok = read_plane(index, row, field, whole);
    plane = &XS_AT(index->planes, xs_plane, row);
    plane->lines.count = index->lines.count - plane->lines.first;
    plane->events.count = index->events.count - plane->events.first;
    plane->names.count = index->names.count - plane->names.first;
    plane->stats.count = index->stats.count - plane->stats.first;
    return ok;
}

static bool take_space_field(xs_index *index, const xs_field *field, const uint8_t *start) {
    xs_fault fault = {0};
    xs_list *texts = NULL;
    if (field->number <= XSPACE_HOSTNAMES && !check_wire(field, XS_BYTES, start, &fault)) return note_damage(index, &fault, -1, -1);
    switch (field->number) {
        case XSPACE_PLANES:
            return add_plane(index, field, true);
        case XSPACE_ERRORS:
            texts = &index->errors;
            break;
        case XSPACE_WARNINGS:
            texts = &index->warnings;
            break;
        case XSPACE_HOSTNAMES:
            texts = &index->hostnames;
            break;
        default:
            index->unknown++;
            return true;
    }
    xs_span *span = xs_list_add(texts, sizeof *span);
    if (!span) return false;
    *span = span_of(index, field->begin, field->end);
    return true;
}

static bool read_space(xs_index *index) {
    const uint8_t *p = index->bytes.base, *end = p + index->bytes.size;
    while (p < end) {
        const uint8_t *start = p;
        xs_field field;
        xs_fault fault = {0};
        p = xs_next(p, end, end, &field, &fault);
        if (!p) {
            bool cut_plane = field.number == XSPACE_PLANES && field.begin;
            size_t before = index->damages.count;
            if (cut_plane && !add_plane(index, &field, false)) return false;
            if (index->damages.count > before) return true; /* reported more precisely while reading the plane */
            report_as_truncated(index, &fault);
            return note_damage(index, &fault, cut_plane ? (int64_t)index->planes.count - 1 : -1, -1);
        }
        if (!count_message(index) || !take_space_field(index, &field, start)) return false;
    }
    return true;
}

xs_index *xs_index_new(xs_bytes bytes, xs_bounds *bounds) {
    xs_index *index = calloc(1, sizeof *index);
    if (!index) return NULL;
    index->bytes = bytes;
    index->bounds = bounds;
    if (!read_space(index)) {
        xs_index_free(index);
        return NULL;
    }
    index->bounds = NULL;
    return index;
}

void xs_index_free(xs_index *index) {
    xs_list *lists[] = {&index->planes, &index->lines,    &index->events,    &index->names,  &index->stats,
                        &index->errors, &index->warnings, &index->hostnames, &index->damages};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) xs_list_free(lists[i]);
    free(index);
}
