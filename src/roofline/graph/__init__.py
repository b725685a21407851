"""One dataflow graph of operators, for programs of XLA, recorded PyTorch functions and traces: rules are written on it once.

Each source lowers its programs to these types. Where a kernel runs several operators, as a fusion of XLA, all are written out, and
`Node.kernel` says which launch runs each. Edges are exact where the source knows them; arrays that were matched to their maker by size are
not ``sure``.
"""

from .graph import NO_KERNEL, Graph, Kernel, Node, Phase
from .operators import RENAMING, SCALING, Array, Operator, Params, Sizes

__all__ = ["NO_KERNEL", "RENAMING", "SCALING", "Array", "Graph", "Kernel", "Node", "Operator", "Params", "Phase", "Sizes"]
