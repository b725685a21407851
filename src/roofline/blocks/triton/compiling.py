"""Triton kernels compiled for a GPU that need not be here: Triton's IR of each configuration, then its machine code.

Kernels are specialized as a launch would: pointers and whole numbers that 16 divides, numbers that are 1. The IR is made here, where the
kernel is; its compilation takes longer and runs in workers, which need only the IR's text.
"""

import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...errors import MissingExtra, SourceError
from .addresses import Descriptor
from .layouts import Layout, Line, layouts_of

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
WARP = 32
MOST_VALUES = 1 << 22  # of a tensor, for which they are looked at
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_NEEDLESS_LOCATION = 4000  # characters of an error that is shown


class Lowered(Struct, frozen=True, kw_only=True):
    """A configuration as Triton's IR, with the options of its compilation, the numbers that its scalar arguments have, and its tensors of
    whole numbers with values, and descriptors, by name.
    """

    ir: str
    options: Mapping[str, Any]
    scalars: Mapping[str, int | float]
    tensors: Mapping[str, Any] = {}
    refused: str = ""

    @property
    def ctas(self) -> int:
        """The blocks of a cluster, which run one program together."""
        return int(self.options.get("num_ctas", 1))


class Binary(Struct, frozen=True, kw_only=True):
    """The machine code of a configuration, with registers of a thread, bytes that spilled, the stack and shared memory of a block, and the
    layouts of its loads and stores.
    """

    sass: str = ""
    registers: int = 0
    spilled: int = 0
    stack: int = 0
    shared: int = 0
    warps: int = 4
    layouts: tuple[tuple[Line, Layout], ...] = ()
    refused: str = ""


def module(name: str) -> Any:
    """A module of Triton or PyTorch, which are extras."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name in ("triton", "torch"):
            raise MissingExtra(missing.name) from None
        raise


def is_triton(kernel: object) -> bool:
    """Whether this is a kernel of Triton, jitted, with heuristics or autotuned."""
    return any(base.__name__ in ("KernelInterface", "JITFunction") for base in type(kernel).__mro__)


def own_configurations(kernel: Any) -> list[dict[str, Any]]:
    """The configurations of an autotuned kernel; none of another."""
    found = []
    while kernel is not None:
        for config in getattr(kernel, "configs", ()):
            options = {
                name: value for name in OPTIONS if (value := getattr(config, name, None)) not in (None, 1 if name == "num_ctas" else None)
            }
            found.append({**config.kwargs, **options})
        kernel = getattr(kernel, "fn", None) if not _is_jitted(kernel) else None
    return found


def _is_jitted(kernel: object) -> bool:
    return type(kernel).__name__ == "JITFunction"


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without Triton's warnings, as of defaults that will change: where Python makes errors of them, each would refuse a configuration."""
    with warnings.catch_warnings(action="ignore"):
        yield


@_unwarned()
def lower(kernel: Any, args: Sequence[Any], named: Mapping[str, Any], configuration: Mapping[str, Any], capability: int) -> Lowered:
    """A configuration as Triton's IR, for a GPU of this compute capability (90)."""
    compiler, jit = module("triton.compiler.compiler"), module("triton.runtime.jit")
    target = module("triton.backends.compiler").GPUTarget("cuda", capability, WARP)
    backend = compiler.make_backend(target)
    keywords = {**named, **configuration}
    while not _is_jitted(kernel):
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **keywords}
        for name, heuristic in getattr(kernel, "values", {}).items():
            keywords[name] = heuristic(given)
        kernel = kernel.fn
    try:
        bound, specialization, options = jit.create_function_from_signature(kernel.signature, kernel.params, backend)(
            *args, **{**keywords, "debug": False}
        )
        parsed, signature, constants, attributes = kernel._pack_args(backend, {**keywords, "debug": False}, bound, specialization, options)
        source = compiler.ASTSource(kernel, signature, constants, attributes)
        context = _context(backend)
        code = source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, parsed, source.language)
        code = stages["ttir"](code, {**parsed.__dict__})
    except Exception as error:  # of the kernel, in many types
        return Lowered(ir="", options={}, scalars={}, refused=_first_lines(error))
    scalars = {name: value for name, value in bound.items() if isinstance(value, int | float)}
    chosen = {name: value for name, value in keywords.items() if name in parsed.__dict__}
    tensors = {name: known for name, value in bound.items() if (known := _known(value)) is not None}
    return Lowered(ir=code.str(), options=chosen, scalars=scalars, tensors=tensors)


def _known(value: Any) -> Any:
    """What is known of a tensor before the kernel runs: its values if they are whole numbers, as of lengths; sizes of a descriptor."""
    if type(value).__name__ == "TensorDescriptor":
        return Descriptor(tuple(value.shape), tuple(value.strides))
    dtype = str(getattr(value, "dtype", ""))
    whole = dtype.startswith(("torch.int", "torch.uint", "torch.bool"))
    return value.cpu().numpy() if whole and value.device.type != "meta" and value.numel() <= MOST_VALUES else None


@_unwarned()
def optimized(ir: str, options: Mapping[str, Any], capability: int) -> Lowered:
    """A kernel's IR from elsewhere, such as Pallas, after the passes that make Triton's own IR small."""
    compiler, native = module("triton.compiler.compiler"), module("triton._C.libtriton")
    backend = compiler.make_backend(module("triton.backends.compiler").GPUTarget("cuda", capability, WARP))
    context, stages = _context(backend), dict[str, Any]()
    parsed = backend.parse_options(dict(options))
    backend.add_stages(stages, parsed, module("triton.backends.compiler").Language.TRITON)
    try:
        with tempfile.TemporaryDirectory(prefix="roofline-triton-") as folder:
            code = native.ir.parse_mlir_module(_written(Path(folder) / "kernel.ttir", ir), context)
            code.context = context
            return Lowered(ir=stages["ttir"](code, {**parsed.__dict__}).str(), options=options, scalars={})
    except Exception as error:  # of the compiler's passes
        return Lowered(ir="", options={}, scalars={}, refused=_first_lines(error))


def _context(backend: Any) -> Any:
    native = module("triton._C.libtriton")
    context = native.ir.context()
    native.ir.load_dialects(context)
    backend.load_dialects(context)
    return context


def _written(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


@_unwarned()
def compile_ir(lowered: Lowered, capability: int, most_shared: int) -> Binary:
    """Machine code from Triton's IR. Shared memory is known before the longest part: what needs too much is refused there."""
    compiler, native = module("triton.compiler.compiler"), module("triton._C.libtriton")
    backend = compiler.make_backend(module("triton.backends.compiler").GPUTarget("cuda", capability, WARP))
    options = backend.parse_options(dict(lowered.options))
    context = _context(backend)
    with tempfile.TemporaryDirectory(prefix="roofline-triton-") as name:
        folder = Path(name)
        code = native.ir.parse_mlir_module(_written(folder / "kernel.ttir", lowered.ir), context)
        code.context = context
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, module("triton.backends.compiler").Language.TRITON)
        metadata: dict[str, Any] = {**options.__dict__, "target": None}
        try:
            code = stages["ttgir"](code, metadata)
            layouts = layouts_of(code.str())
            if "ttg.warp_specialize" in code.str():
                return Binary(refused="warps that run different programs (warp_specialize) are not predicted")
            code = stages["llir"](code, metadata)
            shared, warps = int(metadata["shared"]), int(metadata.get("num_warps", options.num_warps))
            if shared > most_shared:
                why = f"out of shared memory: a block needs {shared:,} B, and a core gives one {most_shared:,} B"
                return Binary(shared=shared, warps=warps, refused=why)
            (folder / "kernel.ptx").write_text(stages["ptx"](code, metadata))
        except Exception as error:  # of the compiler's passes
            return Binary(refused=_first_lines(error))
        return replace(_assembled(folder, capability, shared, warps), layouts=layouts)


def _assembled(folder: Path, capability: int, shared: int, warps: int) -> Binary:
    nvidia = module("triton.backends.nvidia.compiler")
    tools = Path(nvidia.__file__).parent / "bin"
    ptxas = nvidia.get_ptxas(capability).path
    arch = nvidia.sm_arch_from_capability(capability)
    command = [ptxas, "-lineinfo", "-v", f"--gpu-name={arch}", str(folder / "kernel.ptx"), "-o", str(folder / "kernel.cubin")]
    assembled = subprocess.run(command, capture_output=True, text=True, check=False)
    if assembled.returncode:
        return Binary(shared=shared, warps=warps, refused=f"ptxas: {assembled.stderr.strip().splitlines()[-1:] or ['failed']}")
    disassembled = subprocess.run(
        [str(tools / "nvdisasm"), "-c", "-gi", "-hex", str(folder / "kernel.cubin")], capture_output=True, text=True, check=False
    )
    if disassembled.returncode:
        raise SourceError(f"nvdisasm: {disassembled.stderr.strip()[:200]}")
    registers, stack = _REGISTERS.search(assembled.stderr), _STACK.search(assembled.stderr)
    return Binary(
        sass=disassembled.stdout,
        registers=int(registers[1]) if registers else 0,
        stack=int(stack[1]) if stack else 0,
        spilled=int(stack[2]) + int(stack[3]) if stack else 0,
        shared=shared,
        warps=warps,
    )
