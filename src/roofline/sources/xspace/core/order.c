/* What depends on the order of events in time: self time, busy intervals, overlaps, async pairs.
 *
 * A profile's lines are sorted by the clock of its events; the device's own clock differs from it by a few places at most. Events wait
 * in a short window and leave it in order of (start, longest first). One that begins before an event that has already left turns the
 * clock back: what was open is closed, and the line goes on as if anew.
 */
#include "scan_core.h"

static bool same_execution(const xs_waiting *a, const xs_waiting *b) {
    for (int i = 0; i < XS_DISTINCT; i++) {
        if ((a->present & b->present & 1u << i) && a->distinct[i] == b->distinct[i]) return true;
    }
    return false;
}

/* A key's time from one instant to another, added to the buckets that it falls into or taken out of them. */
static xs_fault_kind spread(xs_totals *totals, uint32_t key, int64_t from, int64_t to, int64_t sign) {
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

/* The earlier event keeps the time both cover: own = end − max(start, latest end so far). */
static xs_fault_kind settle_queued(xs_totals *totals, const xs_waiting *event) {
    const xs_waiting *cover = &totals->cover;
    bool covered = totals->started && cover->end > event->start;
    int64_t from = covered ? cover->end : event->start;
    if (event->end > from && !add_self(totals, event->key, event->cell, event->end - from)) return XS_OVERFLOW;
    if (totals->buckets.count) {
        xs_fault_kind wrong = spread(totals, event->key, from, event->end, 1);
        if (wrong) return wrong;
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

/* An event inside another takes its time from it. One that only begins inside takes what lies behind the other's end. */
static xs_fault_kind settle_nested(xs_totals *totals, const xs_waiting *event) {
    xs_list *stack = &totals->stack;
    const xs_open *open = stack->data;
    size_t depth = stack->count;
    int64_t from = event->start;
    while (depth && open[depth - 1].end <= event->start) depth--;
    while (depth && open[depth - 1].end < event->end) from = open[--depth].end;
    if (!add_self(totals, event->key, event->cell, event->end - from)) return XS_OVERFLOW;
    if (depth && !add_self(totals, open[depth - 1].key, open[depth - 1].cell, from - event->end)) return XS_OVERFLOW;
    if (totals->buckets.count) {
        xs_fault_kind wrong = spread(totals, event->key, from, event->end, 1);
        if (!wrong && depth) wrong = spread(totals, open[depth - 1].key, from, event->end, -1);
        if (wrong) return wrong;
    }
    if (depth == stack->capacity && !xs_list_grow(stack, sizeof *open)) return XS_NO_MEMORY;
    stack->count = depth + 1;
    XS_AT(*stack, xs_open, depth) = (xs_open){event->end, event->key, event->cell};
    return XS_FINE;
}

/* The growing interval is done: its length counts, and it is kept if anyone asked. */
static xs_fault_kind close_busy(xs_totals *totals) {
    xs_interval busy = totals->busy;
    if (busy.begin == busy.end) return XS_FINE;
    uint64_t length = (uint64_t)busy.end - (uint64_t)busy.begin;
    if (length > INT64_MAX || !xs_add(totals->busy_ps, (int64_t)length, &totals->busy_ps)) return XS_OVERFLOW;
    return !totals->keep_intervals || xs_union_add(&totals->intervals, busy.begin, busy.end) ? XS_FINE : XS_NO_MEMORY;
}

static xs_fault_kind grow_busy(xs_totals *totals, const xs_waiting *event) {
    if (event->start > totals->busy.end || !totals->started) {
        xs_fault_kind wrong = totals->started ? close_busy(totals) : XS_FINE;
        totals->busy = (xs_interval){event->start, event->end};
        return wrong;
    }
    if (event->end > totals->busy.end) totals->busy.end = event->end;
    return XS_FINE;
}

static xs_fault_kind settle(xs_totals *totals, const xs_waiting *event) {
    xs_fault_kind wrong = grow_busy(totals, event);
    if (!wrong) wrong = totals->nested ? settle_nested(totals, event) : settle_queued(totals, event);
    if (wrong) return wrong;
    int64_t role = XS_AT(totals->totals, xs_total, event->key).role;
    if (role) {
        int64_t label = event->cell < 0 ? XS_NO_LABEL : XS_ROW(totals->cell_set, event->cell)[1];
        wrong = xs_links_add(totals->links, role, event->start, event->end, label);
    }
    if (!totals->nested && (!totals->started || event->end > totals->cover.end)) totals->cover = *event;
    if (event->start < totals->first_ps) totals->first_ps = event->start;
    if (event->end > totals->last_ps) totals->last_ps = event->end;
    totals->drained = event->start;
    totals->started = true;
    return wrong;
}

xs_fault_kind xs_order_close(xs_totals *totals) {
    xs_fault_kind wrong = XS_FINE;
    while (totals->head != totals->tail && !wrong) wrong = xs_order_settle(totals);
    if (!wrong && totals->started) wrong = close_busy(totals);
    if (!wrong && totals->links) wrong = xs_links_flush(totals->links);
    totals->stack.count = 0;
    totals->started = false;
    return wrong;
}

xs_fault_kind xs_order_settle(xs_totals *totals) { return settle(totals, &totals->window[totals->head++ % XS_RING]); }

void xs_order_move(xs_totals *totals) {
    xs_waiting *window = totals->window;
    size_t place = totals->tail - 1;
    const xs_waiting event = window[place % XS_RING];
    for (; place != totals->head && xs_before(&event, &window[(place - 1) % XS_RING]); place--) {
        window[place % XS_RING] = window[(place - 1) % XS_RING];
    }
    window[place % XS_RING] = event;
}

xs_fault_kind xs_order_flush(xs_totals *totals) {
    xs_fault_kind wrong = xs_order_close(totals);
    if (wrong || !totals->keep_intervals) return wrong;
    return xs_union_finish(&totals->intervals, &totals->busy_ps) ? XS_FINE : XS_NO_MEMORY;
}
