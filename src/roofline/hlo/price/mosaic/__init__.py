"""Mosaic kernels, Pallas on TPUs: what a kernel's code computes and moves.

`read_bytecode` and `read_text` read the code in a call, `Scalars` evaluates its whole numbers over the grid, `Walk` adds up its operations,
`windows` has the blocks that its pipeline copies, and `kernel_cost` adds up all of it.
"""
