"""Experts that are computed for every token."""
