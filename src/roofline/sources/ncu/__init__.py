"""Nsight Compute CSVs: hardware counters of the launches of a program."""
