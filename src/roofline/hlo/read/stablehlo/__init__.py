"""Programs in StableHLO, as text, as bytecode and as portable artifacts, converted to HLO."""
