"""Events of a trace as typed values; what nothing here asks for is skipped while it is decoded."""

from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

NOT_SAID = Raw(b"")
Integer = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Scalar = int | float | str | None
Whole = int | str | None  # a number that some writers put in quotes


class Args(Struct, gc=False):
    """What an event says beside its name and time. Shapes stay text: most repeat, and only those of ops that launched work are read.

    Fields come in the order that traces have them, in which they are found fastest.
    """

    sequence: Integer | None = field(name="Sequence number", default=None)
    concrete: Raw = field(name="Concrete Inputs", default=NOT_SAID)
    types: Raw = field(name="Input type", default=NOT_SAID)
    strides: Raw = field(name="Input Strides", default=NOT_SAID)
    dims: Raw = field(name="Input Dims", default=NOT_SAID)
    device: Integer | None = None
    stream: Scalar = None
    correlation: Integer | None = None
    grid: Raw = NOT_SAID
    bytes: Whole = None
    size: Whole = None
    kind: Scalar = None
    kernel: Scalar = None
    collective: Raw = field(name="Collective name", default=NOT_SAID)
    nelems_in: Raw = field(name="In msg nelems", default=NOT_SAID)
    nelems_out: Raw = field(name="Out msg nelems", default=NOT_SAID)
    dtype: Raw = NOT_SAID
    group_size: Raw = field(name="Group size", default=NOT_SAID)
    kernel_num_gb: Raw = NOT_SAID
    kernel_flop: Raw = NOT_SAID
    kernel_kwargs: Raw = NOT_SAID
    kernel_file: Raw = NOT_SAID
    kernel_hash: Raw = NOT_SAID
    allocated: Scalar = field(name="Total Allocated", default=None)
    reserved: Scalar = field(name="Total Reserved", default=None)
    device_type: Scalar = field(name="Device Type", default=None)


# What an op's price may need beside its arguments: the field here, and what traces call it.
EXTRA = {
    "collective": "Collective name",
    "nelems_in": "In msg nelems",
    "nelems_out": "Out msg nelems",
    "dtype": "dtype",
    "group_size": "Group size",
    "kernel_num_gb": "kernel_num_gb",
    "kernel_flop": "kernel_flop",
    "kernel_kwargs": "kernel_kwargs",
    "kernel_file": "kernel_file",
    "kernel_hash": "kernel_hash",
}


class Event(Struct, gc=False):
    """An event; ``ts`` and ``dur`` are microseconds."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float = 0.0
    dur: float = 0.0
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """The same with times to the last digit: microseconds since 1970 with decimals, as in 2023, need more than a float has."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


class Head(Struct):
    """What a trace says of itself, before its events or after them."""

    devices: Any = field(name="deviceProperties", default=None)
    distributed: Any = field(name="distributedInfo", default=None)
    record_shapes: Any = None
    with_stack: Any = None
    profile_memory: Any = None
    host: Any = field(name="host_name", default=None)
    unrecorded: Any = field(name="roofline_step_s", default=None)


class Document(Head):
    """The end of a trace: its last events, and what comes after them."""

    events: Raw = field(name="traceEvents", default=Raw(b"[]"))


EVENTS = msgspec.json.Decoder(list[Event])
EXACT_EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[ExactEvent])
HEAD = msgspec.json.Decoder(Head)
DOCUMENT = msgspec.json.Decoder(Document)
