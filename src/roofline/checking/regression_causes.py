"""Explanations for growth since a baseline, as text: donation, number formats, repeated products, casts, less fusion."""

from collections.abc import Iterable

from ..dtypes import DTYPES
from ..report import Number, OpInfo, Report
from ..units import plain, show
from .amounts import part_of_op
from .baselines import ROUNDING, Baseline, BaselineOp, summed_ops

PRODUCTS = ("dot", "convolution", "mm", "addmm", "bmm")  # what products do
CASTS = ("convert", "_to_copy")
LISTED = 2  # ops named in one cause


def changes_since(report: Report, baseline: Baseline, ops: Iterable[OpInfo]) -> list[str]:
    """The changes since the baseline, the most certain first; empty for a baseline without ops."""
    if not baseline.ops:
        return []
    rows, before = summed_ops(ops), {row.op: row for row in baseline.ops}
    surest = [*_donation(report, baseline), *_formats(_work(ops), baseline.work), *_repeated(rows, before)]
    casts = _casts(rows, before)
    return [*surest, *casts, *_sizes(report, baseline), *([] if surest else _unfused(rows, baseline))]


def more_idle(found: Number, before: Number, ops: Iterable[OpInfo], baseline: Baseline) -> str:
    """The cause that most of a step's additional time is idle time, if so: then no op is the cause."""
    busy, then = sum(part_of_op(op, "time") or 0 for op in ops), sum(row.time_s for row in baseline.ops)
    idle, earlier = found - busy, before - then
    if not then or earlier < 0 or found <= before or idle - earlier <= 0.5 * (found - before):
        return ""
    return f"idle time: {show(idle, 's')} of the step, {show(earlier, 's')} in the baseline"


def _donation(report: Report, baseline: Baseline) -> list[str]:
    donated = baseline.memory.get("donated", 0)
    if report.memory is None or donated <= report.memory.donated:
        return []
    now = show(report.memory.donated, "B")
    return [f"missing donation: {show(donated, 'B')} of arguments were donated in the baseline, {now} now (donate_argnums)"]


def _work(ops: Iterable[OpInfo]) -> dict[str, Number]:
    total: dict[str, Number] = {}
    for op in ops:
        for resource in op.work:
            total[resource] = total.get(resource, 0) + (part_of_op(op, resource) or 0)
    return total


def _formats(now: dict[str, Number], then: dict[str, Number]) -> list[str]:
    """Work that moved from one number format to another: of products, and of everything else to a wider one."""
    found = []
    for unit, what in (("matrix/", "matrix work runs"), ("vector/", "elementwise work runs")):
        moved = [(one, now.get(one, 0), then.get(one, 0)) for one in sorted({*now, *then}) if one.startswith(unit)]
        grown, fallen = ([one for one in moved if sign * (one[1] - one[2]) > ROUNDING * max(one[1:])] for sign in (1, -1))
        if unit == "vector/":
            grown = [one for one in grown if _bits(one[0]) > max((_bits(other[0]) for other in fallen), default=0)]
        if grown and fallen:
            new, old = grown[0], fallen[0]
            amounts = f"{show(new[2], 'FLOP')} before, {show(new[1], 'FLOP')} now; {old[0]} {show(old[2], 'FLOP')} before"
            found.append(f"number format: {what} in {new[0]} ({amounts}, {show(old[1], 'FLOP')} now)")
    return found


def _bits(resource: str) -> int:
    """The width of a resource's number format; 0 for functions that have none."""
    format = DTYPES.get(resource.partition("/")[2])
    return format.bits if format else 0


def _what(row: str) -> str:
    """The operation of a row, without its scope."""
    return row.rpartition(": ")[2]


def _repeated(rows: dict[str, BaselineOp], before: dict[str, BaselineOp]) -> list[str]:
    """Products that run more often, or are new while no old one was removed: by operation and shape, in any scope and format."""

    def products(of: dict[str, BaselineOp]) -> dict[tuple[str, str], tuple[Number, Number]]:
        counts: dict[tuple[str, str], tuple[Number, Number]] = {}
        for row in of.values():
            if row.does in PRODUCTS and row.flops:
                what = row.does, row.sizes
                runs, flops = counts.get(what, (0, 0))
                counts[what] = runs + (row.launches if row.executions is None else row.executions), flops + row.flops
        return counts

    now, then = products(rows), products(before)
    if sum(runs for runs, _ in now.values()) <= sum(runs for runs, _ in then.values()):
        return []
    added = {what: runs - then.get(what, (0, 0))[0] for what, (runs, _) in now.items()}
    # A product that is split into more kernels has the same FLOP, so it does not run more often.
    more = sorted((one for one in now if added[one] > 0 and now[one][1] > then.get(one, (0, 0))[1]), key=lambda one: -added[one])
    names = {(row.does, row.sizes): _what(row.op) for row in rows.values()}
    return [
        f"more matrix work: {names[what]} runs {plain(now[what][0])} times, {plain(then.get(what, (0, 0))[0])} in the baseline"
        for what in more[:LISTED]
    ]


def _casts(rows: dict[str, BaselineOp], before: dict[str, BaselineOp]) -> list[str]:
    """New kernels that only cast."""
    new = [_what(key) for key, row in rows.items() if key not in before and row.does in CASTS and not row.flops]
    return [f"cast: {_listed(new)}, not in the baseline"] if new else []


def _sizes(report: Report, baseline: Baseline) -> list[str]:
    """Arguments and outputs that take more memory."""
    if report.memory is None:
        return []
    sizes = [(name, getattr(report.memory, name), baseline.memory.get(name)) for name in ("arguments", "outputs")]
    return [f"larger {name}: {show(now, 'B')}, {show(then, 'B')} in the baseline" for name, now, then in sizes if then and now > then]


def _unfused(rows: dict[str, BaselineOp], baseline: Baseline) -> list[str]:
    """More kernels for about the same work."""
    launches, flops = (sum(getattr(row, name) for row in rows.values()) for name in ("launches", "flops"))
    then = {name: sum(getattr(row, name) for row in baseline.ops) for name in ("launches", "flops")}
    if launches <= then["launches"] or abs(flops - then["flops"]) > 0.01 * max(flops, then["flops"]):
        return []
    known = {row.op for row in baseline.ops}
    new = [_what(key) for key in rows if key not in known]
    names = f": {_listed(new, 3)} on their own" if new else ""
    return [f"less fusion: {plain(launches)} kernels, {plain(then['launches'])} in the baseline for the same work{names}"]


def _listed(names: list[str], most: int = LISTED) -> str:
    return f"{', '.join(names[:most])}{' …' if len(names) > most else ''}"
