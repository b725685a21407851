/* Guards memory-mapped files against being truncated while they are read.
 *
 * Reading a mapped page past the new end of the file raises SIGBUS, which ends the process. In a guarded mapping the handler instead maps
 * zero pages from there to the end of the mapping and marks the guard as hit; the reader checks the mark when it has finished. A SIGBUS
 * of any other memory goes to the handler that was installed before.
 *
 * Other code may install a handler later, as Python's faulthandler does when it is enabled, so each new guard checks that this one is there.
 */
#include "binding.h"

#ifdef _WIN32

int xs_guard(const void *begin, size_t length) {
    (void)begin, (void)length;
    return -1;
}
bool xs_guard_hit(int guard) {
    (void)guard;
    return false;
}
void xs_unguard(int guard) { (void)guard; }

#else

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_GUARDS = 256 };

/* Written with the GIL held; read by the handler, which may run in any thread at any time. A guard is in use while `end` is not 0. */
static struct {
    _Atomic uintptr_t begin, end;
    atomic_bool hit;
} guards[MOST_GUARDS];

static struct sigaction previous;
static uintptr_t page_size;

/* Calls the handler that was installed before. If that one comes back here, as one does that was itself installed after this one, the
 * access is repeated without a handler, and ends the process. */
static void pass_on(int number, siginfo_t *info, void *context) {
    static atomic_flag passing = ATOMIC_FLAG_INIT;
    struct sigaction none = {.sa_handler = SIG_DFL};
    bool once = !atomic_flag_test_and_set(&passing);
    if (once && previous.sa_flags & SA_SIGINFO && previous.sa_sigaction) {
        previous.sa_sigaction(number, info, context);
    } else if (once && previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        sigaction(number, once ? &previous : &none, NULL);
    }
    if (once) atomic_flag_clear(&passing);
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < MOST_GUARDS; i++) {
        uintptr_t begin = guards[i].begin, end = guards[i].end;
        if (!end || at < begin || at >= end) continue;
        uintptr_t from = at & ~(page_size - 1);
        void *zeroes = mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (zeroes == MAP_FAILED) break;
        guards[i].hit = true;
        return;
    }
    pass_on(number, info, context);
}

/* Whether the handler is there. */
static bool install(void) {
    struct sigaction current, action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    long size = sysconf(_SC_PAGESIZE);
    if (size <= 0 || sigaction(SIGBUS, NULL, &current) < 0) return false;
    if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == on_bus_error) return true;
    page_size = (uintptr_t)size;
    previous = current;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, NULL) == 0;
}

int xs_guard(const void *begin, size_t length) {
    if (!install()) return -1;
    for (int i = 0; i < MOST_GUARDS; i++) {
        if (guards[i].end) continue;
        guards[i].hit = false;
        guards[i].begin = (uintptr_t)begin;
        guards[i].end = (uintptr_t)begin + length;
        return i;
    }
    return -1;
}

bool xs_guard_hit(int guard) { return guard >= 0 && guards[guard].hit; }

void xs_unguard(int guard) {
    if (guard >= 0) guards[guard].end = 0;
}

#endif
