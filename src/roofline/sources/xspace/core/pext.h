/* Whether this compiler can build code for x86 CPUs with pext, which gathers the bits of a number in one instruction. */
#ifndef ROOFLINE_XSPACE_PEXT_H
#define ROOFLINE_XSPACE_PEXT_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(XS_PORTABLE)
#define XS_PEXT_BUILT 1
#else
#define XS_PEXT_BUILT 0
#endif

#endif
