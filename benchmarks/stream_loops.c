/* STREAM's copy and triad over a part of its arrays, begun at a given time: tries short enough for a quiet moment of a busy computer.
   `ends` gets the nanoseconds of the monotonic clock at which the loop began and ended. */
#include <time.h>

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

void copy(double *restrict c, const double *restrict a, const double *restrict unused, long n, long at, long *ends) {
    (void)unused;
    while (now() < at) {
    }
    ends[0] = now();
    for (long i = 0; i < n; i++) c[i] = a[i];
    ends[1] = now();
}

void triad(double *restrict a, const double *restrict b, const double *restrict c, long n, long at, long *ends) {
    while (now() < at) {
    }
    ends[0] = now();
    for (long i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
    ends[1] = now();
}
