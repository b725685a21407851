/* Async pairs: an operation that begins with one event (copy-start) and ends with another (copy-done).
 *
 * Its interval goes from the start's begin to the done's end. Transfers of one group (a link in one direction) that overlap share the
 * union of their intervals in proportion to their weights (bytes). An instruction has at most one execution under way: a second start
 * before the done means that a done was lost.
 */
#include <stdlib.h>

#include "scan_core.h"

enum { NONE = -1 };

typedef struct {
    xs_pair pair;
    size_t group;
    bool open;
    int64_t begin, label;
    int64_t row, row_label; /* its last row of `keys`, and the step of that row */
} async_op;

/* The weight of one (pair, step) in one union of transfers: a node of a linked list. */
typedef struct {
    int64_t paired, begin, next;
    double weight;
    int64_t count;
} node;

/* A union of overlapping transfers, with the first and last node of its list. */
typedef struct {
    int64_t begin, end, first, last;
} span;

typedef struct {
    int64_t id, open;
    xs_list spans; /* disjoint and sorted; the length of the first `shared_out` of them has been shared out */
    size_t shared_out;
} group;

struct xs_links {
    xs_list ops, groups, nodes;
    int64_t free_node;
    xs_set ids; /* metadata ids of starts and dones */
    xs_list roles;
    xs_set keys;
    xs_list paired;
    int64_t unpaired;
};

static bool add_role(xs_links *links, int64_t id, int64_t role) {
    int64_t row = xs_set_add(&links->ids, &id);
    if (row < 0) return false;
    return (size_t)row < links->roles.count || xs_push(&links->roles, role); /* an id belongs to its first pair only */
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
        async_op *fresh = shared < 0 ? NULL : xs_list_add(&links->ops, sizeof *fresh);
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
    xs_list *lists[] = {&links->ops, &links->groups, &links->nodes, &links->roles, &links->paired};
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

/* Shares out the length of a union, to which no transfer can be added any more. */
static void share_out(xs_links *links, const span *union_) {
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

/* Shares out the unions of a group that end at or before this time. */
static void share_out_until(xs_links *links, group *shared, int64_t time) {
    while (shared->shared_out < shared->spans.count && XS_AT(shared->spans, span, shared->shared_out).end <= time) {
        share_out(links, &XS_AT(shared->spans, span, shared->shared_out++));
    }
    if (shared->shared_out == shared->spans.count) shared->shared_out = shared->spans.count = 0;
}

static int64_t new_node(xs_links *links) {
    int64_t row = links->free_node;
    if (row != NONE) {
        links->free_node = XS_AT(links->nodes, node, row).next;
        return row;
    }
    return xs_list_add(&links->nodes, sizeof(node)) ? (int64_t)links->nodes.count - 1 : NONE;
}

/* Adds [begin, end) to the union that it overlaps, or to a new one. Transfers come in order of their ends, so only the last unions can
 * overlap it; those that do become one. NULL without memory. */
static span *extend_union(xs_links *links, group *shared, int64_t begin, int64_t end) {
    span grown = {begin, end, NONE, NONE};
    while (shared->spans.count > shared->shared_out && XS_AT(shared->spans, span, shared->spans.count - 1).end > begin) {
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

/* Adds a transfer's weight to its (pair, step) in the union; false without memory. */
static bool add_weight(xs_links *links, span *union_, int64_t row, int64_t begin, double weight) {
    xs_paired *paired = &XS_AT(links->paired, xs_paired, row);
    /* Unions are disjoint and sorted, so the pair's current node belongs to this union if it begins inside it. */
    if (paired->node == NONE || XS_AT(links->nodes, node, paired->node).begin < union_->begin) {
        int64_t fresh = new_node(links);
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

/* Handles a done event: ends the pair's transfer, if it has a start. */
static xs_fault_kind finish(xs_links *links, size_t pair, int64_t end) {
    async_op *op = &XS_AT(links->ops, async_op, pair);
    group *shared = &XS_AT(links->groups, group, op->group);
    if (!op->open) {
        links->unpaired++;
        return XS_FINE;
    }
    op->open = false;
    shared->open--;
    if (op->row == NONE || op->row_label != op->label) {
        op->row = xs_set_add(&links->keys, (int64_t[]){(int64_t)pair, op->label});
        op->row_label = op->label;
        if (op->row < 0) return XS_NO_MEMORY;
        if ((size_t)op->row == links->paired.count) {
            xs_paired *fresh = xs_list_add(&links->paired, sizeof *fresh);
            if (!fresh) return XS_NO_MEMORY;
            fresh->node = NONE;
        }
    }
    int64_t row = op->row;
    xs_paired *paired = &XS_AT(links->paired, xs_paired, row);
    uint64_t length = (uint64_t)end - (uint64_t)op->begin;
    if (length > INT64_MAX || !xs_add(paired->time_ps, (int64_t)length, &paired->time_ps)) return XS_OVERFLOW;
    paired->count++;
    span *union_ = extend_union(links, shared, op->begin, end);
    return union_ && add_weight(links, union_, row, op->begin, op->pair.weight) ? XS_FINE : XS_NO_MEMORY;
}

xs_fault_kind xs_links_add(xs_links *links, int64_t role, int64_t start, int64_t end, int64_t label) {
    if (role < 0) return finish(links, (size_t)(-role - 1), end);
    async_op *op = &XS_AT(links->ops, async_op, role - 1);
    group *shared = &XS_AT(links->groups, group, op->group);
    if (op->open) {
        links->unpaired++;
        shared->open--;
    }
    if (shared->open == 0) share_out_until(links, shared, start);
    shared->open++;
    op->open = true;
    op->begin = start;
    op->label = label;
    return XS_FINE;
}

xs_fault_kind xs_links_flush(xs_links *links) {
    for (size_t i = 0; i < links->ops.count; i++) {
        async_op *op = &XS_AT(links->ops, async_op, i);
        links->unpaired += op->open;
        op->open = false;
    }
    for (size_t i = 0; i < links->groups.count; i++) {
        group *shared = &XS_AT(links->groups, group, i);
        shared->open = 0;
        share_out_until(links, shared, INT64_MAX);
    }
    return XS_FINE;
}
