"""The first acceptance check: whether the counts of each op agree with its shapes, its other figures and its time.

An op that is compute-bound by its counts and yet uses little of the compute unit has too few bytes or too many FLOP; products, whose times
are predicted well, show it in their time. Where shapes are known, FLOP and bytes are counted again from them.
"""

from collections.abc import Iterator, Sequence
from statistics import median

from ...report import OpInfo, Report
from ...resource import TRANSCENDENTAL, Resource
from ...units import percent, plain
from .acceptance import CLASSIFICATION, AcceptanceCheck, Problem, made_check

SHARE = 0.01  # of the busy time that ops with wrong counts may take (a choice: as the smallest saving that is shown)
EXACT = 0.02  # relative difference of counts that should be equal (a choice: rounded figures of a table differ by less, wrong ones by more)
FEWER_BYTES = 0.8  # of the bytes of an op's arrays: fewer counted bytes are too few (a choice: part of an array may not be needed)
# Median of measured over expected time of products: 0.87 to 1.13 in 34 recordings on H200s, while the peak of another format, or work that
# is counted twice, is off by a factor of 2.
USUAL = (0.6, 1.67)
FAMILIES = ("products", "grouped")
LONG = 10  # launches: the time of a shorter product depends on which kernel the library has for it (a choice)
SLOW_SIZES = "odd-sizes"  # the finding about products whose sizes a matrix unit loads inefficiently
NAMED = 3  # ops in a message
CONVOLUTION = "convolution"  # the category


def classification(report: Report) -> AcceptanceCheck:
    """Compare each op's counts with its shapes, with its other figures, and with the expected time."""
    problems = [*_against_shapes(report), *_missing_bytes(report), *_against_each_other(report), *_against_usual_times(report)]
    timed = [op for op in report.ops if op.time_s and op.efficiency and op.bound]
    saw = []
    for kind in dict.fromkeys(str(op.bound) for op in sorted(timed, key=lambda op: -op.weight_s)):
        mine = [op for op in timed if op.bound == kind]
        spent = sum(op.weight_s for op in mine)
        reached = sum((op.efficiency or 0.0) * op.weight_s for op in mine) / spent
        saw.append(f"{kind}-bound ops at {percent(reached)} of their roofline")
    expected = "counts that agree with shapes and times: a bound resource that is used, and none above its rate"
    checked = bool(timed) or any(op.by_shape for op in report.ops)
    return made_check(CLASSIFICATION, expected, "; ".join(saw) or "no timed ops", problems, checked=checked)


def _against_shapes(report: Report) -> Iterator[Problem]:
    """Compare FLOP, unit and number format of ops with their shapes, where those are known."""
    found: dict[tuple[str, str], list[tuple[OpInfo, float]]] = {}
    has_matrix_unit = any(one.resource.startswith("matrix/") for one in report.machine.ceilings)
    for op in report.ops:
        if op.by_shape:
            for key, ratio in _wrong_counts(op, has_matrix_unit):
                found.setdefault(key, []).append((op, ratio))
    whole, work = (sum(of(op) for op in report.ops) for of in (lambda op: op.weight_s, _by_shape))
    for (wrong, words), ops in found.items():
        # Short ops count too if they have much of the work, because utilization depends on it.
        if sum(op.weight_s for op, _ in ops) > SHARE * whole or sum(_by_shape(op) for op, _ in ops) > SHARE * work:
            ratio = median(each for _, each in ops)
            detail = f"{plain(ratio, 3)} times {words}{_cause(wrong, ratio)}" if ratio else words
            yield _problem(wrong, f"{wrong} of {_named([op for op, _ in ops])}: {detail}", [op for op, _ in ops])


def _by_shape(op: OpInfo) -> float:
    """FLOP of the products of an op, by its shapes."""
    return float(sum(amount or 0 for name, amount in op.by_shape.items() if name.startswith("matrix/")))


def _wrong_counts(op: OpInfo, has_matrix_unit: bool) -> Iterator[tuple[tuple[str, str], float]]:
    """What is wrong with an op's counts: the input, a message, and counted over expected (0 where the ratio means nothing)."""
    wanted = next((name for name in op.by_shape if name.startswith("matrix/")), "")
    if wanted and None not in op.work.values():
        matrix = {name: amount or 0 for name, amount in op.work.items() if name.startswith("matrix/")}
        vector = sum(amount or 0 for name, amount in op.work.items() if name.startswith("vector/") and name != TRANSCENDENTAL.name)
        flops, needed = sum(matrix.values()), op.by_shape[wanted]
        if not matrix and has_matrix_unit and vector > (1 - EXACT) * needed:
            yield ("unit", "matmuls are counted on the vector unit, but run on the matrix unit"), 0.0
        elif matrix and abs(flops / needed - 1) > EXACT:
            yield ("FLOP", f"those of the shapes{'' if op.category == CONVOLUTION else ', 2·m·n·k'}"), flops / needed
        for name in matrix:
            if not name.startswith(wanted):  # several passes of a format are a kind of their own: bf16x3
                yield ("format", f"counted in {name.partition('/')[2]}, but the operands are {wanted.partition('/')[2]}"), 0.0


def _missing_bytes(report: Report) -> Iterator[Problem]:
    """Bytes below those of the arrays, in most of the time of ops with known arrays: a single op may compute an operand itself."""
    found = []
    for op in report.ops:
        moved = [amount for name, amount in op.bytes.items() if Resource(name).is_memory]  # also caches, where they served the bytes
        if (arrays := op.by_shape.get("hbm")) and moved and None not in moved:
            found.append((max(each or 0 for each in moved) / arrays, op))
    fewer = [op for ratio, op in found if ratio < FEWER_BYTES]
    if sum(op.weight_s for op in fewer) * 2 > sum(op.weight_s for _, op in found):
        ratio = _weighted_median([(ratio, op.weight_s) for ratio, op in found])
        words = f"{plain(ratio, 3)} times those of the arrays that they read and write; reads or writes are missing"
        yield _problem("bytes", f"bytes of {_named(fewer)}: {words}", fewer)


def _cause(wrong: str, ratio: float) -> str:
    if wrong == "FLOP" and ratio > 1:
        return "; counted twice?" if abs(ratio - 2) < EXACT else "; padding or skipped work counted?"
    if wrong == "FLOP":
        return "; a part of the work is missing"
    return ""


def _against_each_other(report: Report) -> Iterator[Problem]:
    """Figures of an op that are derived from its counts and its time, but do not agree with them."""
    rates = {one.resource: one.rate * one.count for one in report.machine.ceilings}
    wrong: dict[str, list[tuple[OpInfo, float]]] = {}
    for op in report.ops:
        for key, ratio in _inconsistent(op, rates):
            wrong.setdefault(key, []).append((op, ratio))
    whole = sum(op.weight_s for op in report.ops)
    words = {
        "bytes": "stated bytes are {} times what its intensity, bandwidth and minimum time were computed from",
        "FLOP": "stated FLOP are {} times what its rate and intensity were computed from",
        "unit": "the work is on another unit than the one that its minimum time was computed from",
        "clock": "stated times are {} times what its rate, bandwidth and efficiency were computed from",
    }
    for key, ops in wrong.items():
        if sum(op.weight_s for op, _ in ops) > SHARE * whole:
            ratio = median(each for _, each in ops)
            extra = "; seconds of another unit?" if key == "clock" and (ratio > 100 or ratio < 0.01) else ""
            yield _problem(key, f"{_named([op for op, _ in ops])}: {words[key].format(plain(ratio, 3))}{extra}", [op for op, _ in ops])


def _inconsistent(op: OpInfo, rates: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Which of an op's bytes, FLOP and time contradicts two other figures, and the ratio of the stated to the implied value."""
    moved, flops, time_s = op.bytes.get("hbm"), op.flops, op.time_s
    implied: dict[str, list[float]] = {"bytes": [], "FLOP": [], "clock": []}
    bandwidth = op.bandwidth.get("hbm")
    if moved and bandwidth and time_s:
        implied["bytes"].append(bandwidth * time_s)
        implied["clock"].append(moved / bandwidth)
    if moved and op.times.get("hbm") and "hbm" in rates:
        implied["bytes"].append(op.times["hbm"] * rates["hbm"])
    if moved and flops and op.intensity:
        implied["bytes"].append(flops / op.intensity)
        implied["FLOP"].append(op.intensity * moved)
    if flops and op.rate and time_s:
        implied["FLOP"].append(op.rate * time_s)
        implied["clock"].append(flops / op.rate)
    if op.floor_s and op.efficiency and time_s:
        implied["clock"].append(op.floor_s / op.efficiency)
    units = {Resource(name).unit for name in (*op.work, *op.bytes, *op.hops)}
    if "matrix" in units:
        units.add("vector")  # where products of a machine without a matrix unit run
    if op.work and (unknown := {unit for unit in op.times if Resource(unit).is_compute} - units):
        yield "unit", op.times[unknown.pop()] / max(op.times.values())
    stated = {"bytes": moved, "FLOP": flops, "clock": time_s}
    for key, values in implied.items():
        value = stated[key]
        if value and len(values) > 1 and max(values) < (1 + EXACT) * min(values) and not 1 - EXACT < value / values[0] < 1 + EXACT:
            yield key, value / values[0]


def _against_usual_times(report: Report) -> Iterator[Problem]:
    """Products far from their expected time, which is well known for products; without short ones and those slowed down by their sizes."""
    slow = {op for finding in report.findings if finding.kind == SLOW_SIZES for op in finding.ops}
    timed = [op for op in report.ops if op.time_s and op.id not in slow]
    least = LONG * float(report.machine.launch_latency_s or 0.0)
    ops = [op for op in timed if op.expected and op.expected.family in FAMILIES and op.expected.time_s > least * max(op.count, 1)]
    spent = sum(op.weight_s for op in ops)
    if spent <= SHARE * sum(op.weight_s for op in report.ops):
        return
    ratios = [(op.weight_s / (op.expected.time_s if op.expected else 1.0), op.weight_s) for op in ops]
    ratio = _weighted_median(ratios)
    if not USUAL[0] <= ratio <= USUAL[1]:
        which = (
            "the peak is too high (of another format?), bytes are missing, or the clock is wrong"
            if ratio > 1
            else ("the peak is too low (of another format or unit?), work is counted twice, or the clock is wrong")
        )
        yield _problem("counts", f"matmuls take {plain(ratio, 3)} times as long as such matmuls on {report.machine.name}: {which}", ops)


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """The weighted median."""
    half, passed = sum(weight for _, weight in values) / 2, 0.0
    for value, weight in sorted(values):
        passed += weight
        if passed >= half:
            return value
    return values[-1][0]


def _named(ops: Sequence[OpInfo]) -> str:
    longest = sorted(ops, key=lambda op: -op.weight_s)
    more = f" and {len(ops) - NAMED:,} more" if len(ops) > NAMED else ""
    return ", ".join(op.label or op.name for op in longest[:NAMED]) + more


def _problem(wrong: str, message: str, ops: Sequence[OpInfo]) -> Problem:
    return Problem(input=wrong, message=message, ops=tuple(op.id for op in ops))
