"""Ops as phrases of findings: how many, the label of the longest, and their source locations."""

import re
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from itertools import islice
from math import prod

from msgspec.structs import replace

from ..columns.lazy_rows import values_at
from ..dtypes import dtype
from ..operation import GATHERED, Convolution, Operation, Streamed
from ..report import Finding
from ..resource import HBM
from ..workload import Op, source_line
from .finding_kinds import DEPTHWISE, DEPTHWISE_FP32, FEW_SUMS, LEVERS_BY_CATEGORY, NARROW_SUM, Kind, levers_for_category
from .op_times import OpTimes
from .program_clock import Clock, Saving

LISTED = 3  # locations in a finding
COMPILED = "fusion"  # suffix of the categories of kernels that a compiler generated
MOST_SAVING = 100  # ops with the largest savings, which decide on the advice
# Kernels in an iteration up to which unrolling a loop helps. On an H200, programs with 3, 25 and 38 kernels in an iteration took 29%, 58%
# and 80% of their time with unroll=8, one with 274 as long as before.
SHORT_LOOP = 100
LINEAR = "linear"  # the group of kernels of loops that compute linear recurrences
SUM = "sum "  # prefix of the labels of a compiler's sums; its other reductions can be matmuls with one row
POOL_GRADIENT = "select and scatter"  # how XLA names the gradient of a maximum over windows
LOCATED = 10_000  # longest ops of a finding whose locations are considered
LONGEST_NAME = 60  # characters of a kernel's name: templates of C++ have thousands
MATMULS, CONVOLUTIONS, ATTENTION = "matmuls", "convolutions", "attention kernels"  # kinds of work on a matrix unit
_ROWS = r"(?:index|gather|index_select|embedding) \d+x\d+[, ]"  # PyTorch's, by rows of a matrix
_TOP_K = r"(?i)(gpu )?top.?k\b"
_NARROW_SUM = r"scatter-add (bf16|fp16)\b"
MANY_GROUPS = 16  # of channels of a convolution: fewer run in kernels for dense ones (a choice)
_FP32 = r"\bfp32\b"
_SUMS = r"scatter-add (\w+)\[(\d+(?:,\d+)*)\]"
MOST_SUMS, ROWS_EACH = 1_000, 64  # a scatter that adds many rows to few: most rows of its result, least bytes over those of its result
_SHAPE = r"\d+(?:x\d+){2,}"
_GRAPH = r"## Call CompiledFxGraph (\w+) ##"


def count_and_longest(op_times: OpTimes, ids: Sequence[int]) -> str:
    """How many ops, and the longest of them by its label."""
    longest = op_name(op_times.ops[max(ids, key=op_times.spent_s.__getitem__)])
    return longest if len(ids) == 1 else f"{len(ids):,} ops, the longest {longest}"


def op_name(op: Op) -> str:
    label, name = op.label.partition("  ")[2] or op.label, op.name
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return f"{label} ({name})" if label and label != op.name else name


def subject(op_times: OpTimes, ids: Sequence[int], advised: Sequence[int] = ()) -> str:
    """The ops as the subject of a sentence, which names one of those that the advice is for, if that is not for all of them."""
    if len(ids) == 1:
        return count_and_longest(op_times, ids)
    longest = max(ids, key=op_times.spent_s.__getitem__)
    if not advised or longest in advised:
        return f"{count_and_longest(op_times, ids)},"
    named = max(sorted(advised), key=op_times.spent_s.__getitem__)
    return f"{len(ids):,} ops, most of the saving in ops like {op_name(op_times.ops[named])},"


def at_place(op_times: OpTimes, ids: Sequence[int]) -> str:
    """Where ops are in the source, as the beginning of a sentence; empty where that is unknown."""
    where = places(op_times, ids)
    locations = op_times.words("location")
    is_line = any(locations) and any(map(locations.__getitem__, ids))
    return f"{'At' if is_line else 'In'} {where}, " if where else ""


def places(op_times: OpTimes, ids: Sequence[int]) -> str:
    """The source locations of ops: scopes with ``*`` for numbers, lines, else programs.

    Empty if less than a third of the time has one.
    """
    scope, location, module = (op_times.words(name) for name in ("scope", "location", "module"))
    placed = ids if all(scope) else [id for id in ids if scope[id] or location[id]]
    if placed and len(placed) < len(ids):
        known_s, whole_s = (sum([op_times.spent_s[id] for id in some]) for some in (placed, ids))
        if 3 * known_s < whole_s:
            return ""
    shown = ", ".join(_first_few(map(scope.__getitem__, placed), lambda word: re.sub(r"\d+", "*", word), LISTED))
    lines = _first_few(map(location.__getitem__, placed), source_line, LISTED + 1) if any(location) else []
    lines_text = ", ".join(lines[:LISTED]) + (" …" if len(lines) > LISTED else "")
    if shown and lines_text:
        return f"{shown} ({lines_text})"
    return shown or lines_text or ", ".join(_first_few(map(module.__getitem__, ids), _program, LISTED))


def _first_few(words: Iterable[str], format_word: Callable[[str], str], most: int) -> list[str]:
    """The first few distinct words, formatted by ``format_word``; of very many, only the first few thousand are considered."""
    seen, found = {""}, dict[str, None]()
    for word in islice(words, LOCATED):
        if word not in seen:
            seen.add(word)
            found[format_word(word)] = None
            if len(found) == most:
                break
    return list(found)


def _program(module: str) -> str:
    """A program's name for people.

    >>> _program("jit_step"), _program("## Call CompiledFxGraph fkak4ckkddaq2mwlccalurr53dukn3t67gdo6ryncfiwbkthxfjv ##")
    ('step', 'compiled graph fkak4c')
    """
    found = re.fullmatch(_GRAPH, module)
    return f"compiled graph {found[1][:6]}" if found else module.removeprefix("jit_")


def fitting(name: str, kind: Kind, op_times: OpTimes, ids: Sequence[int], won: Sequence[float]) -> tuple[Kind, Sequence[int]]:
    """A kind with the levers for the ops that have most of the saving, and these ops; none if no category has most of it."""
    if kind.looped and _are_in_short_loops(op_times, ids, won):
        kind = replace(kind, levers=kind.linear if _are_linear(op_times, ids, won) else kind.looped)
    if not kind.compiled and not kind.by_category and not any(of == name for of, _ in LEVERS_BY_CATEGORY):
        return kind, ()
    if kind.compiled and any(category.endswith(COMPILED) for category in {*op_times.category}):
        kind = replace(kind, levers=kind.compiled)  # not the advice to compile what is compiled already
    by_category: dict[str, float] = {}
    tried = nlargest(MOST_SAVING, zip(won, ids, strict=True))
    categories = categories_of(op_times, [id for _, id in tried])
    for (seconds, _), category in zip(tried, categories, strict=True):
        by_category[category] = by_category.get(category, 0.0) + seconds
    most = max(by_category, key=by_category.__getitem__)
    if 2 * by_category[most] <= sum(won):
        return kind, ()
    mine = [id for (_, id), category in zip(tried, categories, strict=True) if category == most]
    if (name, most) == ("memory", "scatter"):
        return replace(kind, levers=replacements(op_times, mine[0], kind)), mine
    if most == COMPILED and _is_gathered(op_times.operations[mine[0]]):
        most = "gather"
    levers = kind.compiled if most == COMPILED else levers_for_category(name, kind, most)
    if (name, most) == ("memory", "convolution") and kind.by_category is None and _is_depthwise(op_times, mine[0]):
        levers = (*((DEPTHWISE_FP32,) if re.search(_FP32, op_times.words("label")[mine[0]]) else ()), *DEPTHWISE)
    return replace(kind, levers=levers or kind.levers), mine


def _are_in_short_loops(op_times: OpTimes, ids: Sequence[int], won: Sequence[float]) -> bool:
    """Whether loops run the ops with most of the saving, and launch few kernels in each iteration."""
    tried = nlargest(MOST_SAVING, zip(won, ids, strict=True))
    if 2 * sum(seconds for seconds, id in tried if op_times.ops[id].in_loop) <= sum(seconds for seconds, _ in tried):
        return False
    launches = [op_times.launches[id] for id in ids if op_times.ops[id].in_loop]
    return sum(launches) <= SHORT_LOOP * max(launches, default=0)


def _are_linear(op_times: OpTimes, ids: Sequence[int], won: Sequence[float]) -> bool:
    """Whether the ops with most of the saving belong to loops that compute linear recurrences."""
    tried = nlargest(MOST_SAVING, zip(won, ids, strict=True))
    linear = [seconds for seconds, id in tried if any(reason.group == LINEAR for reason in op_times.ops[id].avoidable)]
    return 2 * sum(linear) > sum(seconds for seconds, _ in tried)


def replacements(op_times: OpTimes, id: int, kind: Kind) -> tuple[str, ...]:
    """Levers for a scatter or a sort, which are memory-bound: what to use in its place."""
    what = op_times.words("label")[id].rpartition("  ")[2]
    few = (FEW_SUMS,) if _adds_to_few(op_times.ops[id], what) else ()
    narrow = (NARROW_SUM,) if kind.by_category is None and re.match(_NARROW_SUM, what) else ()
    return (*few, *narrow, *levers_for_category("memory", kind, categories_of(op_times, [id])[0]))


def _adds_to_few(op: Op, what: str) -> bool:
    """Whether a scatter adds many rows to each of a few, by its bytes and the shape in its label."""
    found = re.match(_SUMS, what)
    if found is None:
        return False
    rows, *others = map(int, found[2].split(","))
    result = rows * prod(others) * dtype(found[1]).bits / 8
    return rows <= MOST_SUMS and op.cost.known(HBM) >= ROWS_EACH * result * max(op.count, 1)


def _is_depthwise(op_times: OpTimes, id: int) -> bool:
    """Whether a convolution of a compiled program has many groups of channels."""
    operation = op_times.operations[id]
    return isinstance(operation, Convolution) and operation.groups >= MANY_GROUPS


def _is_gathered(operation: Operation | None) -> bool:
    """Whether a compiler's kernel reads its elements at places that it looks up."""
    return isinstance(operation, Streamed) and operation.kind == GATHERED


def categories_of(op_times: OpTimes, ids: Sequence[int]) -> list[str]:
    """The category of each op that decides on its levers: what it does, or that a compiler generated its kernel."""
    each = list(zip(values_at(op_times.category, ids), values_at(op_times.words("label"), ids), strict=True))
    known = {one: _category(*one) for one in {*each}}
    return list(map(known.__getitem__, each))


def _category(category: str, label: str) -> str:
    what = label.rpartition("  ")[2]
    category = next((word for word in ("scatter", "gather") if what.startswith(word)), category)
    if what.startswith(POOL_GRADIENT):
        return "pooling"
    if category == "sort" and re.match(_TOP_K, what):
        return "top-k"
    if category == "gather" and re.match(_ROWS, what):
        return "gather of rows"
    if category == "convolution" and (axes := _depthwise_axes(what)):
        return "depthwise convolution" if axes > 1 else "depthwise convolution along one axis"
    if what.startswith("triton_tem_"):
        return "flex attention" if "flex_attention" in what else "template"
    if category.endswith(COMPILED):
        return "reduction" if what.startswith(SUM) else COMPILED
    return category


def _depthwise_axes(what: str) -> int:
    """The axes of the windows of a depthwise convolution in PyTorch's label: it has several channels, and weights for one each; else 0.

    >>> _depthwise_axes("convolution_backward 32x512x500, 32x512x500, 512x1x31 bf16"), _depthwise_axes("conv2d 64x1x28x28, 32x1x3x3 fp32")
    (1, 0)
    """
    shapes = [[*map(int, found.split("x"))] for found in re.findall(_SHAPE, what)]
    is_depthwise = len(shapes) > 1 and shapes[-2][1] > 1 == shapes[-1][1]
    return sum(side > 1 for side in shapes[-1][2:]) if is_depthwise else 0


def title_of(name: str, kind: Kind, op_times: OpTimes, ids: Sequence[int]) -> str:
    """The title for ops on the matrix unit: matmuls, convolutions and attention kernels, whichever there are."""
    if name != "products":
        return kind.title
    found = {_matrix_work(op_times, id) for id in ids}
    words = [word for word in (MATMULS, CONVOLUTIONS, ATTENTION) if word in found]
    return f"the {', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else f"the {words[0]}"


def _matrix_work(op_times: OpTimes, id: int) -> str:
    """The name for an op on a matrix unit; a TPU's profiler has matmuls in the category of convolutions too."""
    category = op_times.category[id]
    if category == "convolution" and "conv" in op_times.words("label")[id].rpartition("  ")[2].partition(" ")[0]:
        return CONVOLUTIONS
    return ATTENTION if category == "attention" else MATMULS


def with_saving(name: str, kind: Kind, message: str, ids: Iterable[int], saving: Saving, clock: Clock) -> Finding:
    """A finding with its saving, and how long the run would then take."""
    return Finding(
        kind=name,
        title=kind.title,
        message=message,
        ops=tuple(ids),
        saving_s=saving.whole_s,
        saving_per_step_s=saving.steps_s / clock.parts if clock.per else None,
        levers=kind.levers,
        after_s=max(clock.whole_s - saving.whole_s, 0.0),
    )
