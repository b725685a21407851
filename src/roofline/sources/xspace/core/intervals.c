/* Unions of intervals. Intervals mostly come in order; one that does not starts a new run. A run is merged with the run before it once
 * both are about equally long, so that n intervals take O(n log(runs)) time, and memory for the union only.
 */
#include <stdlib.h>

#include "scan_core.h"

static size_t start_of(const xs_union *set, size_t run) { return run < set->runs.count ? XS_AT(set->runs, size_t, run) : set->intervals.count; }

static size_t length_of(const xs_union *set, size_t run) { return start_of(set, run + 1) - start_of(set, run); }

/* Merges the last two runs in place. The first is copied, so that no interval of the second is overwritten before it is read. */
static bool merge_last_two(xs_union *set) {
    size_t first = start_of(set, set->runs.count - 2), second = start_of(set, set->runs.count - 1), end = set->intervals.count;
    xs_interval *all = set->intervals.data, *copy = malloc((second - first) * sizeof *copy);
    if (!copy) return false;
    memcpy(copy, all + first, (second - first) * sizeof *copy);
    size_t out = first;
    for (size_t i = 0, j = second; i < second - first || j < end;) {
        bool left = j == end || (i < second - first && copy[i].begin <= all[j].begin);
        xs_interval next = left ? copy[i++] : all[j++];
        if (out > first && next.begin <= all[out - 1].end) {
            if (next.end > all[out - 1].end) all[out - 1].end = next.end;
        } else {
            all[out++] = next;
        }
    }
    free(copy);
    set->intervals.count = out;
    set->runs.count--;
    return true;
}

/* Whether the last run is about as long as the run before it. */
static bool should_merge(const xs_union *set) {
    return set->runs.count > 1 && length_of(set, set->runs.count - 2) <= 2 * length_of(set, set->runs.count - 1);
}

bool xs_union_add(xs_union *set, int64_t begin, int64_t end) {
    xs_interval *last = NULL;
    if (begin == end) return true;
    while (set->intervals.count) {
        last = &XS_AT(set->intervals, xs_interval, set->intervals.count - 1);
        if (last->begin <= begin || !should_merge(set)) break;
        if (!merge_last_two(set)) return false; /* the last interval may now be another */
    }
    if (last && last->begin <= begin && begin <= last->end) {
        if (end > last->end) last->end = end;
        return true;
    }
    if (!last || begin < last->begin) {
        size_t *run = xs_list_add(&set->runs, sizeof *run);
        if (!run) return false;
        *run = set->intervals.count;
    }
    xs_interval *kept = xs_list_add(&set->intervals, sizeof *kept);
    if (!kept) return false;
    *kept = (xs_interval){begin, end};
    return true;
}

bool xs_union_finish(xs_union *set, int64_t *length) {
    while (set->runs.count > 1) {
        if (!merge_last_two(set)) return false;
    }
    *length = 0;
    for (size_t i = 0; i < set->intervals.count; i++) {
        const xs_interval *part = &XS_AT(set->intervals, xs_interval, i);
        uint64_t ticks = (uint64_t)part->end - (uint64_t)part->begin;
        if (ticks > INT64_MAX || !xs_add(*length, (int64_t)ticks, length)) *length = INT64_MAX;
    }
    return true;
}

void xs_union_free(xs_union *set) {
    xs_list_free(&set->intervals);
    xs_list_free(&set->runs);
}
