"""A chain of operations: its stages in order, and the tensors that they read and write."""

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from ..cost import NOTHING, Amount, Cost
from ..dtypes import DType, dtype
from ..errors import FormulaError, did_you_mean
from ..resource import TRANSCENDENTAL, Resource, vector


class Tensor(Struct, frozen=True):
    """A named array that stages read and write."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if any(size < 0 for size in self.shape):
            raise FormulaError(f"tensor {self.name!r} of shape {self.shape} has a negative size")

    @property
    def bytes(self) -> int:
        return self.dtype.bytes(prod(self.shape))


class Stage(Struct, frozen=True, kw_only=True):
    """One operation of a chain: the tensors it reads and writes, by name, and its arithmetic.

    ``row_bytes`` is set when it reduces along an axis and needs the row again: the bytes that must then stay on chip.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    work: Cost = NOTHING
    row_bytes: int | None = None


class Chain(Struct, frozen=True, kw_only=True):
    """Stages in order, and their tensors. What no stage reads is a result; ``keep`` names tensors that are needed afterwards too."""

    tensors: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.stages:
            raise FormulaError("a chain needs at least one stage")
        for what, names in (("stages", [stage.name for stage in self.stages]), ("tensors", [tensor.name for tensor in self.tensors])):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise FormulaError(f"two {what} are named {twice[0]!r}; give each its own name")
        known = [tensor.name for tensor in self.tensors]
        made: dict[str, str] = {}
        later = {name for stage in self.stages for name in stage.writes}
        for stage in self.stages:
            for name in (*stage.reads, *stage.writes):
                if name not in known:
                    raise FormulaError(f"stage {stage.name!r} uses unknown tensor {name!r}{did_you_mean(name, known)}")
            for name in stage.reads:
                if name in later and name not in made:
                    raise FormulaError(f"stage {stage.name!r} reads {name!r} before a stage writes it; reorder the stages")
            for name in stage.writes:
                if name in made:
                    raise FormulaError(f"stages {made[name]!r} and {stage.name!r} both write {name!r}; rename one result")
                made[name] = stage.name
        if lost := [name for name in self.keep if name not in known]:
            raise FormulaError(f"cannot keep unknown tensor {lost[0]!r}{did_you_mean(lost[0], known)}")

    def __len__(self) -> int:
        return len(self.stages)


class StageSpec(Struct, frozen=True):
    """A stage of a chain whose tensors all have one shape: what it does to each element of it.

    It reads the result of the stage before it, and ``extra_inputs``: names of further tensors (a new name is a tensor of the
    chain's shape from outside; ``x`` is the chain's input; ``norm.out`` an earlier result) or tensors with a shape of their own.
    ``reduces`` says that it reduces along the last axis and needs the row again.
    """

    name: str
    flops_per_element: Amount = 0
    transcendentals_per_element: Amount = 0
    extra_inputs: tuple[str | Tensor, ...] = ()
    reduces: bool = False


def chain(
    shape: Sequence[int],
    number: str | DType,
    specs: Sequence[StageSpec],
    *,
    compute: Resource | str | None = None,
    keep: Sequence[str] = (),
) -> Chain:
    """A chain of elementwise stages and row reductions over one shape: each reads one tensor and writes one, plus its extras.

    The arithmetic is counted on the vector unit in the chain's number format, or on ``compute``. A name used twice is numbered.
    """
    form, sizes = dtype(number), tuple(shape)
    worker = vector(form) if compute is None else Resource(str(compute))
    elements = prod(sizes)
    tensors = {"x": Tensor("x", sizes, form)}
    stages: list[Stage] = []
    times: dict[str, int] = {}
    current = "x"
    for spec in specs:
        times[spec.name] = times.get(spec.name, 0) + 1
        name = f"{spec.name}.{times[spec.name]}" if times[spec.name] > 1 else spec.name
        reads = [current]
        for extra in spec.extra_inputs:
            tensor = extra if isinstance(extra, Tensor) else tensors.get(extra, Tensor(extra, sizes, form))
            if tensors.setdefault(tensor.name, tensor) != tensor:
                raise FormulaError(f"stage {name!r}: tensor {tensor.name!r} has two shapes; rename one of them")
            reads.append(tensor.name)
        current = f"{name}.out"
        tensors[current] = Tensor(current, sizes, form)
        work = Cost.of({worker: spec.flops_per_element * elements, TRANSCENDENTAL: spec.transcendentals_per_element * elements})
        row = form.bytes(sizes[-1] if sizes else 1) if spec.reduces else None
        stages.append(Stage(name=name, reads=tuple(dict.fromkeys(reads)), writes=(current,), work=work, row_bytes=row))
    return Chain(tensors=tuple(tensors.values()), stages=tuple(stages), keep=tuple(keep))
