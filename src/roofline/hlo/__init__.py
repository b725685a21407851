"""XLA programs: read them, price every instruction, explain what was fused and what was not.

``ir`` is the program as one value, ``read`` makes it from text, protobuf or StableHLO, ``price`` says what each instruction costs,
``memory`` how much memory it needs, ``fusion`` models what a compiler fuses and reports what it did not, and ``unneeded`` finds work that
another program would avoid. ``partition`` and ``scaling`` make the program of one device, and that of larger or smaller inputs.
"""
