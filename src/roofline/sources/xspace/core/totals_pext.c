/* The loop of totals.c for x86 CPUs with pext, which saves a fifth of the scanner's time. */
#include "pext.h"

#if XS_PEXT_BUILT
#pragma GCC target("bmi,bmi2")
#define XS_PEXT
#include "totals_loop.h"

bool xs_totals_run_pext(xs_totals *totals, size_t budget) { return run(totals, budget); }
#else
#include "scan_core.h" /* a C file must not be empty */
#endif
