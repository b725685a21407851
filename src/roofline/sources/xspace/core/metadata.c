/* Stats and metadata: messages that are read one at a time, on request. */
#include "scan_core.h"

enum { STAT_METADATA_ID = 1, STAT_DOUBLE, STAT_UINT64, STAT_INT64, STAT_STR, STAT_BYTES, STAT_REF };
enum { METADATA_ID = 1, METADATA_NAME, METADATA_METADATA, METADATA_DISPLAY_NAME, METADATA_STATS, METADATA_CHILD_ID };

static xs_span span_of(const xs_bytes *bytes, const xs_field *field) {
    return (xs_span){(size_t)(field->begin - bytes->base), (size_t)(field->end - field->begin)};
}

/* Reads the next field, which must have the wire type that `wire_of` returns for it; NULL at a fault. */
static const uint8_t *next_field(const xs_bytes *bytes, const uint8_t *p, const uint8_t *end, int (*wire_of)(const xs_field *), xs_field *field,
                                 xs_fault *fault) {
    const uint8_t *start = p;
    p = xs_next(p, end, bytes->base + bytes->size, field, fault);
    return p && field->wire != wire_of(field) ? xs_fail(fault, XS_WRONG_WIRE, start) : p;
}

static int stat_wire(const xs_field *field) {
    if (field->number > STAT_REF) return field->wire;
    return field->number == STAT_DOUBLE ? XS_EIGHT : field->number == STAT_STR || field->number == STAT_BYTES ? XS_BYTES : XS_VARINT;
}

static int metadata_wire(const xs_field *field) {
    if (field->number > METADATA_CHILD_ID) return field->wire;
    if (field->number == METADATA_CHILD_ID) return field->wire == XS_BYTES ? XS_BYTES : XS_VARINT; /* packed or not */
    return field->number == METADATA_ID ? XS_VARINT : XS_BYTES;
}

bool xs_stat_read(const xs_bytes *bytes, xs_span message, xs_stat *stat, xs_fault *fault) {
    static const int kinds[] = {[STAT_DOUBLE] = XS_DOUBLE, [STAT_UINT64] = XS_UINT64, [STAT_INT64] = XS_INT64,
                                [STAT_STR] = XS_STRING,    [STAT_BYTES] = XS_BLOB,    [STAT_REF] = XS_REF};
    const uint8_t *p = bytes->base + message.offset, *end = p + message.length;
    *stat = (xs_stat){0};
    while (p < end) {
        xs_field field;
        p = next_field(bytes, p, end, stat_wire, &field, fault);
        if (!p) return false;
        if (field.number == STAT_METADATA_ID) {
            stat->id = (int64_t)field.value;
        } else if (field.number <= STAT_REF) {
            stat->kind = kinds[field.number];
            stat->value = field.value;
            stat->text = field.begin ? span_of(bytes, &field) : (xs_span){0};
        }
    }
    return true;
}

bool xs_name_read(const xs_bytes *bytes, xs_span message, xs_span *name, xs_fault *fault) {
    const uint8_t *p = bytes->base + message.offset, *end = p + message.length;
    *name = (xs_span){message.offset, 0};
    while (p < end) {
        xs_field field;
        p = next_field(bytes, p, end, metadata_wire, &field, fault); /* XStatMetadata's fields 1 to 3 have the same wire types */
        if (!p) return false;
        if (field.number == METADATA_NAME) *name = span_of(bytes, &field);
    }
    return true;
}

static bool add_children(const xs_bytes *bytes, const xs_field *field, xs_metadata *metadata, xs_fault *fault) {
    uint64_t child = field->value;
    if (field->wire == XS_VARINT) return xs_push(&metadata->children, (int64_t)child) || xs_fail(fault, XS_NO_MEMORY, bytes->base);
    for (const uint8_t *p = field->begin; p < field->end;) {
        p = xs_varint(p, field->end, bytes->base + bytes->size, &child, fault);
        if (!p) return false;
        if (!xs_push(&metadata->children, (int64_t)child)) return xs_fail(fault, XS_NO_MEMORY, bytes->base);
    }
    return true;
}

bool xs_metadata_read(const xs_bytes *bytes, xs_span message, xs_metadata *metadata, xs_fault *fault) {
    const uint8_t *p = bytes->base + message.offset, *end = p + message.length;
    xs_span none = {message.offset, 0};
    *metadata = (xs_metadata){.name = none, .display_name = none, .metadata = none};
    while (p < end) {
        xs_field field;
        p = next_field(bytes, p, end, metadata_wire, &field, fault);
        if (!p) return false;
        switch (field.number) {
            case METADATA_NAME:
                metadata->name = span_of(bytes, &field);
                break;
            case METADATA_DISPLAY_NAME:
                metadata->display_name = span_of(bytes, &field);
                break;
            case METADATA_METADATA:
                metadata->metadata = span_of(bytes, &field);
                break;
            case METADATA_CHILD_ID:
                if (!add_children(bytes, &field, metadata, fault)) return false;
                break;
            case METADATA_STATS: {
                xs_span *stat = xs_list_add(&metadata->stats, sizeof *stat);
                if (!stat) return xs_fail(fault, XS_NO_MEMORY, bytes->base);
                *stat = span_of(bytes, &field);
                break;
            }
            default:
                break;
        }
    }
    return true;
}

void xs_metadata_free(xs_metadata *metadata) {
    xs_list_free(&metadata->stats);
    xs_list_free(&metadata->children);
}
