"""One call of a PyTorch operator, from a profiler trace or a dispatch mode, and its price.

>>> call = Call("aten::mm", args=(Tensor((8, 4), dtype("bf16")), Tensor((4, 2), dtype("bf16"))))
>>> call.tensor(0).bytes, call.tensor(2) is None
(64, True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeVar

from msgspec import Struct, field

from ..cost import Amount, Cost
from ..dtypes import DType, dtype
from ..errors import FormulaError
from ..formulas.network import Network
from ..operation import Operation
from ..workload import Avoidable

T = TypeVar("T")

FP32, INT64, BOOL = dtype("fp32"), dtype("int64"), dtype("bool")
# PyTorch's float4_e2m1fn_x2: an element is a byte with two numbers.
FP4_PAIR = DType("fp4", 8, "fp4")

# Recording options that a user can turn on; values of `Priced.missing`.
RECORD_SHAPES = "record_shapes=True"
EXECUTION_TRACE = "execution_trace_observer=torch.profiler.ExecutionTraceObserver()"
KERNEL_METADATA = "TORCHINDUCTOR_BENCHMARK_KERNEL=1"


class Tensor(Struct, frozen=True):
    """A tensor by its sizes; the number format and strides are ``None`` if the recording does not have them.

    A ``sparse`` one has no strides, and fewer elements than its shape.
    """

    shape: tuple[int, ...]
    dtype: DType | None = None
    strides: tuple[int, ...] | None = None
    sparse: bool = False

    def __post_init__(self) -> None:
        if any(size < 0 for size in self.shape):
            raise FormulaError(f"a tensor of shape {self.shape}; sizes are 0 or more")

    @property
    def elements(self) -> int:
        """Elements by its shape."""
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Elements in memory: along an expanded axis, whose stride is 0, there is one."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return prod(self.shape)
        return prod(1 if stride == 0 and size else size for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int | None:
        """Bytes of its distinct elements; ``None`` if the number format is unknown."""
        return None if self.dtype is None else self.dtype.bytes(self.distinct)


# None, a number, a boolean, a string, a tensor, a list of any of these, or a number format (in traces the number of a ScalarType).
Argument = Any


class NotRecorded(Exception):
    """A recording without an argument that the operator's price needs: the price is unknown."""


def needed(argument: T | None) -> T:
    """An argument that is not ``None``; raises `NotRecorded` otherwise."""
    if argument is None:
        raise NotRecorded
    return argument


class Kernel(Struct, frozen=True):
    """A kernel or copy that a call launched: its name, its grid of blocks, and the recorded bytes of a copy or memset."""

    name: str
    grid: tuple[int, ...] | None = None
    bytes: int | None = None
    kind: str = "kernel"  # or "memcpy" or "memset"


class Call(Struct, frozen=True):
    """One call: the operator, its arguments in the order of its schema, its results and its kernels.

    ``overload`` and ``outputs`` are ``None`` in traces, which do not record them; a dispatch mode does. Arguments beyond the end of
    ``args`` have their defaults. A list of tensors is a tuple; one that the recording dropped is ``None``. ``extra`` are further facts:

    - collectives: ``Collective name``, ``In msg nelems``, ``Out msg nelems``, ``dtype``, ``Group size`` as the trace has them, and the
      ``World size`` of the run;
    - Inductor's Triton kernels: ``kernel_num_gb``, ``kernel_flop``, ``kernel_kwargs``, ``kernel_file``;
    - optimizers: ``accumulated``, the elements of each gradient that ``AccumulateGrad`` received in the step, a tuple of ints;
    - copies: ``memcpy_kind``, ``HtoD``, ``DtoH`` or ``DtoD``, where the launch is more precise than the event;
    - elementwise operators: ``same operands``, if both operands are one tensor, where the op around them tells;
    - operators on lists: ``list format``, the number format of their tensors, where other ops tell;
    - functions without a device: ``allow_tf32``, since there is no kernel name to show it.

    ``network`` is the network between the devices of a collective, if the machine is known.
    """

    op: str
    overload: str | None = None
    args: tuple[Argument, ...] = ()
    outputs: tuple[Tensor, ...] | None = None
    kernels: tuple[Kernel, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    network: Network | None = None

    def arg(self, place: int, default: Argument = None) -> Argument:
        """The argument at a position of the schema, or its default if the recording has fewer arguments."""
        return self.args[place] if place < len(self.args) else default

    def tensor(self, place: int) -> Tensor | None:
        """The tensor at a position of the schema, if there is one."""
        found = self.arg(place)
        return found if isinstance(found, Tensor) else None

    def need(self, place: int) -> Tensor:
        """The tensor at a position of the schema; raises `NotRecorded` if the recording has none there."""
        return needed(self.tensor(place))

    def tensors(self, place: int) -> tuple[Tensor, ...] | None:
        """The tensors of the list at a position of the schema; ``None`` if the recording dropped the list."""
        found = self.arg(place)
        if isinstance(found, tuple) and found and all(isinstance(one, Tensor) for one in found):
            return found
        return None

    def flag(self, place: int, default: bool = False) -> bool:
        """The boolean at a position of the schema."""
        found = self.arg(place)
        return default if found is None or isinstance(found, (Tensor, tuple, str)) else bool(found)

    def number(self, place: int, default: float | None = None) -> float | None:
        """The number at a position of the schema."""
        found = self.arg(place)
        return found if isinstance(found, (int, float)) and not isinstance(found, bool) else default

    def ints(self, place: int) -> tuple[int, ...] | None:
        """The list of integers at a position of the schema; a single one is a list of one."""
        found = self.arg(place)
        if isinstance(found, int):
            return (int(found),)
        return found if isinstance(found, tuple) and all(isinstance(one, int) for one in found) else None

    def format(self, place: int) -> DType | None:
        """The number format at a position of the schema: a `DType`, or the number of a ScalarType."""
        found = self.arg(place)
        if isinstance(found, DType):
            return found
        return SCALAR_TYPES.get(found) if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def all_tensors(self) -> tuple[Tensor, ...]:
        """Every tensor among the arguments, in order, including those in lists."""
        found: list[Tensor] = []
        for one in self.args:
            if isinstance(one, Tensor):
                found.append(one)
            elif isinstance(one, tuple):
                found += [part for part in one if isinstance(part, Tensor)]
        return tuple(found)


class Priced(Struct, frozen=True, kw_only=True):
    """The price of one call; with a cost of ``None``, or unknown resources in it, the call is not priced.

    ``dtype`` is the number format of the work. ``needed`` is the cost that the model needed, if it is less than what ran (an attention
    backward recomputes the scores). ``by_convention`` has the FLOP of other counters by their name. ``interval`` is the least and the most
    bytes of main memory, if the recording does not determine them. ``missing`` names the recording option that would determine the cost.
    ``operation`` is the operation with its sizes, if measurements predict its time.
    """

    cost: Cost | None
    category: str = ""
    dtype: str = ""
    needed: Cost | None = None
    by_convention: Mapping[str, Amount] = field(default_factory=dict)
    interval: tuple[Amount, Amount] | None = None
    notes: tuple[str, ...] = ()
    missing: str = ""
    operation: Operation | None = None

    @property
    def is_priced(self) -> bool:
        """Whether no resource it uses is unknown."""
        return self.cost is not None and self.cost.is_known

    @property
    def recomputed(self) -> tuple[Avoidable, ...]:
        """What the call does that the model did not need. The user cannot change it, so it is no kind of finding."""
        return () if self.needed is None else (Avoidable(kind="", instead=self.needed, unneeded="recomputed"),)


Pricer = Callable[[Call], "Priced | None"]

# c10::ScalarType by number: dtypes among the concrete inputs of a trace.
SCALAR_TYPES: dict[int, DType] = {
    place: dtype(name)
    for place, name in {
        0: "uint8",
        1: "int8",
        2: "int16",
        3: "int32",
        4: "int64",
        5: "fp16",
        6: "fp32",
        7: "fp64",
        9: "complex64",
        10: "complex128",
        11: "bool",
        15: "bf16",
        23: "fp8_e5m2",
        24: "fp8_e4m3",
        25: "fp8_e5m2fnuz",
        26: "fp8_e4m3fnuz",
        27: "uint16",
        28: "uint32",
        29: "uint64",
        44: "fp8_e8m0",
    }.items()
} | {45: FP4_PAIR}

# The C++ type names of tensors' elements in traces.
CPP_TYPES: dict[str, DType] = {
    spelling: dtype(name)
    for name, spellings in {
        "bf16": ("c10::BFloat16", "at::BFloat16", "BFloat16", "__nv_bfloat16", "hip_bfloat16"),
        "fp16": ("c10::Half", "at::Half", "Half", "__half"),
        "fp32": ("float", "Float"),
        "fp64": ("double", "Double"),
        "int64": ("long int", "long", "long long", "Long", "int64_t"),
        "int32": ("int", "Int", "int32_t"),
        "int16": ("short", "short int", "Short"),
        "int8": ("signed char", "Char", "int8_t"),
        "uint8": ("unsigned char", "Byte", "uint8_t"),
        "uint16": ("unsigned short", "short unsigned int", "UInt16"),
        "uint32": ("unsigned int", "UInt32"),
        "uint64": ("long unsigned int", "unsigned long", "UInt64"),
        "bool": ("bool", "Bool"),
        "complex64": ("c10::complex<float>", "ComplexFloat"),
        "complex128": ("c10::complex<double>", "ComplexDouble"),
        "fp8_e4m3": ("c10::Float8_e4m3fn", "Float8_e4m3fn"),
        "fp8_e5m2": ("c10::Float8_e5m2", "Float8_e5m2"),
        "fp8_e4m3fnuz": ("c10::Float8_e4m3fnuz", "Float8_e4m3fnuz"),
        "fp8_e5m2fnuz": ("c10::Float8_e5m2fnuz", "Float8_e5m2fnuz"),
        "fp8_e8m0": ("c10::Float8_e8m0fnu", "Float8_e8m0fnu"),
    }.items()
    for spelling in spellings
} | dict.fromkeys(("c10::Float4_e2m1fn_x2", "Float4_e2m1fn_x2"), FP4_PAIR)
