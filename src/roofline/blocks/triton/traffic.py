"""Bytes that the blocks of a kernel move through L1, L2 and main memory, from the addresses that they touch.

A block's tile moves its 32-byte sectors. What a block touches again comes from L1, if the blocks of a core together touch no more than L1
holds, else from L2, as far as that holds what the blocks that run at one time touch.
Blocks that run at one time share what they touch in L2. Of the whole kernel each byte comes from main memory once in each wave of blocks
that touches it, also where L2 would hold it from wave to wave.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from .addresses import Access, Evaluation

SECTOR = 32
Line = tuple[str, int]


class Traffic(Struct, frozen=True, kw_only=True):
    """Bytes a block asks L1 for and L2 for, on average, those of all blocks from main memory, and by line the share of what is loaded that
    comes from L1, L2 and main memory, and the bytes of a tile.
    """

    block_l1: float
    block_l2: float
    hbm: float
    shares: Mapping[Line, tuple[float, float, float]]
    tiles: Mapping[Line, float]


def tile_bytes(access: Access) -> float:
    """Bytes of the sectors that one execution touches, on average over the blocks that run it; ``access`` has whole tiles."""
    touched = _sectors(access)
    if touched is None:
        return access.tile.elements * float(SECTOR)
    sizes = [len(block) for block in touched]
    runs = np.ones(len(sizes), bool) if access.runs is None else np.broadcast_to(access.runs, (len(sizes),))
    return float(np.mean(sizes, where=runs)) * SECTOR if runs.any() else float(access.tile.elements * access.tile.bytes)


def _sectors(access: Access) -> list[np.ndarray] | None:
    """The sectors that one execution touches in each block; ``None`` if its addresses are unknown."""
    if access.addresses is None:
        return None
    shape = np.broadcast_shapes(access.addresses.shape, access.mask.shape if access.mask is not None else ())
    addresses = np.broadcast_to(access.addresses, shape).reshape(shape[0], -1)
    mask = None if access.mask is None else np.broadcast_to(access.mask, shape).reshape(shape[0], -1)
    return [np.unique((addresses[block] if mask is None else addresses[block][mask[block]]) // SECTOR) for block in range(shape[0])]


def _new_shares(accesses: Sequence[Access]) -> dict[int, float]:
    """For each access the share of its sectors that no earlier one of the same block loads (or stores), as in windows that overlap."""
    shares: dict[int, float] = {}
    earlier: defaultdict[tuple[int, bool], list[np.ndarray]] = defaultdict(list)
    for access in accesses:
        total = new = 0
        for block, touched in enumerate(_sectors(access) or ()):
            total += len(touched)
            before = earlier[block, access.is_store]
            new += int(np.isin(touched, np.concatenate(before), invert=True).sum()) if before else len(touched)
            before.append(touched)
        shares[id(access.operation)] = new / total if total else 1.0
    return shares


def traffic_of(wave: Evaluation, samples: Evaluation, *, blocks: int, per_core: int, l1_bytes: float, l2_bytes: float) -> Traffic:
    """The traffic of ``blocks`` blocks of which those of the wave run at a time, from the corners of the tiles of some blocks in a row
    (``wave``), and from whole tiles of a few (``samples``).
    """
    sizes = {id(access.operation): tile_bytes(access) for access in samples.accesses}
    new_shares = _new_shares(samples.accesses)
    of_wave: dict[bytes, float] = {}  # bytes of each region that any block touches
    of_block: dict[int, dict[bytes, float]] = {}  # the same of each block
    touched: list[tuple[Access, float, float, float]] = []  # bytes asked for, new to the block, and new to the wave
    running = 1
    for access in wave.accesses:
        keys, amounts, repeated = _regions(access, sizes[id(access.operation)])
        running = max(running, len(keys), len(amounts))
        new, first = 0.0, 0.0
        for block, key in enumerate(keys):
            amount = float(amounts[block if len(amounts) > 1 else 0])
            own = of_block.setdefault(block, {})
            if key not in own:
                amount *= new_shares[id(access.operation)]
            new += max(0.0, amount - own.get(key, 0.0))
            first += max(0.0, amount - of_wave.get(key, 0.0))
            own[key] = max(amount, own.get(key, 0.0))
            of_wave[key] = max(amount, of_wave.get(key, 0.0))
        touched.append((access, float(np.mean(amounts * repeated)), new / len(keys), first / len(keys)))
    asked, fresh = sum(each[1] for each in touched), sum(each[2] for each in touched)
    distinct = sum(of_wave.values())
    in_l1 = fresh * per_core <= l1_bytes
    in_l2 = min(1.0, l2_bytes / max(1.0, distinct))
    shares = {}
    for access, total, new, first in touched:
        if not access.is_store and total:
            again = 1 - new / total
            from_l1 = again if in_l1 else 0.0
            from_hbm = min(first, total) / total + (again - from_l1) * (1 - in_l2)
            shares[access.operation.file, access.operation.line] = (from_l1, max(0.0, 1 - from_l1 - from_hbm), from_hbm)
    missed = 0.0 if in_l1 else (asked - fresh) * (1 - in_l2) * blocks
    hbm = distinct * max(1.0, blocks / running) + missed
    tiles: dict[Line, list[float]] = {}
    for access in wave.accesses:
        if not access.is_store:
            tiles.setdefault((access.operation.file, access.operation.line), []).append(sizes[id(access.operation)])
    means = {line: sum(of_line) / len(of_line) for line, of_line in tiles.items()}
    return Traffic(block_l1=asked, block_l2=fresh if in_l1 else asked, hbm=hbm, shares=shares, tiles=means)


def _regions(access: Access, tile: float) -> tuple[list[bytes], np.ndarray, float | np.ndarray]:
    """For each block: what tells its region from others, the bytes of the region, and how often it is touched."""
    moving: float | np.ndarray = 1.0
    repeated: float | np.ndarray = 1.0
    for trips, move in zip(access.trips, access.moves, strict=True):
        times = np.asarray(1.0 if trips is None else trips, dtype=float)
        moves = move is None or bool(np.any(move != 0))
        moving, repeated = (moving * times, repeated) if moves else (moving, repeated * times)
    runs = 1.0 if access.runs is None else access.runs
    amount = np.atleast_1d(np.asarray(moving * tile * runs, dtype=float))
    if access.addresses is None:
        return [b"?%d" % id(access.operation)], amount, repeated
    flat = access.addresses.reshape(access.addresses.shape[0], -1)
    way = b"out" if access.is_store else b"in"
    return [way + row.tobytes() for row in flat[:, [0, -1]]], amount, repeated
