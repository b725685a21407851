"""Programs that are still to be partitioned over devices: their shardings, and the part that one device runs."""
