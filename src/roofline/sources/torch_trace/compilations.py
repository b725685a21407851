"""Steps in which `torch.compile` compiles, or in which a CUDA or HIP graph is captured."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .graphs import BEGIN_CAPTURE
from .host import Host, Launches
from .read.arrays import distinct
from .read.columns import PYTHON
from .steps import Steps

# Only functions that compile: in every step, compiled functions run through runtime_wrappers.py, utils.py and schemas.py of AOTAutograd
# and, where graphs are replayed, through a function `run` in Inductor's compile_fx.py.
_COMPILER = re.compile(
    r"_dynamo/convert_frame|_inductor/compile_fx\w*\.py\(\d+\): (?!run$)|_inductor/codegen|_dynamo/symbolic_convert"
    r"|_functorch/_aot_autograd/(?:graph_|jit_compile|dispatch_and_compile|collect_metadata|traced_function|autograd_cache)"
)
_COMPILES = re.compile(r"entire_frame_compile|backend_compile|compile_fx|dynamo_timed|CachingAutotuner\.benchmark")


def compiles(kind: int, name: str) -> bool:
    """Whether an event of the host is a compilation.

    >>> compiles(PYTHON, "torch/_inductor/compile_fx.py(812): compile_fx"), compiles(PYTHON, "torch/_inductor/compile_fx.py(1870): run")
    (True, False)
    """
    return bool((_COMPILER if kind == PYTHON else _COMPILES).search(name))


def compiled_steps(host: Host, names: Sequence[Any], steps: Steps) -> tuple[int, ...]:
    """The steps in which the host compiled."""
    kinds = distinct(host.kind).tolist()
    compiling = [
        host.start[(host.kind == kind) & np.isin(host.name, numbers)]
        for kind in kinds
        if (numbers := [number for number, name in enumerate(names) if isinstance(name, str) and compiles(kind, name)])
    ]
    return _marks(np.concatenate([np.zeros(0, np.int64), *compiling]), steps)


def capturing_steps(launches: Launches, names: Sequence[Any], steps: Steps, captured: Sequence[int]) -> tuple[int, ...]:
    """The steps in which a graph was captured; ``captured`` are threads of other recordings."""
    begins = [number for number, name in enumerate(names) if isinstance(name, str) and BEGIN_CAPTURE.search(name)]
    return _marks(launches.start[np.isin(launches.name, begins) & ~np.isin(launches.thread, captured)], steps)


def _marks(instants: "np.ndarray[Any, Any]", steps: Steps) -> tuple[int, ...]:
    return tuple(mark for mark in distinct(steps.at(instants)).tolist() if mark >= 0)
