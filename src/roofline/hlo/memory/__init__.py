"""Memory: the most that a program holds in main memory at once, and what that is."""
