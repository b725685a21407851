"""What each family of operators costs: one function of sizes for every name that an operator has.

HLO opcodes, library calls, PyTorch operators and hand formulas call the same functions; parsing a call stays with its reader.
"""
