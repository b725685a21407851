"""Block sizes: which configuration of a Triton or Pallas kernel is fastest on a chip, and why, from what its compiler says; nothing is run.

`triton` compiles for GPUs that need not be here and follows the machine code; `pallas` reads the bundles of the TPU compiler, which
`jax.tpu` runs. Both give `results.Blocks`. The way in is `integrations.kernel_blocks`.
"""
