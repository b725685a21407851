"""Block sizes of Pallas kernels for TPUs, from the bundles that the TPU compiler schedules."""
