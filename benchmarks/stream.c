/* The four loops that define the STREAM benchmark, on all cores: the best of many passes over arrays that no cache holds.
   Bytes are those that the loops read and write; lines fetched only to be overwritten do not count. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    const long n = (count > 1 ? atol(words[1]) : 480) * 1000000 / 24; /* megabytes of all three arrays */
    const int passes = count > 2 ? atoi(words[2]) : 20;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
    double best[4] = {1e9, 1e9, 1e9, 1e9};
    const double bytes[4] = {16, 16, 24, 24}, scale = 3;
    const char *names[4] = {"copy", "scale", "add", "triad"};
    if (!a || !b || !c) return 1;
#pragma omp parallel for
    for (long i = 0; i < n; i++) a[i] = 1, b[i] = 2, c[i] = 0;
    for (int pass = 0; pass < passes; pass++)
        for (int loop = 0; loop < 4; loop++) {
            double began = omp_get_wtime();
            if (loop == 0) {
#pragma omp parallel for
                for (long i = 0; i < n; i++) c[i] = a[i];
            } else if (loop == 1) {
#pragma omp parallel for
                for (long i = 0; i < n; i++) b[i] = scale * c[i];
            } else if (loop == 2) {
#pragma omp parallel for
                for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
            } else {
#pragma omp parallel for
                for (long i = 0; i < n; i++) a[i] = b[i] + scale * c[i];
            }
            double took = omp_get_wtime() - began;
            if (took < best[loop]) best[loop] = took;
        }
    for (int loop = 0; loop < 4; loop++) printf("%s %.6g\n", names[loop], bytes[loop] * n / best[loop]);
    return a[n / 2] < 0; /* so that no loop is left out */
}
