/* Sums over the events of each distinct key. Count, time and extremes are added up as events are read; order.c computes what depends on
 * their order in time (self time, busy intervals, overlaps, async pairs).
 */
#include "totals_loop.h"

bool xs_totals_run(xs_totals *totals, size_t budget) {
#if XS_PEXT_BUILT
    /* On Zen 1 and 2 pext is slower than the dozen instructions that it replaces. */
    __builtin_cpu_init();
    if (__builtin_cpu_supports("bmi2") && !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2")) return xs_totals_run_pext(totals, budget);
#endif
    return run(totals, budget);
}

void xs_totals_init(xs_totals *totals) {
    *totals = (xs_totals){0};
    xs_select_init(&totals->select);
    totals->offset_slot = totals->duration_slot = -1;
    totals->step_slot = XS_BY_EVENT_TIME;
    totals->key = -1;
    totals->key_set.width = totals->cell_set.width = totals->overlap_set.width = totals->bucket_set.width = 2;
    totals->first_ps = INT64_MAX;
    totals->last_ps = INT64_MIN;
}

bool xs_totals_key(xs_totals *totals, int slot) {
    if (totals->keys == XS_KEYS || slot < 0 || slot >= XS_SLOTS) return false;
    totals->key_slots[totals->keys++] = slot;
    totals->key_set.width = 2 + (size_t)totals->keys;
    return true;
}

void xs_totals_free(xs_totals *totals) {
    xs_set *sets[] = {&totals->key_set, &totals->cell_set, &totals->overlap_set, &totals->bucket_set};
    xs_list *lists[] = {&totals->steps,    &totals->buckets,   &totals->totals, &totals->cells,
                        &totals->overlaps, &totals->bucket_ps, &totals->stack};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) xs_set_free(sets[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) xs_list_free(lists[i]);
    xs_union_free(&totals->intervals);
    xs_select_free(&totals->select);
    xs_texts_free(&totals->texts);
    if (totals->links) xs_links_free(totals->links);
}
