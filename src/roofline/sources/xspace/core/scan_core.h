/* Reading XSpace profiles: bytes in, tables out, no Python.
 *
 * `xs_index_new` finds planes, lines and metadata by skipping over everything else. A line is then read by one of two jobs, each of
 * which decodes every event once and can be run in pieces:
 *
 *   xs_rows     the events themselves, as columns: metadata id, start, duration, and the requested stats
 *   xs_totals   sums over the events of each distinct key, and results that depend on their order in time: self time, busy
 *               intervals, overlaps, async pairs. Memory grows with distinct keys and merged intervals, not with events.
 *
 * Times are picoseconds. Spans are byte ranges of the buffer, which must outlive everything made from it. Different jobs may run in
 * different threads; a single job must not. Several jobs may read parts of one line; the first then absorbs the others (absorb.c).
 */
#ifndef ROOFLINE_XSPACE_SCAN_CORE_H
#define ROOFLINE_XSPACE_SCAN_CORE_H

#include "hlo/read/wire.h"
#include "pext.h"
#include "table.h"

/* For rare cases: not inlined, so that the loops over all events stay small. */
#if defined(__GNUC__)
#define XS_NOINLINE __attribute__((noinline))
#else
#define XS_NOINLINE
#endif

typedef struct {
    size_t offset, length;
} xs_span;

typedef struct {
    const uint8_t *base;
    size_t size;
} xs_bytes;

/* ---- index ---- */

typedef struct {
    int64_t id;
    xs_span value; /* the XEventMetadata, XStatMetadata or XStat message */
} xs_entry;

typedef struct {
    int64_t id;
    xs_span name;
    int64_t timestamp_ns;
    xs_span bytes;
    size_t plane;
    bool whole; /* false: the file ends inside this line */
} xs_line;

/* Rows first … first + count of one of the index's tables. */
typedef struct {
    size_t first, count;
} xs_range;

typedef struct {
    int64_t id;
    xs_span name;
    xs_span bytes;
    xs_range lines, events, names, stats;
    bool whole;
} xs_plane;

/* A fault of the file; plane or line is -1 if it is in none. */
typedef struct {
    xs_fault_kind kind;
    size_t offset;
    int64_t plane, line;
} xs_damage;

typedef struct xs_bounds xs_bounds;

typedef struct {
    xs_bytes bytes;
    xs_list planes;    /* xs_plane */
    xs_list lines;     /* xs_line */
    xs_list events;    /* xs_entry: XEventMetadata by id */
    xs_list names;     /* xs_entry: XStatMetadata by id */
    xs_list stats;     /* xs_entry: plane stats */
    xs_list errors;    /* xs_span */
    xs_list warnings;  /* xs_span */
    xs_list hostnames; /* xs_span */
    xs_list damages;   /* xs_damage, in the order found */
    uint64_t unknown;  /* number of fields that are not in the schema */
    xs_bounds *bounds; /* NULL once the index is built */
} xs_index;

/* Limits on building an index: it stops when `go_on`, called from time to time, returns false, or after `most` messages. */
struct xs_bounds {
    bool (*go_on)(void);
    size_t most, messages;
    bool stopped, too_many;
};

/* Builds an index of everything that is readable; `damages` lists the faults. NULL without memory or if stopped by `bounds`, which may be
 * NULL for no limits. */
xs_index *xs_index_new(xs_bytes bytes, xs_bounds *bounds);
void xs_index_free(xs_index *index);

/* ---- metadata ---- */

/* How a stat's value was written. */
enum { XS_ABSENT, XS_DOUBLE, XS_UINT64, XS_INT64, XS_STRING, XS_BLOB, XS_REF };

typedef struct {
    int64_t id;
    int kind;
    uint64_t value; /* number, or bits of a double */
    xs_span text;   /* string or bytes */
} xs_stat;

typedef struct {
    xs_span name, display_name, metadata;
    xs_list stats;    /* xs_span */
    xs_list children; /* int64_t */
} xs_metadata;

/* Return false at a fault. `xs_name_read` reads XEventMetadata and XStatMetadata. Free `xs_metadata` even after a fault. */
bool xs_stat_read(const xs_bytes *bytes, xs_span message, xs_stat *stat, xs_fault *fault);
bool xs_name_read(const xs_bytes *bytes, xs_span message, xs_span *name, xs_fault *fault);
bool xs_metadata_read(const xs_bytes *bytes, xs_span message, xs_metadata *metadata, xs_fault *fault);
void xs_metadata_free(xs_metadata *metadata);

/* ---- selection, the same for both jobs ---- */

enum { XS_SLOTS = 24, XS_DENSE = 1024 };

/* Which stats to decode, by metadata id, and which events to keep. */
typedef struct {
    int slots;
    int8_t dense[XS_DENSE]; /* slot of small metadata ids, -1 for none */
    xs_set sparse;          /* the other ids … */
    xs_list sparse_slots;   /* … and the slot of each, int64_t */
    uint32_t having;        /* keep events with one of these slots … */
    bool filtered;          /* … or a metadata id in `only`; false: keep all events */
    xs_set only;
} xs_select;

void xs_select_init(xs_select *select);
bool xs_select_stat(xs_select *select, int64_t id, int slot);
bool xs_select_only(xs_select *select, int64_t metadata_id);
void xs_select_free(xs_select *select);

/* The position in a line that is read piece by piece. */
typedef struct {
    xs_bytes bytes;
    const uint8_t *begin, *p, *end;
    const uint8_t *plain_end; /* the end of the line, or earlier: two words after this are still inside the buffer */
    int64_t timestamp_ns, start_ps;
    uint64_t events, unknown;
    xs_fault fault;
} xs_walk;

bool xs_walk_init(xs_walk *walk, const xs_index *index, size_t line);
/* Guesses where an event of the line begins, some way past `from`: the event with the longest gap in time before it; NULL if there is none.
 * The first `hops` messages are skipped: they may be stats, which have the same tag as events, and the last stat of an event leads to the
 * next event. The ends of the next `hops` events are read but no gap before them is used, as earlier events may reach into it. */
const uint8_t *xs_walk_rest_near(const xs_walk *walk, const uint8_t *from, size_t hops);

/* ---- rows ---- */

typedef struct {
    xs_walk walk;
    xs_select select;
    xs_list instants;               /* int64_t, sorted: of the selected events, keep those that cover one … */
    bool timed;                     /* … if this is set */
    size_t instant;                 /* the first instant at or after the start of the last event */
    xs_texts texts;
    xs_list ids, starts, durations; /* int64_t */
    xs_list values[XS_SLOTS];       /* int64_t: number, bits of a double, or row of `texts` */
    xs_list kinds[XS_SLOTS];        /* uint8_t */
} xs_rows;

/* Reads about `budget` bytes more. True while there is more to read; false at the end of the line or at `walk.fault`. */
bool xs_rows_run(xs_rows *rows, size_t budget);
void xs_rows_free(xs_rows *rows);

/* ---- intervals ---- */

typedef struct {
    int64_t begin, end;
} xs_interval;

/* A union of intervals, which are added one by one. */
typedef struct {
    xs_list intervals; /* xs_interval: runs of sorted, disjoint intervals; a single run when finished */
    xs_list runs;      /* size_t: where each run begins */
} xs_union;

/* False without memory. The interval must not end before it begins. */
bool xs_union_add(xs_union *set, int64_t begin, int64_t end);
/* The length of the union is INT64_MAX at most. */
bool xs_union_finish(xs_union *set, int64_t *length);
void xs_union_free(xs_union *set);

/* A gap between intervals, or a group of short ones: begin and end of the last gap, total length (`weight`) and number of the gaps, and
 * where the first begins (`since`). */
typedef struct {
    int64_t begin, end, weight, count, since;
} xs_gap;

/* The gaps between sorted, disjoint intervals. A gap shorter than 1 / `most` of all gaps together is grouped with the next short ones until
 * the group is as long; a group never spans one of the `edges`, which are sorted. False without memory. */
bool xs_gaps(const xs_interval *busy, size_t count, const int64_t *edges, size_t edge_count, int64_t most, xs_list *gaps);

/* ---- totals ---- */

enum { XS_KEYS = 14, XS_DISTINCT = 2, XS_SUMS = 4, XS_WINDOW = 64, XS_RING = 2 * XS_WINDOW };
enum { XS_KIND_BITS = 4 }; /* of a stat, in the second integer of a key */

static const int64_t XS_NO_LABEL = INT64_MIN;

/* Sorted by `low`: a value belongs to the last interval that begins at or before it, if it lies before its `high`. */
typedef struct {
    int64_t low, high, label;
} xs_step;

/* A span of time divided into buckets of equal width (the last may be shorter), and the number of its first bucket. */
typedef struct {
    int64_t begin, end, width, first;
} xs_buckets;

/* An asynchronous operation: the metadata ids of its start and done events, and the group with which it shares a link. */
typedef struct {
    int64_t start_id, done_id;
    int64_t group;
    double weight;
} xs_pair;

typedef struct {
    int64_t count, time_ps, self_ps, first_ps, last_ps;
    int64_t distinct[XS_DISTINCT]; /* how often the value differs from that of the key's previous event */
    uint64_t first[XS_DISTINCT], last[XS_DISTINCT];
    double sums[XS_SUMS];
    int64_t label, cell; /* the step of the key's last event, and its cell */
    int64_t role;        /* 0, pair + 1 for a start, -(pair + 1) for a done */
    uint32_t next;       /* the key of the event after this key's last event: a guess for the next time, as programs repeat */
} xs_total;

/* The totals of a key in one step. */
typedef struct {
    int64_t count, time_ps, self_ps, first_ps, last_ps;
} xs_cell;

typedef struct {
    int64_t count, time_ps;
} xs_overlap;

typedef struct {
    int64_t count, time_ps;
    double share_ps;
    int64_t node; /* its node in a union of transfers that is still growing, or -1 (pairs.c) */
} xs_paired;

/* An event in the reorder window (order.c). */
typedef struct {
    int64_t start, end;
    uint64_t distinct[XS_DISTINCT];
    uint32_t key;
    int32_t cell;
    uint32_t present; /* bits: which of `distinct` are set */
} xs_pending;

/* The order of events in the window: by start, then the longest first. */
static inline bool xs_before(const xs_pending *a, const xs_pending *b) {
    return a->start != b->start ? a->start < b->start : a->end > b->end;
}

/* An event that encloses the current one. */
typedef struct {
    int64_t end;
    uint32_t key;
    int32_t cell;
} xs_open;

typedef struct xs_links xs_links;

enum { XS_BY_EVENT_TIME = -1, XS_BY_DEVICE_TIME = -2 };

typedef struct {
    xs_walk walk;
    xs_select select;
    xs_texts texts;

    /* The request. */
    int keys, key_slots[XS_KEYS];
    int distincts, distinct_slots[XS_DISTINCT];
    int sums, sum_slots[XS_SUMS];
    int offset_slot, duration_slot; /* the device's own clock, -1 for none */
    int step_slot;                  /* the value that is looked up in `steps`: a slot, or a time (XS_BY_…) */
    bool nested;                    /* overlapping time belongs to the inner event; else to the earlier one */
    bool keep_intervals;
    xs_list steps;   /* xs_step */
    xs_list buckets; /* xs_buckets: spans in which self time is also summed up per bucket */
    xs_links *links;

    /* The results. */
    xs_set key_set;     /* rows of 2 + keys: metadata id, kinds, values */
    uint32_t plain[XS_DENSE]; /* if a metadata id alone is the key: the key's row + 1 for small ids, 0 before the first event */
    xs_list totals;     /* xs_total, one row per key */
    xs_set cell_set;    /* rows of 2: key, label */
    xs_list cells;      /* xs_cell */
    xs_set overlap_set; /* rows of 2: the key that covers, the key that is covered */
    xs_list overlaps;   /* xs_overlap, within one execution */
    xs_set bucket_set;  /* rows of 2: key, bucket */
    xs_list bucket_ps;  /* int64_t: self time of the key in the bucket */
    xs_union intervals;
    int64_t busy_ps, first_ps, last_ps, rewinds, aggregated;

    /* The state between events. */
    bool finished, started;
    size_t step;     /* the step of the last event … */
    int64_t key;     /* … and its key, -1 before the first */
    xs_pending window[XS_RING]; /* a ring buffer of at most XS_WINDOW events; the next one is written after them */
    size_t head, tail;
    int64_t drained;   /* start of the last event taken out of the window */
    xs_interval busy;  /* the current busy interval */
    xs_pending cover;  /* the event with the latest end so far; not used if nested */
    xs_list stack;     /* xs_open */
} xs_totals;

void xs_totals_init(xs_totals *totals);
bool xs_totals_key(xs_totals *totals, int slot);
/* As `xs_rows_run`; at the end, or at a fault, the results cover everything read so far. */
bool xs_totals_run(xs_totals *totals, size_t budget);
bool xs_totals_run_pext(xs_totals *totals, size_t budget); /* the same for CPUs with pext, if XS_PEXT_BUILT */
/* Adds the results of a job with the same request that began where this one is now, as if this one had read on, faults included. False,
 * with nothing changed, if reading on could give another result. False with a fault set without memory. */
bool xs_totals_absorb(xs_totals *totals, const xs_totals *part);
void xs_totals_free(xs_totals *totals);

/* Events in order of time (order.c). */
xs_fault_kind xs_order_pop(xs_totals *totals);   /* takes the first event out of the window and adds it to the results */
void xs_order_insert(xs_totals *totals);         /* moves the newest event of the window to its place in the order */
xs_fault_kind xs_order_close(xs_totals *totals); /* empties the window; ends the busy interval, enclosing events and async pairs */
xs_fault_kind xs_order_flush(xs_totals *totals); /* xs_order_close, then the union of busy intervals */

/* Async pairs (pairs.c). */
xs_links *xs_links_new(const xs_pair *pairs, size_t count);
void xs_links_free(xs_links *links);
int64_t xs_links_role(const xs_links *links, int64_t metadata_id);
xs_fault_kind xs_links_add(xs_links *links, int64_t role, int64_t start, int64_t end, int64_t label);
xs_fault_kind xs_links_flush(xs_links *links);
const xs_set *xs_links_keys(const xs_links *links);    /* rows of 2: pair, label of the step it began in */
const xs_list *xs_links_paired(const xs_links *links); /* xs_paired */
int64_t xs_links_unpaired(const xs_links *links);

#endif
