"""Framework names of instructions: the named scope they were traced in, what their author wrote, and whether they belong to a gradient.

JAX writes ``jit(step)/transpose(jvp(layer0))/attn/dot_general``: jitted functions, transformations around a scope, scopes, and the
primitive last.
"""

import re
from functools import lru_cache
from itertools import chain, groupby

from ...graph import Operator

# Segments that say how a program is built, not what it is.
_NOISE = re.compile(
    r"body(_fun|_jaxpr)?|branch_\d+_fun|call_exported|checkpoint|closed_call|cond(_fun)?|core_call|custom_(jvp|vjp)_call(_jaxpr)?|custom_lin|eval_jaxpr|main|"
    r"named_call|pjit|remat2?|rematted_computation|scan|shard_map|while|xla_(call|pmap)"
)
_EMPTY = re.compile(r"/{2,}")  # scopes without a name, inside of parentheses
_WRAPPED = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_WRITTEN = {  # by the last part of a name
    "transpose": Operator.TRANSPOSE,
    "while": Operator.LOOP,
    "fft": Operator.FOURIER,
    "all_to_all": Operator.COLLECTIVE,
    "ppermute": Operator.COLLECTIVE,
    "cholesky": Operator.FACTOR,
    "triangular_solve": Operator.SOLVE,
    **dict.fromkeys(("geqrf", "householder_product", "qr", "lu", "eigh", "svd"), Operator.DECOMPOSE),
}
_DROPPED = ("jit", "pjit", "pmap", "xla_pmap", "core_call", "remat", "checkpoint", "shard_map")


def scope(op_name: str) -> str:
    """The named scopes of an instruction, outermost first, without jitted functions, transformations and the primitive.

    A compiler that merges instructions joins their names by semicolons: the scopes are then those of the first.

    >>> scope("jit(step)/while/body/transpose(jvp(layer0))/attn/bhqd,bhkd->bhqk/dot_general"), scope("jit(f)/add"), scope("x")
    ('layer0/attn', '', '')
    >>> scope("jit(step)/mlp/mul;jit(step)/mlp/broadcast_in_dim")
    'mlp'
    """
    op_name = op_name.partition(";")[0]
    outer = op_name.rpartition("/")[0]
    if outer.count("(") != outer.count(")"):  # the primitive itself has a slash
        outer = "/".join(_segments(op_name)[:-1])
    return _scope(outer)


@lru_cache(maxsize=10_000)
def _scope(outer: str) -> str:
    """The scopes in the part of a name before the primitive, which many instructions share."""
    parts = chain.from_iterable([_segments(_unwrapped(segment)) for segment in _segments(outer)])
    # An einsum's own scope is its equation. The backward pass of a rematerialised scope names it twice: transpose(jvp(layer0))/jvp(layer0).
    kept = [part for part, _ in groupby(part for part in parts if part and not _NOISE.fullmatch(part) and "->" not in part)]
    return _EMPTY.sub("/", "/".join(kept))


def direction(op_name: str) -> str:
    """Which pass of a differentiated program an instruction belongs to; empty if it was not differentiated.

    >>> direction("jit(step)/transpose(jvp(layer0))/mul"), direction("jit(step)/jvp(layer0)/mul"), direction("jit(step)/mul")
    ('backward', 'forward', '')
    """
    if "transpose(" in op_name:
        return "backward"
    return "forward" if "jvp(" in op_name else ""


def is_in_loop(op_name: str) -> bool:
    """Whether an instruction was traced in the body of a loop: a scan, a fori_loop or a while_loop.

    >>> is_in_loop("jit(step)/while/body/closed_call/mul"), is_in_loop("jit(step)/while"), is_in_loop("jit(step)/mul")
    (True, False, False)
    """
    return "while/body/" in op_name


def _segments(name: str) -> list[str]:
    """The parts between slashes that no parenthesis encloses."""
    segments: list[str] = []
    depth = 0  # open parentheses in the last segment so far
    for piece in name.split("/"):
        if depth > 0:
            segments[-1] += f"/{piece}"
        else:
            segments.append(piece)
        depth += piece.count("(") - piece.count(")")
    return segments


def _unwrapped(segment: str) -> str:
    """The name inside the transformations of a segment; empty for a jitted function."""
    while match := _WRAPPED.fullmatch(segment):
        if match[1] in _DROPPED:
            return ""
        segment = match[2]
    return segment


def written(op_name: str) -> Operator | None:
    """What the author wrote, if the last part of a name tells it: a move, a loop, or what compilers write out as products.

    >>> written("jit(f)/jit(_solve_triangular)/triangular_solve") is Operator.SOLVE
    True
    """
    return _WRITTEN.get(op_name.rpartition(";")[2].rpartition("/")[2].removeprefix("jit(").removesuffix(")"))
