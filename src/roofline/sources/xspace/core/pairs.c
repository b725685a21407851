/* Async pairs: an operation that begins with one event (copy-start) and ends with another (copy-done).
 *
 * Its interval goes from the start's begin to the done's end. Transfers of one group (a link in one direction) that overlap share the
 * union of their intervals in proportion to their weights (bytes). An instruction has one execution in flight: a second start before
 * the done means that a done was lost.
 */
#include <stdlib.h>

#include "scan_core.h"

enum { NONE = -1 };

typedef struct {
    xs_pair pair;
    size_t group;
    bool open;
    int64_t begin, label;
    int64_t row, row_label; /* of `keys`: where it landed last, and in which step */
} flight;

/* The weight of one (pair, step) in one union, in a list of its own kind. */
typedef struct {
    int64_t paired, begin, next;
    double weight;
    int64_t count;
} node;

/* A union of overlapping transfers that is still growing. */
typedef struct {
    int64_t begin, end, first, last;
} span;

typedef struct {
    int64_t id, open;
    xs_list spans; /* disjoint, in order; those before `settled` are done with */
    size_t settled;
} group;

struct xs_links {
    xs_list flights, groups, nodes;
    int64_t free_node;
    xs_set ids; /* metadata ids that are a half of a pair */
    xs_list roles;
    xs_set keys;
    xs_list paired;
    int64_t unpaired;
};

static bool add_role(xs_links *links, int64_t id, int64_t role) {
    int64_t row = xs_set_add(&links->ids, &id);
    if (row < 0) return false;
    return (size_t)row < links->roles.count || xs_push(&links->roles, role); /* an id is a half of one pair only */
}

static int64_t group_of(xs_links *links, int64_t id) {
    for (size_t i = 0; i < links->groups.count; i++) {
        if (XS_AT(links->groups, group, i).id == id) return (int64_t)i;
    }
    group *fresh = xs_list_add(&links->groups, sizeof *fresh);
    if (!fresh) return NONE;
    fresh->id = id;
    return (int64_t)links->groups.count - 1;
}

xs_links *xs_links_new(const xs_pair *pairs, size_t count) {
    xs_links *links = calloc(1, sizeof *links);
    if (!links) return NULL;
    links->ids.width = 1;
    links->keys.width = 2;
    links->free_node = NONE;
    for (size_t i = 0; i < count; i++) {
        int64_t shared = group_of(links, pairs[i].group), role = (int64_t)i + 1;
        flight *fresh = shared < 0 ? NULL : xs_list_add(&links->flights, sizeof *fresh);
        if (!fresh || !add_role(links, pairs[i].start_id, role) || !add_role(links, pairs[i].done_id, -role)) {
            xs_links_free(links);
            return NULL;
        }
        fresh->pair = pairs[i];
        fresh->group = (size_t)shared;
        fresh->row = NONE;
    }
    return links;
}

void xs_links_free(xs_links *links) {
    for (size_t i = 0; i < links->groups.count; i++) xs_list_free(&XS_AT(links->groups, group, i).spans);
    xs_list *lists[] = {&links->flights, &links->groups, &links->nodes, &links->roles, &links->paired};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) xs_list_free(lists[i]);
    xs_set_free(&links->ids);
    xs_set_free(&links->keys);
    free(links);
}

int64_t xs_links_role(const xs_links *links, int64_t metadata_id) {
    int64_t row = xs_set_find(&links->ids, &metadata_id);
    return row < 0 ? 0 : XS_AT(links->roles, int64_t, row);
}

const xs_set *xs_links_keys(const xs_links *links) { return &links->keys; }
const xs_list *xs_links_paired(const xs_links *links) { return &links->paired; }
int64_t xs_links_unpaired(const xs_links *links) { return links->unpaired; }

/* Nothing can join this union any more: its length is shared out. */
static void settle(xs_links *links, const span *union_) {
    double weight = 0, count = 0, length = (double)union_->end - (double)union_->begin;
    for (int64_t i = union_->first; i != NONE; i = XS_AT(links->nodes, node, i).next) {
        weight += XS_AT(links->nodes, node, i).weight;
        count += (double)XS_AT(links->nodes, node, i).count;
    }
    for (int64_t i = union_->first, next; i != NONE; i = next) {
        node *member = &XS_AT(links->nodes, node, i);
        xs_paired *paired = &XS_AT(links->paired, xs_paired, member->paired);
        paired->share_ps += length * (weight > 0 ? member->weight / weight : (double)member->count / count);
        if (paired->node == i) paired->node = NONE;
        next = member->next;
        member->next = links->free_node;
        links->free_node = i;
    }
}

/* Settles the unions of a group that end at or before this time. */
static void settle_until(xs_links *links, group *shared, int64_t time) {
    while (shared->settled < shared->spans.count && XS_AT(shared->spans, span, shared->settled).end <= time) {
        settle(links, &XS_AT(shared->spans, span, shared->settled++));
    }
    if (shared->settled == shared->spans.count) shared->settled = shared->spans.count = 0;
}

static int64_t fresh_node(xs_links *links) {
    int64_t row = links->free_node;
    if (row != NONE) {
        links->free_node = XS_AT(links->nodes, node, row).next;
        return row;
    }
    return xs_list_add(&links->nodes, sizeof(node)) ? (int64_t)links->nodes.count - 1 : NONE;
}

/* The union that [begin, end) belongs to, grown by it: dones come in order of their ends, so only the last unions can overlap it. */
static span *join(xs_links *links, group *shared, int64_t begin, int64_t end) {
    span grown = {begin, end, NONE, NONE};
    while (shared->spans.count > shared->settled && XS_AT(shared->spans, span, shared->spans.count - 1).end > begin) {
        span *last = &XS_AT(shared->spans, span, --shared->spans.count);
        if (last->begin < grown.begin) grown.begin = last->begin;
        if (last->end > grown.end) grown.end = last->end;
        if (grown.first == NONE) {
            grown.first = last->first;
            grown.last = last->last;
        } else if (last->first != NONE) {
            XS_AT(links->nodes, node, last->last).next = grown.first;
            grown.first = last->first;
        }
    }
    span *kept = xs_list_add(&shared->spans, sizeof *kept);
    if (kept) *kept = grown;
    return kept;
}

static bool weigh(xs_links *links, span *union_, int64_t row, int64_t begin, double weight) {
    xs_paired *paired = &XS_AT(links->paired, xs_paired, row);
    /* Unions are disjoint and in order, so a waiting node that begins inside this one belongs to it. */
    if (paired->node == NONE || XS_AT(links->nodes, node, paired->node).begin < union_->begin) {
        int64_t fresh = fresh_node(links);
        if (fresh == NONE) return false;
        XS_AT(links->nodes, node, fresh) = (node){.paired = row, .begin = begin, .next = union_->first};
        if (union_->first == NONE) union_->last = fresh;
        union_->first = fresh;
        paired->node = fresh;
    }
    XS_AT(links->nodes, node, paired->node).weight += weight;
    XS_AT(links->nodes, node, paired->node).count++;
    return true;
}

static xs_fault_kind land(xs_links *links, size_t pair, int64_t end) {
    flight *flown = &XS_AT(links->flights, flight, pair);
    group *shared = &XS_AT(links->groups, group, flown->group);
    if (!flown->open) {
        links->unpaired++;
        return XS_FINE;
    }
    flown->open = false;
    shared->open--;
    if (flown->row == NONE || flown->row_label != flown->label) {
        flown->row = xs_set_add(&links->keys, (int64_t[]){(int64_t)pair, flown->label});
        flown->row_label = flown->label;
        if (flown->row < 0) return XS_NO_MEMORY;
        if ((size_t)flown->row == links->paired.count) {
            xs_paired *fresh = xs_list_add(&links->paired, sizeof *fresh);
            if (!fresh) return XS_NO_MEMORY;
            fresh->node = NONE;
        }
    }
    int64_t row = flown->row;
    xs_paired *paired = &XS_AT(links->paired, xs_paired, row);
    uint64_t length = (uint64_t)end - (uint64_t)flown->begin;
    if (length > INT64_MAX || !xs_add(paired->time_ps, (int64_t)length, &paired->time_ps)) return XS_OVERFLOW;
    paired->count++;
    span *union_ = join(links, shared, flown->begin, end);
    return union_ && weigh(links, union_, row, flown->begin, flown->pair.weight) ? XS_FINE : XS_NO_MEMORY;
}

xs_fault_kind xs_links_add(xs_links *links, int64_t role, int64_t start, int64_t end, int64_t label) {
    if (role < 0) return land(links, (size_t)(-role - 1), end);
    flight *flown = &XS_AT(links->flights, flight, role - 1);
    group *shared = &XS_AT(links->groups, group, flown->group);
    if (flown->open) {
        links->unpaired++;
        shared->open--;
    }
    if (shared->open == 0) settle_until(links, shared, start);
    shared->open++;
    flown->open = true;
    flown->begin = start;
    flown->label = label;
    return XS_FINE;
}

xs_fault_kind xs_links_flush(xs_links *links) {
    for (size_t i = 0; i < links->flights.count; i++) {
        flight *flown = &XS_AT(links->flights, flight, i);
        links->unpaired += flown->open;
        flown->open = false;
    }
    for (size_t i = 0; i < links->groups.count; i++) {
        group *shared = &XS_AT(links->groups, group, i);
        shared->open = 0;
        settle_until(links, shared, INT64_MAX);
    }
    return XS_FINE;
}
