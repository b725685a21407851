"""Products whose time is that of reading weights, or of launching kernels, as each has few rows."""
