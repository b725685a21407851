"""The program as one immutable value: modules, computations, instructions, shapes, attributes."""
