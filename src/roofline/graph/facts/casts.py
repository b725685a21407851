"""What arrays were before casts made them wider or narrower."""

from ..graph import Graph, Node
from ..operators import Array, Operator

LAYOUT = (Operator.VIEW, Operator.TRANSPOSE, Operator.COPY)


def cast_of(graph: Graph, array: int) -> Node | None:
    """The cast that makes an array, in whichever layout, from floats of another width; ``None`` if none does."""
    cast = graph.made_by(array, Operator.CAST, through=LAYOUT)
    if cast is None:
        return None
    before, after = graph.arrays[cast.takes[0]], graph.arrays[cast.gives[0]]
    return cast if is_float(before) and is_float(after) and bits(before) != bits(after) else None


def widened(graph: Graph, array: int) -> Array | None:
    """An operand as it was before something widened it; ``None`` if nothing did."""
    cast = cast_of(graph, array)
    before = graph.arrays[cast.takes[0]] if cast is not None else None
    return before if before is not None and bits(before) < bits(graph.arrays[array]) else None


def bits(array: Array) -> int:
    """Bits of an element; 0 if its format is unknown."""
    return array.dtype.bits if array.dtype is not None else 0


def is_float(array: Array) -> bool:
    """Whether its elements are real numbers, and no integers."""
    return array.dtype is not None and not array.dtype.name.startswith(("int", "uint", "bool", "complex"))
