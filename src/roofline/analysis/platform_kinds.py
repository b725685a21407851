"""Kinds of findings in the terms of PyTorch and of TPUs, where those of `finding_kinds` are in the terms of JAX and GPUs.

The flags of TPUs are compiler options of libtpu 0.0.42.1, as ``compile(compiler_options={…})`` takes them.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from .finding_kinds import CLOCK, FUSED, KINDS, Kind

TORCH = "torch"  # the format of recordings of PyTorch's profiler

TILES = "tiles of 8x128: a last dimension that is a multiple of 128, and a second to last one of 8 (16 in bf16, 32 in int8)"
FILL = "sizes that are multiples of 128 (256 on v6e and TPU7x), the rows and columns of the matrix unit"
IN_VMEM = "fuse with neighbours, so that intermediates stay in VMEM"
VMEM_LIMIT = "more VMEM for the tiles of each kernel, where the rest leaves room: xla_tpu_scoped_vmem_limit_kib=65536"
BLOCKS = "in a Pallas kernel, blocks as large as VMEM holds (CompilerParams(vmem_limit_bytes=…)), so that operands are read less often"
NARROW = "store narrower number formats: bf16 instead of fp32, int8 for weights and caches"
FASTER = "a format of a higher rate, where accuracy allows: int8, at twice that of bf16 on v5e, v5p and v6e, or fp8 on TPU7x"
FOLD = "where input channels are few: fold blocks of pixels into channels (space to depth)"
PREFETCH = "two blocks of each operand in VMEM: a Pallas grid, or pltpu.emit_pipeline, copies the next by DMA while this one is computed"
COLLECTIVE_MATMUL = (
    "compare collective matmuls, which send parts of an operand while others are multiplied, with matmuls in one piece: "
    "xla_jf_spmd_threshold_for_windowed_einsum_mib=0 and =1000000"
)
AHEAD = "give the scheduler independent work between what a collective sends and what needs its result: another microbatch, another layer"
FEWER_BYTES = "send fewer bytes: another sharding, a narrower format"


# Levers on TPUs.
LEVERS: dict[str, tuple[str, ...]] = {
    "host-copies": (
        "keep data that is reused in HBM; offload fewer activations (save_and_offload_only_these_names)",
        "send narrower formats: uint8 images, int32 tokens",
        "copy ahead: jax.device_put of the next batch before the step that needs it",
    ),
    "memory": (IN_VMEM, NARROW, TILES),
    "products": (FILL, FASTER, VMEM_LIMIT, BLOCKS),
    "compute": (
        "fewer transcendental functions; sums as matmuls, on the matrix unit",
        "bf16 instead of fp32 on TPU7x, whose vector unit computes in bf16",
    ),
    "communication": (COLLECTIVE_MATMUL, AHEAD, FEWER_BYTES),
    "excess": (FUSED, CLOCK),
}
# Levers of findings about single ops, by the kind of advice.
ADVICE: dict[str, tuple[str, ...]] = {
    "between-roofs": ("tile so that more of the working set stays in VMEM", "order tiles so that neighbours reuse what is still in VMEM"),
    "latency": (
        "batch small operations into one, or fuse them with a neighbour",
        "jit the whole step, so that no Python runs between its parts",
        "one Pallas kernel whose grid does many pieces of work",
    ),
    "no-overlap": (
        PREFETCH,
        "start communication early and overlap it with independent work",
    ),
    "far-below": (
        "check for host overhead: Python between small programs, synchronisation and transfers leave the device idle",
        "run fewer, larger ops: batch or fuse",
        TILES,
    ),
    "memory-far": (TILES, PREFETCH, IN_VMEM),
    "memory-middle": (IN_VMEM, "larger blocks, which DMA copies at a higher rate"),
    "memory-close": (IN_VMEM, NARROW, "reuse each byte more: larger blocks in VMEM, a larger batch"),
    "compute-far": (FILL, "check that the matrix unit is used, in the intended number format", VMEM_LIMIT),
    "compute-middle": (FILL, VMEM_LIMIT),
    "vector-instead-of-matrix": (
        "use a number format that the matrix unit supports: bf16, fp32 in passes of bf16, int8 or fp8 where the chip has them",
        "write it as a matmul that the compiler recognises; pad small or odd dimensions",
    ),
    "unknown": (
        "give their FLOP and bytes: columns of a table, rl.register_call for a custom call, else the option or function in their notes",
    ),
}
_LATENCY = replace(
    KINDS["latency"],
    looped=tuple(lever.replace("(Pallas, Triton)", "(Pallas)") for lever in KINDS["latency"].looped),
    linear=tuple(lever.replace("(Pallas, Triton)", "(Pallas)") for lever in KINDS["latency"].linear),
)
# Levers where most of the saving is in ops of one category; those of a kind for others.
_BY_CATEGORY: dict[str, Mapping[str, tuple[str, ...]]] = {
    "memory": {
        "optimizer": ("store the moments in fewer bytes: bf16 or 8-bit states",),
        "scatter": (
            "replace the scatter by a gather with the inverse permutation, or by a scan over sorted rows",
            "repeat by broadcasting and reshaping, whose gradient is a sum: the gradient of a gather or a resize is a scatter",
        ),
        "sort": ("if only the largest are used: jax.lax.top_k, or jax.lax.approx_max_k", "fewer and narrower keys"),
        "top-k": ("jax.lax.approx_max_k, where an approximate result is enough",),
        "gather": ("gather whole rows that lie together, with sorted indices", NARROW),
        "convolution": ("channels last, in multiples of 128", FOLD),
        "custom call": (BLOCKS, PREFETCH),
    },
    "products": {
        "convolution": ("channels in multiples of 128, in and out", FOLD),
        "custom call": (BLOCKS, FILL),
    },
}


def _on_tpus(name: str) -> Kind:
    """The words of a kind of finding on TPUs."""
    kind = KINDS[name]
    return replace(
        kind, levers=LEVERS.get(name, kind.levers), compiled=() if name in LEVERS else kind.compiled, by_category=_BY_CATEGORY.get(name, {})
    )


TPU_KINDS: dict[str, Kind] = {**KINDS, **{name: _on_tpus(name) for name in {*LEVERS, *_BY_CATEGORY}}, "latency": _LATENCY}

_GRAPHS = "torch.compile(model, mode='reduce-overhead'), or CUDA graphs, which launch all kernels of a step at once"
_OPTIMIZER = "an optimizer with fused=True, or foreach=True, which updates all parameters in a few kernels"
_SENT_AHEAD = "DataLoader(pin_memory=True) and .to(device, non_blocking=True)"
_HALF = "torch.autocast with bf16: half the bytes"

TORCH_LEVERS: dict[str, tuple[str, ...]] = {
    "idle-input": (
        "DataLoader(num_workers=…, prefetch_factor=…, persistent_workers=True)",
        "transform data in the workers, not in the loop",
    ),
    "idle-sync": (
        "keep the loss on the device: avoid .item(), .cpu(), print and branches on tensors in every step",
        "masks and torch.where instead of nonzero and boolean indexing",
    ),
    "idle-callback": ("compute it with PyTorch operators on the device, or after the step",),
    "idle-compile": ("pad batches to a few sizes, or torch.compile(dynamic=True)", "TORCH_LOGS=recompiles says why it compiles again"),
    "idle-transfer": (_SENT_AHEAD, "keep data that is reused on the device"),
    "host-copies": (_SENT_AHEAD, "keep data that is reused on the device", "send narrower formats: uint8 images, int32 tokens"),
    "latency": (_GRAPHS, _OPTIMIZER),
    "memory": ("torch.compile, so that intermediates never reach memory", _HALF),
    "products": (
        "sizes that are multiples of 64; larger batches",
        "torch.set_float32_matmul_precision('high') for fp32, torch.autocast with bf16",
    ),
    "communication": (
        "of gradients: DistributedDataParallel(bucket_cap_mb=…, gradient_as_bucket_view=True)",
        "of tensor parallelism: matmuls in parts, which overlap with the collectives of other parts",
        "bf16 gradients: a communication hook",
    ),
}
# For kernels of Inductor.
TORCH_COMPILED: dict[str, tuple[str, ...]] = {
    "memory": ("torch.compile(mode='max-autotune'), which tries more kernels", _HALF),
    "latency": ("torch.compile(mode='reduce-overhead'), which replays the kernels of a step as a CUDA graph", "larger batches"),
}
# For ops on the host's CPU, where there are no kernel launches and no graphs.
_FEWER_OPS = "torch.compile(model), which fuses operators and leaves out most of the Python between them"
TORCH_CPU_LEVERS: dict[str, tuple[str, ...]] = {
    "latency": (_FEWER_OPS, _OPTIMIZER),
    "products": (
        "a thread on each core: OMP_NUM_THREADS, torch.set_num_threads; larger batches",
        "torch.autocast('cpu', torch.bfloat16) where the CPU has AMX or AVX-512 BF16",
    ),
}
TORCH_CPU_WORDS = {
    "idle-dispatch": Kind(
        "the time between operators, in Python and PyTorch's dispatcher",
        "Run fewer and larger operators",
        "Python and PyTorch's dispatcher ran between operators, in {activity}",
        (_FEWER_OPS, "fused or foreach optimizers; larger batches"),
    ),
}
# For sentences about programs, which eager PyTorch does not have.
TORCH_WORDS = {
    "idle-dispatch": Kind(
        "the kernels that the host launches one by one, more slowly than the device runs them",
        "Launch fewer kernels, by compiling the model or replaying it as a graph",
        "the host was launching kernels one by one, in {activity}",
        (_GRAPHS, "fused or foreach optimizers; larger batches"),
    ),
}
# For programs whose kernels mostly run in graphs already.
REPLAYED = Kind(
    "the host's work between graph replays",
    "Put more of the step into one graph, or more work into each replay",
    "the host was between graph replays, in {activity}",
    (
        "one graph of the whole step with its optimizer (torch.cuda.graph), in place of one for each compiled function",
        "larger batches; compiled functions with fewer arguments, which the host checks before every replay",
    ),
)
# For programs that are compiled, but not replayed.
LAUNCHED_BY_COMPILED = replace(
    TORCH_WORDS["idle-dispatch"], change="Replay the compiled code as a graph, which launches all kernels at once"
)


def without(kinds: Mapping[str, Kind], name: str, lever: str) -> dict[str, Kind]:
    """The kinds without a lever that cannot help a program."""
    return {**kinds, name: replace(kinds[name], levers=tuple(words for words in kinds[name].levers if words != lever))}


def kinds_for(
    format: str, *, on_tpu: bool = False, on_cpu: bool = False, replayed: bool = False, compiled: bool = False
) -> dict[str, Kind]:
    """The kinds of findings in the terms of the recording's framework, and of its hardware: TPUs, or CPUs without kernels and launches.

    ``replayed`` is whether most of the work is replayed in graphs, ``compiled`` whether compiled code launches most kernels.
    """
    if format != TORCH:
        return TPU_KINDS if on_tpu else KINDS
    levers = {**TORCH_LEVERS, **TORCH_CPU_LEVERS} if on_cpu else TORCH_LEVERS
    of_inductor = {} if on_cpu else TORCH_COMPILED
    kinds = {name: replace(KINDS[name], levers=mine, compiled=of_inductor.get(name, ()), looped=()) for name, mine in levers.items()}
    dispatch = {"idle-dispatch": REPLAYED if replayed else LAUNCHED_BY_COMPILED} if replayed or compiled else {}
    return {**KINDS, **kinds, **TORCH_WORDS, **dispatch, **(TORCH_CPU_WORDS if on_cpu else {})}
