"""Kernels that one kernel could replace."""
