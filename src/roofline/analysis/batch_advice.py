"""The rules of `advice` over batches of ops: which kind of finding holds for which of them, from arrays."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from ..columns import Bools, Floats
from ..machine import LATENCY, Machine
from ..report import Finding
from ..resource import COMPUTE_UNITS, HBM, Resource, named
from ..workload import Op
from .advice import (
    CLOSE,
    FAR,
    FAR_BELOW,
    NEAR_RIDGE,
    PRODUCT,
    SERIAL_BAND,
    Draft,
    Placed,
    Program,
    drafts,
    findings,
    unit_of,
    vector_instead_of_matrix,
)
from .batches import Batch


def advise_batches(placed: Sequence[Placed], batches: Sequence[Batch], ops: Sequence[Op], machine: Machine) -> tuple[Finding, ...]:
    """`advise` for ops of which some were placed one by one and the rest in batches; ``ops`` are all of them, by id."""
    homes = {id: (batch, place) for batch in batches for place, id in enumerate(batch.ids)}
    others = {one.id: one for one in placed}

    def find(id: int) -> Placed:
        if id in others:
            return others[id]
        batch, place = homes[id]
        return batch.placed(place)

    program = Program(placed, machine, len(ops), sum(op.time_s or 0.0 for op in ops))
    found = chain(drafts(placed), *map(_drafts, batches))
    return findings(program, found, find)


def _drafts(batch: Batch) -> Iterator[Draft]:
    """What the rules find of the ops of a batch, none of which is faster than the roofline allows."""
    yield from _products(batch)
    unit = named(batch.units[0])
    family = "network" if unit.is_link else "compute" if unit.is_compute else "memory"
    if not batch.timed:
        yield from _drafted(batch, f"{family}-bound", np.ones(len(batch.ids), dtype=np.bool_))
    else:
        headroom, efficiency = np.maximum(batch.time_s - batch.times[0], 0.0), batch.efficiency
        zones = {"close": efficiency >= CLOSE, "far": efficiency < FAR, "middle": (efficiency >= FAR) & (efficiency < CLOSE)}
        # The first that holds is the one, as with the rules in `PRIMARY`.
        kinds = {
            "latency": np.array([bound == LATENCY for bound in batch.bounds]),
            "no-overlap": _waits(batch, efficiency),
            "far-below": efficiency < FAR_BELOW,
            **({"network-bound": efficiency >= 0} if unit.is_link else {f"{family}-{zone}": held for zone, held in zones.items()}),
        }
        left = np.ones(len(batch.ids), dtype=np.bool_)
        for kind, held in kinds.items():
            yield from _drafted(batch, kind, held & left, headroom)
            left &= ~held
    yield from _drafted(batch, "near-ridge", _near_ridge(batch))
    if batch.compute is not None and batch.units[0] == HBM.name:
        yield from _drafted(batch, "low-batch", _low_batch(batch, batch.compute))


def _drafted(batch: Batch, kind: str, held: Bools, savings: Floats | None = None) -> Iterator[Draft]:
    (places,) = np.nonzero(held)
    saved = [None] * len(places) if savings is None else savings[places].tolist()
    return (Draft(kind, batch.ids[place], None, saving) for place, saving in zip(places.tolist(), saved, strict=True))


def _waits(batch: Batch, efficiency: Floats) -> Bools:
    """Where the time is near the serial time: see `advice.no_overlap`."""
    slowest = next((unit for unit in batch.units if named(unit).is_memory), None)
    paths = [row for row, unit in enumerate(batch.units) if unit == slowest or not named(unit).is_memory]
    if len(paths) < 2:
        return np.zeros(len(batch.ids), dtype=np.bool_)
    serial = np.array([sum(seconds) for seconds in batch.times[paths].T.tolist()])
    near: Bools = (efficiency < CLOSE) & (np.abs(batch.time_s / serial - 1) <= SERIAL_BAND)
    return near


def _near_ridge(batch: Batch) -> Bools:
    computing = next((row for row, unit in enumerate(batch.units) if unit in COMPUTE_UNITS), None)
    moving = next((row for row, unit in enumerate(batch.units) if unit not in COMPUTE_UNITS), None)
    if computing is None or moving is None:
        return np.zeros(len(batch.ids), dtype=np.bool_)
    first, second = batch.times[computing], batch.times[moving]
    near: Bools = np.maximum(first, second) <= NEAR_RIDGE * np.minimum(first, second)
    return near


def _low_batch(batch: Batch, compute: Resource) -> Bools:
    machine = batch.corrections.lower(batch.machine)
    if unit_of(machine, compute) != "matrix":
        return np.zeros(len(batch.ids), dtype=np.bool_)
    ridge, intensity = machine.ridge(compute), np.array([op.cost.intensity() or 0.0 for op in batch.ops])
    low: Bools = (intensity > 0) & (2 * intensity <= ridge)
    return low


def _products(batch: Batch) -> Iterator[Draft]:
    """What `advice.vector_instead_of_matrix` finds: it looks at names too, so op by op where it may hold."""
    if batch.units[0] != "vector":
        return
    asked = any(resource.is_arithmetic and resource.unit == "matrix" for resource in batch.resources)
    for place, op in enumerate(batch.ops):
        if (asked or PRODUCT.search(f"{op.name} {op.category}".lower())) and (found := vector_instead_of_matrix(batch.placed(place))):
            yield found
