"""TPU operations: their description in the metadata of a TPU's events, and the cost of one execution.

libtpu writes category, FLOP, bytes and a breakdown by memory into the metadata of each instruction, and the HLO text of the instruction as
its name. FLOP and bytes are taken from there; the compute unit and the traffic on links are derived here.
"""

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ...cost import NOTHING, Amount, Cost
from ...errors import FormulaError
from ...resource import HBM, PCIE, UNNAMED_WORK, Resource, vector
from ...topology import ring_way
from ...workload import COUNTED, feeds
from ..parts import UNKNOWN, Subject
from .scan import EventMetadata, Slice, Space
from .tpu_links import LINK, collective_cost, source_target_pairs

if TYPE_CHECKING:
    from .modules import Program

CONTAINERS = ("while", "conditional", "call")  # the instructions inside them are separate operations
_EXCHANGES = "all-reduce all-gather all-to-all reduce-scatter collective-permute collective-broadcast ragged-all-to-all"
_COLLECTIVES = tuple(_EXCHANGES.split())
_PRODUCTS = re.compile(r"convolution|\bdot\b|matmul")
# MemoryAccessed of the breakdown: operation_type = 1 (1 is a read), memory_space = 2, bytes_accessed = 3.
_READ = 1
_SPACES: dict[int, tuple[str, str]] = {1: ("hbm", "hbm"), 2: ("cmem.read", "cmem.write"), 3: ("vmem.read", "vmem.write")}
_OPCODE = re.compile(r"[)}\]] ([a-z][a-z0-9\-]*)\(")
_OPERAND = re.compile(r"%([\w.\-]+)\)")
_ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[")
_HOST_SPACE = "S(5)"


class TpuOp(Struct, frozen=True, kw_only=True):
    """An instruction, from a TPU's metadata. ``opcode`` is the HLO opcode, or the category if the name is not HLO text."""

    id: int
    name: str
    text: str = ""
    opcode: str = ""
    program: int | None = None
    category: str = ""
    flops: int | None = None
    bytes: int | None = None
    breakdown: tuple[tuple[str, int], ...] = ()
    location: str = ""
    framework_name: str = ""
    sparse: bool = False

    @property
    def operand(self) -> str:
        """The name of its only operand; for a done, that of its start."""
        found = _OPERAND.findall(self.text)
        return found[0] if found else ""

    @property
    def is_start(self) -> bool:
        return self.opcode.endswith("-start")

    @property
    def is_done(self) -> bool:
        return self.opcode.endswith("-done")

    @property
    def is_collective(self) -> bool:
        return self.category.startswith(_COLLECTIVES) or self.opcode.startswith(_COLLECTIVES)

    @property
    def crosses_bus(self) -> bool:
        """Whether it copies to host memory, or from there."""
        return _HOST_SPACE in self.text

    @property
    def towards(self) -> str:
        """Which way it goes: a copy ``out`` to host memory or ``in`` from it, a permute ``up`` or ``down`` the rings of a slice."""
        if not self.crosses_bus:
            return ring_way(source_target_pairs(self.text))
        result = self.text.partition(f" {self.opcode}(")[0]
        first = result.partition("= ")[2].removeprefix("(").partition(", ")[0] if self.is_start else result
        # Layouts contain commas too, but not followed by a space.
        return "out" if _HOST_SPACE in first else "in"

    @property
    def dtype(self) -> str:
        """The number format of its (first) result."""
        found = _ARRAY.search(self.text.partition("= ")[2])
        return found[1] if found else "f32"


def tpu_op(space: Space, metadata: EventMetadata, sparse: bool = False) -> TpuOp:
    """The operation in an event's metadata; ``sparse`` is whether it ran on a SparseCore."""
    values = metadata.stats
    opcode = _OPCODE.search(metadata.name)
    category = str(values.get("hlo_category") or "")
    breakdown = values.get("memory_access_breakdown")
    framework = values.get("tf_op")
    source = values.get("source")
    return TpuOp(
        id=metadata.id,
        name=metadata.display_name or metadata.name.partition(" = ")[0].removeprefix("%"),
        text=metadata.name,
        opcode=opcode[1] if opcode else category,
        program=_integer(values.get("program_id")),
        category=category,
        flops=_integer(values.get("flops")),
        bytes=_integer(values.get("bytes_accessed")),
        breakdown=_breakdown(space.bytes_of(breakdown)) if isinstance(breakdown, Slice) else (),
        location=source if isinstance(source, str) else "",
        framework_name=framework.rstrip(":") if isinstance(framework, str) else "",
        sparse=sparse,
    )


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def _breakdown(data: bytes) -> tuple[tuple[str, int], ...]:
    """The bytes by memory of a serialised MemoryAccessBreakdown: memory_accessed = 1, repeated."""
    total: dict[str, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        length, at = _varint(data, at)
        if tag == 0x0A:
            fields: dict[int, int] = {}
            end = min(at + length, len(data))
            while at < end:
                key, at = _varint(data, at)
                fields[key >> 3], at = _varint(data, at)
            names = _SPACES.get(fields.get(2, 0))
            if names:
                name = names[fields.get(1, 0) != _READ]
                total[name] = total.get(name, 0) + fields.get(3, 0)
        else:
            at += length
    return tuple(sorted(total.items()))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def subject(op: TpuOp, module: str, program: "Program | None") -> Subject:
    """A synchronous operation. ``program`` is given if its cost depends on it (`needs_program`)."""
    cost, ours, notes = _cost(op, program)
    return _subject(op, module, op.category, cost, notes, ours=ours)


def paired(start: TpuOp, done: TpuOp, module: str, program: "Program | None") -> Subject:
    """An asynchronous operation, from its start to its done. Both have its bytes; the breakdown by memory is split between them."""
    notes = (f"{COUNTED}as one op from {start.name} to {done.name}",)
    moved = max(start.bytes or 0, done.bytes or 0)
    if start.crosses_bus:
        return _subject(start, module, "host transfer", Cost.of({PCIE: moved}), notes)
    category = start.category.removesuffix("-start")
    priced = _price(start, program)
    if start.is_collective:
        return _subject(start, module, category, _links(start, priced) + _arithmetic(start, start.flops or 0, None), notes, ours=True)
    traffic: dict[str, int] = dict(start.breakdown)
    for name, amount in done.breakdown:
        traffic[name] = traffic.get(name, 0) + amount
    flops = max(start.flops or 0, done.flops or 0)
    known = start.flops is not None or start.bytes is not None
    cost = Cost.of(traffic or {HBM.name: moved}) + _arithmetic(start, flops, priced) if known else UNKNOWN
    return _subject(start, module, category, cost, notes)


def _subject(op: TpuOp, module: str, category: str, cost: Cost, notes: tuple[str, ...], ours: bool = False) -> Subject:
    where, phase, in_loop = _framework(op.framework_name)
    provenance = "compiler" if ours else "profile"
    return Subject(
        name=op.name,
        module=module,
        program=str(op.program) if op.program is not None else "",
        category=f"sparse core {category}".strip() if op.sparse else category,
        scope=where,
        location=op.location,
        phase=phase,
        in_loop=in_loop,
        towards=op.towards,
        cost=cost,
        work_provenance="profile" if op.flops else provenance,
        bytes_provenance=provenance,
        notes=notes,
        found=op.program is not None,
    )


def _framework(name: str) -> tuple[str, str, bool]:
    """The named scope and the phase of an operation, and whether a loop runs it.

    If the name has only jitted functions, there is none of these, and no parser is imported.
    """
    if all(part.startswith("jit(") for part in name.split("/")[:-1]) and "jvp(" not in name and "transpose(" not in name:
        return "", "", False
    from ...hlo.ir.scopes import direction, is_in_loop, scope

    return scope(name), direction(name), is_in_loop(name)


def needs_program(op: TpuOp) -> bool:
    """Whether its program has to be read to price it."""
    if op.is_collective:
        return collective_cost(op.opcode, op.text) is None
    return bool(op.flops and _PRODUCTS.search(op.category)) or (not op.flops and not op.bytes and op.category.startswith("custom"))


def _cost(op: TpuOp, program: "Program | None") -> tuple[Cost, bool, tuple[str, ...]]:
    """The cost of one execution, whether its bytes were computed here, and notes."""
    if op.category in CONTAINERS:
        return NOTHING, False, ()
    if op.is_start or op.is_done:
        # If start and done are in different iterations of a loop, they do not name each other, and the time between them is unknown.
        link = LINK if op.is_collective else PCIE.name if op.crosses_bus else HBM.name
        return (
            (NOTHING if op.is_start else Cost.of({link: None})),
            False,
            ("start or end of an asynchronous operation without its counterpart",),
        )
    priced = _price(op, program)
    if op.is_collective:
        return _links(op, priced) + _arithmetic(op, op.flops or 0, None), True, ()
    if not op.flops and not op.bytes:
        if priced is not None and op.category.startswith("custom"):
            return priced, True, (f"{COUNTED}from its program, as the profile has no FLOP or bytes of it",)
        return (NOTHING if op.flops is not None or op.bytes is not None else UNKNOWN), False, ()
    traffic: dict[str, Amount] = dict(op.breakdown) or {HBM.name: op.bytes or 0}
    if feeds(op.category) or "host send" in op.category or "host recv" in op.category:
        traffic[PCIE.name] = op.bytes or 0
    return Cost.of(traffic) + _arithmetic(op, op.flops or 0, priced), False, _compared(op, priced)


def _price(op: TpuOp, program: "Program | None") -> Cost | None:
    place = program.find(op.name) if program is not None else None
    return program.price(place).cost if program is not None and place is not None else None


def _links(op: TpuOp, priced: Cost | None) -> Cost:
    """The cost of a collective on links; its memory traffic is not counted."""
    said = collective_cost(op.opcode, op.text)
    if said is not None:
        return said
    if priced is None:
        return Cost.of({LINK: None})
    kept = tuple((resource, amount) for resource, amount in priced.amounts if resource.is_link)
    return Cost(kept, frozenset(resource for resource in priced.unknown if resource.is_link)) if kept or priced.unknown else priced


def _arithmetic(op: TpuOp, flops: int, priced: Cost | None) -> Cost:
    """The profile's FLOP by unit: for a product, those of the program's products on the matrix unit, the rest on the vector unit."""
    if not flops:
        return NOTHING
    if op.sparse:
        return Cost.of({UNNAMED_WORK: flops})
    ours = {resource: amount for resource, amount in (priced.amounts if priced is not None else ()) if resource.is_arithmetic}
    products = {resource: amount for resource, amount in ours.items() if resource.unit == "matrix"}
    if products:
        unit = max(products, key=lambda resource: products[resource])
        in_products = min(flops, round(sum(products.values())))
        return Cost.of({unit: in_products, _vector(op): flops - in_products})
    if _PRODUCTS.search(op.category):
        return Cost.of({"matrix/bf16": flops})  # the unit computes products of wider formats in bf16
    if ours:
        return Cost.of({max(ours, key=lambda resource: ours[resource]): flops})
    return Cost.of({UNNAMED_WORK if op.category.startswith("custom") else _vector(op): flops})


def _vector(op: TpuOp) -> Resource:
    try:
        return vector(op.dtype)
    except FormulaError:
        return Resource("vector/fp32")


_FAR = 0.1  # the relative difference of two FLOP counts above which there is a note


def _compared(op: TpuOp, priced: Cost | None) -> tuple[str, ...]:
    """A note if the FLOP of a product differ between profile and program."""
    mine = priced.flops if priced is not None else None
    if not mine or not op.flops or abs(op.flops / mine - 1) < _FAR:
        return ()
    return (f"FLOP per execution: {op.flops:,} in the profile, {round(mine):,} from its program",)


def weight(start: TpuOp, done: TpuOp) -> float:
    """The bytes of a transfer, by which overlapping transfers share their link."""
    return float(max(start.bytes or 0, done.bytes or 0))


def link(op: TpuOp) -> int:
    """The group of an asynchronous operation, whose members share a link in one direction; other operations have their own group."""
    ways = ("in", "out", "up", "down")
    if op.towards:
        return ways.index(op.towards)
    return len(ways) + (0 if op.is_collective else 1 + op.id)
