/* The loop of totals.c for x86 processors that gather the bits of a number in one instruction: a fifth of the scanner's time. */
#include "pext.h"

#if XS_PEXT_BUILT
#pragma GCC target("bmi,bmi2")
#define XS_PEXT
#include "totals_loop.h"

bool xs_totals_run_pext(xs_totals *totals, size_t budget) { return run(totals, budget); }
#else
#include "scan_core.h" /* a file of C may not be empty */
#endif
