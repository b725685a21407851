"""How the TPU compiler says that it runs a collective: its strategy, the links that it uses at once, and the sides of the group.

The configuration names an emitter; its debug text gives the strategy's colours, the parts of the payload that travel at once on different
links: ``UniDirectionNDRingStrategy{colors:6 phases:3 cores:{4 4 4},…}``. A colour of a ``UniDirection…`` strategy goes one way, six of them
on a 4x4x4 torus; a colour of any other goes both ways at once, three of them there. An emitter of one dimension passes shards around one
ring through the group, both ways. A collective on SparseCores has a list of colours, each with the rings of its phases.
"""

import json
import re

from ...formulas.slices import Plan
from ..ir.module import Instruction
from ..read.backend_config import backend_config

_STRATEGY = re.compile(r"(\w+)\{colors:(\d{1,3}) phases:\d+ cores:\{([\d ]{1,40})\}")
_ONE_WAY, _ONE_WAY_RING = "UniDirection", "RING_TYPE_UNIDIR"
_ONE_DIMENSION = "1D"
_ON_CORE, _ON_SPARSE_CORE = "collective_algorithm_config", "collective_offload_config"


def plan_of(instruction: Instruction) -> Plan | None:
    """The compiler's plan for a collective; ``None`` if it states none."""
    text = instruction.backend_config_text
    if _ON_SPARSE_CORE in text:
        return _offloaded(backend_config(instruction).get(_ON_SPARSE_CORE))
    config = backend_config(instruction).get(_ON_CORE) if _ON_CORE in text else None
    if not isinstance(config, dict):
        return None
    emitter = str(config.get("emitter", ""))
    strategy = _STRATEGY.search(str(config.get("debug", "")))
    if strategy is not None and int(strategy[2]):
        directions = 1 if strategy[1].startswith(_ONE_WAY) else 2
        return Plan(strategy[1], int(strategy[2]) * directions, tuple(map(int, strategy[3].split())))
    return Plan(emitter, 2) if emitter.startswith(_ONE_DIMENSION) else None


def _offloaded(config: object) -> Plan | None:
    """The plan of a collective on SparseCores."""
    inner = next((value for value in config.values() if isinstance(value, dict)), {}) if isinstance(config, dict) else {}
    rings = inner.get("ici_strategy_config")
    colours = rings.get("color_strategies") if isinstance(rings, dict) else None
    if not isinstance(colours, list) or not colours:
        return None
    return Plan("SparseCore rings", sum(1 if _ONE_WAY_RING in json.dumps(colour) else 2 for colour in colours))
