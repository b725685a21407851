"""Work whose kernels are short: fewer and larger ones would do the same."""
