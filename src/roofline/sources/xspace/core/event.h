/* Events, decoded once: shared by both jobs and inlined into their loops. */
#ifndef ROOFLINE_XSPACE_EVENT_H
#define ROOFLINE_XSPACE_EVENT_H

#include "scan_core.h"

typedef struct {
    uint64_t value; /* number, bits of a double, or offset of a text */
    size_t length;  /* of a text */
    uint8_t kind;
} xs_value;

typedef struct {
    int64_t metadata_id, start_ps, duration_ps, occurrences;
    bool aggregated;  /* it stands for `occurrences` events and has no start of its own */
    uint32_t present; /* which slots have a value */
    xs_value values[XS_SLOTS];
} xs_event;

static inline int xs_slot(const xs_select *select, uint64_t id) {
    if (id < XS_DENSE) return select->dense[id];
    int64_t row = xs_set_find(&select->sparse, &(int64_t){(int64_t)id});
    return row < 0 ? -1 : (int)XS_AT(select->sparse_slots, int64_t, row);
}

static inline void xs_keep(xs_event *event, int slot, xs_value value) {
    event->values[slot] = value;
    event->present |= (uint32_t)1 << slot;
}

/* Nearly every stat: a metadata id of one byte, then a number, then the end. False if it is anything else. A word behind the end must be
 * readable. */
static inline bool xs_read_plain_stat(const xs_select *select, xs_event *event, const uint8_t *p, const uint8_t *end) {
    static const uint8_t kinds[XS_TAG(8, 0)] = {
        [XS_TAG(3, XS_VARINT)] = XS_UINT64, [XS_TAG(4, XS_VARINT)] = XS_INT64, [XS_TAG(7, XS_VARINT)] = XS_REF};
    if (end - p < 4 || p[0] != XS_TAG(1, XS_VARINT) || p[1] >= 0x80) return false;
    int slot = select->dense[p[1]];
    if (slot < 0) return true;
    xs_value found = {0, 0, p[2] < sizeof kinds ? kinds[p[2]] : XS_ABSENT};
    if (found.kind == XS_ABSENT || xs_word(p + 3, &found.value) != end) return false;
    xs_keep(event, slot, found);
    return true;
}

/* Nearly every event: its id, offset and duration, then plain stats. False if it is anything else; what was found is then in vain. */
static inline bool xs_read_plain_event(const xs_select *select, xs_event *event, int64_t *offset_ps, const uint8_t *p, const uint8_t *end,
                                       const uint8_t *safe) {
    uint64_t id = 0, offset = 0, duration = 0;
    if (safe - end < XS_WORD || p == end || *p != XS_TAG(1, XS_VARINT) || !(p = xs_word(p + 1, &id))) return false;
    if (p >= end || *p != XS_TAG(2, XS_VARINT) || !(p = xs_word(p + 1, &offset))) return false;
    if (p >= end || *p != XS_TAG(3, XS_VARINT) || !(p = xs_word(p + 1, &duration))) return false;
    while (p < end) {
        if (p[0] != XS_TAG(4, XS_BYTES) || p[1] >= 0x80) return false;
        const uint8_t *stat = p + 2;
        p = stat + p[1];
        if (p > end || !xs_read_plain_stat(select, event, stat, p)) return false;
    }
    event->metadata_id = (int64_t)id;
    event->duration_ps = (int64_t)duration;
    *offset_ps = (int64_t)offset;
    return p == end;
}

/* One XStat, kept if its metadata id was asked for. False at a fault. */
static inline bool xs_read_stat(xs_walk *walk, const xs_select *select, xs_event *event, const uint8_t *p, const uint8_t *end) {
    const uint8_t *safe = walk->bytes.base + walk->bytes.size;
    uint64_t id = 0;
    xs_value found = {0, 0, XS_ABSENT};
    if (safe - end >= XS_WORD && xs_read_plain_stat(select, event, p, end)) return true;
    while (p < end) {
        const uint8_t *start = p;
        uint64_t tag = 0;
        size_t length = 0;
        p = xs_varint(p, end, safe, &tag, &walk->fault);
        if (!p) return false;
        switch (tag) {
            case XS_TAG(1, XS_VARINT):
                p = xs_varint(p, end, safe, &id, &walk->fault);
                if (!p) return false;
                if (xs_slot(select, id) < 0) return true; /* nobody asked: its value need not be looked at */
                break;
            case XS_TAG(2, XS_EIGHT):
                if (end - p < 8) return xs_fail(&walk->fault, XS_SHORT_BYTES, start);
                found = (xs_value){xs_eight(p), 0, XS_DOUBLE};
                p += 8;
                break;
            case XS_TAG(3, XS_VARINT):
            case XS_TAG(4, XS_VARINT):
            case XS_TAG(7, XS_VARINT):
                p = xs_varint(p, end, safe, &found.value, &walk->fault);
                if (!p) return false;
                found.kind = tag == XS_TAG(3, XS_VARINT) ? XS_UINT64 : tag == XS_TAG(4, XS_VARINT) ? XS_INT64 : XS_REF;
                break;
            case XS_TAG(5, XS_BYTES):
            case XS_TAG(6, XS_BYTES):
                p = xs_length(p, end, safe, &length, &walk->fault);
                if (!p) return false;
                found = (xs_value){(uint64_t)(p - walk->bytes.base), length, tag == XS_TAG(5, XS_BYTES) ? XS_STRING : XS_BLOB};
                p += length;
                break;
            default:
                if (tag >> 3 && tag >> 3 <= 7) return xs_fail(&walk->fault, XS_WRONG_WIRE, start);
                walk->unknown++;
                p = xs_skip(tag, p, end, safe, &walk->fault);
                if (!p) return false;
        }
    }
    int slot = xs_slot(select, id);
    if (slot >= 0 && found.kind != XS_ABSENT) xs_keep(event, slot, found);
    return true;
}

static inline bool xs_wanted_event(const xs_select *select, const xs_event *event) {
    if (!select->some) return true;
    return (event->present & select->having) || xs_set_find(&select->only, &event->metadata_id) >= 0;
}

/* Any XEvent, field by field. False at a fault; `*kept` is false if its id alone says that nobody asked for it. */
static inline bool xs_read_any_event(xs_walk *walk, const xs_select *select, xs_event *event, int64_t *offset_ps, const uint8_t *p,
                                     const uint8_t *end, bool *kept) {
    const uint8_t *safe = walk->bytes.base + walk->bytes.size;
    uint64_t value = 0;
    event->metadata_id = event->duration_ps = *offset_ps = 0;
    event->present = 0;
    while (p < end) {
        const uint8_t *start = p;
        uint64_t tag = 0;
        size_t length = 0;
        p = xs_varint(p, end, safe, &tag, &walk->fault);
        if (!p) return false;
        switch (tag) {
            case XS_TAG(1, XS_VARINT):
                p = xs_varint(p, end, safe, &value, &walk->fault);
                if (!p) return false;
                event->metadata_id = (int64_t)value;
                if (select->some && !select->having && !xs_wanted_event(select, event)) {
                    *kept = false;
                    return true;
                }
                break;
            case XS_TAG(2, XS_VARINT):
                p = xs_varint(p, end, safe, &value, &walk->fault);
                if (!p) return false;
                *offset_ps = (int64_t)value;
                break;
            case XS_TAG(3, XS_VARINT):
                p = xs_varint(p, end, safe, &value, &walk->fault);
                if (!p) return false;
                event->duration_ps = (int64_t)value;
                break;
            case XS_TAG(4, XS_BYTES):
                p = xs_length(p, end, safe, &length, &walk->fault);
                if (!p || !xs_read_stat(walk, select, event, p, p + length)) return false;
                p += length;
                break;
            case XS_TAG(5, XS_VARINT):
                p = xs_varint(p, end, safe, &value, &walk->fault);
                if (!p) return false;
                event->occurrences = (int64_t)value;
                event->aggregated = true;
                break;
            default:
                if (tag >> 3 && tag >> 3 <= 5) return xs_fail(&walk->fault, XS_WRONG_WIRE, start);
                walk->unknown++;
                p = xs_skip(tag, p, end, safe, &walk->fault);
                if (!p) return false;
        }
    }
    return true;
}

/* One XEvent. False at a fault; `*kept` says whether it was asked for. */
static inline bool xs_read_event(xs_walk *walk, const xs_select *select, xs_event *event, const uint8_t *begin, const uint8_t *end, bool *kept) {
    int64_t offset_ps;
    event->occurrences = 1;
    event->aggregated = false;
    event->present = 0;
    *kept = true;
    if (!xs_read_plain_event(select, event, &offset_ps, begin, end, walk->bytes.base + walk->bytes.size) &&
        !xs_read_any_event(walk, select, event, &offset_ps, begin, end, kept)) {
        return false;
    }
    *kept = *kept && xs_wanted_event(select, event);
    if (!*kept) return true;
    if (event->duration_ps < 0 || event->occurrences < 0) return xs_fail(&walk->fault, XS_NEGATIVE, begin);
    int64_t stop;
    if (!xs_add(walk->start_ps, offset_ps, &event->start_ps) || !xs_add(event->start_ps, event->duration_ps, &stop)) {
        return xs_fail(&walk->fault, XS_OVERFLOW, begin);
    }
    return true;
}

/* The next event of the line lies at `*begin` … `*end`. False at the end of the line or at a fault. */
static inline bool xs_next_event(xs_walk *walk, const uint8_t **begin, const uint8_t **end) {
    const uint8_t *safe = walk->bytes.base + walk->bytes.size;
    while (walk->p < walk->end) {
        const uint8_t *start = walk->p, *p;
        uint64_t tag = 0, value = 0;
        size_t length = 0;
        p = xs_varint(start, walk->end, safe, &tag, &walk->fault);
        if (!p) return false;
        if (tag == XS_TAG(4, XS_BYTES)) {
            p = xs_length(p, walk->end, safe, &length, &walk->fault);
            if (!p) return false;
            *begin = p;
            *end = walk->p = p + length;
            walk->events++;
            return true;
        }
        uint64_t number = tag >> 3, wire = tag & 7;
        if ((number == 4 && wire != XS_BYTES) || (number == 3 && wire != XS_VARINT)) return xs_fail(&walk->fault, XS_WRONG_WIRE, start);
        if (number > 4 && (number < 9 || number > 11)) walk->unknown++;
        if (number == 3) {
            if (!xs_varint(p, walk->end, safe, &value, &walk->fault)) return false;
            if ((int64_t)value != walk->timestamp_ns) return xs_fail(&walk->fault, XS_LATE_TIMESTAMP, start);
        }
        p = xs_skip(tag, p, walk->end, safe, &walk->fault);
        if (!p) return false;
        walk->p = p;
    }
    return false;
}

#endif
