/* Runs the scanner over damaged profiles; built with sanitizers, which end it at the first wrong move.
 *
 *     fuzz INPUTS SEED FILE...
 *
 * Each input is a copy of one of the files, exactly as long as its memory, with a few things wrong: cut off, bits flipped, bytes set,
 * lengths edited, pieces removed or doubled. All of it is then read, with every option of both jobs in turn; each line's totals also in
 * parts, which must come to the same as the whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/scan_core.h"

enum { MOST_SECONDS = 60, MOST_FILES = 64 };

static uint64_t seed;

/* xorshift64*: the same inputs for the same seed, everywhere. */
static uint64_t roll(uint64_t below) {
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return below ? (seed * 0x2545f4914f6cdd1du >> 11) % below : 0;
}

static const uint8_t odd_bytes[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0x08, 0x0a, 0x10, 0x18, 0x1a, 0x22, 0x28, 0x2a, 0x38, 0x3b, 0x0c};

/* Where damage goes: anywhere, or near the front, where the structure is. */
static size_t somewhere(size_t size) { return roll(3) ? roll(size) : roll(size < 256 ? size : 256); }

static uint8_t *mutate(const uint8_t *data, size_t size, size_t *length) {
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    *length = size;
    for (uint64_t i = 0, times = 1 + roll(6); i < times && *length; i++) {
        size_t at = somewhere(*length), count;
        switch (roll(7)) {
            case 0:
                copy[at] ^= (uint8_t)(1u << roll(8));
                break;
            case 1:
                copy[at] = odd_bytes[roll(sizeof odd_bytes)];
                break;
            case 2: /* a huge number */
                for (count = roll(12); count && at < *length; count--) copy[at++] = 0xff;
                break;
            case 3: /* a length, or whatever follows a tag of bytes, off by a little */
                while (at + 1 < *length && (copy[at] & 7) != XS_BYTES) at++;
                if (at + 1 < *length) copy[at + 1] = (uint8_t)(copy[at + 1] + roll(9) - 4);
                break;
            case 4: /* a piece removed */
                count = roll(*length - at < 64 ? *length - at : 64);
                memmove(copy + at, copy + at + count, *length - at - count);
                *length -= count;
                break;
            case 5: /* a piece written over another */
                count = roll(64);
                if (at + count < *length) memmove(copy + at, copy + roll(*length - count), count);
                break;
            default:
                if (roll(2)) *length = somewhere(*length);
        }
    }
    uint8_t *fitted = malloc(*length ? *length : 1);
    memcpy(fitted, copy, *length);
    free(copy);
    return fitted;
}

static void select_some(xs_select *select, int slots) {
    select->slots = slots;
    for (int slot = 0; slot < slots; slot++) xs_select_stat(select, (int64_t)roll(48), slot);
    if (roll(8) == 0) xs_select_stat(select, (int64_t)roll(1) + XS_DENSE, 0);
    if (roll(4) == 0) {
        select->having = (uint32_t)roll(256);
        select->filtered = true;
    }
    if (roll(4) == 0) {
        for (int i = 0; i < 8; i++) xs_select_only(select, (int64_t)roll(64));
    }
}

static void run_rows(const xs_index *index, size_t line) {
    xs_rows *rows = calloc(1, sizeof *rows);
    xs_select_init(&rows->select);
    select_some(&rows->select, (int)roll(8));
    if (roll(2)) {
        rows->timed = true;
        for (int64_t i = 0, at = (int64_t)roll(4096); i < 16; at += (int64_t)roll(1 << 20), i++) xs_push(&rows->instants, at);
    }
    xs_walk_init(&rows->walk, index, line);
    while (xs_rows_run(rows, 1 + roll(4096))) continue;
    if (rows->ids.count != rows->starts.count || rows->ids.count > rows->walk.events) abort();
    xs_rows_free(rows);
    free(rows);
}

static uint64_t digest; /* of all that was summed: every build must come to the same */
static uint64_t absorbed;

static uint64_t digest_of(uint64_t hash, const void *data, size_t words) {
    for (const int64_t *word = data; words; words--) hash = xs_mix(hash, (uint64_t)*word++);
    return hash;
}

static uint64_t digest_set(uint64_t hash, const xs_set *set) { return digest_of(hash, set->rows.data, set->width * set->rows.count); }

static uint64_t digest_totals(const xs_totals *totals) {
    const xs_walk *walk = &totals->walk;
    uint64_t hash = xs_mix(xs_mix(xs_mix(walk->fault.kind, walk->events), walk->unknown), (uint64_t)(walk->p - walk->bytes.base));
    if (walk->fault.kind) hash = xs_mix(hash, (uint64_t)(walk->fault.at - walk->bytes.base));
    const int64_t held[] = {totals->busy_ps, totals->first_ps, totals->last_ps, totals->rewinds, totals->aggregated};
    hash = digest_of(hash, held, sizeof held / sizeof *held);
    for (size_t i = 0; i < totals->totals.count; i++) {
        const xs_total *total = &XS_AT(totals->totals, xs_total, i);
        hash = digest_of(digest_of(hash, total, offsetof(xs_total, distinct) / sizeof(int64_t)), total->distinct, XS_DISTINCT);
    }
    for (size_t i = 0; i < totals->texts.spans.count; i++) {
        hash = xs_mix(xs_mix(hash, XS_AT(totals->texts.spans, xs_span, i).offset), XS_AT(totals->texts.spans, xs_span, i).length);
    }
    hash = digest_set(digest_set(digest_set(hash, &totals->key_set), &totals->cell_set), &totals->overlap_set);
    hash = digest_of(hash, totals->cells.data, totals->cells.count * (sizeof(xs_cell) / sizeof(int64_t)));
    hash = digest_of(hash, totals->overlaps.data, totals->overlaps.count * (sizeof(xs_overlap) / sizeof(int64_t)));
    return digest_of(hash, totals->intervals.intervals.data, 2 * totals->intervals.intervals.count);
}

/* A job of random options, the same for the same seed. Half of them have neither sums nor pairs, which parts of a line cannot. */
static xs_totals *new_totals(const xs_index *index, size_t line) {
    xs_totals *totals = malloc(sizeof *totals);
    bool parts = roll(2);
    xs_totals_init(totals);
    select_some(&totals->select, 8);
    xs_walk_init(&totals->walk, index, line);
    for (int keys = (int)roll(6); keys; keys--) xs_totals_key(totals, (int)roll(8));
    totals->distincts = (int)roll(XS_DISTINCT + 1);
    totals->sums = parts ? 0 : (int)roll(XS_SUMS + 1);
    for (int i = 0; i < totals->distincts; i++) totals->distinct_slots[i] = (int)roll(8);
    for (int i = 0; i < totals->sums; i++) totals->sum_slots[i] = (int)roll(8);
    if (roll(2)) {
        totals->offset_slot = (int)roll(8);
        totals->duration_slot = (int)roll(8);
    }
    totals->nested = roll(2);
    totals->keep_intervals = roll(2);
    totals->step_slot = (int)roll(10) - 2;
    int64_t low = 0;
    for (uint64_t steps = roll(6); steps; steps--) {
        xs_step *step = xs_list_add(&totals->steps, sizeof *step);
        *step = (xs_step){low, low + (int64_t)roll(1u << 30), (int64_t)roll(4)};
        low += (int64_t)roll((uint64_t)1 << 40);
    }
    xs_pair pairs[8];
    size_t count = parts ? 0 : roll(9);
    for (size_t i = 0; i < count; i++) pairs[i] = (xs_pair){(int64_t)roll(64), (int64_t)roll(64), (int64_t)roll(3), (double)roll(100)};
    if (count) totals->links = xs_links_new(pairs, count);
    return totals;
}

static void free_totals(xs_totals *totals) {
    xs_totals_free(totals);
    free(totals);
}

/* The line in two to four parts, some of which begin where no event does. */
static void run_parts(xs_totals *first, const xs_index *index, size_t line, uint64_t options) {
    size_t piece = 1 + (size_t)(first->walk.end - first->walk.p) / 2;
    xs_totals_run(first, roll(piece));
    for (uint64_t parts = 1 + roll(3); parts; parts--) {
        uint64_t here = seed;
        seed = options;
        xs_totals *part = new_totals(index, line);
        seed = here;
        part->walk.p = first->walk.p;
        if (roll(3) == 0) {
            const uint8_t *anywhere = part->walk.p + roll((uint64_t)(part->walk.end - part->walk.p));
            const uint8_t *guess = xs_walk_rest_near(&part->walk, anywhere, 1 + roll(8));
            part->walk.p = guess && roll(4) ? guess : anywhere;
        }
        part->walk.begin = part->walk.p;
        while (roll(8) && xs_totals_run(part, 1 + roll(piece))) continue;
        if (first->walk.p < part->walk.begin) xs_totals_run(first, (size_t)(part->walk.begin - first->walk.p));
        absorbed += xs_totals_absorb(first, part);
        free_totals(part);
    }
}

static void run_gaps(const xs_list *intervals) {
    xs_list gaps = {0}, edges = {0};
    int64_t edge = 0, count = 0;
    for (uint64_t i = roll(4); i; edge += (int64_t)roll((uint64_t)1 << 40), i--) xs_push(&edges, edge);
    if (!xs_gaps(intervals->data, intervals->count, edges.data, edges.count, 1 + (int64_t)roll(1000), &gaps)) abort();
    for (size_t i = 0; i < gaps.count; i++) count += XS_AT(gaps, xs_gap, i).count;
    if (count + 1 != (int64_t)(intervals->count ? intervals->count : 1)) abort();
    xs_list_free(&gaps);
    xs_list_free(&edges);
}

static void run_totals(const xs_index *index, size_t line) {
    uint64_t options = seed;
    xs_totals *totals = new_totals(index, line);
    while (xs_totals_run(totals, 1 + roll(4096))) continue;
    if (totals->totals.count != xs_set_count(&totals->key_set) || totals->cells.count != xs_set_count(&totals->cell_set)) abort();
    run_gaps(&totals->intervals.intervals);
    uint64_t whole = digest_totals(totals);
    digest = xs_mix(digest, whole);
    free_totals(totals);

    uint64_t here = seed;
    seed = options;
    totals = new_totals(index, line);
    seed = here;
    run_parts(totals, index, line, options);
    while (xs_totals_run(totals, 1 + roll(4096))) continue;
    if (digest_totals(totals) != whole) abort();
    free_totals(totals);
}

static void read_metadata(const xs_index *index) {
    for (size_t i = 0; i < index->events.count; i++) {
        xs_span message = XS_AT(index->events, xs_entry, i).value, name;
        xs_fault fault = {0};
        xs_metadata metadata;
        xs_stat stat;
        xs_name_read(&index->bytes, message, &name, &fault);
        if (xs_metadata_read(&index->bytes, message, &metadata, &fault)) {
            for (size_t row = 0; row < metadata.stats.count; row++) {
                xs_stat_read(&index->bytes, XS_AT(metadata.stats, xs_span, row), &stat, &fault);
            }
        }
        xs_metadata_free(&metadata);
    }
    for (size_t i = 0; i < index->names.count; i++) {
        xs_span name;
        xs_name_read(&index->bytes, XS_AT(index->names, xs_entry, i).value, &name, &(xs_fault){0});
    }
    for (size_t i = 0; i < index->stats.count; i++) {
        xs_stat stat;
        xs_stat_read(&index->bytes, XS_AT(index->stats, xs_entry, i).value, &stat, &(xs_fault){0});
    }
}

int main(int count, char **arguments) {
    static uint8_t *files[MOST_FILES];
    static size_t sizes[MOST_FILES];
    if (count < 4 || count - 3 > MOST_FILES) return 2;
    uint64_t inputs = strtoull(arguments[1], NULL, 10), damaged = 0, lines = 0;
    int known = count - 3;
    for (int i = 0; i < known; i++) {
        FILE *file = fopen(arguments[i + 3], "rb");
        if (!file) return 2;
        fseek(file, 0, SEEK_END);
        sizes[i] = (size_t)ftell(file);
        rewind(file);
        files[i] = malloc(sizes[i] + 1);
        if (fread(files[i], 1, sizes[i], file) != sizes[i]) return 2;
        fclose(file);
    }
    for (uint64_t input = 0; input < inputs; input++) {
        seed = (strtoull(arguments[2], NULL, 10) + input + 1) * 0x9e3779b97f4a7c15u;
        roll(2);
        size_t which = roll((uint64_t)known), length;
        alarm(MOST_SECONDS); /* an input that takes longer hangs */
        uint8_t *data = mutate(files[which], sizes[which], &length);
        xs_index *index = xs_index_new((xs_bytes){data, length}, NULL);
        if (!index) return 3;
        read_metadata(index);
        for (size_t line = 0; line < index->lines.count; line++, lines++) {
            run_rows(index, line);
            run_totals(index, line);
        }
        damaged += index->damages.count > 0;
        xs_index_free(index);
        free(data);
    }
    for (int i = 0; i < known; i++) free(files[i]);
    printf("%llu inputs, %llu of them damaged beyond their events, %llu lines read, %llu parts absorbed, digest %016llx\n",
           (unsigned long long)inputs, (unsigned long long)damaged, (unsigned long long)lines, (unsigned long long)absorbed,
           (unsigned long long)digest);
    return 0;
}
