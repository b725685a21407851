"""Scaling a dimension of a program's inputs (batch, sequence, layers): which dimensions of which arrays grow with it."""
