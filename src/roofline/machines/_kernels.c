/* Kernels that measure a CPU: fused multiply-adds and base-2 exponentials in registers; a read, a fill, a copy and a triad over a buffer.
 *
 * Each is compiled for every vector width of the platform; the widest that the CPU supports is used. They run without the GIL, so Python
 * threads run them in parallel. `run` waits until a given time, so that all threads start together, and returns when the work began and
 * ended, in nanoseconds of the monotonic clock, and the FLOP executed (an exponential counts as one) or the bytes read and written.
 */
#define _POSIX_C_SOURCE 200809L
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#include <windows.h>
static int64_t now_ns(void) {
    LARGE_INTEGER ticks, frequency;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&frequency);
    return (int64_t)((double)ticks.QuadPart * 1e9 / (double)frequency.QuadPart);
}
#else
#include <time.h>
static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

enum { FMA32, FMA64, EXP32, READ, WRITE, COPY, TRIAD, KERNELS };
static const char *const NAMES[KERNELS] = {"fma32", "fma64", "exp32", "read", "write", "copy", "triad"};
enum { EXPONENTIALS = 8 }; /* independent dependency chains, which the CPU overlaps */
enum { CHAINS = 24 };      /* independent accumulators: 2 FMA units with a latency of 4 cycles need 8, 4 units need 16 */
enum { STEPS = 64 };       /* multiply-adds of each accumulator per repeat */

typedef struct {
    char *data; /* of `bytes` bytes, a multiple of BLOCK */
    size_t bytes;
    int64_t repeats;
    double out; /* the result */
} work;

enum { LINE = 64, BLOCK = 1536 }; /* bytes; a third of a BLOCK is eight of the widest vectors */

#if defined(__GNUC__)
/* Vectors of BYTES bytes, for the instructions of TARGET. The multiply-adds contract to fused ones where the CPU has these. */
#define UNROLL(n) _Pragma(#n)
#define FMA_KERNEL(NAME, TYPE, BYTES, CHAINS_HERE, TARGET)                                   \
    TARGET static void NAME(work *w) {                                                      \
        typedef TYPE vec __attribute__((vector_size(BYTES), aligned(8), may_alias));         \
        vec sums[CHAINS_HERE], factor = {0}, term = {0};                                    \
        factor += (TYPE)0.999999, term += (TYPE)1e-7 * (TYPE)(w->repeats & 1);               \
        for (int i = 0; i < CHAINS_HERE; i++) sums[i] = factor * (TYPE)i;                    \
        for (int64_t repeat = 0; repeat < w->repeats * STEPS * CHAINS / CHAINS_HERE; repeat++) \
            UNROLL(GCC unroll 24) for (int i = 0; i < CHAINS_HERE; i++) sums[i] = sums[i] * factor + term; \
        for (int i = 1; i < CHAINS_HERE; i++) sums[0] += sums[i];                            \
        for (size_t i = 0; i < BYTES / sizeof(TYPE); i++) w->out += sums[0][i];              \
    }
/* x = 2^-x, repeatedly, for x in [0, 1], to fp32 precision: -x is split into the nearest integer, which becomes the exponent, and a
 * remainder r, for which a polynomial gives 2^r = sum of (r ln 2)^k / k!. Adding 1.5 x 2^23 rounds, with the integer in the lowest bits. */
#define EXP_KERNEL(NAME, BYTES, TARGET)                                                      \
    TARGET static void NAME(work *w) {                                                      \
        typedef float vec __attribute__((vector_size(BYTES), aligned(8), may_alias));        \
        typedef int32_t bits __attribute__((vector_size(BYTES), aligned(8), may_alias));     \
        vec values[EXPONENTIALS], rounds = {0}, one = {0};                                   \
        rounds += 12582912.0f, one += 1.0f;                                                 \
        for (int i = 0; i < EXPONENTIALS; i++) values[i] = one * (0.1f * (float)(i + (w->repeats & 1))); \
        for (int64_t repeat = 0; repeat < w->repeats * STEPS; repeat++)                      \
            UNROLL(GCC unroll 8) for (int i = 0; i < EXPONENTIALS; i++) {                    \
                vec shifted = rounds - values[i];                                           \
                vec rest = (rounds - shifted) - values[i];                                   \
                vec power = one * 1.5403530e-4f * rest + 1.3333558e-3f;                      \
                power = power * rest + 9.6181291e-3f;                                       \
                power = power * rest + 5.5504109e-2f;                                       \
                power = power * rest + 2.4022651e-1f;                                       \
                power = power * rest + 6.9314718e-1f;                                       \
                power = power * rest + one;                                                 \
                values[i] = (vec)((bits)power + ((bits)shifted << 23));                      \
            }                                                                               \
        for (int i = 1; i < EXPONENTIALS; i++) values[0] += values[i];                       \
        for (size_t i = 0; i < BYTES / sizeof(float); i++) w->out += values[0][i];           \
    }
#define STREAM_KERNELS(READ_NAME, TRIAD_NAME, BYTES, TARGET)                                 \
    TARGET static void READ_NAME(work *w) {                                                 \
        typedef uint64_t vec __attribute__((vector_size(BYTES), aligned(8), may_alias));     \
        vec a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};          \
        for (int64_t repeat = 0; repeat < w->repeats; repeat++) {                            \
            const vec *at = (const vec *)w->data, *end = (const vec *)(w->data + w->bytes);  \
            for (; at < end; at += 8)                                                       \
                a ^= at[0], b ^= at[1], c ^= at[2], d ^= at[3], e ^= at[4], f ^= at[5], g ^= at[6], h ^= at[7]; \
            __asm__ volatile("" ::: "memory");                                              \
        }                                                                                   \
        a ^= b ^ c ^ d ^ e ^ f ^ g ^ h;                                                     \
        w->out += (double)a[0];                                                             \
    }                                                                                       \
    TARGET static void TRIAD_NAME(work *w) {                                                \
        typedef float vec __attribute__((vector_size(BYTES), aligned(8), may_alias));        \
        size_t third = w->bytes / 3;                                                        \
        vec factor = {0};                                                                   \
        factor += 0.5f;                                                                     \
        for (int64_t repeat = 0; repeat < w->repeats; repeat++) {                            \
            vec *a = (vec *)w->data, *end = (vec *)(w->data + third);                        \
            const vec *b = (const vec *)(w->data + third), *c = (const vec *)(w->data + 2 * third); \
            for (; a < end; a += 4, b += 4, c += 4) {                                       \
                a[0] = b[0] + factor * c[0], a[1] = b[1] + factor * c[1];                    \
                a[2] = b[2] + factor * c[2], a[3] = b[3] + factor * c[3];                    \
            }                                                                               \
            __asm__ volatile("" ::: "memory");                                              \
        }                                                                                   \
    }
#define FOR_WIDTH(SUFFIX, BYTES, CHAINS_HERE, TARGET)                                        \
    FMA_KERNEL(fma32_##SUFFIX, float, BYTES, CHAINS_HERE, TARGET)                            \
    FMA_KERNEL(fma64_##SUFFIX, double, BYTES, CHAINS_HERE, TARGET)                           \
    EXP_KERNEL(exp32_##SUFFIX, BYTES, TARGET)                                               \
    STREAM_KERNELS(read_##SUFFIX, triad_##SUFFIX, BYTES, TARGET)

#if defined(__x86_64__) || defined(__i386__)
FOR_WIDTH(16, 16, 12, )
FOR_WIDTH(32, 32, 12, __attribute__((target("avx2,fma"))))
FOR_WIDTH(64, 64, 24, __attribute__((target("avx512f,fma"))))
#define HAS_WIDER 1
#else
FOR_WIDTH(16, 16, 24, )
#endif
#else
/* A compiler without vector types: plain loops, which it may vectorise. */
static void fma32_16(work *w) {
    float sums[CHAINS][4] = {{0}}, factor = 0.999999f, term = 1e-7f * (float)(w->repeats & 1);
    for (int64_t repeat = 0; repeat < w->repeats * STEPS; repeat++)
        for (int i = 0; i < CHAINS; i++)
            for (int j = 0; j < 4; j++) sums[i][j] = sums[i][j] * factor + term;
    for (int i = 0; i < CHAINS; i++) w->out += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
}
static void fma64_16(work *w) {
    double sums[CHAINS][2] = {{0}}, factor = 0.999999, term = 1e-7 * (double)(w->repeats & 1);
    for (int64_t repeat = 0; repeat < w->repeats * STEPS; repeat++)
        for (int i = 0; i < CHAINS; i++)
            for (int j = 0; j < 2; j++) sums[i][j] = sums[i][j] * factor + term;
    for (int i = 0; i < CHAINS; i++) w->out += sums[i][0] + sums[i][1];
}
static void exp32_16(work *w) {
    float values[EXPONENTIALS][4];
    for (int i = 0; i < EXPONENTIALS; i++)
        for (int j = 0; j < 4; j++) values[i][j] = 0.1f * (float)(i + (w->repeats & 1));
    for (int64_t repeat = 0; repeat < w->repeats * STEPS; repeat++)
        for (int i = 0; i < EXPONENTIALS; i++)
            for (int j = 0; j < 4; j++) values[i][j] = exp2f(-values[i][j]);
    for (int i = 0; i < EXPONENTIALS; i++) w->out += values[i][0] + values[i][1] + values[i][2] + values[i][3];
}
static void read_16(work *w) {
    for (int64_t repeat = 0; repeat < w->repeats; repeat++) {
        const volatile uint64_t *at = (const volatile uint64_t *)w->data;
        uint64_t sums[4] = {0};
        for (size_t i = 0; i < w->bytes / 8; i += 4) sums[0] ^= at[i], sums[1] ^= at[i + 1], sums[2] ^= at[i + 2], sums[3] ^= at[i + 3];
        w->out += (double)(sums[0] ^ sums[1] ^ sums[2] ^ sums[3]);
    }
}
static void triad_16(work *w) {
    size_t third = w->bytes / 3 / sizeof(float);
    for (int64_t repeat = 0; repeat < w->repeats; repeat++) {
        float *a = (float *)w->data, *b = a + third, *c = b + third;
        for (size_t i = 0; i < third; i++) a[i] = b[i] + 0.5f * c[i];
        w->out += a[repeat % (int64_t)third];
    }
}
#endif

static int vector_bytes(void) {
#if defined(HAS_WIDER)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return 64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 32;
#endif
    return 16;
}

#if defined(HAS_WIDER)
#define PICK(kernel) (width == 64 ? kernel##_64 : width == 32 ? kernel##_32 : kernel##_16)
#else
#define PICK(kernel) kernel##_16
#endif

static void fill(work *w) {
    for (int64_t repeat = 0; repeat < w->repeats; repeat++) {
        memset(w->data, (int)(repeat & 1), w->bytes);
#if defined(__GNUC__)
        __asm__ volatile("" ::: "memory");
#endif
    }
}

static void copy(work *w) {
    size_t half = w->bytes / 2;
    for (int64_t repeat = 0; repeat < w->repeats; repeat++) {
        memcpy(w->data, w->data + half, half);
#if defined(__GNUC__)
        __asm__ volatile("" ::: "memory");
#endif
    }
}

static void run_kernel(int kernel, work *w) {
    int width = vector_bytes();
    (void)width;
    switch (kernel) {
        case FMA32:
            PICK(fma32)(w);
            break;
        case FMA64:
            PICK(fma64)(w);
            break;
        case EXP32:
            PICK(exp32)(w);
            break;
        case READ:
            PICK(read)(w);
            break;
        case WRITE:
            fill(w);
            break;
        case COPY:
            copy(w);
            break;
        default:
            PICK(triad)(w);
    }
}

static volatile double sink; /* keeps the compiler from removing kernels whose results are not used */

static PyObject *run(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *name;
    PyObject *target;
    long long repeats, at_ns;
    if (!PyArg_ParseTuple(arguments, "sOLL", &name, &target, &repeats, &at_ns)) return NULL;
    int kernel = 0;
    while (kernel < KERNELS && strcmp(name, NAMES[kernel])) kernel++;
    if (kernel == KERNELS) return PyErr_Format(PyExc_ValueError, "no kernel named '%s'", name);
    Py_buffer buffer;
    if (PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE) < 0) return NULL;
    size_t skipped = (size_t)(-(uintptr_t)buffer.buf % LINE); /* vectors that cross a cache line take twice as long */
    size_t usable = (size_t)buffer.len > skipped ? (size_t)buffer.len - skipped : 0;
    work w = {(char *)buffer.buf + skipped, usable / BLOCK * BLOCK, repeats, 0.0};
    int64_t began, ended;
    Py_BEGIN_ALLOW_THREADS
    while (now_ns() < at_ns) {
        /* CPUs run wide multiply-adds slowly for the first half millisecond: warm up while waiting. */
        work warm_up = {w.data, 0, 1, 0.0};
        if (kernel < READ) run_kernel(kernel, &warm_up), w.out += warm_up.out;
    }
    began = now_ns();
    run_kernel(kernel, &w);
    ended = now_ns();
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&buffer);
    sink = w.out;
    int lanes = vector_bytes() / (kernel == FMA64 ? 8 : 4);
    int64_t done = kernel >= READ ? (int64_t)w.bytes : kernel == EXP32 ? EXPONENTIALS * STEPS * lanes : 2 * CHAINS * STEPS * lanes;
    return Py_BuildValue("(LLL)", (long long)began, (long long)ended, (long long)(done * repeats));
}

static PyObject *clock_ns(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLongLong(now_ns());
}

static PyMethodDef METHODS[] = {
    {"run", run, METH_VARARGS, "run(kernel, buffer, repeats, at_ns) -> (begin_ns, end_ns, FLOP or bytes); starts at at_ns of clock_ns()."},
    {"clock_ns", clock_ns, METH_NOARGS, "The time now, of the clock that `run` uses, in ns."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&MODULE); }
