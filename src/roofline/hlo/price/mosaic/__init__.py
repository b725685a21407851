"""Mosaic kernels, Pallas on TPUs: what a kernel's code computes and moves, from the MLIR bytecode in its call.

`read_kernel` reads the code, `Scalars` evaluates its whole numbers over the grid, `work` adds up its operations and `windows` the blocks
that its pipeline copies; `kernel_cost` does all of it.
"""
