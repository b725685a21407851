#include "table.h"

#include <stdlib.h>

enum { FIRST_PLACES = 64 };

xs_seed xs_hash_seed = {0x51ed270b7a4f1c35u, 0x9e3779b97f4a7c15u};

void xs_set_seed(uint64_t start, uint64_t factor) { xs_hash_seed = (xs_seed){start, factor | 1}; }

bool xs_list_grow(xs_list *list, size_t width) {
    size_t capacity = list->capacity < 16 ? 16 : list->capacity + list->capacity / 2;
    if (capacity > SIZE_MAX / 2 / width) return false;
    void *data = realloc(list->data, capacity * width);
    if (!data) return false;
    list->data = data;
    list->capacity = capacity;
    return true;
}

void xs_list_free(xs_list *list) {
    free(list->data);
    *list = (xs_list){0};
}

/* An empty hash table of twice the size, which is then at most half full. */
static uint32_t *larger_table(size_t *mask, const uint32_t *old) {
    size_t places = old ? 2 * (*mask + 1) : FIRST_PLACES;
    uint32_t *fresh = calloc(places, sizeof *fresh);
    if (fresh) *mask = places - 1;
    return fresh;
}

bool xs_set_rehash(xs_set *set) {
    uint32_t *fresh = larger_table(&set->mask, set->places);
    if (!fresh) return false;
    free(set->places);
    set->places = fresh;
    for (size_t row = 0; row < set->rows.count; row++) {
        size_t place = xs_hash_row(XS_ROW(*set, row), set->width) & set->mask;
        while (fresh[place]) place = (place + 1) & set->mask;
        fresh[place] = (uint32_t)row + 1;
    }
    return true;
}

int64_t xs_set_insert(xs_set *set, const int64_t *row) {
    size_t count = set->rows.count;
    if (count >= UINT32_MAX - 1) return -1;
    if ((!set->places || 2 * count > set->mask) && !xs_set_rehash(set)) return -1;
    int64_t *copy = xs_list_add(&set->rows, set->width * sizeof *row);
    if (!copy) return -1;
    memcpy(copy, row, set->width * sizeof *row);
    size_t place = xs_hash_row(row, set->width) & set->mask;
    while (set->places[place]) place = (place + 1) & set->mask;
    set->places[place] = (uint32_t)count + 1;
    return (int64_t)count;
}

void xs_set_free(xs_set *set) {
    xs_list_free(&set->rows);
    free(set->places);
    set->places = NULL;
}

static uint64_t hash_text(const uint8_t *text, size_t length) {
    uint64_t hash = xs_hash_seed.start ^ length;
    for (; length >= 8; text += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = xs_mix(hash, word);
    }
    for (; length; length--) hash = xs_mix(hash, *text++);
    return hash;
}

typedef struct {
    size_t offset, length;
} span;

int64_t xs_texts_add(xs_texts *texts, const uint8_t *base, size_t offset, size_t length) {
    size_t count = texts->spans.count;
    if (!texts->places || 2 * count > texts->mask) {
        uint32_t *fresh = larger_table(&texts->mask, texts->places);
        if (!fresh) return -1;
        free(texts->places);
        texts->places = fresh;
        for (size_t row = 0; row < count; row++) {
            const span *old = &XS_AT(texts->spans, span, row);
            size_t place = hash_text(base + old->offset, old->length) & texts->mask;
            while (fresh[place]) place = (place + 1) & texts->mask;
            fresh[place] = (uint32_t)row + 1;
        }
    }
    size_t place = hash_text(base + offset, length) & texts->mask;
    for (; texts->places[place]; place = (place + 1) & texts->mask) {
        const span *old = &XS_AT(texts->spans, span, texts->places[place] - 1);
        if (old->length == length && memcmp(base + old->offset, base + offset, length) == 0) return texts->places[place] - 1;
    }
    span *fresh = count < UINT32_MAX - 1 ? xs_list_add(&texts->spans, sizeof *fresh) : NULL;
    if (!fresh) return -1;
    *fresh = (span){offset, length};
    texts->places[place] = (uint32_t)count + 1;
    return (int64_t)count;
}

void xs_texts_free(xs_texts *texts) {
    xs_list_free(&texts->spans);
    free(texts->places);
    texts->places = NULL;
}
