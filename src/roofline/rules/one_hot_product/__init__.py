"""Products with one-hot matrices."""
