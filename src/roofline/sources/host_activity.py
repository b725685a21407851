"""What a host thread did at an instant, from the events open on it then: compile, wait, copy, launch, or run the user's Python.

Events are classified by their names alone, with the tables below. A Python frame is ``$file.py:LINE function``, with the base name of the
file and the line on which the function begins, or ``$module function`` for a builtin. Any other event is the runtime's, or an annotation.
"""

import re
import sys
from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Patterns for the names of runtime events (PJRT, XLA, CUDA, HIP), by what they do.
COMPILES = (
    r"PJRT_Client_Compile|Client::Compile|CompileAndLoad|CompileInternal|backend_compile|Compiler::(?:Compile|RunBackend)|CompileToBackendResult"
    r"|Compile(?:SingleModule|ModuleToLlvmIr)|OptimizeHloModule|HLO (?:Transforms|passes)|[Aa]utotun|PTX->CUBIN|XlaCompile|FusionCompiler"
)
RUNS = (
    r"LoadedExecutable\w*(?:::|_)Execute|ExecuteThunks|ThunkExecutor::Execute|ExecuteHelper|Executable::Execute"
    r"|(?:cu|cuda|hip)(?:Graph)?Launch|command_buffer::"
)
CALLS = (
    r"PjitFunction\(|ExecuteReplicated|ParseArguments|shard_args|PythonRefManager|pmap\(|^aten::|^cu[A-Z]\w+$|Memory(?:De)?[Aa]llocation"
)
WAITS = r"Buffer::Await|Block(?:Host)?Until|ToLiteral|np\.asarray\(jax\.Array\)|(?:cu|cuda|hip)\w*Synchronize"
COPIES = (
    r"DevicePut|BufferFromHost|Transfer(?:To|From)|CopyTo(?:Host|Device)|CopyRaw|[HD]2[HD] |Memcpy|Linearize|Transpose::Execute"
    r"|cuMemHostAlloc|cuMemFreeHost|Staging"
)
CALLBACKS = r"(?:pure|io|debug)_callback|python_[cg]pu_callback|py_client_[cg]pu|host_callback"
COMPILED = (r"PjitFunction\((.*)\)", r"HLO Transforms:jit_(.*)")  # events that name the function being compiled

# Python functions of a framework, by what they do.
TRACING = ("trace_to_jaxpr", "lower_jaxpr", "lowering_to_hlo", "lower_sharding_computation", "compile_or_get_cached", "backend_compile")
WAITING = _words(
    """_value __float__ __int__ __bool__ __index__ __complex__ __array__ block_until_ready try_to_block item tolist device_get
    effects_barrier"""
)
NAN_CHECKS = _words("_nan_check_posthook _check_special")  # of jax_debug_nans, which reads every result of every program
MASK_READS = _words("expand_bool_indices")  # of JAX: an array is indexed by a boolean one, whose values decide on the shape
READ_BACK = {"__float__": "float", "__int__": "int", "__bool__": "bool", "__array__": "numpy.asarray", "item": "item", "tolist": "tolist"}

# Names of Python files that are not the user's. A framework's frames count as launching; another library's count as its caller's work.
FRAMEWORK = _words(
    """abstract_arrays ad ad_checkpoint ad_util api api_util array array_constructors array_creation array_methods basearray batching
    blocked_sampler cache_key callback checkify compilation_cache compiler config control_flow core custom_api_util custom_batching
    custom_derivatives custom_partitioning debugging discharge dispatch dlpack dtypes earray effects einsum eval_jaxpr fft flatten_util
    flattree frozen_dict func fused_attention_stablehlo fusion hashable_array hijax indexing jaxpr_util lax lax_numpy lax_reference
    layout linalg linear_util literals loops mesh mlir monitoring named_sharding op_shardings pallas_call partial_eval partition_spec
    path philox2x32 philox4x32 pjit pmap polynomial pretty_printer prng profiler pxla rbg reductions scalar_types scatter setops
    shard_alike shard_map sharding sharding_impls slicing sorting source_info_util special stages stateful_rng tensor_contractions
    threefry2x32 threefry4x32 traceback_util tree tree_util ufunc_api ufuncs util vectorize window_functions windowed_reductions xla
    xla_bridge xla_client _func_ops_gen _ods_common _stablehlo_ops_gen"""
)
LIBRARY = sys.stdlib_module_names | _words(
    """__init__ _finfo _function_base_impl _methods _ufunc_config array_utils arrayprint fromnumeric function_base getlimits index_tricks
    multiarray nditer numeric numerictypes shape_base stride_tricks
    base_events collate connection dataloader decoder encoder futures pin_memory queues scanner synchronize"""
)
# Names of a framework's files that users give to files too. Frames have no folder, so the function decides (`_with_user_frames`).
SHARED = _words(
    "api array config core debugging dispatch fft func layout linalg loops mesh path profiler scatter sorting special tree util"
)
LOADING = r"(?i)load|batch|data|input|augment|preprocess|tokeni|sample|shuffle|collate|fetch|__next__|__getitem__"

INSIDE, MASK, MEMORY, ANOMALY, NANS, OPERATOR, SENT = "inside", "mask", "memory", "anomaly", "nans", "operator", "sent"
BLOCKING = "blocking"  # every launch waits for its kernel
TRIALS = "trials of"  # how the detail of a compilation begins where a library times its kernels to choose one
_NO_EVENT = r"(?!)"  # matches no name
_FRAME = r"\$(?P<file>\S+\.py|<[^>]*>):(?P<line>\d+) (?P<function>.*)"
_BUILTIN = r"\$(?P<module>\S+) (?P<function>.*)"


class Activity(Struct, frozen=True):
    """What a thread did: its kind, the user's function, its file and line, and what that function had called.

    ``kind`` is ``compile``, ``callback``, ``wait``, ``copy``, ``launch``, ``python``, or empty if no event shows it. ``detail`` is the
    function that was compiled; or how a value was read back (`MASK`: as a boolean index; `MEMORY`: no value was read, but memory was
    allocated; `SENT`: data was sent to the device; `ANOMALY` in PyTorch, `NANS` in JAX: to look for NaN); or `INSIDE` if the function is
    the callback itself, `OPERATOR` if an operator computes on the host. ``caller`` is the user's function, with its file and line, that
    called the model to which ``function`` belongs. ``program`` is the jitted function that was being called when the thread copied or
    launched.
    """

    kind: str = ""
    function: str = ""
    location: str = ""
    callee: str = ""
    detail: str = ""
    caller: str = ""
    program: str = ""


NOTHING = Activity()


def loads_data(function: str) -> bool:
    """Whether a function, by its name, loads data."""
    return re.search(LOADING, function) is not None


class Frame(Struct, frozen=True):
    """A Python frame: its owner (``user``, ``framework`` or ``library``), its file and line, and its function."""

    owner: str
    location: str
    function: str
    module: str = ""

    @property
    def call_name(self) -> str:
        """The function's name as the user would write the call."""
        named = self.module and not self.module.startswith(("<", "builtins", "_"))
        return f"{self.module}.{self.function}" if named else self.function


def activity(stack: Sequence[str | Frame], users: Collection[str] = ()) -> Activity:
    """What a thread does, from the names of its open events, the outermost first; a source may give Python frames as `Frame`.

    ``users`` are base names of files that are known to be the user's.

    >>> found = activity(["step", "$train.py:52 <lambda>", "$data.py:17 load_batch", "$time sleep"])
    >>> found.kind, found.function, found.location, found.callee
    ('python', 'load_batch', 'data.py:17', 'time.sleep')
    """
    frames = [one if isinstance(one, Frame) else _frame(one, users) for one in stack]
    if not any(isinstance(one, Frame) for one in stack):  # a source that gives frames knows their owners by their folders
        frames = _with_user_frames(frames)
    plain = [one if isinstance(one, str) and not frame else "" for one, frame in zip(stack, frames, strict=True)]
    if (place := _first(plain, frames, COMPILES, TRACING)) is not None:
        return _activity_of("compile", frames[:place], detail=_compiled(plain))
    running = max((place for place, name in enumerate(plain) if name and re.search(RUNS, name)), default=None)
    if running is not None and (any(frames[running:]) or any(re.search(CALLBACKS, name) for name in plain[running:])):
        inside = _activity_of("callback", frames[running:], detail=INSIDE)
        return inside if inside.location else _activity_of("callback", frames)
    if (place := _first(plain, frames, _NO_EVENT, NAN_CHECKS)) is not None:
        return _activity_of("wait", frames[:place], detail=NANS)
    if (place := _first(plain, frames, _NO_EVENT, MASK_READS)) is not None:
        return _activity_of("wait", frames[:place], detail=MASK)
    if (place := _first(plain, frames, WAITS, WAITING)) is not None:
        return _activity_of("wait", frames[:place], detail=_read_back(frames[place:]))
    if any(name and re.search(COPIES, name) for name in plain):
        return replace(_activity_of("copy", frames), program=_called(plain))
    if running is not None or any(name and re.search(CALLS, name) for name in plain):
        return replace(_activity_of("launch", frames), program=_called(plain))
    user = max((place for place, frame in enumerate(frames) if frame and frame.owner == "user"), default=-1)
    if any(frame and frame.owner == "framework" for frame in frames[user + 1 :]):
        return _activity_of("launch", frames)
    if any(frames):
        return _activity_of("python", frames, callee=next((frame.call_name for frame in frames[user + 1 :] if frame), ""))
    return NOTHING


def _frame(name: str, users: Collection[str]) -> Frame | None:
    if not name.startswith("$"):
        return None
    if found := re.fullmatch(_FRAME, name):
        file = found["file"]
        name = file.removesuffix(".py")
        library = "framework" if name in FRAMEWORK else "library" if name in LIBRARY or name.startswith("<") else "user"
        return Frame("user" if file in users else library, f"{file}:{found['line']}", found["function"])
    found = re.fullmatch(_BUILTIN, name)
    return Frame("library", "", found["function"], found["module"]) if found else None


def _may_be_users(frame: Frame) -> bool:
    return frame.owner == "framework" and frame.location.partition(".py:")[0] in SHARED


def _with_user_frames(frames: list[Frame | None]) -> list[Frame | None]:
    """The frames, in which some of files with `SHARED` names become the user's: those that load data, or call a library.

    Only a frame that the user's code called, and inside which neither the framework nor the runtime runs.
    """
    for place, frame in enumerate(frames):
        if frame is None or not _may_be_users(frame):
            continue
        outer = next((one for one in reversed(frames[:place]) if one is not None), None)
        inside = frames[place + 1 :]
        is_framework = any(one is None or (one.owner == "framework" and not _may_be_users(one)) for one in inside)
        if (outer is not None and outer.owner != "user") or is_framework:
            continue
        called = inside[0] if inside else None
        works = called is not None and called.owner == "library" and not called.module.startswith(("builtins", "<"))
        if works or (loads_data(frame.function) and not frame.function.startswith("_")):
            frames[place] = replace(frame, owner="user")
    return frames


def _first(stack: Sequence[str], frames: Sequence[Frame | None], events: str, functions: Collection[str] | tuple[str, ...]) -> int | None:
    """The place of the outermost event that matches ``events``, or framework function in ``functions`` (a tuple has prefixes of names)."""
    for place, (name, frame) in enumerate(zip(stack, frames, strict=True)):
        if frame is None:
            if name and re.search(events, name):
                return place
        elif frame.owner == "framework":
            done = frame.function
            if done in functions or (isinstance(functions, tuple) and done.lstrip("_").startswith(functions)):
                return place
    return None


def _activity_of(kind: str, frames: Sequence[Frame | None], callee: str = "", detail: str = "") -> Activity:
    """An activity of the user's innermost frame; a lambda or generator is named after the function around it, with its own line."""
    mine = [frame for frame in frames if frame and frame.owner == "user"]
    if not mine:
        return Activity(kind, callee=callee, detail=detail)
    named = next((frame for frame in reversed(mine) if not frame.function.startswith("<")), mine[-1])
    return Activity(kind, named.function, mine[-1].location, callee, detail)


def _compiled(stack: Sequence[str]) -> str:
    """The function being compiled: the innermost that was called, else the one that the compiler names."""
    return next((name for naming in COMPILED if (name := _named(stack, naming))), "")


def _called(stack: Sequence[str]) -> str:
    """The innermost jitted function that is being called."""
    return _named(stack, COMPILED[0])


def _named(stack: Sequence[str], naming: str) -> str:
    names = [found[1] for name in stack if (found := re.fullmatch(naming, name))]
    return names[-1] if names else ""


def _read_back(frames: Sequence[Frame | None]) -> str:
    """How a value is read, as the user wrote it."""
    calls = [READ_BACK.get(frame.function, "") for frame in frames if frame]
    return next((call for call in calls if call), "")
