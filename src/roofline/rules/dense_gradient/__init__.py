"""Gradients that are zero but for a few rows."""
