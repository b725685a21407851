"""Ops that stream through memory: pointwise ops, copies, and row-wise ops.

pointwise   floor + max(bytes / sustained bandwidth, functions / (cores · clock · functions a clock), integers and elements likewise)
            + conversions to 8-bit floats / (cores · clock · conversions a clock)
row-wise    floor + ((bytes / sustained bandwidth)^p + (max(1, rows / (cores · rows at once)) · (start + columns · step))^p)^(1/p)
"""

from ..operation import RowWise, Streamed
from .calibration import Calibration, Family
from .terms import Estimate, Hardware, floor_of, joined

INTEGERS = 100.0  # operations on integers per core and clock (XLA's random bits by Threefry on H200: 80 to 115), half of those on fp32
NARROWED = 9.0  # elements converted to 8-bit floats per core and clock (XLA's kernels on H200: 7 to 10)


def pointwise_time(
    moved: float, functions: float, integers: float, one: Streamed, family: Family, hardware: Hardware, calibration: Calibration
) -> Estimate:
    """The time of an elementwise op.

    It moves ``moved`` bytes and computes ``functions`` exponentials, roots and the like, and ``integers`` operations on integers.

    A kernel that does not read along rows, such as a plain transpose, handles its elements one by one.
    """
    values, clocks = family.values, hardware.cores * hardware.clock_hz
    memory = moved / (values["memory"] * hardware.bandwidth)
    special = functions / (clocks * values["functions"]) if "functions" in values else 0.0
    whole = integers / (clocks * INTEGERS)
    single = float(one.elements) / (clocks * values["elements"]) if "elements" in values else 0.0
    narrowing = float(one.narrowed) / (clocks * NARROWED)
    floor = floor_of(family, calibration)
    terms = {"floor": floor, "functions": special, "integers": whole, "elements": single, "narrowing": narrowing, "memory": memory}
    return Estimate(floor + max(memory, special, whole, single) + narrowing, terms)


def row_time(one: RowWise, moved: float, family: Family, hardware: Hardware, calibration: Calibration) -> Estimate:
    """The time of a row-wise op."""
    values = family.values
    memory = moved / (values["memory"] * hardware.bandwidth)
    waves = max(1.0, float(one.rows) / (hardware.cores * values["rows"]))
    walk = waves * (values["start"] + float(one.columns) * values["column"])
    floor = floor_of(family, calibration, values["start"])
    return Estimate(floor + joined(values["p"], memory, walk), {"floor": floor, "rows": walk, "memory": memory})
