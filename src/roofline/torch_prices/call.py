"""One call of a PyTorch operator, from a profiler trace or a dispatch mode, and its price.

>>> call = Call("aten::mm", args=(Tensor((8, 4), dtype("bf16")), Tensor((4, 2), dtype("bf16"))))
>>> call.tensor(0).bytes, call.tensor(2) is None
(64, True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from msgspec import Struct, field

from ..cost import Amount, Cost
from ..dtypes import DType, dtype
from ..errors import FormulaError
from ..formulas.network import Network
from ..operation import Operation

# PyTorch's float4_e2m1fn_x2: an element is a byte that holds two numbers.
FP4_PAIR = DType("fp4", 8, "fp4")

# Recording options that a user can turn on, as `Priced.missing` names them.
RECORD_SHAPES = "record_shapes=True"
EXECUTION_TRACE = "execution_trace_observer=torch.profiler.ExecutionTraceObserver()"
KERNEL_METADATA = "TORCHINDUCTOR_BENCHMARK_KERNEL=1"


class Tensor(Struct, frozen=True):
    """A tensor by its sizes; the number format and strides are ``None`` where the recording has none.

    One that is ``sparse`` has no strides, and holds fewer elements than its shape tells.
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
        """Elements that an operator sees."""
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Elements that lie in memory: an expanded axis has stride 0 and one of them."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return prod(self.shape)
        return prod(1 if stride == 0 and size else size for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int | None:
        """Bytes of its distinct elements; ``None`` where the number format is unknown."""
        return None if self.dtype is None else self.dtype.bytes(self.distinct)


# None, a number, a truth value, a word, a tensor, a list of any of these, or a number format (an int in traces: a ScalarType's number).
Argument = Any


class Kernel(Struct, frozen=True):
    """A kernel or copy that a call launched: its name, grid of blocks, and the bytes that a copy or memset reports."""

    name: str
    grid: tuple[int, ...] | None = None
    bytes: int | None = None
    kind: str = "kernel"  # or "memcpy" or "memset"


class Call(Struct, frozen=True):
    """One call: the operator, its arguments in the order of its schema, what it returned and launched.

    ``overload`` and ``outputs`` are ``None`` in traces, which have neither; a dispatch mode knows both. Arguments beyond the end of
    ``args`` have their defaults. A list of tensors is a tuple; one that the recording dropped is ``None``. ``extra`` is what a trace
    records beside:

    - collectives: ``Collective name``, ``In msg nelems``, ``Out msg nelems``, ``dtype``, ``Group size`` as the trace has them;
    - Inductor's Triton kernels: ``kernel_num_gb``, ``kernel_flop``, ``kernel_kwargs``, ``kernel_file``;
    - optimizers: ``accumulated``, the elements of each gradient that ``AccumulateGrad`` received in the step, a tuple of ints;
    - copies: ``memcpy_kind``, ``HtoD``, ``DtoH`` or ``DtoD``, where the launch tells better than the event;
    - functions without a device: ``allow_tf32``, since no kernel's name tells.

    ``network`` is how the devices of a collective are joined, where the machine is known.
    """

    op: str
    overload: str | None = None
    args: tuple[Argument, ...] = ()
    outputs: tuple[Tensor, ...] | None = None
    kernels: tuple[Kernel, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    network: Network | None = None

    def arg(self, place: int, default: Argument = None) -> Argument:
        """The argument at a place of the schema, or its default where the recording ends before."""
        return self.args[place] if place < len(self.args) else default

    def tensor(self, place: int) -> Tensor | None:
        """The tensor at a place of the schema, if there is one."""
        found = self.arg(place)
        return found if isinstance(found, Tensor) else None

    def tensors(self, place: int) -> tuple[Tensor, ...] | None:
        """The tensors of the list at a place of the schema; ``None`` where the recording dropped the list."""
        found = self.arg(place)
        if isinstance(found, tuple) and found and all(isinstance(one, Tensor) for one in found):
            return found
        return None

    def flag(self, place: int, default: bool = False) -> bool:
        """The truth value at a place of the schema."""
        found = self.arg(place)
        return default if found is None or isinstance(found, (Tensor, tuple, str)) else bool(found)

    def number(self, place: int, default: float | None = None) -> float | None:
        """The number at a place of the schema."""
        found = self.arg(place)
        return found if isinstance(found, (int, float)) and not isinstance(found, bool) else default

    def ints(self, place: int) -> tuple[int, ...] | None:
        """The list of whole numbers at a place of the schema; a lone one is a list of one."""
        found = self.arg(place)
        if isinstance(found, int):
            return (int(found),)
        return found if isinstance(found, tuple) and all(isinstance(one, int) for one in found) else None

    def format(self, place: int) -> DType | None:
        """The number format at a place of the schema: one of ours, or the number of a ScalarType."""
        found = self.arg(place)
        if isinstance(found, DType):
            return found
        return SCALAR_TYPES.get(found) if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def all_tensors(self) -> tuple[Tensor, ...]:
        """Every tensor among the arguments, those of lists too, in order."""
        found: list[Tensor] = []
        for one in self.args:
            if isinstance(one, Tensor):
                found.append(one)
            elif isinstance(one, tuple):
                found += [part for part in one if isinstance(part, Tensor)]
        return tuple(found)


class Priced(Struct, frozen=True, kw_only=True):
    """What one call costs; a cost of ``None``, or unknown resources in it, keep the call unpriced.

    ``dtype`` is the number format that the work runs in. ``needed`` is what the model needed where that is less than what ran (an
    attention backward that computes the scores again). ``by_convention`` has the FLOP of other counters by their name. ``interval`` is
    the least and the most bytes of main memory where the recording leaves them open. ``missing`` names the recording option that would
    have told. ``operation`` is what the call is by its sizes, where measurements of such calls say how long they take.
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


Pricer = Callable[[Call], "Priced | None"]

# c10::ScalarType, by number: what dtypes look like among the concrete inputs of a trace.
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

# The C++ type names of the tensors' elements, as traces spell them.
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
