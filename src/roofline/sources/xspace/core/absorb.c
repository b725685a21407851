/* Reads parts of a line in parallel. Each part is read as if it were the start of the line. The job of the part before then absorbs its
 * results, which is the same as reading on; where it would not be, the job refuses and reads that part itself.
 *
 * Where a part begins is a guess, since nothing marks an event in a line. The guess is right if the job before stops exactly there.
 */
#include <stdlib.h>

#include "event.h"

enum { SEARCHED_BYTES = 1 << 16, SEARCHED_TIMES = 16 };

/* Finds `hops` consecutive messages with the tag of an event near `from`, and returns the byte after them; NULL if there are none. */
static const uint8_t *skip_messages(const xs_walk *walk, const uint8_t *from, size_t hops) {
    const uint8_t *safe = walk->bytes.base + walk->bytes.size;
    const uint8_t *last = walk->end - from > SEARCHED_BYTES ? from + SEARCHED_BYTES : walk->end;
    for (const uint8_t *start = from; start < last; start++) {
        const uint8_t *p = start;
        size_t done = 0;
        for (; done < hops && p < walk->end && *p == XS_TAG(4, XS_BYTES); done++) {
            size_t length = 0;
            const uint8_t *event = xs_length(p + 1, walk->end, safe, &length, &(xs_fault){0});
            if (!event) break;
            p = event + length;
        }
        if (done == hops) return p;
    }
    return NULL;
}

const uint8_t *xs_walk_rest_near(const xs_walk *walk, const uint8_t *from, size_t hops) {
    xs_walk ahead = *walk;
    xs_select nothing;
    const uint8_t *rest = NULL;
    int64_t latest = INT64_MIN;
    uint64_t longest = 0;
    ahead.p = skip_messages(walk, from, hops);
    if (!ahead.p) return NULL;
    xs_select_init(&nothing);
    for (size_t i = 0; i < SEARCHED_TIMES * hops; i++) {
        const uint8_t *place = ahead.p;
        xs_event event;
        if (!xs_next_event(&ahead, &nothing, &event)) break;
        if (event.aggregated) continue;
        uint64_t gap = (uint64_t)event.start_ps - (uint64_t)latest;
        if (i >= hops && event.start_ps >= latest && (!rest || gap > longest)) {
            rest = place;
            longest = gap;
        }
        if (event.start_ps + event.duration_ps > latest) latest = event.start_ps + event.duration_ps;
    }
    return rest;
}

/* Whether no sum over both can overflow, in any order of adding: a key's self time, a cell, an overlap and the busy time are never more
 * than the time of all events. */
static bool sums_fit(const xs_totals *totals, const xs_totals *part) {
    const xs_list *both[] = {&totals->totals, &part->totals};
    int64_t count = 0, time_ps = 0;
    for (size_t i = 0; i < 2; i++) {
        for (size_t row = 0; row < both[i]->count; row++) {
            const xs_total *total = &XS_AT(*both[i], xs_total, row);
            if (!xs_add(count, total->count, &count) || !xs_add(time_ps, total->time_ps, &time_ps)) return false;
        }
    }
    return true;
}

/* Whether every event read by the first ends before any event read by the second begins. */
static bool in_sequence(const xs_totals *first, const xs_totals *second) {
    int64_t last = first->last_ps, next = second->first_ps;
    for (size_t i = first->head; i != first->tail; i++) {
        if (first->window[i % XS_RING].end > last) last = first->window[i % XS_RING].end;
    }
    for (size_t i = second->head; i != second->tail; i++) {
        if (second->window[i % XS_RING].start < next) next = second->window[i % XS_RING].start;
    }
    return last <= next;
}

/* Whether absorbing the part gives the same as reading on. Not if all events of an unfinished part are still in the window, as reading on
 * would keep earlier events there too; not if the part overflowed, as the whole line may overflow earlier; not with sums of fractions,
 * which depend on the order of adding, nor with async pairs, whose halves may be in different parts. */
static bool absorbable(const xs_totals *totals, const xs_totals *part) {
    xs_fault_kind fault = part->walk.fault.kind;
    return totals != part && !totals->finished && totals->walk.p == part->walk.begin && totals->walk.end == part->walk.end &&
           totals->key_set.width == part->key_set.width && !totals->sums && !totals->links && !part->links && !totals->buckets.count &&
           !part->buckets.count &&
           (part->finished || part->started) && fault != XS_OVERFLOW && fault != XS_NO_MEMORY && in_sequence(totals, part) &&
           sums_fit(totals, part);
}

static void least(int64_t *into, int64_t value) {
    if (value < *into) *into = value;
}

static void most(int64_t *into, int64_t value) {
    if (value > *into) *into = value;
}

static void add_total(xs_total *into, const xs_total *from) {
    into->count += from->count;
    into->time_ps += from->time_ps;
    into->self_ps += from->self_ps;
    least(&into->first_ps, from->first_ps);
    most(&into->last_ps, from->last_ps);
    for (int i = 0; i < XS_DISTINCT; i++) {
        if (!from->distinct[i]) continue;
        bool continues = into->distinct[i] && into->last[i] == from->first[i];
        into->distinct[i] += from->distinct[i] - continues;
        into->last[i] = from->last[i];
    }
}

/* For each text, key and cell of a part, its row number in the job that absorbs the part. */
typedef struct {
    int64_t *texts, *keys, *cells;
} row_numbers;

/* A part's texts, keys, cells and overlaps are in the order of the line, so new ones are appended in that order. */
static bool absorb_keys(xs_totals *totals, const xs_totals *part, const row_numbers *rows) {
    for (size_t i = 0; i < part->texts.spans.count; i++) {
        xs_span text = XS_AT(part->texts.spans, xs_span, i);
        rows->texts[i] = xs_texts_add(&totals->texts, totals->walk.bytes.base, text.offset, text.length);
        if (rows->texts[i] < 0) return false;
    }
    for (size_t i = 0; i < part->totals.count; i++) {
        int64_t row[2 + XS_KEYS];
        memcpy(row, XS_ROW(part->key_set, i), part->key_set.width * sizeof *row);
        for (int place = 0; place < part->keys; place++) {
            uint64_t kind = (uint64_t)row[1] >> (XS_KIND_BITS * place) & ((1u << XS_KIND_BITS) - 1);
            if (kind == XS_STRING || kind == XS_BLOB) row[2 + place] = rows->texts[row[2 + place]];
        }
        int64_t key = rows->keys[i] = xs_set_add(&totals->key_set, row);
        const xs_total *from = &XS_AT(part->totals, xs_total, i);
        if (key < 0) return false;
        if ((size_t)key == totals->totals.count) {
            xs_total *fresh = xs_list_add(&totals->totals, sizeof *fresh);
            if (!fresh) return false;
            *fresh = *from;
            fresh->label = XS_NO_LABEL;
            fresh->next = 0;
        } else {
            add_total(&XS_AT(totals->totals, xs_total, key), from);
        }
    }
    return true;
}

static bool absorb_cells(xs_totals *totals, const xs_totals *part, const row_numbers *rows) {
    for (size_t i = 0; i < part->cells.count; i++) {
        const int64_t *row = XS_ROW(part->cell_set, i);
        const xs_cell *from = &XS_AT(part->cells, xs_cell, i);
        int64_t cell = rows->cells[i] = xs_set_add(&totals->cell_set, (int64_t[]){rows->keys[row[0]], row[1]});
        if (cell < 0 || cell > INT32_MAX) return false;
        if ((size_t)cell == totals->cells.count) {
            xs_cell *fresh = xs_list_add(&totals->cells, sizeof *fresh);
            if (!fresh) return false;
            *fresh = *from;
            continue;
        }
        xs_cell *into = &XS_AT(totals->cells, xs_cell, cell);
        into->count += from->count;
        into->time_ps += from->time_ps;
        into->self_ps += from->self_ps;
        least(&into->first_ps, from->first_ps);
        most(&into->last_ps, from->last_ps);
    }
    return true;
}

static bool absorb_overlaps(xs_totals *totals, const xs_totals *part, const row_numbers *rows) {
    for (size_t i = 0; i < part->overlaps.count; i++) {
        const int64_t *row = XS_ROW(part->overlap_set, i);
        const xs_overlap *from = &XS_AT(part->overlaps, xs_overlap, i);
        int64_t pair = xs_set_add(&totals->overlap_set, (int64_t[]){rows->keys[row[0]], rows->keys[row[1]]});
        if (pair < 0) return false;
        if ((size_t)pair == totals->overlaps.count && !xs_list_add(&totals->overlaps, sizeof *from)) return false;
        XS_AT(totals->overlaps, xs_overlap, pair).count += from->count;
        XS_AT(totals->overlaps, xs_overlap, pair).time_ps += from->time_ps;
    }
    return true;
}

static xs_pending renumbered(xs_pending event, const row_numbers *rows) {
    event.key = (uint32_t)rows->keys[event.key];
    if (event.cell >= 0) event.cell = (int32_t)rows->cells[event.cell];
    return event;
}

/* Takes over the part's window, enclosing events and busy interval; those of `totals` have been closed. */
static bool absorb_state(xs_totals *totals, const xs_totals *part, const row_numbers *rows) {
    for (size_t i = 0; i < part->intervals.intervals.count; i++) {
        xs_interval interval = XS_AT(part->intervals.intervals, xs_interval, i);
        if (!xs_union_add(&totals->intervals, interval.begin, interval.end)) return false;
    }
    for (size_t i = 0; i < part->stack.count; i++) {
        xs_open open = XS_AT(part->stack, xs_open, i), *copy = xs_list_add(&totals->stack, sizeof *copy);
        if (!copy) return false;
        *copy = (xs_open){open.end, (uint32_t)rows->keys[open.key], open.cell < 0 ? open.cell : (int32_t)rows->cells[open.cell]};
    }
    totals->head = part->head;
    totals->tail = part->tail;
    for (size_t i = part->head; i != part->tail; i++) totals->window[i % XS_RING] = renumbered(part->window[i % XS_RING], rows);
    totals->started = part->started;
    totals->drained = part->drained;
    totals->busy = part->busy;
    if (part->started) totals->cover = renumbered(part->cover, rows);
    if (part->key >= 0) totals->key = rows->keys[part->key];
    totals->busy_ps += part->busy_ps;
    totals->rewinds += part->rewinds;
    totals->aggregated += part->aggregated;
    least(&totals->first_ps, part->first_ps);
    most(&totals->last_ps, part->last_ps);
    totals->walk.p = part->walk.p;
    totals->walk.fault = part->walk.fault;
    totals->walk.events += part->walk.events;
    totals->walk.unknown += part->walk.unknown;
    totals->finished = part->finished;
    return !part->finished || !totals->keep_intervals || xs_union_finish(&totals->intervals, &totals->busy_ps);
}

bool xs_totals_absorb(xs_totals *totals, const xs_totals *part) {
    if (!absorbable(totals, part)) return false;
    size_t texts = part->texts.spans.count, keys = part->totals.count, cells = part->cells.count;
    int64_t *numbers = malloc((texts + keys + cells + 1) * sizeof *numbers);
    row_numbers rows = {numbers, numbers + texts, numbers + texts + keys};
    bool done = numbers && xs_order_close(totals) == XS_FINE && absorb_keys(totals, part, &rows) && absorb_cells(totals, part, &rows) &&
                absorb_overlaps(totals, part, &rows) && absorb_state(totals, part, &rows);
    free(numbers);
    if (!done) {
        xs_fail(&totals->walk.fault, XS_NO_MEMORY, totals->walk.p);
        totals->finished = true;
    }
    return done;
}
