/* Results that depend on the order of events in time: self time, busy intervals, overlaps, async pairs.
 *
 * The events of a line are sorted by the profiler's clock. By the device's own clock an event is at most a few places out of order, so
 * events go through a short window, which sorts them by (start, longest first). An event that begins before one that was already taken out
 * of the window counts as a rewind of the clock: the window is emptied, everything open is closed, and the line starts afresh.
 */
#include "scan_core.h"

static bool same_execution(const xs_pending *a, const xs_pending *b) {
    for (int i = 0; i < XS_DISTINCT; i++) {
        if ((a->present & b->present & 1u << i) && a->distinct[i] == b->distinct[i]) return true;
    }
    return false;
}

/* Adds the time between two instants to the buckets of a key, or subtracts it (sign -1). */
static xs_fault_kind add_to_buckets(xs_totals *totals, uint32_t key, int64_t from, int64_t to, int64_t sign) {
    for (size_t i = 0; i < totals->buckets.count; i++) {
        const xs_buckets *span = &XS_AT(totals->buckets, xs_buckets, i);
        int64_t at = from > span->begin ? from : span->begin, end = to < span->end ? to : span->end;
        while (at < end) {
            int64_t place = (at - span->begin) / span->width, rest = span->width - (at - span->begin) % span->width;
            int64_t row = xs_set_add(&totals->bucket_set, (int64_t[]){key, span->first + place});
            int64_t part = end - at < rest ? end - at : rest;
            if (row < 0 || ((size_t)row == totals->bucket_ps.count && !xs_push(&totals->bucket_ps, 0))) return XS_NO_MEMORY;
            if (!xs_add(XS_AT(totals->bucket_ps, int64_t, row), sign * part, &XS_AT(totals->bucket_ps, int64_t, row))) return XS_OVERFLOW;
            at += part;
        }
    }
    return XS_FINE;
}

static bool add_self(xs_totals *totals, uint32_t key, int32_t cell, int64_t amount) {
    xs_total *total = &XS_AT(totals->totals, xs_total, key);
    if (!xs_add(total->self_ps, amount, &total->self_ps)) return false;
    if (cell < 0) return true;
    xs_cell *part = &XS_AT(totals->cells, xs_cell, cell);
    return xs_add(part->self_ps, amount, &part->self_ps);
}

/* Where two events overlap, the time belongs to the earlier one: self time = end − max(start, latest end so far). */
static xs_fault_kind add_self_time_queued(xs_totals *totals, const xs_pending *event) {
    const xs_pending *cover = &totals->cover;
    bool covered = totals->started && cover->end > event->start;
    int64_t from = covered ? cover->end : event->start;
    if (event->end > from && !add_self(totals, event->key, event->cell, event->end - from)) return XS_OVERFLOW;
    if (totals->buckets.count) {
        xs_fault_kind fault = add_to_buckets(totals, event->key, from, event->end, 1);
        if (fault) return fault;
    }
    if (covered && event->end > event->start && same_execution(cover, event)) {
        int64_t pair = xs_set_add(&totals->overlap_set, (int64_t[]){cover->key, event->key});
        if (pair < 0) return XS_NO_MEMORY;
        if ((size_t)pair == totals->overlaps.count && !xs_list_add(&totals->overlaps, sizeof(xs_overlap))) return XS_NO_MEMORY;
        xs_overlap *overlap = &XS_AT(totals->overlaps, xs_overlap, pair);
        overlap->count++;
        overlap->time_ps += (event->end < cover->end ? event->end : cover->end) - event->start;
    }
    return XS_FINE;
}

/* An event's time is subtracted from the event that encloses it. An event that begins inside another and ends after it counts from the
 * other's end. */
static xs_fault_kind add_self_time_nested(xs_totals *totals, const xs_pending *event) {
    xs_list *stack = &totals->stack;
    const xs_open *open = stack->data;
    size_t depth = stack->count;
    int64_t from = event->start;
    while (depth && open[depth - 1].end <= event->start) depth--;
    while (depth && open[depth - 1].end < event->end) from = open[--depth].end;
    if (!add_self(totals, event->key, event->cell, event->end - from)) return XS_OVERFLOW;
    if (depth && !add_self(totals, open[depth - 1].key, open[depth - 1].cell, from - event->end)) return XS_OVERFLOW;
    if (totals->buckets.count) {
        xs_fault_kind fault = add_to_buckets(totals, event->key, from, event->end, 1);
        if (!fault && depth) fault = add_to_buckets(totals, open[depth - 1].key, from, event->end, -1);
        if (fault) return fault;
    }
    if (depth == stack->capacity && !xs_list_grow(stack, sizeof *open)) return XS_NO_MEMORY;
    stack->count = depth + 1;
    XS_AT(*stack, xs_open, depth) = (xs_open){event->end, event->key, event->cell};
    return XS_FINE;
}

/* Adds the current busy interval to the busy time, and to the intervals if they are requested. */
static xs_fault_kind close_busy(xs_totals *totals) {
    xs_interval busy = totals->busy;
    if (busy.begin == busy.end) return XS_FINE;
    uint64_t length = (uint64_t)busy.end - (uint64_t)busy.begin;
    if (length > INT64_MAX || !xs_add(totals->busy_ps, (int64_t)length, &totals->busy_ps)) return XS_OVERFLOW;
    return !totals->keep_intervals || xs_union_add(&totals->intervals, busy.begin, busy.end) ? XS_FINE : XS_NO_MEMORY;
}

static xs_fault_kind grow_busy(xs_totals *totals, const xs_pending *event) {
    if (event->start > totals->busy.end || !totals->started) {
        xs_fault_kind fault = totals->started ? close_busy(totals) : XS_FINE;
        totals->busy = (xs_interval){event->start, event->end};
        return fault;
    }
    if (event->end > totals->busy.end) totals->busy.end = event->end;
    return XS_FINE;
}

static xs_fault_kind account_for(xs_totals *totals, const xs_pending *event) {
    xs_fault_kind fault = grow_busy(totals, event);
    if (!fault) fault = totals->nested ? add_self_time_nested(totals, event) : add_self_time_queued(totals, event);
    if (fault) return fault;
    int64_t role = XS_AT(totals->totals, xs_total, event->key).role;
    if (role) {
        int64_t label = event->cell < 0 ? XS_NO_LABEL : XS_ROW(totals->cell_set, event->cell)[1];
        fault = xs_links_add(totals->links, role, event->start, event->end, label);
    }
    if (!totals->nested && (!totals->started || event->end > totals->cover.end)) totals->cover = *event;
    if (event->start < totals->first_ps) totals->first_ps = event->start;
    if (event->end > totals->last_ps) totals->last_ps = event->end;
    totals->drained = event->start;
    totals->started = true;
    return fault;
}

xs_fault_kind xs_order_close(xs_totals *totals) {
    xs_fault_kind fault = XS_FINE;
    while (totals->head != totals->tail && !fault) fault = xs_order_pop(totals);
    if (!fault && totals->started) fault = close_busy(totals);
    if (!fault && totals->links) fault = xs_links_flush(totals->links);
    totals->stack.count = 0;
    totals->started = false;
    return fault;
}

xs_fault_kind xs_order_pop(xs_totals *totals) { return account_for(totals, &totals->window[totals->head++ % XS_RING]); }

void xs_order_insert(xs_totals *totals) {
    xs_pending *window = totals->window;
    size_t place = totals->tail - 1;
    const xs_pending event = window[place % XS_RING];
    for (; place != totals->head && xs_before(&event, &window[(place - 1) % XS_RING]); place--) {
        window[place % XS_RING] = window[(place - 1) % XS_RING];
    }
    window[place % XS_RING] = event;
}

xs_fault_kind xs_order_flush(xs_totals *totals) {
    xs_fault_kind fault = xs_order_close(totals);
    if (fault || !totals->keep_intervals) return fault;
    return xs_union_finish(&totals->intervals, &totals->busy_ps) ? XS_FINE : XS_NO_MEMORY;
}
