"""Attention that computes scores which its mask removes."""
