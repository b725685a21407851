"""A program with a dimension of its inputs made larger: what grows with it, followed dimension by dimension."""
