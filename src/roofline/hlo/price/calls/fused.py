"""Library calls inside a fusion: XLA wraps a call with the slices it reads and the updates it writes, and runs the call alone.

The kernel is the library's. It reads the slices in place and writes into the larger array, so the price of the call, whose operands are
the slices, is the price of the fusion.
"""

from ..types import Price, Site
from .pricing import price_call

_OPCODES = "parameter constant bitcast tuple get-tuple-element reshape slice dynamic-slice dynamic-update-slice"
_MOVES = frozenset(_OPCODES.split())  # so does the computation of a slice's start, a scalar


def price_fused_call(site: Site) -> Price | None:
    """The price of a fusion that is one custom call between slices and updates; ``None`` for any other fusion."""
    called = site.instruction.called("calls")
    if len(called) != 1:
        return None
    body = site.module.computations[called[0]]
    calls = [instruction for instruction in body if instruction.opcode == "custom-call"]
    computing = [
        instruction
        for instruction in body
        if instruction.opcode not in _MOVES and not (instruction.shape.is_array and instruction.shape.elements <= 1)
    ]
    if len(calls) != 1 or any(instruction is not calls[0] for instruction in computing):
        return None
    return price_call(Site(site.module, body, calls[0], site.platform))
