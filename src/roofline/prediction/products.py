"""Products: tiles of the result distributed over the chip's cores, with loads from L2, overlapped with main-memory traffic.

tile time   max(2·bm·bn·k / share of the sustained peak,  e·(bm + bn)·k / (bytes per clock from L2))
waves       max(1, tiles · split / cores)          not rounded up: a library chooses among many tiles
chip        waves · (tile time + start of a tile) + [split > 1] · (a second kernel + fp32 parts through L2)
memory      bytes / sustained bandwidth + ramp
time        floor + (chip^p + memory^p)^(1/p), of the best tile and split unless the kernel's own are known

Where an operand is narrower than the compute format, such as 8-bit weights, the kernel converts its elements, which takes longer than
reading them; or a separate kernel converts and writes them first.
"""

from functools import lru_cache

from ..operation import Product, width
from .calibration import Calibration, Family
from .terms import Estimate, Hardware, floor_of, joined, sustained_share

TILES = ((64, 64), (128, 128), (64, 128), (128, 64), (128, 256), (256, 128), (64, 256), (32, 64), (64, 32), (16, 64))
GROUP_TILES = tuple((rows, columns) for rows in (16, 32, 64, 128) for columns in (64, 128, 256))
ONCE, ALL_SPLITS = (1,), (1, 2, 4, 8, 16)
SHORTEST = 64  # a shorter k is padded to it
SHORTEST_PART = 128  # least part of k where it is split
WIDENED = 10.5  # elements converted per core and clock (XLA's kernels of int8 weights on H200: 9.3 to 10.9)
ONE_TILE = 128  # rows that share one conversion of the weights
TURNED = (1.0, 1.15, 1.7)  # factor on compute time, by operands not contiguous along k (cuBLAS, tf32 on H200: 1 to 1.3 and 1.3 to 2.1)


def product_time(product: Product, family: Family, hardware: Hardware, calibration: Calibration, moved: float = 0.0) -> Estimate:
    """The time of one execution of a product. ``moved`` is its main-memory traffic, with fused ops possibly more than its operands."""
    values = family.values
    power, ramp, start = values["p"], values.get("ramp", 0.0), values.get("tile", 0.0)
    chip, math, feed = _chip(product, family, hardware, sustained_share(family, calibration, "compute"))
    sustained = sustained_share(family, calibration, "memory") * hardware.bandwidth
    memory = max(product.bytes, moved) / sustained
    floor = floor_of(family, calibration, joined(power, start, ramp))
    terms = {"floor": floor, "math": math, "feed": feed, "memory": memory}
    seconds = floor + joined(power, chip, memory + ramp)
    if product.left != product.right and (narrow := _narrow(product)):
        elements, others, wide = narrow
        terms["widening"] = elements / (WIDENED * hardware.cores * hardware.clock_hz)
        here = joined(power, chip, memory + ramp, terms["widening"] * -(-others // ONE_TILE))
        before = joined(power, chip, memory + ramp) + 2 * wide * elements / sustained + floor
        seconds = floor + min(here, before)
    if product.quantize:
        terms["quantization"] = quantization(product, family)
        seconds += terms["quantization"]
    return Estimate(seconds, terms)


def _narrow(product: Product) -> tuple[float, float, float] | None:
    """For an operand narrower than the compute format: its elements, how often each is used, and its bytes after conversion."""
    wide, depth = width(product.compute), float(product.batch) * float(product.k)
    for number, own, others in ((product.left, product.m, product.n), (product.right, product.n, product.m)):
        if width(number) <= 1 < wide:
            return depth * float(own), float(others), wide
    return None


def quantization(product: Product, family: Family) -> float:
    """The time to quantize the left operand to 8 bits, in kernels before the product."""
    values, rows = family.values, float(product.batch) * float(product.m)
    each = values.get("quantize_row", 0.0)
    return values["quantize"] + rows * (each + float(product.k) * values["quantize_element"])


def _chip(product: Product, family: Family, hardware: Hardware, sustained: float) -> tuple[float, float, float]:
    """The time of all tiles, and the parts of compute and of loads from L2 alone, for the best tile and split."""
    values, cores = family.values, hardware.cores
    port = values["feed"] * hardware.clock_hz
    start, second = values.get("tile", 0.0), values["split"]
    again = start if product.batch == 1 else 0.0  # a batch is one kernel that loads the next tile while computing
    m, k, n, copies = float(product.m), float(product.k), float(product.n), float(product.batch)
    parts = 8.0 * copies * m * n / (port * cores)
    if groups := float(product.groups):
        m, copies = m / groups, copies * groups
    best, used = float("inf"), (0.0, 0.0, 0.0)
    tiles = (product.tile,) if product.tile else GROUP_TILES if groups else TILES
    rate = sustained * hardware.flops / cores / TURNED[product.turned]
    for bm, bn, math, feed, each in _tiles(tiles, width(product.compute), rate, port):
        count = -(-m // bm) * -(-n // bn) * copies
        if count * each * k / cores >= best:
            continue  # not faster than the best even without start-up
        splits = (product.split,) if product.split else ONCE if groups or count >= cores else ALL_SPLITS
        for split in splits:
            depth = k / split
            if split > 1 and not product.split and (depth < SHORTEST_PART or second + start >= best):
                break
            if depth < SHORTEST:
                depth = SHORTEST
            waves = count * split / cores
            if waves < 1:
                waves = 1.0
            seconds = waves * (each * depth + again) + start - again
            if split > 1:
                seconds += second + parts * split
            if seconds < best:
                best, used = seconds, (math, feed, waves * depth)
            if waves > 1:
                break  # every core is busy: further splits only add work
    math, feed, depths = used
    return best, math * depths, feed * depths


@lru_cache(maxsize=64)
def _tiles(tiles: tuple[tuple[int, int], ...], element: float, rate: float, port: float) -> list[tuple[int, int, float, float, float]]:
    """Each tile with the seconds of compute, of loads from L2 and of the longer of both, per element of k."""
    found = [(bm, bn, 2.0 * bm * bn / rate, element * (bm + bn) / port) for bm, bn in tiles]
    return [(*each, max(each[2:])) for each in found]
