"""Attention in one kernel: many queries at once (prefill), or one new token over a cache (decode).

Prefill, in blocks of 128 queries by 128 keys, of which a causal mask leaves half:

    block    4·128²·max(d, 64) / share of the sustained peak + 128² exponentials at 16 a clock, which the products do not hide
    core     max(blocks · block / cores, the longest row of blocks) + waves · start of a block
    time     floor + core + bytes of queries, keys and results + new keys and values written to the cache

Decode, each key head of each sequence a block, split along the cache where there are too few:

    chip     max(1, blocks · split / cores) · (bytes of its part of the cache / (bytes per clock) + start) + [split > 1] · second kernel
    time     floor + (chip^p + memory^p)^(1/p)
"""

from math import ceil

from ..operation import Attention, width
from .calibration import Calibration, Family
from .terms import Estimate, Hardware, floor_of, joined

BLOCK = 128
SMALLEST = 64  # size of a head: smaller ones take as long as this (cuDNN 9 on H200)
EXPONENTIALS = 16  # per clock and SM
DECODE_SPLITS = (1, 2, 4, 8, 16, 32, 64)
SHORTEST_PART = 128  # positions of a part, where the cache is split
# Factors of the backward pass over the forward pass, for cuDNN 9 on H200 (fitted on 11 sizes, 66 to 970 us, mean error 3%): five products
# instead of two, at 5/8 of the rate; exponentials and more; gradients of queries, which are summed in fp32 and converted afterwards.
BACKWARD_PRODUCTS = 4.0
BACKWARD_EXPONENTIALS = 1.5
BACKWARD_BYTES = 3.0
BACKWARD_KERNELS_S = 18e-6  # time of the smaller kernels before and after the large one


def prefill_time(one: Attention, family: Family, hardware: Hardware, calibration: Calibration) -> Estimate:
    """The time of one execution over many queries."""
    values = family.values
    element = width(one.dtype)
    batch, heads, groups, size = float(one.batch), float(one.heads), float(one.groups), float(one.size)
    queries, cached = float(one.queries), float(one.keys)
    rows, keys = ceil(queries / BLOCK), ceil(cached / BLOCK)
    along = (keys - rows) + (rows + 1) / 2 if one.causal else float(keys)
    if queries < BLOCK and queries == cached and values.get("packs") and one.shares_keys:
        heads, rows, along = groups, ceil(queries * heads / groups / BLOCK), 1.0
    math = 4.0 * BLOCK * BLOCK * max(size, SMALLEST) / (values["compute"] * hardware.flops / hardware.cores)
    exponentials = values["exponentials"] * BLOCK * BLOCK / (EXPONENTIALS * hardware.clock_hz)
    if one.backward:
        math *= BACKWARD_PRODUCTS
        exponentials *= BACKWARD_EXPONENTIALS
    blocks = batch * heads * rows
    spread = blocks * along / hardware.cores
    alone = float(keys) if along > 1 else 0.0
    waves = max(1.0, blocks / hardware.cores)
    pairs = max(spread, alone)
    written = batch * size * element * (2 * float(one.heads) * queries + 2 * groups * cached)
    memory = written * (BACKWARD_BYTES if one.backward else 1.0) / (values["memory"] * hardware.bandwidth)
    terms = {"math": pairs * math, "exponentials": pairs * exponentials, "blocks": waves * values["block"], "memory": memory}
    if one.causal and "append" in values:  # a serving framework's kernel, which also writes the cache
        terms["append"] = 4.0 * batch * groups * queries * size * element / (values["append"] * hardware.bandwidth)
    floor = floor_of(family, calibration, values["block"]) + (BACKWARD_KERNELS_S if one.backward else 0.0)
    return Estimate(floor + sum(terms.values()), {"floor": floor, **terms})


def decode_time(one: Attention, family: Family, hardware: Hardware, calibration: Calibration) -> Estimate:
    """The time of one execution with one new token per sequence."""
    values = family.values
    element = width(one.dtype)
    size, keys = float(one.size), float(one.keys)
    start = values["block"] * (0.5 + 0.5 * size / BLOCK)
    blocks, port = float(one.batch) * float(one.groups), values["feed"] * hardware.clock_hz
    best, fed = float("inf"), 0.0
    for split in DECODE_SPLITS:
        part = keys / split
        if split > 1 and part < SHORTEST_PART:
            break
        waves = max(1.0, blocks * split / hardware.cores)
        feed = waves * 2.0 * part * size * element / port
        seconds = feed + waves * start + (values["split"] if split > 1 else 0.0)
        if seconds < best:
            best, fed = seconds, feed
    memory = 2.0 * blocks * keys * size * element / (values["memory"] * hardware.bandwidth)
    floor = floor_of(family, calibration, start)
    return Estimate(floor + joined(values["p"], best, memory), {"floor": floor, "feed": fed, "blocks": best - fed, "memory": memory})
