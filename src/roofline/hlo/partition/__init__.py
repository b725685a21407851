"""Partitioning of programs over devices: the sharding of every value, and the program of one device."""
