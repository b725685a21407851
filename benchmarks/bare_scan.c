/* The least a reader of profiles can do: every field of every message looked at once, nothing kept but a sum.
 *
 *     cc -O3 -o bare_scan bare_scan.c && ./bare_scan host.xplane.pb
 *
 * Prints seconds of the walk, seconds of merely adding up the bytes, peak bytes of memory, events, and a sum that keeps the compiler
 * honest. The walk is the first to touch the mapped file, as a reader would; run it twice so that no disk is timed.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static uint64_t sum, events;

static const uint8_t *varint(const uint8_t *p, uint64_t *value) {
    uint64_t byte, found = 0;
    int shift = 0;
    do {
        byte = *p++;
        found |= (byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    *value = found;
    return p;
}

/* A kind of message: which of its fields hold messages in turn, and of what kind. */
typedef struct message {
    const struct message *inside[8];
} message;

static const message leaf;
static const message event = {{[4] = &leaf}};
static const message line = {{[4] = &event}};
static const message event_metadata = {{[5] = &leaf}};
static const message event_entry = {{[2] = &event_metadata}}, stat_entry = {{[2] = &leaf}};
static const message plane = {{[3] = &line, [4] = &event_entry, [5] = &stat_entry, [6] = &leaf}};
static const message space = {{[1] = &plane}};

static void walk(const uint8_t *p, const uint8_t *end, const message *kind) {
    while (p < end) {
        uint64_t tag, value;
        p = varint(p, &tag);
        switch (tag & 7) {
            case 0:
                p = varint(p, &value);
                sum += value;
                break;
            case 1:
                sum += *p;
                p += 8;
                break;
            case 5:
                p += 4;
                break;
            default:
                p = varint(p, &value);
                if (tag >> 3 < 8 && kind->inside[tag >> 3]) walk(p, p + value, kind->inside[tag >> 3]);
                p += value;
        }
    }
    events += kind == &event;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **arguments) {
    struct stat status;
    int file = count == 2 ? open(arguments[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &status) < 0) return 2;
    size_t size = (size_t)status.st_size;
    const uint8_t *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) return 2;
    double start = now();
    walk(data, data + size, &space);
    double walking = now() - start;
    start = now();
    for (size_t i = 0; i < size; i++) sum += data[i];
    double adding = now() - start;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%.6f %.6f %ld %llu %llu\n", walking, adding, usage.ru_maxrss * 1024, (unsigned long long)events, (unsigned long long)sum);
    return 0;
}
