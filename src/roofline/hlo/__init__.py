"""XLA programs: read them, price every instruction, explain what was fused and what was not.

``ir`` is the program as one value, ``read`` makes it from text, protobuf or StableHLO, ``price`` says what each instruction costs, and
``fusion`` models what a compiler fuses and reports what it did not.
"""
