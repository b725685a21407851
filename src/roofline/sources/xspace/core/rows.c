/* The events of a line as columns. */
#include "event.h"

/* The value to store in a column: a number, the bits of a double, or the row of a text; false without memory. */
static bool column_value(const xs_walk *walk, xs_texts *texts, const xs_value *value, int64_t *out) {
    if (value->kind != XS_STRING && value->kind != XS_BLOB) {
        *out = (int64_t)value->value;
        return true;
    }
    *out = xs_texts_add(texts, walk->bytes.base, (size_t)value->value, value->length);
    return *out >= 0;
}

static bool push_kind(xs_list *list, uint8_t kind) {
    if (list->count == list->capacity && !xs_list_grow(list, sizeof kind)) return false;
    ((uint8_t *)list->data)[list->count++] = kind;
    return true;
}

static bool push(xs_rows *rows, const xs_event *event) {
    if (!xs_push(&rows->ids, event->metadata_id) || !xs_push(&rows->starts, event->start_ps)) return false;
    if (!xs_push(&rows->durations, event->duration_ps)) return false;
    for (int slot = 0; slot < rows->select.slots; slot++) {
        bool present = event->present >> slot & 1;
        int64_t value = 0;
        if (present && !column_value(&rows->walk, &rows->texts, &event->values[slot], &value)) return false;
        if (!xs_push(&rows->values[slot], value)) return false;
        if (!push_kind(&rows->kinds[slot], present ? event->values[slot].kind : XS_ABSENT)) return false;
    }
    return true;
}

/* The first instant at or after a time; `last` is the previous result, which is tried first. */
static size_t first_from(const xs_list *instants, size_t last, int64_t time) {
    const int64_t *at = instants->data;
    size_t low = 0, high = instants->count;
    if ((last == 0 || at[last - 1] < time) && (last == high || time <= at[last])) return last;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at[middle] < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Whether an instant lies in the event: start <= instant < end. */
static bool covers_an_instant(xs_rows *rows, const xs_event *event) {
    const xs_list *instants = &rows->instants;
    if (event->aggregated || event->duration_ps <= 0) return false;
    rows->instant = first_from(instants, rows->instant, event->start_ps);
    /* The instant is not before the start, so the difference is not negative. */
    return rows->instant < instants->count &&
           (uint64_t)XS_AT(*instants, int64_t, rows->instant) - (uint64_t)event->start_ps < (uint64_t)event->duration_ps;
}

bool xs_rows_run(xs_rows *rows, size_t budget) {
    xs_walk *walk = &rows->walk;
    const uint8_t *stop = (size_t)(walk->end - walk->p) > budget ? walk->p + budget : walk->end;
    xs_event event;
    if (walk->fault.kind) return false;
    while (walk->p < stop) {
        if (!xs_next_event(walk, &rows->select, &event)) return false;
        if (!event.wanted || (rows->timed && !covers_an_instant(rows, &event))) continue;
        if (!push(rows, &event)) return xs_fail(&walk->fault, XS_NO_MEMORY, event.begin);
    }
    return walk->p < walk->end;
}

void xs_rows_free(xs_rows *rows) {
    xs_select_free(&rows->select);
    xs_list_free(&rows->instants);
    xs_texts_free(&rows->texts);
    xs_list_free(&rows->ids);
    xs_list_free(&rows->starts);
    xs_list_free(&rows->durations);
    for (int slot = 0; slot < XS_SLOTS; slot++) {
        xs_list_free(&rows->values[slot]);
        xs_list_free(&rows->kinds[slot]);
    }
}
