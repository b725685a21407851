"""MLIR of any dialect, from text and from bytecode: operations, types, attributes and locations."""

MAGIC = b"ML\xefR"  # what bytecode begins with
