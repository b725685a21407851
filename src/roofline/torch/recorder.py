"""Records every operator that a function calls, by a dispatch mode on tensors without data: the call, its origin, and its memory.

A backward operator belongs to the forward one with the same autograd sequence number, and gets its module and source line from there. Views
cost nothing. Attention is one operator, as on GPUs.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any

from msgspec import Struct

from ..torch_prices import Call, Tensor
from .arguments import argument, described, in_schema_order, tensors_in
from .live_memory import LiveMemory
from .replacing import replaced

FORWARD, BACKWARD = "forward", "backward"
# Operators that read and write no element: views, allocations and queries.
FREE = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias", "resize_", "set_"),
        *("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"),
        *("lift_fresh", "lift_fresh_copy", "is_same_size", "record_stream", "_local_scalar_dense", "_has_compatible_shallow_copy_type"),
        *("_assert_async", "_assert_scalar", "_linalg_check_errors", "is_pinned", "_nested_tensor_size"),
        *("sym_size", "sym_stride", "sym_numel", "sym_storage_offset"),
    )
)
_OURS = str(Path(__file__).resolve().parent)


class WithoutSize(Exception):
    """A sparse or nested tensor, whose size in memory does not follow from its shape."""


Position = tuple[int, int]  # where a tensor begins: the number of its memory, and its offset there in elements


class Seen(Struct, frozen=True, kw_only=True):
    """One call with its module and source line, and the memory that it reads and writes: number and bytes.

    ``operands`` are the positions of the tensors among its arguments, those in lists too; ``results`` of those that it returns; ``changed``
    are the operands that it writes to, by their places.

    ``repeated`` is the bytes of operands that are passed more than once, as x in x·x: they are read once. ``again`` is whether the backward
    pass recomputes it, as in activation checkpointing. ``sequence`` is autograd's number of a call, which its gradient shares, or -1.
    ``updates`` is whether an optimizer called it.
    """

    call: Call
    scope: str
    location: str
    phase: str
    again: bool
    sequence: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]
    repeated: int
    operands: tuple[Position, ...] = ()
    results: tuple[Position, ...] = ()
    changed: tuple[int, ...] = ()
    updates: bool = False


class Kept(Struct, frozen=True):
    """What is live when a function ends: its results and gradients, where they lie, and the numbers of ``others``' memory: arguments'.
    ``gradients`` are those of ``tensors`` that are stored with weights.
    """

    tensors: tuple[tuple[Tensor, Position], ...] = ()
    others: frozenset[int] = frozenset()
    gradients: tuple[tuple[Tensor, Position], ...] = ()

    def __contains__(self, number: int) -> bool:
        """Whether any of a memory is live."""
        return number in self.others or any(number == memory for _, (memory, _) in self.tensors)


class Given(Struct, frozen=True):
    """A tensor that the program did not make: the tensor, its replacement without data, and the gradient that it had."""

    tensor: Any
    without_data: Any
    gradient: Any

    @property
    def takes_gradients(self) -> bool:
        return bool(self.tensor.is_leaf and self.tensor.requires_grad)


class Recorder:
    """The calls of one function, in order, and its memory."""

    def __init__(self, torch: Any, without_data: Any, device: Any) -> None:
        """``without_data`` is the mode that makes tensors without data; if some tensors are on ``meta``, all are on ``device``."""
        self._torch, self._without_data, self._device = torch, without_data, device
        self._path: list[str] = []
        self._names: dict[int, str] = {}
        self._origins: dict[int, tuple[str, str]] = {}
        self._numbers: dict[int, int] = {}
        self._next = 0
        self._is_paused = False
        self._torch_folder = str(Path(torch.__file__).resolve().parent)
        self.in_optimizer = False
        self.optimizers: list[Any] = []
        self.calls: list[Seen] = []
        self.memory = LiveMemory()
        self._given: dict[int, Given] = {}
        self.has_backward = False
        self._thread = get_ident()  # hooks of modules are called for all threads

    def name_modules(self, root: Any, prefix: str = "") -> None:
        """Records the paths of a module's submodules, by their attribute names."""
        for name, part in root.named_modules():
            self._names[id(part)] = "/".join(word for word in (prefix, name.replace(".", "/")) if word)

    def stand_in(self, tensor: Any) -> Any:
        """The tensor without data that replaces an argument, weight or constant of the program."""
        if id(tensor) not in self._given:
            self._need_size(tensor)
            if tensor.device != self._device and "meta" in (tensor.device.type, self._device.type):
                like = {"dtype": tensor.dtype, "device": self._device, "requires_grad": tensor.requires_grad}
                with self.paused():
                    stand_in = self._torch.empty_strided(tensor.shape, tensor.stride(), **like)
            else:
                stand_in = self._without_data.from_tensor(tensor)
            self.memory.hold_argument(stand_in)
            self._given[id(tensor)] = Given(tensor, stand_in, tensor.grad if tensor.is_leaf else None)
            self._given[id(stand_in)] = Given(stand_in, stand_in, None)
        return self._given[id(tensor)].without_data

    def gradients(self) -> list[Any]:
        """The gradients of arguments, weights and constants."""
        return [given.tensor.grad for given in self._given.values() if given.takes_gradients and given.tensor.grad is not None]

    def restore_gradients(self) -> None:
        """Restores the original gradients of the program's own tensors."""
        for given in self._given.values():
            if given.takes_gradients:
                given.tensor.grad = given.gradient

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A context in which every operator is recorded."""
        hooks = import_module("torch.nn.modules.module")
        with ExitStack() as stack:
            for hook in (
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
            ):
                stack.callback(hook.remove)
            stack.enter_context(_dispatch_mode(self._run))
            stack.enter_context(whole_attention(self._torch))
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which nothing is recorded."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def _enter(self, module: Any, inputs: Any) -> None:
        if get_ident() != self._thread:
            return
        if id(module) not in self._names:
            self.name_modules(module, type(module).__name__)
        self._path.append(self._names[id(module)])

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        if self._path and get_ident() == self._thread:
            self._path.pop()

    def _run(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator on tensors without data, whatever its arguments are, so that the program's own tensors do not change."""
        if self.in_optimizer and operator._schema.name == "aten::_local_scalar_dense":
            return 1  # .item() of a step counter, on which no shape depends
        args, kwargs = self._torch.utils._pytree.tree_map_only(self._torch.Tensor, self._without, (args, kwargs))
        out = operator(*args, **kwargs)
        if not self._is_paused and not operator._schema.name.startswith("prim"):
            self._record(operator, args, kwargs, out)
        return out

    def _record(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        name = operator._schema.name
        given = in_schema_order(operator._schema, args, kwargs)
        used, outputs = tensors_in(self._torch, given), tensors_in(self._torch, out)
        is_view = getattr(operator, "is_view", False) or self._torch.Tag.inplace_view in operator.tags
        scope, location, phase, again, sequence = self._origin()
        for output in outputs:
            self._need_size(output)
            self.memory.hold(output, name, scope)
        if is_view or name in FREE or not (outputs or used):
            return
        call = Call(
            name,
            operator._overloadname,
            tuple(argument(self._torch, value) for value in given),
            tuple(described(output) for output in outputs),
            extra=self._extra(name),
        )
        written = [argument_of.alias_info is not None and argument_of.alias_info.is_write for argument_of in operator._schema.arguments]
        changes = [is_written for value, is_written in zip(given, written, strict=True) for _ in tensors_in(self._torch, value)]
        changed = tuple(place for place, is_written in enumerate(changes) if is_written)
        reads, repeated = self._numbered(used)
        writes, _ = self._numbered([*outputs, *(used[place] for place in changed)])
        self.calls.append(
            Seen(
                call=call,
                scope=scope,
                location=location,
                phase=phase,
                again=again,
                sequence=sequence,
                reads=reads,
                writes=writes,
                repeated=repeated,
                operands=tuple(map(self._position, used)),
                results=tuple(map(self._position, outputs)),
                changed=changed,
                updates=self.in_optimizer,
            )
        )

    def _need_size(self, tensor: Any) -> None:
        if tensor.is_nested:
            raise WithoutSize("a nested tensor")
        if tensor.layout is not self._torch.strided:
            raise WithoutSize("a sparse tensor")

    def _without(self, tensor: Any) -> Any:
        """The tensor without data that an operator runs on; one that was not recorded before is a weight or constant."""
        if not self._without_data.is_our_fake(tensor):
            return self.stand_in(tensor)
        if tensor.untyped_storage()._cdata not in self.memory.known:
            self.memory.hold_argument(tensor)
            self._given[id(tensor)] = Given(tensor, tensor, None)
        return tensor

    def _numbered(self, tensors: Sequence[Any]) -> tuple[tuple[tuple[int, int], ...], int]:
        """The memory of these tensors: numbers and bytes, and the bytes of tensors that occur more than once."""
        taken: dict[int, int] = {}
        parts: set[tuple[int, int, int]] = set()
        repeated = 0
        for tensor in tensors:
            number, size = self._number(tensor), described(tensor).bytes or 0
            part = (number, int(tensor.storage_offset()), size)
            if part in parts:
                repeated += size
            else:
                parts.add(part)
                taken[number] = taken.get(number, 0) + size
        return tuple(taken.items()), repeated

    def _number(self, tensor: Any) -> int:
        """The number of a tensor's memory; memory that is reused after it was freed has a new one."""
        storage = tensor.untyped_storage()
        number = self.memory.known.get(storage._cdata, -1)
        key = number if number >= 0 else -1 - storage._cdata
        if key not in self._numbers:
            self._numbers[key] = self._next
            self._next += 1
        return self._numbers[key]

    def _position(self, tensor: Any) -> Position:
        return self._number(tensor), int(tensor.storage_offset())

    def kept(self, tensors: Sequence[Any]) -> Kept:
        """What is live beside arguments, weights and constants: these tensors."""
        left, stored = (tuple((described(tensor), self._position(tensor)) for tensor in some) for some in (tensors, self.gradients()))
        return Kept(left, frozenset(number for key, number in self._numbers.items() if key < 0), stored)

    def storages_of(self, tensors: Sequence[Any]) -> set[int]:
        """The numbers of these tensors' storages in `LiveMemory`."""
        return {self.memory.known.get(tensor.untyped_storage()._cdata, -1) for tensor in tensors}

    def _extra(self, name: str) -> dict[str, Any]:
        """Whether the program allows tf32 for fp32 products; in traces only kernels' names show it."""
        if "conv" in name:
            return {"allow_tf32": bool(self._torch.backends.cudnn.allow_tf32)}
        return {"allow_tf32": self._torch.get_float32_matmul_precision() != "highest"}

    def _origin(self) -> tuple[str, str, str, bool, int]:
        """Module path, source line, phase, whether the backward pass recomputes the call, and its sequence number."""
        node = self._torch._C._current_autograd_node()  # of the backward pass; None outside of it
        if node is None:
            place = (self._path[-1] if self._path else "", self._line())
            return *place, FORWARD, False, self._sequence_at(place)
        self.has_backward = True
        if self._torch.is_grad_enabled() and self._path:
            place = (self._path[-1], self._line())
            return *place, BACKWARD, True, self._sequence_at(place)
        return *self._origins.get(node._sequence_nr(), ("", "")), BACKWARD, False, node._sequence_nr()

    def _sequence_at(self, origin: tuple[str, str]) -> int:
        """The sequence number of a forward call; -1 if it is that of an earlier call, as autograd does not record this one."""
        number = int(self._torch.autograd._get_sequence_nr()) - 1  # of the node that autograd made last
        is_new = number not in self._origins
        self._origins[number] = origin
        return number if is_new else -1

    def _line(self) -> str:
        """The nearest line outside of PyTorch and of this package."""
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((self._torch_folder, _OURS, "<")):
                return f"{Path(file).name}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return ""


def _dispatch_mode(run: Callable[[Any, Any, Any], Any]) -> Any:
    """A dispatch mode that runs every operator by ``run``. The class is defined here, because PyTorch is imported on first use."""

    class Dispatch(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return run(func, args, kwargs or {})

    return Dispatch()


@contextmanager
def whole_attention(torch: Any) -> Iterator[None]:
    """A context in which attention is one operator: without data PyTorch would decompose it into products.

    A function mode replaces calls under any name. It is inactive during a backward pass, so for recomputation by checkpointing the usual
    function is replaced too.
    """
    aten = torch.ops.aten

    def attention(
        wanted: Any,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if any(tensor.dim() != 4 for tensor in (query, key, value)):
            return wanted(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if attn_mask is None:
            return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        saves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, saves, dropout_p, is_causal, scale=scale)[0]

    class Attention(import_module("torch.overrides").TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return (partial(attention, wanted) if func is wanted else func)(*args, **(kwargs or {}))

    with replaced(torch.nn.functional, "scaled_dot_product_attention", lambda wanted: partial(attention, wanted)) as wanted, Attention():
        yield
