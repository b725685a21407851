"""The types that events of a trace are decoded into; fields that are not listed here are skipped."""

from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

ABSENT = Raw(b"")
Integer = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Scalar = int | float | str | None
Whole = int | str | None  # a number, which some profilers write in quotes


class Args(Struct, gc=False):
    """The arguments of an event. Shapes stay text: most of them repeat, and only those of ops that launched work are parsed.

    Fields are in the order of traces, which is the fastest to decode.
    """

    external: Integer | None = field(name="External id", default=None)
    function: Integer | None = field(name="Record function id", default=None)
    sequence: Integer | None = field(name="Sequence number", default=None)
    concrete: Raw = field(name="Concrete Inputs", default=ABSENT)
    types: Raw = field(name="Input type", default=ABSENT)
    strides: Raw = field(name="Input Strides", default=ABSENT)
    dims: Raw = field(name="Input Dims", default=ABSENT)
    device: Integer | None = None
    stream: Scalar = None
    correlation: Integer | None = None
    registers: Raw = field(name="registers per thread", default=ABSENT)
    shared: Raw = field(name="shared memory", default=ABSENT)
    grid: Raw = ABSENT
    block: Raw = ABSENT
    bytes: Whole = None
    size: Whole = None
    kind: Scalar = None
    kernel: Scalar = None
    collective: Raw = field(name="Collective name", default=ABSENT)
    nelems_in: Raw = field(name="In msg nelems", default=ABSENT)
    nelems_out: Raw = field(name="Out msg nelems", default=ABSENT)
    dtype: Raw = ABSENT
    group_size: Raw = field(name="Group size", default=ABSENT)
    kernel_num_gb: Raw = ABSENT
    kernel_flop: Raw = ABSENT
    kernel_kwargs: Raw = ABSENT
    kernel_file: Raw = ABSENT
    kernel_hash: Raw = ABSENT
    allocated: Scalar = field(name="Total Allocated", default=None)
    reserved: Scalar = field(name="Total Reserved", default=None)
    device_type: Scalar = field(name="Device Type", default=None)


# Fields that an op's price may need in addition to its arguments: the name here, and the name in traces.
_EXTRA = "collective nelems_in nelems_out dtype group_size kernel_num_gb kernel_flop kernel_kwargs kernel_file kernel_hash"
EXTRA = {name: Args.__struct_encode_fields__[Args.__struct_fields__.index(name)] for name in _EXTRA.split()}


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
    """An event with exact times: traces of 2023 have fractional microseconds since 1970, which a float cannot represent."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


class Head(Struct):
    """The fields of a trace before or after its events."""

    devices: Any = field(name="deviceProperties", default=None)
    distributed: Any = field(name="distributedInfo", default=None)
    host: Any = field(name="host_name", default=None)
    unrecorded: Any = field(name="roofline_step_s", default=None)
    tensors: Any = field(name="roofline_tensors", default=None)


class Document(Head):
    """The end of a trace: its last events, and the fields after them."""

    events: Raw = field(name="traceEvents", default=Raw(b"[]"))


EVENTS = msgspec.json.Decoder(list[Event])
EXACT_EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[ExactEvent])
HEAD = msgspec.json.Decoder(Head)
DOCUMENT = msgspec.json.Decoder(Document)
