/* Growing tables: lists of records, sets of integer rows, distinct texts. Functions that allocate memory report when there is none. */
#ifndef ROOFLINE_XSPACE_TABLE_H
#define ROOFLINE_XSPACE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An array of records of equal width. */
typedef struct {
    void *data;
    size_t count, capacity;
} xs_list;

bool xs_list_grow(xs_list *list, size_t width);
void xs_list_free(xs_list *list);

#define XS_AT(list, type, row) (((type *)(list).data)[row])

/* Appends a zeroed record and returns it; NULL without memory. */
static inline void *xs_list_add(xs_list *list, size_t width) {
    if (list->count == list->capacity && !xs_list_grow(list, width)) return NULL;
    void *record = (char *)list->data + width * list->count++;
    memset(record, 0, width);
    return record;
}

static inline bool xs_push(xs_list *list, int64_t value) {
    if (list->count == list->capacity && !xs_list_grow(list, sizeof value)) return false;
    ((int64_t *)list->data)[list->count++] = value;
    return true;
}

/* Distinct rows of `width` integers, numbered in the order they were added. */
typedef struct {
    size_t width;
    xs_list rows;
    uint32_t *places; /* hash table of row numbers + 1, 0 for an empty place; its size is a power of two */
    size_t mask;
} xs_set;

bool xs_set_rehash(xs_set *set);
void xs_set_free(xs_set *set);

#define XS_ROW(set, row) ((int64_t *)(set).rows.data + (set).width * (size_t)(row))

static inline size_t xs_set_count(const xs_set *set) { return set->rows.count; }

/* Hashes are seeded per process, so a crafted file cannot make its values collide. Rows keep the order in which they were added, so no
 * result depends on the seed. */
typedef struct {
    uint64_t start, factor; /* the factor is odd */
} xs_seed;

extern xs_seed xs_hash_seed;

void xs_set_seed(uint64_t start, uint64_t factor);

static inline uint64_t xs_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * xs_hash_seed.factor;
    return hash ^ hash >> 32;
}

static inline uint64_t xs_hash_row(const int64_t *row, size_t width) {
    uint64_t hash = xs_hash_seed.start;
    for (size_t i = 0; i < width; i++) hash = xs_mix(hash, (uint64_t)row[i]);
    return hash;
}

/* The number of a row, or -1. */
static inline int64_t xs_set_find(const xs_set *set, const int64_t *row) {
    if (!set->places) return -1;
    for (size_t place = xs_hash_row(row, set->width) & set->mask; set->places[place]; place = (place + 1) & set->mask) {
        const int64_t *other = XS_ROW(*set, set->places[place] - 1);
        size_t i = 0;
        while (i < set->width && other[i] == row[i]) i++;
        if (i == set->width) return set->places[place] - 1;
    }
    return -1;
}

int64_t xs_set_insert(xs_set *set, const int64_t *row);

/* The number of a row, added if it is new; -1 without memory. */
static inline int64_t xs_set_add(xs_set *set, const int64_t *row) {
    int64_t found = xs_set_find(set, row);
    return found >= 0 ? found : xs_set_insert(set, row);
}

/* Distinct strings of the buffer, each given by its first occurrence. */
typedef struct {
    xs_list spans; /* offset and length of each text, two size_t */
    uint32_t *places;
    size_t mask;
} xs_texts;

int64_t xs_texts_add(xs_texts *texts, const uint8_t *base, size_t offset, size_t length);
void xs_texts_free(xs_texts *texts);

#endif
