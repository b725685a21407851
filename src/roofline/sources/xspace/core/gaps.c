/* Gaps between disjoint intervals: long gaps one by one, short gaps in groups. */
#include "scan_core.h"

static bool keep(xs_list *gaps, const xs_gap *gap) {
    xs_gap *kept = xs_list_add(gaps, sizeof *kept);
    if (kept) *kept = *gap;
    return kept != NULL;
}

bool xs_gaps(const xs_interval *busy, size_t count, const int64_t *edges, size_t edge_count, int64_t most, xs_list *gaps) {
    uint64_t idle = 0;
    xs_gap several = {0};
    for (size_t i = 1; i < count; i++) idle += (uint64_t)busy[i].begin - (uint64_t)busy[i - 1].end;
    uint64_t least = idle / (uint64_t)most;
    if (!least) least = 1;
    if (least > INT64_MAX / 2) least = INT64_MAX / 2; /* so that the sum of two shorter gaps fits into 63 bits */
    for (size_t i = 1, edge = 0, begun = 0; i < count; i++) {
        int64_t begin = busy[i - 1].end, end = busy[i].begin;
        uint64_t length = (uint64_t)end - (uint64_t)begin;
        while (edge < edge_count && edges[edge] <= begin) edge++;
        if (length >= least) {
            if (!keep(gaps, &(xs_gap){begin, end, length > INT64_MAX ? INT64_MAX : (int64_t)length, 1, begin})) return false;
            continue;
        }
        if (several.count && (begun != edge || (uint64_t)several.weight >= least)) {
            if (!keep(gaps, &several)) return false;
            several = (xs_gap){0};
        }
        if (!several.count) {
            several.since = begin;
            begun = edge;
        }
        several.begin = begin;
        several.end = end;
        several.weight += (int64_t)length;
        several.count++;
    }
    return !several.count || keep(gaps, &several);
}
