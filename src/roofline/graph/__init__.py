"""One dataflow graph of operators, for programs of XLA, recorded PyTorch functions and traces: rules are written on it once.

Each source lowers its programs to these types. Where a kernel runs several operators, as a fusion of XLA, all are written out, and
`Node.kernel` says which launch runs each. Edges are exact where the source knows them; arrays that were matched to their maker by size are
not ``sure``.
"""

from .backend import CPU, GPU_BY_REQUEST, Backend
from .graph import NO_KERNEL, Gradient, Graph, Kernel, Node, Operation, Phase, Region
from .operators import (
    EXPANDED,
    MULTIPLYING,
    RENAMING,
    ROW_BY_ROW,
    SCALING,
    SOFTMAXES,
    SOLVING,
    SPREADING,
    Array,
    Axes,
    DeviceAxes,
    Exchange,
    Factor,
    Norm,
    Operator,
    Padding,
    Params,
    Part,
    Pooling,
    Rows,
    Sizes,
    Windows,
)

__all__ = [
    "CPU",
    "EXPANDED",
    "GPU_BY_REQUEST",
    "MULTIPLYING",
    "NO_KERNEL",
    "RENAMING",
    "ROW_BY_ROW",
    "SCALING",
    "SOFTMAXES",
    "SOLVING",
    "SPREADING",
    "Array",
    "Axes",
    "Backend",
    "DeviceAxes",
    "Exchange",
    "Factor",
    "Gradient",
    "Graph",
    "Kernel",
    "Node",
    "Norm",
    "Operation",
    "Operator",
    "Padding",
    "Params",
    "Part",
    "Phase",
    "Pooling",
    "Region",
    "Rows",
    "Sizes",
    "Windows",
]
