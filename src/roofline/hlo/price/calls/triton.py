"""Triton kernels, including Pallas' ones: by their author's estimate, else by their IR if the program contains it.

Bytes are those of the call's shapes: every operand read once, every result written once.
"""

import re

from ....errors import FormulaError
from ....workload import COUNTED
from ...read.backend_config import backend_config
from ...read.lexing import STRING
from ...read.mlir import MAGIC
from ..types import Price, Site
from .estimates import FIELDS, estimated
from .registry import call
from .settings import integer, section
from .traffic import priced, unpriced
from .triton_ir import kernel_work, read_triton

_IR = re.compile(rf"\bir = ({STRING})")
_ESCAPE = re.compile(rb'\\(?:([0-9a-fA-F]{2})|(["\\nt]))')
_NAMED = {b"n": b"\n", b"t": b"\t"}
_GRID = ("grid_x", "grid_y", "grid_z")
_UNREAD = "bytes from its shapes; FLOP unknown"


@call("__gpu$xla.gpu.triton", "__gpu$xla.gpu.ptx", "triton_kernel_call", "triton_kernel_call_ffi", "__triton")
def kernel(site: Site) -> Price:
    """A kernel priced by its author's estimate if it has one, else by its IR, else with unknown arithmetic."""
    config = backend_config(site.instruction)
    estimate = section(config, "cost_estimate")
    if any(name in estimate for name in FIELDS):
        return estimated(site, estimate, "custom call")
    code = _code(site.instruction.backend_config_text)
    if code is None:
        return unpriced(site, _UNREAD)
    try:
        programs = 1
        for name in _GRID:
            programs *= integer(config, name, 1)
        work, masked = kernel_work(*read_triton(code), programs)
    except FormulaError as misfit:
        return unpriced(site, f"{_UNREAD}: {misfit}")
    note = "masked lanes are counted" if masked else ""
    return priced(site, work, "custom call", f"{COUNTED}from its Triton IR, without integer (address) arithmetic", note)


def _code(text: str) -> bytes | None:
    """The MLIR bytecode in a configuration, whose strings write bytes as a backslash and two hexadecimal digits."""
    match = _IR.search(text)
    if match is None:
        return None
    raw = match[1][1:-1].encode("utf-8", "surrogateescape")
    code = _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]) if escape[1] else _NAMED.get(escape[2], escape[2]), raw)
    return code if code.startswith(MAGIC) else None
