"""Memory: the peak of a program's main memory, and which arrays are live then."""
