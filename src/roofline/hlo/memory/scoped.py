"""Scoped memory: what one kernel of a TPU program uses of VMEM or SMEM while it runs, besides the arrays that live there.

The compiler states it after it generated code: windows of operands and results, scratch, and spilled registers.
"""

from collections.abc import Set

from ..ir.module import Instruction
from ..ir.shapes import whole_or_none
from ..read.backend_config import backend_config

_KEY = '"used_scoped_memory_configs":[{'


def scoped_bytes(instruction: Instruction, spaces: Set[int]) -> int:
    """Bytes of scoped memory in these memory spaces; 0 where the program states none."""
    if not spaces or _KEY not in instruction.backend_config_text:
        return 0
    configs = backend_config(instruction).get("used_scoped_memory_configs")
    used = [config for config in configs if isinstance(config, dict)] if isinstance(configs, list) else []
    sizes = [(whole_or_none(str(config.get("memory_space"))), whole_or_none(str(config.get("size")))) for config in used]
    return sum(max(0, size) for space, size in sizes if size is not None and space in spaces)
