/* Decodes events. Used by both jobs and inlined into their loops. */
#ifndef ROOFLINE_XSPACE_EVENT_H
#define ROOFLINE_XSPACE_EVENT_H

#include "scan_core.h"

typedef struct {
    uint64_t value; /* number, bits of a double, or offset of a text */
    size_t length;  /* of a text */
    uint8_t kind;
} xs_value;

typedef struct {
    const uint8_t *begin; /* of its message */
    int64_t metadata_id, start_ps, duration_ps, occurrences;
    bool wanted;      /* whether it is selected; if not, only `begin` is valid */
    bool aggregated;  /* the sum of `occurrences` events, without a start */
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

/* Mask for a field of one byte of tag and one byte of number, loaded together: the tag, and the bit that is set in a longer number. */
enum { XS_SHORT_FIELD = 0x80ff };

/* Keeps a stat's value if the tag is that of a number and the number fills `p` … `end`; else false. 8 bytes from `p` must be readable. */
static inline bool xs_keep_number(xs_event *event, int slot, uint8_t tag, const uint8_t *p, const uint8_t *end) {
    static const uint8_t kinds[UINT8_MAX + 1] = {
        [XS_TAG(3, XS_VARINT)] = XS_UINT64, [XS_TAG(4, XS_VARINT)] = XS_INT64, [XS_TAG(7, XS_VARINT)] = XS_REF};
    xs_value found = {0, 0, kinds[tag]};
    const uint8_t *after = xs_word_varint(p, &found.value);
    if (!after) after = xs_varint_bytewise(p, end, &found.value, &(xs_fault){0}); /* a negative number, or a hash */
    if (after != end || found.kind == XS_ABSENT) return false;
    xs_keep(event, slot, found);
    return true;
}

enum { XS_PLAIN_STAT = 4 }; /* the fewest bytes of a plain stat: a metadata id of one byte, then a number, each with its tag */

/* Reads a plain stat; false if it is of another form. A word after its end must be readable. */
static inline bool xs_read_plain_stat(const xs_select *select, xs_event *event, const uint8_t *p, const uint8_t *end) {
    if (end - p < XS_PLAIN_STAT) return false;
    uint32_t head = xs_two(p);
    if ((head & XS_SHORT_FIELD) != XS_TAG(1, XS_VARINT)) return false;
    int slot = select->dense[head >> 8];
    return slot < 0 || xs_keep_number(event, slot, p[2], p + 3, end);
}

/* Reads the next field of an event if it is a plain stat, as nearly all are, and returns its end; else NULL. Its tag and length are loaded
 * together with tag and value of the metadata id. Two words after its end must be readable. */
static inline const uint8_t *xs_next_plain_stat(const xs_select *select, xs_event *event, const uint8_t *p, const uint8_t *end) {
    uint32_t head = xs_four(p);
    const uint8_t *after = p + 2 + (head >> 8 & 0x7f);
    if ((head & (XS_SHORT_FIELD | (uint32_t)XS_SHORT_FIELD << 16)) != (XS_TAG(4, XS_BYTES) | XS_TAG(1, XS_VARINT) << 16)) return NULL;
    if (after > end) return NULL;
    int slot = select->dense[head >> 24];
    if (slot < 0) return after - p < 2 + XS_PLAIN_STAT ? NULL : after;
    return xs_keep_number(event, slot, p[4], p + 5, after) ? after : NULL;
}

/* Reads the next field of the line if it is a plain event, as nearly all are: id, offset and duration, each unless 0, then plain stats.
 * Else false, with `walk` unchanged and `event` undefined. */
static inline bool xs_next_plain_event(xs_walk *walk, const xs_select *select, xs_event *event, int64_t *offset_ps) {
    const uint8_t *p = walk->p;
    uint64_t id = 0, offset = 0, duration = 0;
    if (walk->plain_end - p < 2) return false;
    uint32_t head = xs_two(p);
    if ((head & XS_SHORT_FIELD) != XS_TAG(4, XS_BYTES)) return false;
    p += 2;
    if ((ptrdiff_t)(head >> 8) > walk->plain_end - p) return false;
    const uint8_t *end = p + (head >> 8);
    event->begin = p;
    event->occurrences = 1;
    event->aggregated = false;
    event->present = 0;
    if (p < end && *p == XS_TAG(1, XS_VARINT) && !(p = xs_word_varint(p + 1, &id))) return false;
    if (p < end && *p == XS_TAG(2, XS_VARINT) && !(p = xs_word_varint(p + 1, &offset))) return false;
    if (p < end && *p == XS_TAG(3, XS_VARINT) && !(p = xs_word_varint(p + 1, &duration))) return false;
    while (p < end) {
        if (!(p = xs_next_plain_stat(select, event, p, end))) return false;
    }
    if (p != end) return false;
    event->metadata_id = (int64_t)id;
    event->duration_ps = (int64_t)duration;
    *offset_ps = (int64_t)offset;
    walk->p = end;
    walk->events++;
    return true;
}

/* Reads an XStat and keeps it if its metadata id is selected. False at a fault. */
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
                if (xs_slot(select, id) < 0) return true; /* not selected: the value need not be decoded */
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
    if (!select->filtered) return true;
    return (event->present & select->having) || xs_set_find(&select->only, &event->metadata_id) >= 0;
}

/* Reads an XEvent of any form, field by field; stops early if its metadata id alone shows that it is not selected. False at a fault. */
static inline bool xs_read_any_event(xs_walk *walk, const xs_select *select, xs_event *event, int64_t *offset_ps, const uint8_t *p,
                                     const uint8_t *end) {
    const uint8_t *safe = walk->bytes.base + walk->bytes.size;
    uint64_t value = 0;
    event->begin = p;
    event->metadata_id = event->duration_ps = *offset_ps = 0;
    event->occurrences = 1;
    event->aggregated = false;
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
                if (!select->having && !xs_wanted_event(select, event)) return true;
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

/* Finds the message of the line's next event: `*begin` … `*end`. False at the end of the line or at a fault. */
static inline bool xs_next_message(xs_walk *walk, const uint8_t **begin, const uint8_t **end) {
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

/* Reads the next event of the line, of any form. False at the end of the line or at a fault. */
static XS_NOINLINE bool xs_next_any_event(xs_walk *walk, const xs_select *select, xs_event *event, int64_t *offset_ps) {
    const uint8_t *begin, *end;
    if (!xs_next_message(walk, &begin, &end) || !xs_read_any_event(walk, select, event, offset_ps, begin, end)) return false;
    bool negative = event->duration_ps < 0 || event->occurrences < 0;
    return !negative || !xs_wanted_event(select, event) || xs_fail(&walk->fault, XS_NEGATIVE, begin);
}

/* Reads the next event of the line. False at the end of the line or at a fault. */
static inline bool xs_next_event(xs_walk *walk, const xs_select *select, xs_event *event) {
    int64_t offset_ps, stop;
    if (!xs_next_plain_event(walk, select, event, &offset_ps) && !xs_next_any_event(walk, select, event, &offset_ps)) return false;
    event->wanted = xs_wanted_event(select, event);
    if (!event->wanted) return true;
    if (!xs_add(walk->start_ps, offset_ps, &event->start_ps) || !xs_add(event->start_ps, event->duration_ps, &stop)) {
        return xs_fail(&walk->fault, XS_OVERFLOW, event->begin);
    }
    return true;
}

#endif
