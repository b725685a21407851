"""XSpace profiles (`.xplane.pb`): what `jax.profiler` writes.

`scan` reads the bytes; everything above it works on its tables.
"""

PROFILES = (".xplane.pb", ".xplane.pb.gz")  # suffixes of profiles
