/* The loop of totals.c, compiled twice: for all CPUs, and for those with pext (totals_pext.c). */
#ifndef ROOFLINE_XSPACE_TOTALS_LOOP_H
#define ROOFLINE_XSPACE_TOTALS_LOOP_H

#include "event.h"

/* The label of the step that a value falls into. Values mostly rise, so the last step and the next are tried before a binary search. */
static int64_t label_of(xs_totals *totals, int64_t value) {
    const xs_step *steps = totals->steps.data;
    size_t count = totals->steps.count, low = 0, high = count;
    for (size_t near = totals->step; near < count && near < totals->step + 2; near++) {
        if (steps[near].low <= value && (near + 1 == count || value < steps[near + 1].low)) {
            totals->step = near;
            return value < steps[near].high ? steps[near].label : XS_NO_LABEL;
        }
    }
    while (low < high) { /* the first step that begins after the value */
        size_t middle = low + (high - low) / 2;
        if (steps[middle].low <= value) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return XS_NO_LABEL;
    totals->step = low - 1;
    return value < steps[low - 1].high ? steps[low - 1].label : XS_NO_LABEL;
}

/* The row number of a key, added if it is new; -1 without memory. Tries first the key that followed the last event's key before. */
static int64_t row_of(xs_totals *totals, const int64_t *row) {
    const xs_set *set = &totals->key_set;
    if (totals->key < 0) return xs_set_add(&totals->key_set, row);
    uint32_t *next = &XS_AT(totals->totals, xs_total, totals->key).next;
    if (memcmp(XS_ROW(*set, *next), row, set->width * sizeof *row) == 0) return *next;
    int64_t key = xs_set_add(&totals->key_set, row);
    if (key >= 0) *next = (uint32_t)key;
    return key;
}

/* The row number of an event's key; -1 without memory. */
static int64_t key_of(xs_totals *totals, const xs_event *event) {
    int64_t row[2 + XS_SLOTS];
    uint64_t kinds = 0;
    bool plain = totals->keys == 0 && (uint64_t)event->metadata_id < XS_DENSE;
    if (plain && totals->plain[event->metadata_id]) return totals->plain[event->metadata_id] - 1;
    row[0] = event->metadata_id;
    for (int i = 0; i < totals->keys; i++) {
        int slot = totals->key_slots[i];
        const xs_value *value = &event->values[slot];
        row[2 + i] = 0;
        if (!(event->present >> slot & 1)) continue;
        kinds |= (uint64_t)value->kind << (XS_KIND_BITS * i);
        row[2 + i] = (int64_t)value->value;
        if (value->kind == XS_STRING || value->kind == XS_BLOB) {
            row[2 + i] = xs_texts_add(&totals->texts, totals->walk.bytes.base, (size_t)value->value, value->length);
            if (row[2 + i] < 0) return -1;
        }
    }
    row[1] = (int64_t)kinds;
    int64_t key = row_of(totals, row);
    if (key >= 0 && (size_t)key == totals->totals.count) {
        xs_total *total = xs_list_add(&totals->totals, sizeof *total);
        if (!total) return -1;
        total->first_ps = INT64_MAX;
        total->last_ps = INT64_MIN;
        total->label = XS_NO_LABEL;
        total->role = totals->links ? xs_links_role(totals->links, event->metadata_id) : 0;
    }
    if (plain && key >= 0) totals->plain[event->metadata_id] = (uint32_t)key + 1;
    return key;
}

static bool number_of(const xs_event *event, int slot, int64_t *out) {
    static const uint32_t numbers = 1 << XS_UINT64 | 1 << XS_INT64 | 1 << XS_REF;
    if (slot < 0 || !(event->present >> slot & 1)) return false;
    const xs_value *found = &event->values[slot];
    *out = (int64_t)found->value;
    return numbers >> found->kind & 1;
}

/* Start and duration of an event, by the device's own clock if the event has its times. False beyond 63 bits. */
static bool times_of(const xs_totals *totals, const xs_event *event, int64_t *start, int64_t *duration) {
    int64_t stop;
    if (number_of(event, totals->offset_slot, start) && number_of(event, totals->duration_slot, duration)) {
        return *start >= 0 && *duration >= 0 && xs_add(*start, *duration, &stop);
    }
    *start = event->start_ps;
    *duration = event->duration_ps;
    return true;
}

static void add_stats(const xs_totals *totals, const xs_event *event, xs_total *total, xs_pending *pending) {
    for (int i = 0; i < totals->distincts; i++) {
        int slot = totals->distinct_slots[i];
        if (!(event->present >> slot & 1)) continue;
        uint64_t value = event->values[slot].value;
        if (total->distinct[i] == 0) total->first[i] = value;
        if (total->distinct[i] == 0 || total->last[i] != value) total->distinct[i]++;
        total->last[i] = pending->distinct[i] = value;
        pending->present |= 1u << i;
    }
    for (int i = 0; i < totals->sums; i++) {
        int slot = totals->sum_slots[i];
        const xs_value *value = &event->values[slot];
        if (!(event->present >> slot & 1)) continue;
        double amount = 0;
        if (value->kind == XS_DOUBLE) memcpy(&amount, &value->value, sizeof amount);
        if (value->kind == XS_UINT64) amount = (double)value->value;
        if (value->kind == XS_INT64) amount = (double)(int64_t)value->value;
        total->sums[i] += amount;
    }
}

/* The cell of a key in a step; -1 outside of all steps, -2 without memory. */
static int64_t cell_of(xs_totals *totals, int64_t key, int64_t label) {
    xs_total *total = &XS_AT(totals->totals, xs_total, key);
    if (label == XS_NO_LABEL) return -1;
    if (total->label != label) {
        int64_t cell = xs_set_add(&totals->cell_set, (int64_t[]){key, label});
        if (cell < 0 || cell > INT32_MAX) return -2;
        if ((size_t)cell == totals->cells.count) {
            xs_cell *fresh = xs_list_add(&totals->cells, sizeof *fresh);
            if (!fresh) return -2;
            fresh->first_ps = INT64_MAX;
            fresh->last_ps = INT64_MIN;
        }
        total->label = label;
        total->cell = cell;
    }
    return total->cell;
}

/* Adds the event that was just written after the last one of the window to it. */
static xs_fault_kind add_to_window(xs_totals *totals) {
    const xs_pending *event = &totals->window[totals->tail % XS_RING], *last = &totals->window[(totals->tail - 1) % XS_RING];
    xs_fault_kind fault = XS_FINE;
    if (totals->started && event->start < totals->drained) {
        totals->rewinds++;
        fault = xs_order_close(totals);
    }
    if (totals->tail - totals->head == XS_WINDOW && !fault) fault = xs_order_pop(totals);
    if (fault) return fault;
    if (totals->tail++ != totals->head && xs_before(event, last)) xs_order_insert(totals);
    return XS_FINE;
}

static xs_fault_kind add_event(xs_totals *totals, const xs_event *event) {
    int64_t start, duration, value;
    if (!times_of(totals, event, &start, &duration)) return XS_OVERFLOW;
    int64_t key = totals->key = key_of(totals, event);
    if (key < 0) return XS_NO_MEMORY;
    int64_t label = XS_NO_LABEL;
    if (totals->steps.count) {
        bool known = totals->step_slot < 0 || number_of(event, totals->step_slot, &value);
        if (totals->step_slot < 0) value = totals->step_slot == XS_BY_DEVICE_TIME ? start : event->start_ps;
        if (known) label = label_of(totals, value);
    }
    int64_t cell = cell_of(totals, key, label);
    if (cell == -2) return XS_NO_MEMORY;

    xs_total *total = &XS_AT(totals->totals, xs_total, key);
    xs_pending *pending = &totals->window[totals->tail % XS_RING];
    int64_t end = start + duration;
    pending->start = start;
    pending->end = end;
    pending->key = (uint32_t)key;
    pending->cell = (int32_t)cell;
    pending->present = 0;
    if (!xs_add(total->count, event->occurrences, &total->count)) return XS_OVERFLOW;
    if (!xs_add(total->time_ps, duration, &total->time_ps)) return XS_OVERFLOW;
    if (start < total->first_ps) total->first_ps = start;
    if (end > total->last_ps) total->last_ps = end;
    add_stats(totals, event, total, pending);
    if (cell >= 0) { /* parts of the sums just checked: they cannot overflow */
        xs_cell *part = &XS_AT(totals->cells, xs_cell, cell);
        part->count += event->occurrences;
        part->time_ps += duration;
        if (!event->aggregated && start < part->first_ps) part->first_ps = start;
        if (!event->aggregated && end > part->last_ps) part->last_ps = end;
    }
    if (event->aggregated) { /* a sum of events, without a start */
        totals->aggregated++;
        return XS_FINE;
    }
    return add_to_window(totals);
}

static bool run(xs_totals *totals, size_t budget) {
    xs_walk *walk = &totals->walk;
    const uint8_t *stop = (size_t)(walk->end - walk->p) > budget ? walk->p + budget : walk->end;
    xs_event event = {.begin = walk->p};
    if (totals->finished) return false;
    while (!walk->fault.kind && walk->p < stop && xs_next_event(walk, &totals->select, &event)) {
        xs_fault_kind fault = event.wanted ? add_event(totals, &event) : XS_FINE;
        if (fault) xs_fail(&walk->fault, fault, event.begin);
    }
    if (!walk->fault.kind && walk->p < walk->end) return true;
    totals->finished = true;
    if (walk->fault.kind != XS_NO_MEMORY) {
        xs_fault_kind fault = xs_order_flush(totals);
        if (fault) xs_fail(&walk->fault, fault, event.begin);
    }
    return false;
}

#endif
