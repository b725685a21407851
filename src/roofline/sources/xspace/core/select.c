/* Which stats and events a job selects, and its position in the line. */
#include "scan_core.h"

static const int64_t PS_PER_NS = 1000;

void xs_select_init(xs_select *select) {
    *select = (xs_select){0};
    memset(select->dense, -1, sizeof select->dense);
    select->only.width = select->sparse.width = 1;
}

bool xs_select_stat(xs_select *select, int64_t id, int slot) {
    if (slot < 0 || slot >= XS_SLOTS) return false;
    if (slot >= select->slots) select->slots = slot + 1;
    if (id >= 0 && id < XS_DENSE) {
        select->dense[id] = (int8_t)slot;
        return true;
    }
    int64_t row = xs_set_add(&select->sparse, &id);
    if (row < 0) return false;
    return (size_t)row < select->sparse_slots.count || xs_push(&select->sparse_slots, slot); /* an id given twice keeps its first slot */
}

bool xs_select_only(xs_select *select, int64_t metadata_id) {
    select->filtered = true;
    return xs_set_add(&select->only, &metadata_id) >= 0;
}

void xs_select_free(xs_select *select) {
    xs_set_free(&select->sparse);
    xs_list_free(&select->sparse_slots);
    xs_set_free(&select->only);
}

bool xs_walk_init(xs_walk *walk, const xs_index *index, size_t row) {
    const xs_line *line = &XS_AT(index->lines, xs_line, row);
    const uint8_t *begin = index->bytes.base + line->bytes.offset;
    const uint8_t *end = begin + line->bytes.length, *safe = index->bytes.base + index->bytes.size;
    *walk = (xs_walk){.bytes = index->bytes, .begin = begin, .p = begin, .end = end, .timestamp_ns = line->timestamp_ns};
    walk->plain_end = safe - end >= 2 * XS_WORD ? end : safe - begin >= 2 * XS_WORD ? safe - 2 * XS_WORD : begin;
    if (line->timestamp_ns > INT64_MAX / PS_PER_NS || line->timestamp_ns < INT64_MIN / PS_PER_NS) {
        xs_fail(&walk->fault, XS_OVERFLOW, begin);
        return false;
    }
    walk->start_ps = line->timestamp_ns * PS_PER_NS;
    return true;
}
