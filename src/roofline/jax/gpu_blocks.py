"""Block sizes of Pallas kernels for a GPU, by way of Triton: JAX lowers the kernel of each configuration to Triton's IR, without a GPU."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from ..blocks.results import Blocks
from ..blocks.space import Space, configurations
from ..blocks.triton.compiling import Lowered, optimized
from ..blocks.triton.predicting import Launch, predict_launches
from ..errors import MissingExtra, UsageError

CALL = "xla.gpu.triton"  # in the target of a call of a Triton kernel
SETTINGS = "mhlo.backend_config"
GRID = ("grid_x", "grid_y", "grid_z")
OPTIONS = ("num_warps", "num_stages")
FLAG = "jax_pallas_use_mosaic_gpu"  # whether kernels without `compiler_params` are for Mosaic

_RANGE = re.compile(r'("[^"\n]*":\d+:\d+) to [\d:]+')
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'"[^"]*"(?=:\d+:\d+)')
_NAMED = re.compile(r'"[^"]*"\((#loc\d*)\)')


def predict_pallas_gpu(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
    chip: str,
    space: Space | None,
    progress: Callable[[int, int], None] | None = None,
) -> Blocks:
    """The configurations of a function that calls one Pallas kernel, on a GPU; the best first."""
    name = getattr(function, "__name__", str(function))

    def launched(config: dict[str, Any], capability: int) -> Launch:
        try:
            with _to_triton():
                program = _jax().jit(partial(function, **named, **config)).trace(*args).lower(lowering_platforms=("cuda",))
        except (UsageError, TypeError):
            raise
        except Exception as error:  # of the user's function for these blocks
            return Lowered(ir="", options={}, scalars={}, refused=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"), (
                1,
                1,
                1,
            )
        kernels = kernels_of(program)
        if len(kernels) != 1:
            raise UsageError(f"{name}: calls {len(kernels)} Pallas kernels that Triton compiles; give a function that calls one")
        x, y, z = (kernels[0][size] for size in GRID)
        return optimized(kernels[0]["ir"], {option: kernels[0][option] for option in OPTIONS}, capability), (x, y, z)

    return predict_launches(name, configurations(space if space is not None else [{}]), launched, chip, progress)


def _jax() -> Any:
    try:
        return import_module("jax")
    except ModuleNotFoundError:
        raise MissingExtra("jax", "jax") from None


@contextmanager
def _to_triton() -> Iterator[None]:
    """Kernels without `compiler_params` go to Triton, too."""
    config = _jax().config
    before = getattr(config, FLAG, None)
    if before is None:
        yield
        return
    config.update(FLAG, False)
    try:
        yield
    finally:
        config.update(FLAG, before)


def kernels_of(program: Any) -> list[dict[str, Any]]:
    """The Triton kernels that a lowered JAX program calls: the IR, grid, warps and stages of each."""
    operations = _operations(program.compiler_ir("stablehlo").operation)
    return [settings for settings in map(_settings, operations) if settings]


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inside in block:
                yield inside.operation
                yield from _operations(inside.operation)


def _settings(operation: Any) -> dict[str, Any] | None:
    """The settings of a call of a Triton kernel: its IR, grid, warps and stages."""
    if "call_target_name" not in operation.attributes or CALL not in str(operation.attributes["call_target_name"]):
        return None
    ir = import_module("jaxlib.mlir.ir")
    settings = ir.DictAttr(operation.attributes[SETTINGS])
    return {
        **{name: int(ir.IntegerAttr(settings[name])) for name in (*GRID, *OPTIONS)},
        "ir": _text(ir.StringAttr(settings["ir"]).value_bytes),
    }


def _text(code: bytes) -> str:
    """The text of MLIR bytecode, which is of JAX's version of Triton, and may not be that of the installed one. Its places in the source
    are the beginnings of JAX's ranges, without the names of operations: Triton's line tables have no others.
    """
    ir, dialect = import_module("jaxlib.mlir.ir"), import_module("jaxlib.triton.dialect")
    context = ir.Context()
    dialect.register_dialect(context)
    with context:
        text = _RANGE.sub(r"\1", str(ir.Module.parse(code).operation.get_asm(enable_debug_info=True)))
    places = dict(_ALIAS.findall(text))
    file = next((found[0] for where in places.values() if (found := _FILE.match(where))), '""')

    def place(found: re.Match[str]) -> str:
        where = found[2]
        while inner := _NAMED.fullmatch(where):
            where = places[inner[1]]
        return f"{found[1]} = loc({f'{file}:0:0' if where == 'unknown' else where})"  # the kernel's own place names the file of its lines

    return _ALIAS.sub(place, text)
