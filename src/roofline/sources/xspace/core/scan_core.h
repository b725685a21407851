/* Reading XSpace profiles: bytes in, tables out, no Python.
 *
 * `xs_index_new` finds planes, lines and metadata by skipping over everything else. A line is then read by one of two jobs, each of
 * which decodes every event once and can be run in pieces:
 *
 *   xs_rows     the events themselves, as columns: metadata id, start, duration, and the stats asked for
 *   xs_totals   sums over the events of each distinct key, and what needs their order in time: self time, busy intervals,
 *               overlaps, async pairs. Memory grows with distinct keys and merged intervals, not with events.
 *
 * Times are picoseconds. Spans are byte ranges of the buffer, which must outlive everything made from it. Different jobs may run in
 * different threads; one job may not. Several jobs may sum up parts of one line, of which the first then absorbs the others (absorb.c).
 */
#ifndef ROOFLINE_XSPACE_SCAN_CORE_H
#define ROOFLINE_XSPACE_SCAN_CORE_H

#include "hlo/read/wire.h"
#include "pext.h"
#include "table.h"

/* Code that few events need, kept apart from the loops that all go through. */
#if defined(__GNUC__)
#define XS_APART __attribute__((noinline))
#else
#define XS_APART
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
    bool whole; /* false: the file ends inside it */
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

/* Where something was wrong: -1 stands for no plane, no line. */
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
    uint64_t unknown;  /* fields of a number the schema does not have */
    xs_bounds *bounds; /* while it is being made */
} xs_index;

/* How the making of an index may end early: `go_on` is asked every so many messages, and more than `most` of them are too many. */
struct xs_bounds {
    bool (*go_on)(void);
    size_t most, met;
    bool stopped, too_many;
};

/* Everything that could be found; `damages` says what could not. NULL only without memory, or as `bounds` tell, which may be NULL. */
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

/* False at a fault. `xs_name_read` serves XEventMetadata and XStatMetadata; `xs_metadata` is freed whatever the answer. */
bool xs_stat_read(const xs_bytes *bytes, xs_span message, xs_stat *stat, xs_fault *fault);
bool xs_name_read(const xs_bytes *bytes, xs_span message, xs_span *name, xs_fault *fault);
bool xs_metadata_read(const xs_bytes *bytes, xs_span message, xs_metadata *metadata, xs_fault *fault);
void xs_metadata_free(xs_metadata *metadata);

/* ---- what both jobs select ---- */

enum { XS_SLOTS = 24, XS_DENSE = 1024 };

/* Which stats to decode, by metadata id, and which events to keep. */
typedef struct {
    int slots;
    int8_t dense[XS_DENSE]; /* slot of small metadata ids, -1 for none */
    xs_set sparse;          /* the other ids … */
    xs_list sparse_slots;   /* … and the slot of each, int64_t */
    uint32_t having;        /* keep events with one of these slots … */
    bool some;              /* … or a metadata id in `only`; without either, keep all */
    xs_set only;
} xs_select;

void xs_select_init(xs_select *select);
bool xs_select_stat(xs_select *select, int64_t id, int slot);
bool xs_select_only(xs_select *select, int64_t metadata_id);
void xs_select_free(xs_select *select);

/* A line being read, in pieces. */
typedef struct {
    xs_bytes bytes;
    const uint8_t *begin, *p, *end;
    const uint8_t *plain_end; /* up to here, two words behind what is read can be read, too */
    int64_t timestamp_ns, start_ps;
    uint64_t events, unknown;
    xs_fault fault;
} xs_walk;

bool xs_walk_init(xs_walk *walk, const xs_index *index, size_t line);
/* Where an event of the line seems to begin behind `from`, after the longest rest near by; NULL if there is none. From any event, or stat
 * of one, which looks the same, so many hops lead to where events begin, and so many more events show what reaches beyond them. */
const uint8_t *xs_walk_rest_near(const xs_walk *walk, const uint8_t *from, size_t hops);

/* ---- rows ---- */

typedef struct {
    xs_walk walk;
    xs_select select;
    xs_list instants;               /* int64_t in order: of the events selected, keep those that cover one … */
    bool timed;                     /* … if asked for */
    size_t instant;                 /* the first that is not before the last event */
    xs_texts texts;
    xs_list ids, starts, durations; /* int64_t */
    xs_list occurrences;            /* int64_t; empty unless an event is pre-aggregated */
    xs_list values[XS_SLOTS];       /* int64_t: number, bits of a double, or row of `texts` */
    xs_list kinds[XS_SLOTS];        /* uint8_t */
} xs_rows;

/* Reads about `budget` bytes further. True while there is more; false at the end of the line or at `walk.fault`. */
bool xs_rows_run(xs_rows *rows, size_t budget);
void xs_rows_free(xs_rows *rows);

/* ---- intervals ---- */

typedef struct {
    int64_t begin, end;
} xs_interval;

/* A union of intervals, made one by one. */
typedef struct {
    xs_list intervals; /* xs_interval: runs of disjoint ones in order; a single run when finished */
    xs_list runs;      /* size_t: where each run begins */
} xs_union;

/* False without memory. The interval must not end before it begins. */
bool xs_union_add(xs_union *set, int64_t begin, int64_t end);
/* The length of the union is INT64_MAX at most. */
bool xs_union_finish(xs_union *set, int64_t *length);
void xs_union_free(xs_union *set);

/* One gap between intervals, or several short ones: where it, or the last of them, lies, how long and how many they are together, and
 * where the first begins. */
typedef struct {
    int64_t begin, end, weight, count, since;
} xs_gap;

/* The gaps between disjoint intervals in order. Those shorter than a part in `most` of all of them are put together with the next such
 * ones until they make up as much, unless one of the `edges`, which are in order, lies between. False without memory. */
bool xs_gaps(const xs_interval *busy, size_t count, const int64_t *edges, size_t edge_count, int64_t most, xs_list *gaps);

/* ---- totals ---- */

enum { XS_KEYS = 14, XS_DISTINCT = 2, XS_SUMS = 4, XS_WINDOW = 64, XS_RING = 2 * XS_WINDOW };
enum { XS_KIND_BITS = 4 }; /* of a stat, in the second integer of a key */

static const int64_t XS_NO_LABEL = INT64_MIN;

/* Sorted by `low`: a value belongs to the last interval that begins at or before it, if it lies before its `high`. */
typedef struct {
    int64_t low, high, label;
} xs_step;

/* A span of time in buckets of one width, of which the last may be shorter, and the number of its first bucket. */
typedef struct {
    int64_t begin, end, width, first;
} xs_buckets;

/* An asynchronous operation: the metadata ids of its two halves, and whom it shares a link with. */
typedef struct {
    int64_t start_id, done_id;
    int64_t group;
    double weight;
} xs_pair;

typedef struct {
    int64_t count, time_ps, self_ps, first_ps, last_ps, shortest_ps, longest_ps;
    int64_t distinct[XS_DISTINCT]; /* how often the value differs from that of the key's previous event */
    uint64_t first[XS_DISTINCT], last[XS_DISTINCT];
    double sums[XS_SUMS];
    int64_t label, cell; /* the step last seen, and its cell */
    int64_t role;        /* 0, pair + 1 for a start, -(pair + 1) for a done */
    uint32_t next;       /* the key of the event that came after its last: programs repeat themselves */
} xs_total;

/* The part of a key in one step. */
typedef struct {
    int64_t count, time_ps, self_ps, first_ps, last_ps;
} xs_cell;

typedef struct {
    int64_t count, time_ps;
} xs_overlap;

typedef struct {
    int64_t count, time_ps;
    double share_ps;
    int64_t node; /* where its weight waits, see pairs.c */
} xs_paired;

/* An event on its way through the window. */
typedef struct {
    int64_t start, end;
    uint64_t distinct[XS_DISTINCT];
    uint32_t key;
    int32_t cell;
    uint32_t present; /* which of the distinct it has */
} xs_waiting;

/* Whether an event leaves the window before another. */
static inline bool xs_before(const xs_waiting *a, const xs_waiting *b) {
    return a->start != b->start ? a->start < b->start : a->end > b->end;
}

/* An event that contains the present one. */
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

    /* What was asked for. */
    int keys, key_slots[XS_KEYS];
    int distincts, distinct_slots[XS_DISTINCT];
    int sums, sum_slots[XS_SUMS];
    int offset_slot, duration_slot; /* the device's own clock, -1 for none */
    int step_slot;                  /* whose value `steps` are intervals of: a slot, or a clock */
    bool nested;                    /* an event inside another takes its time from it; else the earlier event keeps it */
    bool keep_intervals;
    xs_list steps;   /* xs_step */
    xs_list buckets; /* xs_buckets: where self time is to be told by bucket, too */
    xs_links *links;

    /* The answers. */
    xs_set key_set;     /* rows of 2 + keys: metadata id, kinds, values */
    uint32_t plain[XS_DENSE]; /* row + 1 of small metadata ids that are keys by themselves, 0 for those not yet seen */
    xs_list totals;     /* xs_total, a row a key */
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
    size_t step;     /* the interval of the last event … */
    int64_t key;     /* … and its key, -1 before the first */
    xs_waiting window[XS_RING]; /* a ring: XS_WINDOW events wait at most, and behind them there is room for the next */
    size_t head, tail;
    int64_t drained;   /* start of the last event that left the window */
    xs_interval busy;  /* the interval that is growing */
    xs_waiting cover;  /* the event that ends last so far, unless events are nested */
    xs_list stack;     /* xs_open */
} xs_totals;

void xs_totals_init(xs_totals *totals);
bool xs_totals_key(xs_totals *totals, int slot);
/* As `xs_rows_run`; at the end, or at a fault, everything read so far is in the answers. */
bool xs_totals_run(xs_totals *totals, size_t budget);
bool xs_totals_run_pext(xs_totals *totals, size_t budget); /* the same where pext.h says that it was built, for processors that have it */
/* Takes in what a job of the same kind has read that began where this one is now: all is as if this one had read on, fault included. False
 * if that would not be the same, and then nothing is; without memory, with a fault. */
bool xs_totals_absorb(xs_totals *totals, const xs_totals *part);
void xs_totals_free(xs_totals *totals);

/* Events in order of time (order.c). */
xs_fault_kind xs_order_settle(xs_totals *totals); /* the first that waits leaves the window */
void xs_order_move(xs_totals *totals);            /* the last that waits goes to its place among the others */
xs_fault_kind xs_order_close(xs_totals *totals); /* nothing that comes later belongs to what is open now */
xs_fault_kind xs_order_flush(xs_totals *totals);

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
