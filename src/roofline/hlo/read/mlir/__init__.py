"""MLIR of any dialect, from text and from bytecode: operations, types, attributes and locations."""
