"""Sizes for which kernels are slow."""
